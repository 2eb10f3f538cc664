"""A checkpoint as ONNX files in a chain: embedding, groups of layers, head. Needs no torch.

Defines the files' names, inputs and outputs; the other modules here have the maths. The same writer
handles float32, float16 and bfloat16. The contract of the files, for B slots and S new tokens:

    embed        input_ids i64 [B,S]  ->  hidden [B,S,H]
    layers_X_Y   hidden, lens i64 [B] (tokens already in each slot), past_k_N and past_v_N
                 [B,Hkv,length+1,D] and layers.N.gate_up [E,2I,H], layers.N.down [E,H,I] for each
                 layer N from X to Y  ->  hidden_out [B,S,H], present_k_N, present_v_N,
                 overflow i64 [1] (above 0: some expert was over its capacity, and nothing counts)
    head         hidden, last i64 [B] (which of the S to read)  ->  values f32 [B,top],
                 ids i64 [B,top], lse f32 [B], logits f32 [B,V]

In gate_up the I rows of the gate come first, then the I rows of the linear half; a checkpoint has
them in turns. Row 0 of a cache must be zeros and the rest finite; past and present may be one
buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.faults import WrongInput, refusal
from trt_responses.prepare.files import GRAPH
from trt_responses.prepare.graph.attention import Sight, attention, sight
from trt_responses.prepare.graph.builder import Builder, Value
from trt_responses.prepare.graph.experts import ALWAYS_EXACT, experts
from trt_responses.prepare.graph.onnx_file import FLOAT32, INT64, Element, Link, Port, Shape
from trt_responses.prepare.graph.weights import PROJECTIONS, Weights, expert_shape, input_name


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """The numbers that a compiler and an executor must agree on, in addition to the files."""

    architecture: Architecture
    slots: int
    """The rows of a decode step."""
    length: int
    """The tokens of one slot. Its cache has one row more, for the sink."""
    chunk: int
    """The most tokens of one prefill step."""
    top: int
    """The number of candidates returned for each row."""
    element: Element
    groups: tuple[range, ...]
    """The layers of each group."""

    def __post_init__(self) -> None:
        a = self.architecture
        claims = (
            ("slots", self.slots, 1, ALWAYS_EXACT),
            ("length", self.length, 1, a.context),
            ("chunk", self.chunk, 1, self.length),
            ("top", self.top, 1, a.vocabulary),
        )
        for name, found, least, most in claims:
            if not least <= found <= most:
                raise refusal(f"--{name}", found, f"{least} to {most}", WrongInput)
        layers = [n for group in self.groups for n in group]
        if layers != list(range(a.layers)) or not all(self.groups):
            raise refusal("graph, groups", layers, f"layers 0 to {a.layers - 1} in turn")


def grouped(layers: int, size: int) -> tuple[range, ...]:
    """The layers in groups of that size; the last may be smaller."""
    return tuple(range(n, min(n + size, layers)) for n in range(0, layers, size))


@dataclass(frozen=True, slots=True)
class Written:
    """A written chain."""

    folder: Path
    links: tuple[Link, ...]
    """The files in the order in which they run."""
    digests: Mapping[str, str]
    """SHA-256 by file name."""


def group_name(group: range) -> str:
    """The name of a group's file."""
    return f"layers_{group[0]:02}_{group[-1]:02}"


def write(
    spec: GraphSpec,
    checkpoint: Checkpoint,
    folder: Path,
    advance: Callable[[int], object] = lambda size_bytes: None,
) -> Written:
    """Write the whole chain into `folder/graph`."""
    if spec.architecture != checkpoint.architecture:
        raise refusal("graph, architecture", "another than the checkpoint's", "the same")
    target = folder / GRAPH
    target.mkdir(parents=True, exist_ok=True)
    writers = [
        ("embed", range(0), _embed),
        *((group_name(group), group, _layers) for group in spec.groups),
        ("head", range(0), _head),
    ]
    links = []
    digests: dict[str, str] = {}
    for name, group, fill in writers:
        with Builder(target, name, spec.element, advance) as g:
            fill(g, spec, checkpoint, group)
            digests |= g.save()
        ports = _ports(g.inputs), _ports(g.outputs)
        links.append(Link(name, group.start, len(group), *ports))
    return Written(target, tuple(links), digests)


