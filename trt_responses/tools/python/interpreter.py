"""The process that runs the model's code: one for each container, in its box, until it is killed.

A request comes on the pipe that was standard input; an answer goes to a pipe of its own, apart from
what the code writes. An answer bears the number that its request brought, so that nothing that is
left over passes for the next one, and the server stops the process between two calls. Code can
write to that pipe too, and change this program, whose process is its own: that reaches no other
container.

Runs under the interpreter that the operator chose: the standard library only.
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
SHOWN_CHARACTERS = 10_000_000
"""Of the last value's text: the server cuts what is long for the model."""


def main() -> None:
    """Be shut in, say so, and serve calls. The arguments are one JSON object."""
    asked = json.loads(sys.argv[1])
    die_with(asked["parent"])
    requests = os.dup(0)
    os.set_inheritable(requests, False)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.nice(5)
    held: dict[str, Any] = {"box": None, "why": None}
    try:
        limits = box.Limits(asked["memory_bytes"], asked["file_bytes"])
        if asked["boxed"]:
            held["box"] = box.shut(
                asked["directory"], asked["readable"], limits, at_most_abi=asked["abi"]
            )
    except box.NoBox as fault:
        held["why"] = str(fault)
    results = asked["results"]
    _tell(results, held)
    if held["why"] is None:
        sys.argv = [""]
        sys.path[:] = [path for path in sys.path if path != asked["source"]]
        serve(os.fdopen(requests, "rb"), results)


def serve(requests: Any, results: int) -> None:
    """Each line is a call: its number, and the code."""
    shared: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    for count, line in enumerate(requests, 1):
        call = json.loads(line)
        fine = run(call["code"], NAME.format(count), shared)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the code may have closed or replaced it
                stream.flush()
        _tell(results, {"call": call["call"], "fine": fine})


def run(code: str, name: str, shared: dict[str, Any]) -> bool:
    """Run the code; show its last expression's value, or its traceback. Whether it ended fine."""
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
    except BaseException as fault:
        _show(fault, name)
        return False
    return True


def _show(fault: BaseException, name: str) -> None:
    """The traceback from the code on: nothing of this file."""
    found = fault.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != name:
        found = found.tb_next
    try:
        sys.stdout.flush()
        traceback.print_exception(type(fault), fault, found, file=sys.stdout)
    except BaseException:
        os.write(1, f"{type(fault).__name__}\n".encode())


def _tell(results: int, value: object) -> None:
    os.write(results, json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
