"""What the package does in a fresh process, as JSON: `python -m scripts.budgets.probe KIND`.

`app`: what `import trt_responses.app` loads, and the calls of a request. `cli`: what
`trt-responses --help` loads. Only frames and files of the package count; a call of a function that
resumes counts each time, a comprehension never (CPython 3.12 has no call for it).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from starlette.types import ASGIApp, Message

PACKAGE = "trt_responses"
ROOT = Path(__file__).parents[2]
INSIDE = f"{ROOT / PACKAGE}/"
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
SHORT, LONG = 50, 150
"""Words of the answers whose difference is the cost of a token."""


class Calls:
    """The functions that one request calls, and how many it had called at each send of a body."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []
        self.sends: list[int] = []

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(INSIDE) and code.co_name not in INLINED:
            self.codes.append(code)

    async def post(self, app: ASGIApp) -> Calls:
        """Send a plain, streamed request to the app."""
        from tests.support.asgi import JSON, scope_of

        body = json.dumps({"model": "demo", "input": "Hello", "stream": True}).encode()
        over = asyncio.Event()
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if left:
                return left.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message.get("body"):
                self.sends.append(len(self.codes))

        scope = scope_of("POST", "/v1/responses", JSON | {"content-length": str(len(body))})
        sys.setprofile(self.profile)
        try:
            await app(scope, receive, send)
        finally:
            sys.setprofile(None)
            over.set()
        return self


def returns(files: list[str]) -> int:
    """How often a path through files comes back to a file that it has left."""
    steps = [name for at, name in enumerate(files) if at == 0 or files[at - 1] != name]
    return len(steps) - len(set(steps))


async def _calls(words: int) -> Calls:
    from tests.support.served import served

    answer = f"<|channel|>final<|message|>{'word ' * words}<|return|>"
    async with served(answer) as s:
        await Calls().post(s.app)  # fills what a process computes once
        posts = [await Calls().post(s.app) for _ in range(3)]
        return min(posts, key=lambda post: len(post.codes))  # a timer may fire in between


def loaded() -> dict[str, int]:
    """The package's modules that are loaded, their lines, and other packages beside them."""
    modules = [sys.modules[name] for name in [*sys.modules] if name.partition(".")[0] == PACKAGE]
    files = {module.__file__ for module in modules if module.__file__}
    tops = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
    installed = [
        name
        for name in tops - sys.stdlib_module_names - {PACKAGE, "scripts"}
        if "site-packages" in str(getattr(sys.modules.get(name), "__file__", ""))
    ]
    lines = sum(Path(file).read_bytes().count(b"\n") for file in files)
    return {"modules": len(files), "lines": lines, "packages": len(installed)}


def app() -> dict[str, int]:
    importlib.import_module(f"{PACKAGE}.app")
    found = {f"import.{name}": loaded()[name] for name in ("modules", "lines")}
    short, long = (asyncio.run(_calls(words)) for words in (SHORT, LONG))
    first = short.codes[: short.sends[0]]
    token = long.codes[long.sends[SHORT] : long.sends[LONG]]
    files = [code.co_filename for code in first]
    return found | {
        "post.calls": len(first),
        "post.functions": len(set(first)),
        "post.files": len(set(files)),
        "post.returns": returns(files),
        "tokens.calls": len(long.codes) - len(short.codes),
        "tokens.files": len({code.co_filename for code in token}),
    }


def cli() -> dict[str, int]:
    main = importlib.import_module(f"{PACKAGE}.cli.main").main
    sys.argv = ["trt-responses", "--help"]
    with redirect_stdout(StringIO()), suppress(SystemExit):
        main()
    return {f"cli.{name}": count for name, count in loaded().items()}


if __name__ == "__main__":
    print(json.dumps({"app": app, "cli": cli}[sys.argv[1]]()))