def _ports(ports: Sequence[Port]) -> dict[str, str]:
    return {p.name: f"{p.element} {','.join(map(str, p.shape))}" for p in ports}


def _embed(g: Builder, spec: GraphSpec, checkpoint: Checkpoint, _: range) -> None:
    a = spec.architecture
    w = Weights(g, checkpoint, "", a.rms_eps)
    ids = g.input("input_ids", INT64, ("B", "S"))
    g.output(w.own("model.embed_tokens.weight").rows(ids), "hidden", _hidden(a))


def _layers(g: Builder, spec: GraphSpec, checkpoint: Checkpoint, group: range) -> None:
    a = spec.architecture
    hidden = g.input("hidden", g.type, _hidden(a))
    lens = g.input("lens", INT64, ("B",))
    seen = sight(g, a, hidden, lens, spec.length)
    excess: list[Value] = []
    for n in group:
        hidden, over = _layer(g, spec, checkpoint, n, hidden, seen)
        excess.append(over)
    g.output(hidden, "hidden_out", _hidden(a))
    g.output(g.op("Max", *excess), "overflow", (1,))


def _layer(
    g: Builder, spec: GraphSpec, checkpoint: Checkpoint, n: int, hidden: Value, seen: Sight
) -> tuple[Value, Value]:
    """The residual stream after one layer, and the excess of its fullest expert over the
    capacity."""
    a = spec.architecture
    w = Weights(g, checkpoint, f"model.layers.{n}.", a.rms_eps)
    past_k, past_v = (g.input(f"past_{kv}_{n}", g.type, cache_shape(spec)) for kv in "kv")
    x = w.normed(hidden, "input_layernorm.weight")
    mixed, present = attention(w, a, x, seen, (past_k, past_v), windowed=n % 2 == 0)
    for kv, cache in zip("kv", present, strict=True):
        g.output(cache, f"present_{kv}_{n}", cache_shape(spec))
    hidden = hidden + mixed
    gate_up, down = (g.input(input_name(n, p), g.type, expert_shape(a, p)) for p in PROJECTIONS)
    x = w.normed(hidden, "post_attention_layernorm.weight")
    mixed, over = experts(w, a, x, (gate_up, down))
    return hidden + mixed, over


def _head(g: Builder, spec: GraphSpec, checkpoint: Checkpoint, _: range) -> None:
    """The head. Multiplies only the rows to read; everything after the product is in float32."""
    a = spec.architecture
    w = Weights(g, checkpoint, "", a.rms_eps)
    hidden = g.input("hidden", g.type, _hidden(a))
    last = g.input("last", INT64, ("B",))
    row = g.counted(hidden.size(0)) * hidden.size(1) + last
    x = w.normed(hidden.reshaped(-1, a.hidden).rows(row), "model.norm.weight")
    logits = g.op("Gemm", x, w.own("lm_head.weight"), transB=1).cast(FLOAT32)
    values, ids = logits.largest(spec.top)
    g.output(values, "values", ("B", spec.top))
    g.output(ids, "ids", ("B", spec.top))
    g.output(_log_sum_exp(logits, values.part(0, 1)), "lse", ("B",))
    g.output(logits, "logits", ("B", a.vocabulary))


def _log_sum_exp(logits: Value, largest: Value) -> Value:
    g = logits.graph
    total = g.op("Exp", logits - largest).summed(1, keep=True)
    return (g.op("Log", total) + largest).squeezed(1)


def _hidden(a: Architecture) -> Shape:
    return ("B", "S", a.hidden)


def cache_shape(spec: GraphSpec) -> Shape:
    """The shape of a cache."""
    a = spec.architecture
    return ("B", a.kv_heads, spec.length + 1, a.head_dim)
