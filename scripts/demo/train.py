"""The training loop: batches to weights, within steps and minutes.

Knows the model and the rows; knows neither the questions nor where weights go.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from scripts.demo import circuit, compact, data, tuning
from scripts.demo.exam import exam_source
from scripts.demo.families import FAMILIES
from scripts.demo.knowledge import knowledge
from scripts.demo.makers import making
from scripts.demo.model import Model, Shape, rotation
from scripts.demo.muon import Muon
from scripts.demo.rows import Codec, example
from scripts.demo.team import team
from scripts.demo.unlisted import HARD_PLACES, SAMPLED, UnlistedTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from scripts.demo.model import ExtraRows, Layer
    from scripts.demo.rows import Example
    from scripts.demo.team import Member

LONGEST = 16_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard to train. Whichever of `steps` and `minutes` ends first, ends."""

    steps: int = 10_000
    minutes: float = 35.0
    tokens: int = 3_072
    seed: int = 2026
    prompt_share: float = 0.2
    """Of the prompt's tokens, which count little, as many are learnt from."""
    peak: float = 3e-3
    warmup: int = 80
    device: str = "cpu"
    processes: int = 2
    """On the CPU, each with one thread."""
    makers: int = 0
    """Processes that make the conversations; none: those that train do."""
    whole: bool = False
    """Compare each token with the whole vocabulary, as an engine does, not with a sample."""
    decay: float = 0.02
    check_every: int = 500
    begin: Path | None = None
    """A compact source to go on from."""
    tune: Path | None = None
    """A compact source to tune: its layers learn on, its rows stay, and the result is the mean of
    both. Its conversations are those of `tuning`."""
    kept: Path | None = None
    """The file of the training's state. Where it exists, training resumes: `minutes` are those that
    are left."""
    keep_every: int = 50
    note_every: int = 1
    """Steps between two notes of the loss, for each of which a GPU has to wait."""


@dataclass(slots=True)
class Progress:
    """What a run has shown so far."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    family_losses: dict[str, float] = field(default_factory=dict)
    family_curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    checks: list[tuple[int, dict[str, float], dict[str, float]]] = field(default_factory=list)
    """Step, then by family the share of whole replies right: seen and held-back wordings."""


class Loss(NamedTuple):
    """What a batch has cost, on the device: of each place that is learnt."""

    batch: Sequence[Example]
    values: Tensor
    places: Tensor
    weights: Tensor


def train(plan: Plan, watch: Callable[[Progress, float], None]) -> tuple[Model, Codec, Progress]:
    """Weights from nothing. `watch` hears of each step and of the share of the work done."""
    with team(plan.processes, partial(_follow, plan)) as member:
        return _trained(plan, member, watch)


def _follow(plan: Plan, member: Member) -> None:
    _trained(plan, member, lambda seen, done: None)


def _trained(
    plan: Plan, member: Member, watch: Callable[[Progress, float], None]
) -> tuple[Model, Codec, Progress]:
    torch.manual_seed(plan.seed)
    torch.set_num_threads(1)
    device = torch.device(plan.device)
    kept = _kept(plan)
    model, known = _begun(plan) if kept is None else _resumed(kept)
    model.to(device)
    before_tuning = _frozen(model) if plan.tune is not None else {}
    optimizers = _optimizers(model, plan)
    first, before = (0, 0.0) if kept is None else (kept["step"], kept["done"])
    for optimizer, state in zip(optimizers, kept["optimizers"] if kept else (), strict=False):
        optimizer.load_state_dict(state)
    turns = [rotation(model.shape, LONGEST, truncate=t).to(device) for t in (False, True)]
    progress, start = Progress(), time.monotonic()
    seed = plan.seed + member.rank + first
    make = partial(_made, known, seed, plan.tokens // member.count, plan.tune)
    unlisted = UnlistedTokens(known, seed, whole=plan.whole, device=plan.device)
    held_back = () if plan.tune is not None else (False, True)
    checks = {held: check_set(known, held=held) for held in held_back}
    with making(plan.makers, make) as examples:
        for step in range(first, plan.steps):
            model.zero_grad(set_to_none=True)
            loss = _learn(model, next(examples), unlisted, turns[step % 2], plan)
            gone = (step - first) / max(1, plan.steps - first)
            gone = max(gone, (time.monotonic() - start) / (60 * plan.minutes))
            gone = before + (1 - before) * gone
            done = member.agree([p.grad for p in _learning(model)], gone)
            if done >= 1:
                break
            torch.nn.utils.clip_grad_norm_(_learning(model), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = plan.peak * _pace(step, done, plan)
                optimizer.step()
            if not member.first:
                continue
            if plan.kept is not None and step % plan.keep_every == plan.keep_every - 1:
                state = {"model": model.state_dict(), "used": known.used, "step": step + 1}
                both = [optimizer.state_dict() for optimizer in optimizers]
                _keep(plan.kept, state | {"done": done, "optimizers": both})
            if step % plan.note_every:
                continue
            progress.steps.append(step)
            progress.losses.append(_note(loss, progress))
            if step % 20 == 0:
                for name, mean in progress.family_losses.items():
                    progress.family_curves.setdefault(name, []).append((step, mean))
            if checks and step % plan.check_every == plan.check_every - plan.note_every:
                _check(model, checks, unlisted, turns[0], progress)
            watch(progress, done)
    _halve(model, before_tuning)
    if member.first and checks:
        _check(model, checks, unlisted, turns[0], progress)
        watch(progress, 1.0)
    return model, known, progress


def _made(
    known: Codec, seed: int, tokens: int, tune: Path | None, maker: int
) -> Iterator[list[Example]]:
    """The batches that one process makes."""
    drawn = data.draw if tune is None else tuning.draw
    return data.batches(known, seed + 1_000 * maker, tokens, drawn=drawn)


def _kept(plan: Plan) -> dict[str, Any] | None:
    """The state of a training that was cut."""
    if plan.kept is None or not plan.kept.exists():
        return None
    state: dict[str, Any] = torch.load(plan.kept, weights_only=True)
    return state


def _keep(path: Path, state: dict[str, Any]) -> None:
    """Write the state whole: a training that is cut meanwhile leaves the one before."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def _resumed(state: dict[str, Any]) -> tuple[Model, Codec]:
    known = Codec.of(state["used"])
    model = Model(Shape(), len(known.used) + 1)
    model.load_state_dict(state["model"])
    return model, known


