"""From a checkpoint to an engine prepared for TensorRT-LLM: arguments, warm caches, a report.

    validate   every header and byte of the source      leaves engines/<name>/digests.json
    plan       the arguments of a profile               leaves llm_args.yaml, env, checkpoint.json
    start      the package loads it, cold               leaves cache/<version, GPU, arguments>/
    warm-up    every graph size, fixed greedy prompts
    restart    the same from warm caches, compared      leaves warmup_report.json, warmup.svg
    card       last of all                              leaves card.json

Without a GPU or the package it ends after the plan. Knows the order; the engine is handed in.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Mapping  # noqa: TC003  # read by dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trt_responses.prepare import card as cards
from trt_responses.prepare.card import Card, Limits
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.digests import VERSION_LETTERS, digested
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.hardware import Hardware, gpu_facts
from trt_responses.prepare.phases import Steps
from trt_responses.prepare.progress import Silent
from trt_responses.prepare.shelf import checked_name, locked
from trt_responses.prepare.trtllm.arguments import write_arguments
from trt_responses.prepare.trtllm.caches import Caches, caches_of, renew, set_aside
from trt_responses.prepare.trtllm.plan import (
    ARGUMENTS,
    CHECKPOINT,
    VARIABLES,
    Prepared,
    Wish,
    wished_arguments,
    wished_class,
)
from trt_responses.prepare.trtllm.preflight import (
    checkpoint_faults,
    machine_faults,
    refuse_tensorrt_checkpoint,
)
from trt_responses.prepare.trtllm.profiles import PROFILES
from trt_responses.prepare.trtllm.report import Report, write_report
from trt_responses.prepare.trtllm.warmup import measured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.card import Source
    from trt_responses.prepare.checkpoint.open import Checkpoint
    from trt_responses.prepare.progress import Progress
    from trt_responses.prepare.trtllm.profiles import Arguments
    from trt_responses.prepare.trtllm.warmup import Greedy, Start
    from trt_responses.tokens.vocabulary import Vocabulary

DIGESTS = "digests.json"


@dataclass(frozen=True, slots=True)
class Means:
    """What a preparation needs beside its input; a test hands in its own machine and clock."""

    vocabulary: Vocabulary
    hardware: Callable[[], Hardware]
    engine_for: Callable[[Path, Mapping[str, object], Mapping[str, str]], Engine]
    """From a checkpoint, arguments and environment variables."""
    progress: Progress = field(default_factory=Silent)
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], datetime] = lambda: datetime.now(UTC)


def prepare(source: Path, engines_dir: Path, name: str, means: Means, wish: Wish) -> Prepared:
    checked_name(name)
    if wish.profile not in PROFILES:
        raise refusal("profile", repr(wish.profile), " or ".join(PROFILES))
    refuse_tensorrt_checkpoint(source)
    checkpoint = open_checkpoint(source)
    hardware = means.hardware()
    arguments = wished_arguments(wish, hardware, checkpoint)
    if faults := checkpoint_faults(checkpoint, arguments):
        raise PrepareError(" ".join(faults))
    home = engines_dir / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locked(home):
            return _Preparation(checkpoint, home, arguments, hardware, means, wish).run()
    except OSError as error:
        raise PrepareError(f"{home} cannot be written ({error.strerror}).") from None


class _Preparation:
    """One run over the phases of one engine, under its lock."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        home: Path,
        arguments: Arguments,
        hardware: Hardware,
        means: Means,
        wish: Wish,
    ) -> None:
        self._checkpoint = checkpoint
        self._home = home
        self._arguments = arguments
        self._hardware = hardware
        self._means = means
        self._wish = wish
        self._faults = tuple(machine_faults(hardware, arguments, checkpoint.size_bytes, wish.nodes))
        self._steps = Steps(
            means.progress,
            means.clock,
            checkpoint.size_bytes,
            plan_only=bool(self._faults),
            earlier=earlier_seconds(home),
        )

    def run(self) -> Prepared:
        source = self._validated()
        directory = self._home / self._version(source)
        if not self._wish.rewarm and (card := self._finished(directory)):
            return Prepared(directory, card, self._faults, self._steps.done)
        directory.mkdir(exist_ok=True)
        (directory / cards.CARD).unlink(missing_ok=True)
        caches = self._planned(directory)
        report = None if self._faults else self._verified(directory, caches)
        card = self._card(directory, source, report)
        cards.write_card(directory, card)
        return Prepared(directory, card, self._faults, self._steps.done)

    def _finished(self, directory: Path) -> Card | None:
        """The card of an earlier run that still holds, and that this machine cannot better."""
        try:
            card = cards.read_card(directory)
        except PrepareError:
            return None
        if card.status == "planned":
            return card if self._faults else None
        if card.status == "built":  # its two starts differed: perhaps not again
            return None
        machine = cards.Machine(sys.byteorder, 0, self._libraries(), self._facts())
        return card if cards.compare(card, directory, machine) is None else None

    def _facts(self) -> dict[str, str]:
        return gpu_facts(self._hardware.gpus)

    def _version(self, source: Source) -> str:
        """Of everything that decides the files; the driver is recorded, and decides none."""
        facts = {
            "source": [(file.name, file.size_bytes, file.sha256) for file in source.files],
            "arguments": self._arguments,
            "package": self._hardware.package,
            "hardware": {k: v for k, v in self._facts().items() if k != "driver"},
        }
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:VERSION_LETTERS]

    def _validated(self) -> Source:
        begin = self._steps.begin
        return digested(
            self._checkpoint,
            self._home / DIGESTS,
            lambda phase, total_bytes: begin(phase, total_bytes),
            self._means.progress.advance,
        )

    def _planned(self, directory: Path) -> Caches:
        self._steps.begin("plan")
        facts = self._facts()
        caches = caches_of(
            directory, self._hardware.package or "none", facts.get("sm", "none"), self._arguments
        )
        place = str(self._checkpoint.directory.resolve())
        cards.write_whole(directory / CHECKPOINT, json.dumps({"path": place}, indent=2) + "\n")
        gpu_class = wished_class(self._wish, self._hardware).name
        heading = (
            f"Profile {self._wish.profile} for {gpu_class} GPUs.\n"
            f"Also read by: trtllm-serve CHECKPOINT --config {ARGUMENTS}"
        )
        write_arguments(directory / ARGUMENTS, self._arguments, heading)
        exports = "".join(f"export {k}='{v}'\n" for k, v in self._variables(caches).items())
        cards.write_whole(directory / VARIABLES, exports)
        return caches

    def _variables(self, caches: Caches) -> dict[str, str]:
        return {**caches.variables(), **wished_class(self._wish, self._hardware).variables}

    def _verified(self, directory: Path, caches: Caches) -> Report:
        set_aside(caches)
        if self._wish.rewarm:
            renew(caches)
        caches.directory.mkdir(parents=True, exist_ok=True)
        cold = self._start(caches, "start", warm=True)
        again = self._start(caches, "restart", warm=False)
        report = Report(
            package=self._hardware.package or "",
            hardware=self._facts(),
            arguments=self._arguments,
            cold=cold,
            again=again,
            caches_bytes=caches.size_bytes(),
            weights_bytes=self._checkpoint.size_bytes,
        )
        write_report(directory, report)
        return report

    def _start(self, caches: Caches, phase: str, *, warm: bool) -> Start:
        engine = self._means.engine_for(
            self._checkpoint.directory, self._arguments, self._variables(caches)
        )
        return asyncio.run(
            measured(
                engine,
                self._means.vocabulary,
                self._means.clock,
                begin=self._steps.begin,
                phases=(phase, "warm-up") if warm else (phase,),
                free_bytes=lambda: tuple(gpu.free_bytes for gpu in self._means.hardware().gpus),
            )
        )

    def _card(self, directory: Path, source: Source, report: Report | None) -> Card:
        verified = report is not None and report.same_answers
        return Card(
            schema=cards.SCHEMA,
            kind="trtllm",
            status="planned" if report is None else "verified" if verified else "built",
            name=self._home.name,
            version=directory.name,
            source=source,
            architecture=self._checkpoint.architecture,
            weight_type="mxfp4" if self._checkpoint.architecture.packed else "bf16",
            libraries=self._libraries(),
            limits=Limits(_context(self._arguments), self._checkpoint.size_bytes),
            files=tuple(
                cards.engine_file(directory / name, cards.sha256_of(directory / name))
                for name in (ARGUMENTS, CHECKPOINT)
            ),
            built_at=self._means.today().isoformat(timespec="seconds"),
            seconds=self._steps.seconds(),
            greedy_ids=_ids(report.cold.answers) if report is not None else (),
            hardware=self._facts() if report is not None else {},
        )

    def _libraries(self) -> dict[str, str]:
        found = cards.library_versions()
        return found | ({"tensorrt_llm": self._hardware.package} if self._hardware.package else {})


def earlier_seconds(home: Path) -> dict[str, float]:
    """What each phase took when this engine was prepared before, in any version."""
    found: dict[str, float] = {}
    for path in sorted(home.glob(f"*/{cards.CARD}"), key=lambda path: path.stat().st_mtime_ns):
        try:
            found |= cards.read_card(path.parent).seconds
        except PrepareError:
            continue
    return found


def _ids(answers: tuple[Greedy, ...]) -> tuple[int, ...]:
    return tuple(token_id for answer in answers for token_id in answer.token_ids)


def _context(arguments: Mapping[str, object]) -> int:
    context = arguments["max_seq_len"]
    assert isinstance(context, int)
    return context
