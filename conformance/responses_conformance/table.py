"""`python -m responses_conformance.table`: every server that can be had here, by its tokens.

Each is started over the mock of its own engine's wire and plays all transcripts. The results go
to a JSON file, and as a table into a page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from responses_conformance import __version__
from responses_conformance.client import Server
from responses_conformance.laws import LAWS, READERS
from responses_conformance.mocks import llama_cpp
from responses_conformance.peers import start
from responses_conformance.peers.installed import GPT_OSS, LLAMA_CPP, SMG, VLLM, Absent
from responses_conformance.playing import all_checks, play
from responses_conformance.runner import judge
from responses_conformance.transcripts import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from responses_conformance.peers.start import Starter
    from responses_conformance.playing import Case, Extra
    from responses_conformance.transcripts import Transcript

Json = dict[str, Any]
BEGIN, END = "<!-- begin: made by make conformance -->", "<!-- end -->"
MOST_NAMED = 20
NAMES = {"vllm": "vLLM", "smg": "SMG"}
TRIES = 2
"""How often a server is started that dies, or whose port another process takes."""
SETTLES_S, PAUSE_S = 60, 0.5
"""Until a router has found its engine."""


@dataclass(frozen=True)
class Peer:
    """A server of the table."""

    label: str
    start: Starter
    wire: str
    takes: Callable[[Transcript], bool] = lambda _: True
    """The transcripts that its engine can be made to write."""
    apis: Sequence[str] = tuple(READERS)
    extra: Extra | None = None
    notes: bool = True
    """Whether its engine notes prompts."""


def _version(package: str) -> str:
    name, _, version = package.partition("==")
    if not version:
        with suppress(PackageNotFoundError):
            version = metadata.version(name)
    return f"{NAMES.get(name, name)} {version}".strip()


def _not_cut(transcript: Transcript) -> bool:
    return transcript.finish != "length"


PEERS = {
    "ours": Peer(_version("trt-responses"), start.ours, "TensorRT-LLM gRPC"),
    "vllm-rs": Peer(f"{_version(VLLM)}, vllm-rs", start.rust_vllm, "vLLM ZMQ"),
    "vllm": Peer(f"{_version(VLLM)}, Python", start.python_vllm, "vLLM ZMQ"),
    "smg": Peer(_version(SMG), start.smg, "vLLM ZMQ"),
    "smg-trtllm": Peer(_version(SMG), start.smg_over("trtllm-grpc"), "TensorRT-LLM gRPC"),
    "smg-sglang": Peer(_version(SMG), start.smg_over("sglang"), "SGLang gRPC"),
    "gpt-oss": Peer(f"{_version(GPT_OSS)}, reference", start.gpt_oss, "a function", _not_cut),
    "llama.cpp": Peer(
        *(f"{_version(LLAMA_CPP)}, llama.cpp's server", start.llama_cpp, "its own, by a grammar"),
        *(llama_cpp.takes, ("chat",), llama_cpp.forced),
        notes=False,
    ),
}


def judged(name: str, peer: Peer) -> Json:
    """What came of one server."""
    began, made = time.monotonic(), _about(name, peer)
    for left in reversed(range(TRIES)):
        try:
            made |= _judged(peer)
            break
        except Exception as fault:  # one server must not cost the rows of all
            made["absent"] = f"{fault or type(fault).__name__}"
            if isinstance(fault, Absent) or not left:
                return made
    made.pop("absent", None)
    return made | {"seconds": round(time.monotonic() - began)}


def _about(name: str, peer: Peer) -> Json:
    return {
        "name": name,
        "server": peer.label,
        "wire": peer.wire,
        "repeat": f"python -m responses_conformance.table --servers {name}",
    }


def _judged(peer: Peer) -> Json:
    transcripts = [each for each in load() if peer.takes(each)]
    with TemporaryDirectory() as folder:
        record = Path(folder) / "prompts.jsonl"
        with peer.start({"record": str(record)}) as begun:
            begun.wait()
            server = Server(f"http://127.0.0.1:{begun.port}/v1", model=start.MODEL, patience_s=120)
            _settle(server, peer, transcripts[:1])
            found = play(server, transcripts, peer.apis, peer.extra)
            apis = tuple(api for api, cases in found.items() if not isinstance(cases, str))
            wanted = tuple(f"{api}.prompt." for api in apis) if peer.notes else ()
            checks = [c for c in all_checks(record=record) if c.name.startswith(wanted)]
            outcomes = judge(server, checks, "transcripts", 1, lambda *_: None)
    return {
        "settings": begun.settings,
        "apis": {api: _api(cases) for api, cases in found.items()},
        "prompts": {
            "judged": len(outcomes),
            "failures": {o.check.name: o.why for o in outcomes if o.verdict == "failed"},
        },
    }


def _settle(server: Server, peer: Peer, first: Sequence[Transcript]) -> None:
    """Wait until the first transcript is no error; a while, for it may be one."""
    end_s = time.monotonic() + SETTLES_S
    while time.monotonic() < end_s:
        found = play(server, first, peer.apis, peer.extra).values()
        cases = [case for each in found if not isinstance(each, str) for case in each]
        if not any(law == "error" for case in cases for law, _ in case.broken):
            return
        time.sleep(PAUSE_S)


def _api(cases: list[Case] | str) -> Json:
    if isinstance(cases, str):
        return {"not offered": cases}
    failed = {case.transcript.name: case for case in cases if case.broken}
    laws = Counter(law for case in failed.values() for law in {law for law, _ in case.broken})
    return {
        "transcripts": len(cases),
        "passed": len(cases) - len(failed),
        "laws": dict(laws),
        "failures": {
            name: [f"{law}: {how}" for law, how in case.broken] for name, case in failed.items()
        },
    }


def summary(results: Sequence[Json]) -> str:
    """The table of all servers."""
    heads = ["server", "engine's wire", "chat", "Responses", "prompts", *LAWS]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in results:
        cells = [f"not run: {each['absent']}"] if "absent" in each else list(_cells(each))
        lines.append(f"| {' | '.join((each['server'], each['wire'], *cells))} |")
    return "\n".join(lines)


def _cells(each: Json) -> Iterator[str]:
    apis = [each["apis"].get(api, {"not offered": "not judged"}) for api in READERS]
    yield from map(_share, apis)
    prompts = each["prompts"]
    count = prompts["judged"]
    yield f"{count - len(prompts['failures'])} of {count}" if count else "–"
    sums: Counter[str] = sum((Counter(api.get("laws", {})) for api in apis), Counter())
    yield from (str(sums[law]) for law in LAWS)


def failures(results: Sequence[Json]) -> str:
    """For each server and law the transcripts that break it, and one fault in full."""
    lines = ["| server | fails | for example |", "|---|---|---|"]
    rows = [f"| {each['server']} | {row} |" for each in results for row in _failures(each)]
    return "\n".join([*lines, *dict.fromkeys(rows)])  # one server fails alike over each wire


def _share(api: Json) -> str:
    return "–" if "not offered" in api else f"{api['passed']} of {api['transcripts']}"


def _failures(each: Json) -> Iterator[str]:
    """For each law the transcripts that break it, over any API, and one fault in full."""
    for law in LAWS:
        broken: dict[str, str] = {}
        for api in each.get("apis", {}).values():
            for name, faults in api.get("failures", {}).items():
                for fault in faults:
                    if fault.startswith(f"{law}: "):
                        broken.setdefault(name, fault)
        if broken:
            names = _listed(sorted(broken))
            example = next(iter(broken.values()))
            yield f"{names} | {_code(example)}"
    if faults := each.get("prompts", {}).get("failures"):
        names = _listed(sorted(faults))
        yield f"{names} | {_code('prompt: ' + next(iter(faults.values())))}"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    shown = ", ".join(f"`{name}`" for name in names[:MOST_NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _code(text: str) -> str:
    """Text as code inside a table's cell."""
    return f"`{text[:220].replace('`', ' ').replace('|', '¦')}`"


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the page's marks."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


