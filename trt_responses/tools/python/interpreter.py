"""The sandboxed process that runs the model's code: one per container, until it is killed.

Requests arrive on the original standard input; answers go to a separate pipe, apart from the code's
output. An answer carries the number of its request, so that a stale answer is not mistaken for the
next one, and the server stops the process between calls. Code can write to that pipe and change
this program, since both are in its own process; that affects no other container.
Runs under the interpreter that the operator chose, with the standard library only.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from trt_responses.children import die_with
from trt_responses.tools import box

NAME = "<call {}>"
FIGURE = "figure-{}.png"
SHOWN_CHARACTERS = 10_000_000
"""Maximum characters of the last value's text; the server cuts it further for the model."""


def main() -> None:
    """Enter the sandbox, report that, and serve calls. The argument is a JSON object."""
    setup = json.loads(sys.argv[1])
    die_with(setup["parent"])
    requests = os.dup(0)
    os.set_inheritable(requests, False)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.nice(5)
    report: dict[str, Any] = {"box": None, "why": None}
    try:
        limits = box.Limits(setup["memory_bytes"], setup["file_bytes"])
        if setup["boxed"]:
            report["box"] = box.shut(
                setup["directory"], setup["readable"], limits, at_most_abi=setup["abi"]
            )
    except box.NoBox as fault:
        report["why"] = str(fault)
    results = setup["results"]
    _write(results, report)
    if report["why"] is None:
        sys.argv = [""]
        sys.path[:] = [path for path in sys.path if path != setup["source"]]
        serve(os.fdopen(requests, "rb"), results)


def serve(requests: Any, results: int) -> None:
    """Run the calls, one JSON line each with number and code."""
    shared: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    for count, line in enumerate(requests, 1):
        call = json.loads(line)
        fine = run(call["code"], NAME.format(count), shared)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the code may have closed or replaced it
                stream.flush()
        _write(results, {"call": call["call"], "fine": fine})


def run(code: str, name: str, shared: dict[str, Any]) -> bool:
    """Run the code, and print its last expression's value or its traceback. Returns whether it
    succeeded."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), shared)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), name, "eval"), shared)
            if value is not None:
                shared["_"] = value
                print(repr(value)[:SHOWN_CHARACTERS])
        save_figures(sys.modules.get("matplotlib.pyplot"))
    except BaseException as fault:
        _show(fault, name)
        return False
    return True


def save_figures(pyplot: Any) -> None:
    """Save matplotlib's open figures, but those that the code has saved, and close them: nothing
    else could show them."""
    if pyplot is None:
        return
    number = 1
    for figure in map(pyplot.figure, pyplot.get_fignums()):
        if not figure.stale:
            continue
        while os.path.exists(name := FIGURE.format(number)):
            number += 1
        figure.savefig(name)
        print(f"[figure saved as {name}]")
    pyplot.close("all")


def _show(fault: BaseException, name: str) -> None:
    """Print the traceback, without this file's frames."""
    at = fault.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename != name:
        at = at.tb_next
    try:
        sys.stdout.flush()
        traceback.print_exception(type(fault), fault, at, file=sys.stdout)
    except BaseException:
        os.write(1, f"{type(fault).__name__}\n".encode())


def _write(results: int, value: object) -> None:
    os.write(results, json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
