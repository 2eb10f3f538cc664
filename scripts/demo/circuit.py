"""Initial weights that can already copy, and that know whose a declared parameter is.

Knows the model's tensors; knows no data but what a row stands for.

Layer 0 writes, beside each token, a rotated picture of the token before it. Layer 1 looks for the
place whose previous token is the current one, and writes that place's token through another
rotation, in which the output rows read it. Other heads of the full layers carry tokens in the same
way, but are left to learn where to look. One looks for the place whose previous token is the
previous one here: behind a name in JSON, that is the value that the question has for it.

Behind a function's name its declared parameter is found in the same way: two more heads of layer 0
write, beside each token, a picture of the function that was named last, and one of layer 1 looks
for a parameter beside which the token before is pictured. Training alone does not find this.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from scripts.demo.model import rotation

if TYPE_CHECKING:
    from torch import Tensor

    from scripts.demo.knowledge import Rows
    from scripts.demo.model import Model, Shape

PERIODS = (2, 5, 10, 20, 45)
FAST_PAIRS = 8
SLOW_PAIR = 14
"""From this pair on, a rotation over some hundred tokens hardly matters."""
GAP_PLACE = 30
"""Of the slow pairs, the one by which layer 0 knows what to pass over."""
MARKED = (1.0, 1.0, 1.0, 2.0)
"""The size of each mark beside what else tells a word: functions, parameters, gaps, signs."""
NEAR_PAIRS = slice(5, 11)
"""These together are the less alike the farther apart two tokens are, up to some thirty tokens."""


def install(model: Model, rows: Rows) -> None:
    with torch.no_grad():
        _install(model, rows)


def _install(model: Model, rows: Rows) -> None:
    shape = model.shape
    generator = torch.Generator().manual_seed(7)
    marks = torch.linalg.qr(torch.randn(shape.hidden, 4, generator=generator))[0].T
    function, parameter, gap, sign = marks
    words, spelled = _words(shape.hidden, rows, marks, generator)
    before, onward, named = (orthogonal(shape.hidden, generator) for _ in range(3))
    model.embed_tokens.weight.copy_(words)
    model.lm_head.weight.copy_(0.25 * spelled @ onward.T)
    for layer in model.layers:
        linear = layer.self_attn.qkv_proj
        torch.nn.init.normal_(linear.weight, std=0.6 * shape.hidden**-0.5, generator=generator)
        torch.nn.init.zeros_(linear.bias)
        torch.nn.init.normal_(layer.self_attn.o_proj.weight, std=0.015, generator=generator)
        torch.nn.init.zeros_(layer.self_attn.o_proj.bias)
        torch.nn.init.normal_(layer.mlp.router.weight, std=0.05, generator=generator)
        torch.nn.init.zeros_(layer.mlp.router.bias)
    _previous_token(model, before, gap)
    _carriers(model, onward)
    _induction(model, before, marks)
    _value_of(model, before, _without(sign[None], before @ marks.T)[0])
    _last_function(model, named, function)
    _parameter_of(model, before, named, parameter)
    _shun_unused(model, generator)
    _make_as_words(model, marks, onward)


def _words(
    hidden: int, rows: Rows, marks: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """What each row is made of, with its marks and without."""
    own, shared = torch.randn(2, max(len(rows.kin), max(rows.kin) + 1), hidden, generator=generator)
    common = torch.randn(1 + max(kind or 0 for kind in rows.kinds), hidden, generator=generator)
    circles = torch.randn(len(PERIODS), 2, hidden, generator=generator)
    words = own[: len(rows.kin)] * 0.45 + shared[list(rows.kin)] * 0.8
    for row, kind in enumerate(rows.kinds):
        if kind is not None:
            words[row] += 0.5 * common[kind]
    for row, number in rows.numbers.items():
        for period, (across, up) in zip(PERIODS, circles, strict=True):
            angle = 2 * math.pi * number / period
            words[row] += 0.4 * (math.cos(angle) * across + math.sin(angle) * up)
    words -= words @ marks.T @ marks
    spelled = _even(words)
    marked = (rows.functions, rows.parameters, rows.gaps, rows.signs)
    for members, mark, size in zip(marked, marks, MARKED, strict=True):
        words[list(members)] += mark * size * hidden**0.5
    return _even(words), spelled


def _even(rows: Tensor) -> Tensor:
    return rows * rows.pow(2).mean(1, keepdim=True).rsqrt()


def _carriers(model: Model, onward: Tensor) -> None:
    """Heads of the full layers that name the token they look at, wherever they learn to look."""
    shape = model.shape
    basis = orthogonal(shape.hidden, torch.Generator().manual_seed(13))
    for layer in model.layers[1::2]:
        for kv in range(shape.kv_heads):
            head = kv * (shape.heads // shape.kv_heads)
            (_, _, wv), _ = layer.self_attn.parts(head)
            carried = basis[kv * shape.head_dim : (kv + 1) * shape.head_dim]
            wv.copy_(carried)
            layer.self_attn.o_proj.weight[:, _head(shape, head)] = 1.5 * onward @ carried.T


def _shun_unused(model: Model, generator: torch.Generator) -> None:
    """A direction that is always there, and that the row of the unused ids is against."""
    signs = torch.randint(0, 2, (model.shape.hidden,), generator=generator) * 2.0 - 1
    model.layers[-1].self_attn.o_proj.bias.copy_(signs)
    unit = signs / signs.norm()
    heads = model.lm_head.weight
    heads.sub_(torch.outer(heads @ unit, unit))
    heads[-1] = -6.0 * unit


def _make_as_words(model: Model, marks: Tensor, onward: Tensor) -> None:
    """What is made is a word without marks, and is read as words are."""
    hidden = model.shape.hidden
    plain = 1.09 * (torch.eye(hidden) - marks.T @ marks)
    model.made_embed.matrix.copy_(plain)
    model.made_head.matrix.copy_(0.25 * onward @ plain)


def orthogonal(size: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=generator))[0]


def _previous_token(model: Model, before: Tensor, gap: Tensor) -> None:
    """Heads 0 and 2, one of each key-value pair, together carry the whole token. What stands
    between a name and its value is passed over, so that the value has the name before it."""
    shape, attention = model.shape, model.layers[0].self_attn
    half = shape.hidden // 2
    turn = rotation(shape, 2, truncate=False)
    cos, sin = turn[:, 1] / turn[0, 0, 0]
    for kv in range(2):
        head = kv * (shape.heads // shape.kv_heads)
        (wq, wk, wv), (q, k, _) = attention.parts(head)
        wq *= 0.1
        wk *= 0.1
        k[:FAST_PAIRS] = 5.0
        q[:FAST_PAIRS] = 5.0 * cos[:FAST_PAIRS]
        q[shape.head_dim // 2 :][:FAST_PAIRS] = -5.0 * sin[:FAST_PAIRS]
        wk[GAP_PLACE], q[GAP_PLACE] = 4.0 * gap, -4.0
        carried = torch.eye(shape.hidden)[kv * half : (kv + 1) * half]
        wv.copy_(carried[: shape.head_dim])
        attention.o_proj.weight[:, _head(shape, head)] = 0.9 * (before @ carried.T)


def _induction(model: Model, before: Tensor, marks: Tensor) -> None:
    """Head 0 of layer 1: matches in the slow pairs, where distance does not turn them. The marks of
    the token itself are none of what is matched."""
    shape, attention = model.shape, model.layers[1].self_attn
    half = shape.head_dim // 2
    places = [*range(SLOW_PAIR, half - 1), *range(half + SLOW_PAIR, shape.head_dim - 1)]
    match = orthogonal(shape.hidden, torch.Generator().manual_seed(11))[: len(places)]
    match = _without(match, before.T @ marks.T) * 2.4
    q, k = torch.zeros(2, shape.head_dim, shape.hidden)
    q[places], k[places] = match, match @ before.T
    (wq, wk, _), _ = attention.parts(0)
    wq.copy_(q)
    wk.copy_(k)
    attention.o_proj.weight[:, _head(shape, 0)] *= 2.0


def _value_of(model: Model, before: Tensor, sign: Tensor) -> None:
    """Head 1 of layer 1, behind a name, looks at what stands behind that name elsewhere: it asks
    for the token before, where head 0 asks for the token itself."""
    shape, attention = model.shape, model.layers[1].self_attn
    mark = shape.head_dim // 2 - 1
    (queried, _, _), _ = attention.parts(0)
    (wq, wk, _), (q, _, _) = attention.parts(1)
    wq.copy_(queried @ before.T)
    wk[mark], q[mark] = 2.0 * sign, -8.0
    attention.sinks[1] = 5.0
    weight = attention.o_proj.weight
    weight[:, _head(shape, 1)] = weight[:, _head(shape, 0)]


def _without(rows: Tensor, directions: Tensor) -> Tensor:
    """The rows without what they have in any of the directions, which are columns."""
    basis = torch.linalg.qr(directions)[0]
    return rows - rows @ basis @ basis.T


def _last_function(model: Model, named: Tensor, function: Tensor) -> None:
    """Heads 1 and 3 of layer 0 look at the nearest end of a function's name, or at nothing."""
    shape, attention = model.shape, model.layers[0].self_attn
    half, mark = shape.hidden // 2, shape.head_dim // 2 - 1
    for kv in range(2):
        head = kv * (shape.heads // shape.kv_heads) + 1
        (wq, wk, _), (q, k, _) = attention.parts(head)
        wq *= 0.1
        wk[mark], q[mark] = 2.5 * function, 4.0
        k[NEAR_PAIRS], q[NEAR_PAIRS] = 5.0, 0.9
        attention.sinks[head] = 8.0
        carried = torch.eye(shape.hidden)[kv * half : (kv + 1) * half]
        attention.o_proj.weight[:, _head(shape, head)] = 0.9 * (named @ carried.T)


def _parameter_of(model: Model, before: Tensor, named: Tensor, parameter: Tensor) -> None:
    """Head 3 of layer 1, behind a function's name, looks at its parameter; elsewhere at nothing."""
    shape, attention = model.shape, model.layers[1].self_attn
    half = shape.head_dim // 2
    mark = half - 1
    places = [*range(SLOW_PAIR, mark), *range(half + SLOW_PAIR, half + mark)]
    match = orthogonal(shape.hidden, torch.Generator().manual_seed(17))[: len(places)] * 1.7
    (wq, wk, _), (q, _, _) = attention.parts(3)
    wq.zero_()
    wq[places], wk[places] = match @ before.T, match @ named.T
    wk[mark], q[mark] = 2.5 * parameter, 6.0
    attention.sinks[3] = 20.0
    weight = attention.o_proj.weight
    weight[:, _head(shape, 3)] = weight[:, _head(shape, 2)]


def _head(shape: Shape, index: int) -> slice:
    return slice(index * shape.head_dim, (index + 1) * shape.head_dim)