def runs(results: Sequence[Json]) -> str:
    """How each server was run: its front end's command, which the kit starts over a mock."""
    ran = [each for each in results if "absent" not in each]
    rows = (f"- {each['server']}, {each['wire']}: `{each['settings']}`" for each in ran)
    return "\n".join(rows)


def write(results: Sequence[Json], out: Path, page: Path | None) -> None:
    """Write the results, the page of failures, and the table into another page."""
    made = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kit": __version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "transcripts": len(load()),
    }
    about = f"{made['date']}, {made['transcripts']} transcripts.\n\n{summary(results)}"
    text = json.dumps({**made, "results": results}, ensure_ascii=False, indent=1)
    out.write_text(f"{text}\n", "utf-8")
    found = f"# What servers make of tokens\n\n{about}\n\n{failures(results)}\n"
    found += f"\n## Settings\n\n{made['machine']}.\n\n{runs(results)}\n"
    out.with_suffix(".md").write_text(found, "utf-8")
    if page:
        write_into(page, about)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m responses_conformance.table")
    servers = parser.add_argument("--servers", default=",".join(PEERS))
    servers.help = f"of {', '.join(PEERS)} (default: all)"
    out = parser.add_argument("--out", type=Path, default=Path("results.json"))
    out.help = "JSON file; beside it a page of the same name, with the failures"
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    options = parser.parse_args(arguments)
    results: list[Json] = []
    for name in options.servers.split(","):
        results.append(made := judged(name, PEERS[name]))
        shares = {api: _share(found) for api, found in made.get("apis", {}).items()}
        print(f"{name}: {shares or made['absent']} in {made.get('seconds', 0)} s", flush=True)
    write(results, options.out, options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
