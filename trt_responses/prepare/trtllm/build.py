"""Prepares a checkpoint for TensorRT-LLM: arguments, warm caches, a report.

plan       the arguments of a profile               leaves llm_args.yaml, env, checkpoint.json
start      a cold start of the package              leaves cache/<version, GPU, arguments>/
warm-up    every graph size, fixed greedy prompts
    restart    a start from warm caches, compared       leaves warmup_report.json, warmup.svg
Without a GPU or the package it ends after the plan. Has the order of these phases;
`prepare.pipeline` does the rest, and the caller passes in the engine.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from trt_responses.engine import Engine
from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.digests import source_facts
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.files import (
    ARGUMENTS,
    CHECKPOINT,
    DIALECT,
    engine_file,
    sha256_of,
)
from trt_responses.prepare.hardware import Hardware, gpu_facts
from trt_responses.prepare.machine import ServingMachine, library_versions
from trt_responses.prepare.phases import Phases
from trt_responses.prepare.pipeline import (
    DIGEST_BYTES_PER_S,
    BuildTools,
    Built,
    Product,
    Target,
    prepared,
)
from trt_responses.prepare.shelf.card import (
    CARD,
    Card,
    DialectFacts,
    Kind,
    Source,
    compare,
    read_card,
)
from trt_responses.prepare.shelf.shelf import checked_name
from trt_responses.prepare.trtllm.arguments import text_of
from trt_responses.prepare.trtllm.caches import Caches, caches_of, renew, set_aside
from trt_responses.prepare.trtllm.model import Model, TemplateModel, open_model, weights_of
from trt_responses.prepare.trtllm.plan import (
    VARIABLES,
    TrtLlmOptions,
    chosen_arguments,
    chosen_class,
)
from trt_responses.prepare.trtllm.preflight import (
    CACHE_BYTES,
    checkpoint_faults,
    machine_faults,
    refuse_harm,
    refuse_tensorrt_checkpoint,
)
from trt_responses.prepare.trtllm.profiles import PROFILES, Arguments, graph_sizes
from trt_responses.prepare.trtllm.report import Report, write_report
from trt_responses.prepare.trtllm.warmup import (
    Greedy,
    Questions,
    Start,
    harmony_questions,
    measured,
    numbered_text,
)

START_S, WARMUP_S, RESTART_S = 240.0, 120.0, 120.0
"""Seconds of each phase in addition to loading weights: tuning and compiling at the first start,
graphs at every start."""

QUESTION = "What is the capital of France?"
NEVER_RUN = (
    "Untested: only gpt-oss has been run on TensorRT-LLM itself; other models only on a test "
    "double of it."
)


@dataclass(frozen=True, slots=True)
class GpuHost:
    """The machine to examine and the engine to start. A test passes its own."""

    hardware: Callable[[], Hardware]
    start: Callable[[Path, Mapping[str, object], Mapping[str, str], int | None], Engine]
    """Creates an engine from a checkpoint, arguments, environment variables, and the id that ends a
    guide (None for gpt-oss)."""


def prepare(
    source: Path,
    engines_dir: Path,
    name: str,
    tools: BuildTools,
    options: TrtLlmOptions,
    host: GpuHost,
    *,
    wait: bool = False,
) -> Built:
    """Prepare an engine, return the prepared one, or plan it if it cannot start here."""
    if options.profile not in PROFILES:
        raise refusal("--profile", repr(options.profile), " or ".join(PROFILES))
    refuse_tensorrt_checkpoint(source)
    checkpoint = open_model(source)
    hardware = host.hardware()
    arguments = chosen_arguments(options, hardware, checkpoint)
    if faults := checkpoint_faults(checkpoint, arguments):
        raise PrepareError(" ".join(faults))
    if not options.allow_known_harm and not isinstance(checkpoint, TemplateModel):
        refuse_harm(hardware, arguments)
    earlier = earlier_seconds(engines_dir / checked_name(name))
    target = _WarmUp(checkpoint, arguments, hardware, options, host, tools, earlier)
    return prepared(target, engines_dir, name, wait=wait)


class _WarmUp(Target):
    """The target of `prepare.pipeline` for one set of arguments on one machine."""

    kind: Kind = "trtllm"
    checkpoint: Model

    def __init__(
        self,
        checkpoint: Model,
        arguments: Arguments,
        hardware: Hardware,
        options: TrtLlmOptions,
        host: GpuHost,
        tools: BuildTools,
        earlier: Mapping[str, float],
    ) -> None:
        self.checkpoint = checkpoint
        self.weight_type = weights_of(checkpoint)
        self.tools = tools
        self._arguments = arguments
        self._hardware = hardware
        self._gpu_facts = gpu_facts(hardware.gpus)
        self._variables = chosen_class(options, hardware).variables
        self._options = options
        self._host = host
        self._earlier = earlier
        weights_bytes = checkpoint.size_bytes
        self._faults = machine_faults(hardware, arguments, weights_bytes, options.nodes)

    @property
    def engine_for(self) -> None:
        """None: the engine is verified by its two starts."""

    def identity(self, source: Source) -> str:
        """A text of everything that the files depend on. The driver is recorded only."""
        facts = {
            "source": source_facts(source),
            "arguments": self._arguments,
            "package": self._hardware.package,
            "hardware": {k: v for k, v in self._gpu_facts.items() if k != "driver"},
        }
        if isinstance(self.checkpoint, TemplateModel):
            facts["family"] = self._options.family
        return json.dumps(facts, sort_keys=True)

    def difference(self, card: Card, directory: Path) -> str | None:
        if self._options.rewarm:
            return "status: a new warm-up was requested."
        if card.status == "planned":
            return None if self._faults else "status: it can start now."
        if card.status == "built":
            return "status: its two starts differed; another try may succeed."
        machine = ServingMachine(sys.byteorder, 0, self._libraries(), self._gpu_facts)
        return compare(card, directory, machine)

    def disk_bytes(self) -> float:
        """Bytes of the caches. The weights are not copied."""
        return 0 if self._faults else CACHE_BYTES

    def expected(self) -> dict[str, float]:
        """The seconds of each phase at the last preparation, or an estimate."""
        load_s = self.checkpoint.size_bytes / DIGEST_BYTES_PER_S
        expected = {"validate": load_s, "plan": 0.0}
        if not self._faults:
            expected |= {
                "start": START_S + load_s,
                "warm-up": WARMUP_S,
                "restart": RESTART_S + load_s,
            }
        return {name: self._earlier.get(name, guess) for name, guess in expected.items()}

    def notes(self, card: Card) -> tuple[str, ...]:
        speaks = () if card.dialect is None else (card.dialect.sentence(), NEVER_RUN)
        if card.status == "planned":
            return (*speaks, *(f"not started here: {fault}" for fault in self._faults))
        if card.status == "built":
            return (*speaks, "The greedy ids of the second start differ from those of the first.")
        return speaks

    def make(self, directory: Path, phases: Phases) -> Product:
        caches, dialect = self._planned(directory, phases)
        report = None
        if not self._faults:
            questions = self._questions(directory, dialect)
            report = self._measured(directory, caches, questions, phases)
        verified = report is not None and report.same_answers
        context = self._arguments["max_seq_len"]
        assert isinstance(context, int)
        return Product(
            files=tuple(
                engine_file(directory / name, sha256_of(directory / name))
                for name in (ARGUMENTS, CHECKPOINT, *([DIALECT] if dialect else []))
            ),
            context_tokens=context,
            memory_bytes=self.checkpoint.size_bytes,
            seconds=phases.seconds(),
            status="planned" if report is None else "verified" if verified else "built",
            libraries=self._libraries(),
            hardware=self._gpu_facts if report is not None else {},
            greedy_ids=_ids(report.cold.answers) if report is not None else (),
            ignores=report.again.ignores if report is not None else (),
            dialect=dialect,
        )

    def _planned(self, directory: Path, phases: Phases) -> tuple[Caches, DialectFacts | None]:
        phases.begin("plan")
        package, sm = self._hardware.package or "none", self._gpu_facts.get("sm", "none")
        caches = caches_of(directory, package, sm, self._arguments)
        facts: dict[str, object] = {"path": str(self.checkpoint.directory.resolve())}
        dialect = None
        if isinstance(self.checkpoint, TemplateModel):
            facts["end_id"] = self.checkpoint.end_id
            write_whole(directory / DIALECT, json.dumps(self.checkpoint.language))
            dialect = self.tools.dialect_for(directory / DIALECT, self._options.family)
        write_whole(directory / CHECKPOINT, json.dumps(facts, indent=2) + "\n")
        gpu_class = chosen_class(self._options, self._hardware).name
        heading = (
            f"Profile {self._options.profile} for {gpu_class} GPUs.\n"
            f"Also read by: trtllm-serve CHECKPOINT --config {ARGUMENTS}"
        )
        write_whole(directory / ARGUMENTS, text_of(self._arguments, heading))
        variables = {**caches.variables(), **self._variables}
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        write_whole(directory / VARIABLES, exports)
        return caches, dialect

    def _questions(self, directory: Path, dialect: DialectFacts | None) -> Questions:
        if dialect is None or not isinstance(self.checkpoint, TemplateModel):
            return harmony_questions(self.tools.vocabulary)
        most = self._arguments["max_batch_size"]
        assert isinstance(most, int)
        places = [(n, size) for size in graph_sizes(most) for n in range(size)]
        texts = [QUESTION, *(numbered_text(*place) for place in places)]
        question, *prompts = self.tools.prompts_for(directory / DIALECT, dialect.family, texts)
        numbered = dict(zip(places, prompts, strict=True))
        return Questions(
            {"answer": question},
            lambda n, size: numbered[n, size],
            dialect.stop_ids,
            self.checkpoint.language["tokenizer.ggml.tokens"].__getitem__,
        )

    def _measured(
        self, directory: Path, caches: Caches, questions: Questions, phases: Phases
    ) -> Report:
        set_aside(caches)
        if self._options.rewarm:
            renew(caches)
        caches.directory.mkdir(parents=True, exist_ok=True)
        report = Report(
            package=self._hardware.package or "",
            hardware=self._gpu_facts,
            arguments=self._arguments,
            cold=self._start(caches, questions, phases, "start", "warm-up"),
            again=self._start(caches, questions, phases, "restart"),
            caches_bytes=caches.size_bytes(),
            weights_bytes=self.checkpoint.size_bytes,
        )
        write_report(directory, report)
        return report

    def _start(self, caches: Caches, questions: Questions, phases: Phases, *names: str) -> Start:
        variables, model = {**caches.variables(), **self._variables}, self.checkpoint
        end_id = model.end_id if isinstance(model, TemplateModel) else None
        engine = self._host.start(model.directory, self._arguments, variables, end_id)
        return asyncio.run(
            measured(
                engine,
                questions,
                self.tools.clock,
                begin=phases.begin,
                phases=names,
                free_bytes=lambda: tuple(gpu.free_bytes for gpu in self._host.hardware().gpus),
            )
        )

    def _libraries(self) -> dict[str, str]:
        found = library_versions()
        return found | ({"tensorrt_llm": self._hardware.package} if self._hardware.package else {})


def earlier_seconds(home: Path) -> dict[str, float]:
    """The seconds of each phase at earlier preparations of this engine, in any version."""
    found: dict[str, float] = {}
    for path in sorted(home.glob(f"*/{CARD}"), key=lambda path: path.stat().st_mtime_ns):
        with suppress(PrepareError):
            found |= read_card(path.parent).seconds
    return found


def _ids(answers: tuple[Greedy, ...]) -> tuple[int, ...]:
    return tuple(token_id for answer in answers for token_id in answer.token_ids)
