"""Runs a program of the model in the box of the Python tool, and prints one JSON object: the calls
that wait for their outputs, or the result.

It is sent there as a text: standard library only. The clock is fixed and nothing is random, so that
a program that is run again repeats its calls.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import functools
import inspect
import io
import json
import linecache
import random
import selectors
import time
import traceback
from typing import Any

NAME = "<program>"
MOST_BYTES = 40_000
"""Of the result, and of all calls that wait: the tool cuts longer outputs."""
MOST_CALLS = 100
"""Calls of a program that may wait at once."""


class Waiting(BaseException):
    """Nothing goes on before a call has its output."""


class Clock:
    """Seconds that pass only while the program sleeps."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self.passed_s = 0.0

    def time(self) -> float:
        return self._began_s + self.passed_s

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds

    def replace_times(self) -> None:
        """Have this clock be the one that the program reads."""
        for name in ("time", "monotonic", "perf_counter"):
            setattr(time, name, self.time)
        time.time_ns = self.time_ns
        time.sleep = self.sleep  # type: ignore[assignment]  # seconds are a number here
        clock = self

        class Fixed(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Fixed:
                return cls.fromtimestamp(clock.time(), tz)

            today = now

            @classmethod
            def utcnow(cls) -> Fixed:
                return cls.now(datetime.UTC).replace(tzinfo=None)

        datetime.datetime = Fixed  # type: ignore[misc]


class Selector(selectors.SelectSelector):
    """Sleeps on the clock, and ends the loop when everything waits."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Waiting
        if not ready and timeout:
            self._clock.sleep(timeout)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """A loop on the clock."""

    def __init__(self, clock: Clock) -> None:
        self._program_clock = clock
        super().__init__(Selector(clock))

    def time(self) -> float:
        return self._program_clock.passed_s


class Tools:
    """The tools that the program calls, each an attribute by its name."""

    def __init__(self, kinds: dict[str, str], recorded: list[list[str]], loop: Loop) -> None:
        self._kinds, self._loop = kinds, loop
        self._outputs: dict[tuple[str, str], list[str]] = {}
        for name, text, output in recorded:
            self._outputs.setdefault((name, canonical(text)), []).append(output)
        self.waiting: list[dict[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self._kinds:
            raise AttributeError(f"there is no tool {name!r}; the tools are {[*self._kinds]}")
        return functools.partial(self._call, name)

    @property
    def unrepeated(self) -> list[str]:
        """The earlier calls that the program has not made again."""
        return [name for (name, _), outputs in self._outputs.items() for _ in outputs]

    def _call(self, name: str, *values: Any, **arguments: Any) -> asyncio.Future[Any]:
        if len(values) > 1 or (values and arguments):
            raise TypeError(f"{name} takes its arguments by their names")
        given = values[0] if values else arguments
        if self._kinds[name] == "custom":
            text = given if isinstance(given, str) else "".join(map(str, arguments.values()))
        else:
            text = json.dumps(given, ensure_ascii=False)
        future: asyncio.Future[Any] = self._loop.create_future()
        if outputs := self._outputs.get((name, canonical(text))):
            output = outputs.pop(0)
            future.set_result(json.loads(output) if self._kinds[name] == "json" else output)
        else:
            self.waiting.append({"name": name, "text": text})
        return future


def canonical(text: str) -> str:
    """Arguments in the form in which two calls are compared."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def compiled(code: str) -> Any:
    """The program, which may await at its top level; the value of its last line is printed."""
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    tree = ast.parse(code, NAME)
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        shown = ast.Call(ast.Name("_show", ast.Load()), [last.value], [])
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(ast.Expr(shown), last))
    return compile(tree, NAME, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def show(value: Any) -> None:
    """Print the value of the last line."""
    if value is not None:
        print(value if isinstance(value, str) else repr(value))


def run(code: str, tools: Tools, loop: Loop) -> bool:
    """Run the program to its end. Returns whether it got there; prints the traceback, if not."""
    asyncio.set_event_loop(loop)
    asyncio.run = loop.run_until_complete  # type: ignore[assignment]  # of a program with a main()
    names: dict[str, Any] = {"__name__": "__main__", "tools": tools, "_show": show}
    try:
        value = eval(compiled(code), names)
        if inspect.iscoroutine(value):
            loop.run_until_complete(value)
    except Exception as fault:
        at = fault.__traceback__
        while at is not None and at.tb_frame.f_code.co_filename != NAME:
            at = at.tb_next
        traceback.print_exception(type(fault), fault, at)
        return False
    return True


def shortened(text: str) -> str:
    """The beginning and the end of a long text."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MOST_BYTES:
        return data.decode()
    half = MOST_BYTES // 2
    left_out = f"\n[… {len(data) - MOST_BYTES} bytes are left out here: print less …]\n"
    return data[:half].decode("utf-8", "ignore") + left_out + data[-half:].decode("utf-8", "ignore")


def report(setup: dict[str, Any]) -> dict[str, Any]:
    """The result of the program, or the calls that wait."""
    clock = Clock(setup["began_s"])
    clock.replace_times()
    random.seed(setup["seed"])
    loop, printed = Loop(clock), io.StringIO()
    tools = Tools(setup["kinds"], setup["recorded"], loop)
    waits = finished = False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            finished = run(setup["code"], tools, loop)
        except Waiting:
            waits = True
        except SystemExit:
            finished = True
    if tools.unrepeated:
        return failed(f"run again, it did not repeat its calls of {', '.join(tools.unrepeated)}")
    if not waits:
        return {"result": shortened(printed.getvalue()), "failed": not finished}
    if not tools.waiting:
        return failed("it waits for something that is no call of a tool")
    if len(tools.waiting) > MOST_CALLS:
        return failed(f"more than {MOST_CALLS} of its calls wait at once")
    if len(json.dumps(tools.waiting).encode()) > MOST_BYTES:
        return failed(f"the arguments of its calls are longer than {MOST_BYTES} bytes")
    return {"calls": tools.waiting}


def failed(why: str) -> dict[str, Any]:
    """The report of a program that was ended, with the reason for the model."""
    return {"result": f"The program was ended: {why}.", "failed": True}
