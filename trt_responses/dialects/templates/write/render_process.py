"""Renders a template in its own process, so that it cannot block the server or use up its memory.

Jinja's sandbox keeps a template from files and from Python, but not from an endless loop or a text
of a gigabyte in one step. So a process renders one conversation at a time, with a deadline and a
memory limit. After a failure the next prompt starts a new process.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import struct
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from trt_responses.children import die_with, main_of
from trt_responses.dialects.templates.write.template import (
    Template,
    TemplateError,
    TemplateLimitError,
)

Json = dict[str, Any]

RENDER_S = 10.0
"""Timeout for one conversation. A thousand messages take 0.1 s."""
START_S = 60.0
"""Timeout for the start of the process, which takes 0.2 s on an idle machine."""
MEMORY_BYTES = 1 << 30
"""Limit of the process's address space. Python and jinja use a tenth of it."""

_LENGTH = struct.Struct("<I")


class TemplateProcess:
    """One template in its own process. The caller must `close` it."""

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
        """The result of the template's own `render`. Raises a `TemplateError`."""
        request = {
            "messages": list(messages),
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": add_generation_prompt,
            **switches,
        }
        async with self._turn:
            try:
                async with asyncio.timeout(START_S):
                    process = await self._running()
                async with asyncio.timeout(self.render_s):
                    answer = await _answered(process, request)
            except TimeoutError:
                await self.close()
                raise TemplateLimitError(
                    f"The chat template took longer than {self.render_s:g} s."
                ) from None
            except (EOFError, OSError):
                await self.close()
                raise TemplateLimitError(
                    "The render process died: the chat template exceeded its memory limit."
                ) from None
            except BaseException:
                await self.close()  # else the next conversation would read this one's answer
                raise
        if "error" in answer:
            raise TemplateError(answer["error"])
        return str(answer["text"])

    async def close(self) -> None:
        """Kill the process; the next conversation starts another one."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.shield(process.wait())

    async def _running(self) -> Process:
        """The process, started if needed."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *main_of("trt_responses.dialects.templates.write.render_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which drains first
            )
            await _answered(process, self._begin)
        return process


async def _answered(process: Process, message: Json) -> Json:
    """The answer to one message."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_framed(message))
    await process.stdin.drain()
    size = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
    answer: Json = json.loads(await process.stdout.readexactly(size))
    return answer


def _framed(message: Json) -> bytes:
    data = json.dumps(message).encode()
    return _LENGTH.pack(len(data)) + data


def main() -> None:
    """The process's main loop. It ends when the pipe closes or the server is killed."""
    setup = _next()
    if setup is None:
        return
    die_with(setup["parent"])
    resource.setrlimit(resource.RLIMIT_AS, (setup["memory_bytes"], setup["memory_bytes"]))
    template = Template(setup["source"], setup["special"])
    _reply({"ready": True})
    while (request := _next()) is not None:
        _reply(_answer(template, request))


def _reply(message: Json) -> None:
    sys.stdout.buffer.write(_framed(message))
    sys.stdout.buffer.flush()


def _answer(template: Template, request: Json) -> Json:
    try:
        return {"text": template.render(**request)}
    except TemplateError as error:
        return {"error": str(error)}


def _next() -> Json | None:
    head = sys.stdin.buffer.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    message: Json = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(head)[0]))
    return message
