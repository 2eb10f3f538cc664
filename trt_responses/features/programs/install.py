"""Programs that call tools, where the server runs Python."""

from __future__ import annotations

from trt_responses.features.hosted_tools.hosted_calls import ROWS
from trt_responses.features.programs.calls import ROWS as PROGRAM_ROWS
from trt_responses.features.programs.feature import ProgrammaticTools
from trt_responses.features.programs.items import ITEMS, NAME, ProgramChoice, ProgramTool
from trt_responses.setup.server import Server
from trt_responses.wire.choice import CHOICES
from trt_responses.wire.past_calls import KINDS
from trt_responses.wire.tools import TOOLS


def install(server: Server) -> None:
    python = next((tool for tool in server.tools if tool.kind == ProgramTool.of_kind), None)
    KINDS.update(ITEMS)
    TOOLS[NAME] = ProgramTool
    CHOICES[NAME] = ProgramChoice
    ROWS.update(PROGRAM_ROWS)
    if python is not None and server.sealing is not None:
        server.features.append(ProgrammaticTools(python, server.sealing))
