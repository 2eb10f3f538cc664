"""Fifty small tasks for an agent with tools; counts calls, and repairs of the output by kind."""

from __future__ import annotations

import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, check
from trt_responses.prove.client import Client, Json, calls_of, parsed

TABLE: Json = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text("utf-8"))
PROMPTS = [task.format(value) for task, values in TABLE["tasks"].items() for value in values]
QUICK, TURNS, AT_ONCE = 6, 3, 4
REPAIRS = "repairs_total"


def tool(name: str, fields: list[str]) -> Json:
    """A function with strict arguments, all of them texts."""
    texts = {field: {"type": "string"} for field in fields}
    closed: Json = {"type": "object", "additionalProperties": False}
    schema = closed | {"properties": texts, "required": fields}
    return {"type": "function", "name": name, "parameters": schema, "strict": True}


TOOLS = [tool(name, row["fields"]) for name, row in TABLE["tools"].items()]


def agents(bench: Bench) -> Figures:
    """Every task ends, and every call names a tool and has its arguments."""
    client, quick = bench.server().client, bench.wish.quick
    prompts = PROMPTS[:: len(PROMPTS) // QUICK] if quick else PROMPTS
    before = client.metrics(REPAIRS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(partial(_task, client, 128 if quick else 1024), prompts))
    counts = dict(sum(ends, Counter[str]()))
    mended = {name: n - before.get(name, 0) for name, n in client.metrics(REPAIRS).items()}
    repairs = {name.split('"')[1]: int(n) for name, n in mended.items() if n}
    wrong = {f"{n} times: {name}": n for name, n in counts.items() if name.startswith("wrong")}
    return check(wrong, {"tasks": len(prompts), **counts, "repairs by kind": repairs})


def _task(client: Client, tokens: int, prompt: str) -> Counter[str]:
    """What one task came to: responses, calls, and what was wrong."""
    counts: Counter[str] = Counter()
    history: list[Json] = [{"role": "user", "content": prompt}]
    for _ in range(TURNS):
        try:
            made = client.create(input=history, tools=TOOLS, max_output_tokens=tokens, store=False)
        except Failed as failure:
            counts[f"wrong: {failure}"] += 1
            break
        calls = calls_of(made)
        counts.update(["responses", made["status"], *["calls"] * len(calls)])
        if made["status"] != "completed" or not calls:
            break
        counts.update(filter(None, map(_fault, calls)))
        history += [*made["output"], *map(_answer, calls)]
    return counts


def _answer(call: Json) -> Json:
    text = TABLE["tools"].get(call["name"], {"answer": "no such tool"})["answer"]
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


def _fault(call: Json) -> str | None:
    """What is wrong with a call, if anything."""
    row, given = TABLE["tools"].get(call["name"]), parsed(call["arguments"])
    if row is None:
        return "wrong: a call of an unknown tool"
    if not isinstance(given, dict):
        return "wrong: a call whose arguments are not JSON"
    return None if {*given} == {*row["fields"]} else "wrong: a call without its arguments"
