"""The training loop: batches to weights, within steps and minutes.

Knows the model and the rows; knows neither the questions nor where weights go.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from scripts.demo import circuit, compact, data
from scripts.demo.exam import exam_source
from scripts.demo.families import FAMILIES
from scripts.demo.knowledge import knowledge
from scripts.demo.model import Model, Shape, rotation
from scripts.demo.rows import example
from scripts.demo.team import team

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from scripts.demo.model import Layer
    from scripts.demo.rows import Codec, Example
    from scripts.demo.team import Member

LONGEST = 6_000
PROMPT_SHARE = 0.2
"""Of the prompt's tokens, which count little, as many are learnt from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard to train. Whichever of `steps` and `minutes` ends first, ends."""

    steps: int = 10_000
    minutes: float = 35.0
    tokens: int = 3_072
    seed: int = 2026
    peak: float = 3e-3
    warmup: int = 80
    processes: int = 2
    """On the CPU, each with one thread."""
    decay: float = 0.02
    check_every: int = 500
    begin: Path | None = None
    """A compact source to go on from."""


@dataclass(slots=True)
class Progress:
    """What a run has shown so far."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    family_losses: dict[str, float] = field(default_factory=dict)
    family_curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    checks: list[tuple[int, dict[str, float], dict[str, float]]] = field(default_factory=list)
    """Step, then by family the share of whole replies right: seen and held-back wordings."""


def train(plan: Plan, watch: Callable[[Progress, float], None]) -> tuple[Model, Codec, Progress]:
    """Weights from nothing. `watch` hears of each step and of the share of the work done."""
    count = 1 if torch.cuda.is_available() else plan.processes
    with team(count, partial(_follow, plan)) as member:
        return _trained(plan, member, watch)


def _follow(plan: Plan, member: Member) -> None:
    _trained(plan, member, lambda seen, done: None)


def _trained(
    plan: Plan, member: Member, watch: Callable[[Progress, float], None]
) -> tuple[Model, Codec, Progress]:
    torch.manual_seed(plan.seed)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, known = _begun(plan)
    model.to(device)
    optimizers = _optimizers(model, plan)
    turns = [rotation(model.shape, LONGEST, truncate=t).to(device) for t in (False, True)]
    progress, start = Progress(), time.monotonic()
    examples = data.batches(known, plan.seed + member.rank, plan.tokens // member.count)
    checks = {held: check_set(known, held=held) for held in (False, True)}
    for step in range(plan.steps):
        model.zero_grad(set_to_none=True)
        loss = _learn(model, next(examples), turns[step % 2], plan, progress)
        gone = max(step / plan.steps, (time.monotonic() - start) / (60 * plan.minutes))
        done = member.agree([p.grad for p in model.parameters()], gone)
        if done >= 1:
            break
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = plan.peak * _pace(step, done, plan)
            optimizer.step()
        if not member.first:
            continue
        progress.steps.append(step)
        progress.losses.append(loss)
        if step % 20 == 0:
            for name, mean in progress.family_losses.items():
                progress.family_curves.setdefault(name, []).append((step, mean))
        if step % plan.check_every == plan.check_every - 1:
            _check(model, checks, turns[0], progress)
        watch(progress, done)
    if member.first:
        _check(model, checks, turns[0], progress)
        watch(progress, 1.0)
    return model, known, progress


def _begun(plan: Plan) -> tuple[Model, Codec]:
    """The weights that training begins with: those of an earlier run, or those that can copy."""
    if plan.begin is not None:
        return compact.read(plan.begin)
    known = data.codec()
    model = Model(Shape(), len(known.used) + 1)
    circuit.install(model, knowledge(known))
    return model, known


def _check(
    model: Model, checks: dict[bool, list[Example]], turn: Tensor, progress: Progress
) -> None:
    seen, held = (accuracy(model, checks[held], turn) for held in (False, True))
    progress.checks.append((progress.steps[-1], seen, held))


def _pace(step: int, done: float, plan: Plan) -> float:
    return min(1.0, (step + 1) / plan.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def _optimizers(model: Model, plan: Plan) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for what turns one hidden state into another, which it learns in fewer steps; AdamW for
    what is looked up by row, and for what has one dimension."""
    inner = [weight for layer in model.layers for weight in _matrices(layer)]
    known = {id(weight) for weight in inner}
    others = [p for p in model.parameters() if id(p) not in known]
    groups = [
        {"params": [p for p in others if p.dim() > 1], "weight_decay": plan.decay},
        {"params": [p for p in others if p.dim() == 1], "weight_decay": 0.0},
    ]
    return (
        torch.optim.Muon(
            inner, lr=plan.peak, weight_decay=plan.decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(groups, lr=plan.peak, betas=(0.9, 0.98), fused=True),
    )


def _matrices(layer: Layer) -> tuple[Tensor, ...]:
    """A layer's large weights, each with hidden states on one side."""
    attention, mlp = layer.self_attn, layer.mlp
    linear = (attention.qkv_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj)
    return (*(each.weight for each in linear), mlp.down_proj)


def _learn(
    model: Model, batch: Sequence[Example], turn: Tensor, plan: Plan, progress: Progress
) -> float:
    """The gradient of a batch, as its share of a whole one."""
    device = turn.device
    rows, weights = padded(batch)
    rows, weights = rows.to(device), weights.to(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        hidden = model(rows[:, :-1], turn[:, : rows.shape[1] - 1])
        where = weights[:, 1:] > 0.5
        where |= (weights[:, 1:] > 0) & (torch.rand(where.shape, device=device) < PROMPT_SHARE)
        logits = model.logits(hidden[where])
    target, weight = rows[:, 1:][where], weights[:, 1:][where]
    losses = functional.cross_entropy(logits, target, reduction="none")
    loss = (losses * weight).sum() / (0.25 * plan.tokens)
    loss.backward()
    return _note(batch, losses.detach(), where, weights[:, 1:], progress)


def _note(
    batch: Sequence[Example],
    losses: Tensor,
    where: Tensor,
    weights: Tensor,
    progress: Progress,
) -> float:
    """Mean loss of the reply's tokens: of the batch, and by family as a moving mean."""
    spread = torch.zeros_like(weights)
    spread[where] = losses
    reply = weights > 0.5
    sums, counts = (spread * reply).sum(1).tolist(), reply.sum(1).tolist()
    names = tuple(FAMILIES)
    for one, total, count in zip(batch, sums, counts, strict=True):
        name, mean = names[one.family], total / max(count, 1)
        progress.family_losses[name] = 0.99 * progress.family_losses.get(name, mean) + 0.01 * mean
    return float(sum(sums) / max(1.0, sum(counts)))


def padded(batch: Sequence[Example]) -> tuple[Tensor, Tensor]:
    length = data.rounded(max(len(one.rows) for one in batch))
    rows = np.zeros((len(batch), length), np.int64)
    weights = np.zeros((len(batch), length), np.float32)
    for i, one in enumerate(batch):
        rows[i, : len(one.rows)] = one.rows
        weights[i, : len(one.rows)] = one.weights
    return torch.from_numpy(rows), torch.from_numpy(weights)


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


def accuracy(model: Model, examples: Sequence[Example], turn: Tensor) -> dict[str, float]:
    """By family: the share of replies whose every token is the likeliest, given those before."""
    right: dict[str, list[bool]] = {}
    names = tuple(FAMILIES)
    for at in range(0, len(examples), 24):
        batch = examples[at : at + 24]
        for one, whole in zip(batch, _whole(model, batch, turn), strict=True):
            right.setdefault(names[one.family], []).append(whole)
    return {name: sum(found) / len(found) for name, found in right.items()}


def _whole(model: Model, batch: Sequence[Example], turn: Tensor) -> list[bool]:
    rows, weights = padded(batch)
    rows = rows.to(turn.device)
    with torch.no_grad(), torch.autocast(turn.device.type, dtype=torch.bfloat16):
        best = model.logits(model(rows[:, :-1], turn[:, : rows.shape[1] - 1])).argmax(-1)
    same = (best == rows[:, 1:]).cpu() | (weights[:, 1:] < 1)
    return [bool(whole) for whole in same.all(1)]
