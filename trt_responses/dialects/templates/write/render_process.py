"""A template in a process of its own, so that none can hold the server or take its memory.

The sandbox keeps a template from files and from Python; it does not keep it from a loop without an
end, or from a text of a gigabyte in one step. So a process renders, one conversation at a time: it
is killed at a deadline, it has a limit of memory, and another one is begun for the next prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_responses.children import die_with
from trt_responses.dialects.templates.write.template import (
    Template,
    TemplateError,
    TemplateLimitError,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

Json = dict[str, Any]

RENDER_S = 10.0
"""For one conversation, the start of the process included. A thousand messages take 0.1 s."""
MEMORY_BYTES = 1 << 30
"""Of address space. Python and jinja take a tenth of it."""

_LENGTH = struct.Struct("<I")
_SOURCE = str(Path(__file__).parents[4])
_BEGIN = (
    f"import sys; sys.path.insert(0, {_SOURCE!r}); "
    "from trt_responses.dialects.templates.write.render_process import main; main()"
)


class TemplateProcess:
    """One template, rendered elsewhere. `close` it."""

    def __init__(
        self,
        template: Template,
        *,
        render_s: float = RENDER_S,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._begin: Json = {"source": template.source, "special": template.special}
        self._begin |= {"memory_bytes": memory_bytes, "parent": os.getpid()}
        self.render_s = render_s
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def render(
        self,
        messages: Sequence[Json],
        tools: Sequence[Json] | None = None,
        *,
        add_generation_prompt: bool = True,
        **switches: object,
    ) -> str:
        """What the template's own `render` gives, or `TemplateError`."""
        asked = {
            "messages": list(messages),
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": add_generation_prompt,
            **switches,
        }
        async with self._turn:
            try:
                async with asyncio.timeout(self.render_s):
                    answer = await self._ask(asked)
            except TimeoutError:
                await self.close()
                raise TemplateLimitError(
                    f"The chat template took longer than {self.render_s:g} s."
                ) from None
            except (EOFError, OSError):
                await self.close()
                raise TemplateLimitError(
                    "The chat template ended its process: it needs more memory than it may have."
                ) from None
            except BaseException:
                await self.close()  # its answer would be taken for that of the next conversation
                raise
        if "error" in answer:
            raise TemplateError(answer["error"])
        return str(answer["text"])

    async def close(self) -> None:
        """End the process; the next conversation begins another one."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.shield(process.wait())

    async def _ask(self, asked: Json) -> Json:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _begun()
            await _send(process, self._begin)
        await _send(process, asked)
        assert process.stdout is not None
        size = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
        answer: Json = json.loads(await process.stdout.readexactly(size))
        return answer


async def _begun() -> Process:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-c", _BEGIN),
        stdin=pipe,
        stdout=pipe,
        stderr=nothing,
    )


async def _send(process: Process, told: Json) -> None:
    assert process.stdin is not None
    process.stdin.write(_framed(told))
    await process.stdin.drain()


def _framed(told: Json) -> bytes:
    data = json.dumps(told).encode()
    return _LENGTH.pack(len(data)) + data


def main() -> None:
    """The process: it ends when the server's end of the pipe does, and with a killed server."""
    told = _next()
    if told is None:
        return
    die_with(told["parent"])
    resource.setrlimit(resource.RLIMIT_AS, (told["memory_bytes"], told["memory_bytes"]))
    template = Template(told["source"], told["special"])
    while (asked := _next()) is not None:
        sys.stdout.buffer.write(_framed(_answer(template, asked)))
        sys.stdout.buffer.flush()


def _answer(template: Template, asked: Json) -> Json:
    try:
        return {"text": template.render(**asked)}
    except TemplateError as error:
        return {"error": str(error)}


def _next() -> Json | None:
    head = sys.stdin.buffer.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    told: Json = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(head)[0]))
    return told