def _begun(plan: Plan) -> tuple[Model, Codec]:
    """The weights that training begins with: those of an earlier run, which may know fewer words,
    or those that can copy."""
    if plan.tune is not None:
        return compact.read(plan.tune)
    if plan.begin is not None:
        return compact.read(plan.begin, data.codec())
    known = data.codec()
    model = Model(Shape(), len(known.used) + 1)
    circuit.install(model, knowledge(known))
    return model, known


def _learning(model: Model) -> list[Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def _frozen(model: Model) -> dict[str, Tensor]:
    """All weights as they are. Those of the vocabulary learn nothing from here on: rows that a mix
    seldom shows would fall behind the others."""
    parts = (model.embed_tokens, model.lm_head, model.made_embed, model.made_head)
    for part in parts:
        part.requires_grad_(False)
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def _halve(model: Model, before: dict[str, Tensor]) -> None:
    """Go back half the way to the weights before."""
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name in before:
                weight.lerp_(before[name], 0.5)


def _check(
    model: Model,
    checks: dict[bool, list[Example]],
    unlisted: UnlistedTokens,
    turn: Tensor,
    progress: Progress,
) -> None:
    seen, held = (accuracy(model, checks[held], unlisted, turn) for held in (False, True))
    progress.checks.append((progress.steps[-1], seen, held))


def _pace(step: int, done: float, plan: Plan) -> float:
    return min(1.0, (step + 1) / plan.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def _optimizers(model: Model, plan: Plan) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for what turns one hidden state into another, which it learns in fewer steps; AdamW for
    what is looked up by row, and for what has one dimension."""
    inner = [weight for layer in model.layers for weight in _matrices(layer)]
    known = {id(weight) for weight in inner}
    others = [p for p in _learning(model) if id(p) not in known]
    groups = [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": plan.decay},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ]
    return (
        Muon(inner, plan.peak, plan.decay),
        torch.optim.AdamW(groups, lr=plan.peak, betas=(0.9, 0.98), fused=True),
    )


def _matrices(layer: Layer) -> tuple[Tensor, ...]:
    """A layer's large weights, each with hidden states on one side."""
    attention, mlp = layer.self_attn, layer.mlp
    linear = (attention.qkv_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj)
    return (*(each.weight for each in linear), mlp.down_proj)


def _learn(
    model: Model, batch: Sequence[Example], unlisted: UnlistedTokens, turn: Tensor, plan: Plan
) -> Loss:
    """The gradient of a batch, as its share of a whole one."""
    device = turn.device
    rows, weights, extra = padded(batch, unlisted)
    target, weight = rows[:, 1:].flatten(), weights[:, 1:].flatten()
    where = weight > 0.5
    where |= (weight > 0) & (torch.rand(where.shape) < plan.prompt_share)
    (places,) = where.nonzero(as_tuple=True)
    target, weight, at = (each.to(device) for each in (target[places], weight[places], places))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        hidden = model(rows[:, :-1].to(device), turn[:, : rows.shape[1] - 1], extra)
        hidden = hidden.flatten(0, 1)[at]
        logits = model.logits(hidden, extra)
        if not unlisted.whole:
            likely = _hard_negatives(model, hidden, target, batch, unlisted, plan)
            logits = torch.cat((logits, likely), 1)
    losses = functional.cross_entropy(logits, target, reduction="none")
    ((losses * weight).sum() / (0.25 * plan.tokens)).backward()
    return Loss(batch, losses.detach(), places, weights[:, 1:])


def _hard_negatives(
    model: Model,
    hidden: Tensor,
    target: Tensor,
    batch: Sequence[Example],
    unlisted: UnlistedTokens,
    plan: Plan,
) -> Tensor:
    """The logits of unlisted tokens that are not in the batch, and that are likely all the same."""
    in_batch = unlisted.ids(batch)
    extra = target - (len(model.embed_tokens.weight))
    places = (extra >= 0).nonzero()[:, 0]
    places = places[torch.randperm(len(places))[:HARD_PLACES]]
    ids = in_batch[extra[places]]
    if plan.tune is not None:
        listed = (extra < 0).nonzero()[:, 0]
        listed = listed[torch.randperm(len(listed))[:HARD_PLACES]]
        places, ids = torch.cat((places, listed)), torch.cat((ids, ids.new_full(listed.shape, -1)))
    if not len(places):
        return hidden.new_zeros(len(hidden), 0).float()
    heads = unlisted.hard_negatives(hidden[places].detach(), ids, model.made_head)
    return functional.linear(hidden, heads).float()


def _note(loss: Loss, progress: Progress) -> float:
    """Mean loss of the reply's tokens: of the batch, and by family as a moving mean."""
    spread = torch.zeros_like(loss.weights).flatten()
    spread[loss.places] = loss.values.cpu()
    reply = loss.weights > 0.5
    sums = (spread.view_as(reply) * reply).sum(1).tolist()
    counts = reply.sum(1).tolist()
    names = tuple(FAMILIES)
    for one, total, count in zip(loss.batch, sums, counts, strict=True):
        name, mean = names[one.family], total / max(count, 1)
        progress.family_losses[name] = 0.99 * progress.family_losses.get(name, mean) + 0.01 * mean
    return float(sum(sums) / max(1.0, sum(counts)))


def padded(
    batch: Sequence[Example], unlisted: UnlistedTokens, sampled: int = SAMPLED
) -> tuple[Tensor, Tensor, ExtraRows]:
    length = data.rounded(max(len(one.rows) for one in batch))
    rows = np.zeros((len(batch), length), np.int64)
    weights = np.zeros((len(batch), length), np.float32)
    for i, one in enumerate(batch):
        rows[i, : len(one.rows)] = one.rows
        weights[i, : len(one.rows)] = one.weights
    numbered, extra = unlisted.with_extra_rows(rows, sampled=sampled)
    return torch.from_numpy(numbered), torch.from_numpy(weights), extra


def check_set(known: Codec, *, held: bool, each: int = 24) -> list[Example]:
    """The same questions at every check; examined apart from the final report."""
    rng = random.Random(99)
    source = exam_source(rng, held=held)
    made = []
    for family in FAMILIES.values():
        for _ in range(each):
            dialogue = data.settled(family(source), source, padding=False)
            made.append(example(dialogue, known, rng, plain=True))
    return sorted(made, key=lambda one: len(one.rows))


def accuracy(
    model: Model, examples: Sequence[Example], unlisted: UnlistedTokens, turn: Tensor
) -> dict[str, float]:
    """By family: the share of replies whose every token is the likeliest, given those before."""
    right: dict[str, list[bool]] = {}
    names = tuple(FAMILIES)
    for at in range(0, len(examples), 24):
        batch = examples[at : at + 24]
        for one, whole in zip(batch, _whole(model, batch, unlisted, turn), strict=True):
            right.setdefault(names[one.family], []).append(whole)
    return {name: sum(found) / len(found) for name, found in right.items()}


def _whole(
    model: Model, batch: Sequence[Example], unlisted: UnlistedTokens, turn: Tensor
) -> list[bool]:
    rows, weights, extra = padded(batch, unlisted, sampled=0)
    where = weights[:, 1:] == 1
    device = turn.device
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
        hidden = model(rows[:, :-1].to(device), turn[:, : rows.shape[1] - 1], extra)
        best = model.logits(hidden[where.to(device)], extra).argmax(-1).cpu()
    same = torch.ones_like(where)
    same[where] = best == rows[:, 1:][where]
    return [bool(whole) for whole in same.all(1)]
