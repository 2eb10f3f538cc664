"""Fifty small tasks for an agent with tools; counts calls, and repairs of the output by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import orjson

from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, check
from trt_responses.prove.client import Client, Json, calls_of

ANSWERS = {
    "get_weather": "18 degrees, light rain",
    "search_files": "src/main.py\nsrc/app.py\ntests/test_main.py",
    "read_file": "def main():\n    print('hello')\n",
    "run_command": "3 passed in 0.1 s",
    "send_mail": "sent",
}
"""Each tool's answer, whatever its arguments are."""
FIELDS = {
    "get_weather": ("city",),
    "search_files": ("pattern",),
    "read_file": ("path",),
    "run_command": ("command",),
    "send_mail": ("to", "subject"),
}
TASKS = {
    "What is the weather in {}?": ("Bern", "Paris", "Oslo", "Lima", "Kyoto"),
    "Find all files that mention {}.": ("main", "retry", "timeout", "cache", "TODO"),
    "Read {} and say what it does.": ("src/main.py", "a.txt", "setup.cfg", "x/y.c", "Makefile"),
    "Run {} and report the result.": ("the tests", "`ls -l`", "make", "`git log`", "mypy"),
    "Write a mail to {} that the build is red.": ("Ann", "Bob", "the team", "QA", "Eve"),
    "Is it warmer in {} than in Rome?": ("Bern", "Cairo", "Nuuk", "Delhi", "Quito"),
    "Look for {} in the tests and fix it.": ("a typo", "flaky", "sleep", "skip", "print"),
    "First read {}, then run the tests.": ("app.py", "util.py", "db.py", "cli.py", "io.py"),
    "Mail {} the weather in Bern.": ("Ann", "Bob", "Cleo", "Dan", "Eve"),
    "Explain {} without any tool.": ("mutexes", "SSE", "UTF-8", "TLS", "DNS"),
}
PROMPTS = [task.format(value) for task, values in TASKS.items() for value in values]
QUICK = 6
TURNS = 3
AT_ONCE = 4
REPAIRS = "trt_responses_repairs_total"


def tool(name: str, fields: tuple[str, ...]) -> Json:
    """A function with strict arguments, all of them texts."""
    schema = {
        "type": "object",
        "properties": {field: {"type": "string"} for field in fields},
        "required": [*fields],
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "parameters": schema, "strict": True}


TOOLS = [tool(name, fields) for name, fields in FIELDS.items()]


def agents(bench: Bench) -> Figures:
    """Every task ends, and every call names a tool and has its arguments."""
    client = bench.server().client
    tokens = 128 if bench.wish.quick else 1024
    prompts = PROMPTS[:: len(PROMPTS) // QUICK] if bench.wish.quick else PROMPTS
    before = client.metrics(REPAIRS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(partial(_task, client, tokens), prompts))
    after = client.metrics(REPAIRS)
    counts: Counter[str] = sum(ends, Counter())
    repairs = {kind: int(n - before.get(kind, 0)) for kind, n in after.items()}
    figures: Figures = {
        "tasks": len(prompts),
        **dict(counts),
        "repairs by kind": {_kind(name): n for name, n in repairs.items() if n},
    }
    wrong = [f"{n} times: {name}" for name, n in counts.items() if name.startswith("wrong")]
    check([(why, why) for why in wrong], figures)
    return figures


def _task(client: Client, tokens: int, prompt: str) -> Counter[str]:
    """What one task came to: responses, calls, and what was wrong."""
    counts: Counter[str] = Counter()
    history: list[Mapping[str, Any]] = [{"role": "user", "content": prompt}]
    for _ in range(TURNS):
        try:
            made = client.create(input=history, tools=TOOLS, max_output_tokens=tokens, store=False)
        except Failed as failure:
            counts[f"wrong: {failure}"] += 1
            break
        counts["responses"] += 1
        counts[made["status"]] += 1
        calls = calls_of(made)
        if made["status"] != "completed" or not calls:
            break
        history += made["output"]
        for call in calls:
            counts["calls"] += 1
            counts.update(_faults(call))
            answer = ANSWERS.get(call["name"], "no such tool")
            history.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": answer}
            )
    return counts


def _faults(call: Json) -> list[str]:
    """What is wrong with a call."""
    fields = FIELDS.get(call["name"])
    if fields is None:
        return ["wrong: a call of an unknown tool"]
    try:
        given = orjson.loads(call["arguments"])
    except orjson.JSONDecodeError:
        return ["wrong: a call whose arguments are not JSON"]
    return [] if isinstance(given, dict) and {*given} == {*fields} else ["wrong: missing arguments"]


def _kind(labels: str) -> str:
    return labels.partition('"')[2].partition('"')[0]
