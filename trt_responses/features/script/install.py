"""Scripts in place of a model."""

from __future__ import annotations

from trt_responses.features.script.cut import CutsReplies
from trt_responses.features.script.engine import ScriptEngine
from trt_responses.features.script.feature import Scripted
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    if server.served.kind == "script":
        engine = server.engine = server.engine or server.served.new_engine()
        assert isinstance(engine, ScriptEngine)
        server.provide(engine)
        server.features.append(Scripted(engine))
        server.layers.append(CutsReplies)
