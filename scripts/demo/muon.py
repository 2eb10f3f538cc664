"""Muon, for matrices of few shapes: those of one shape take their step together.

A GPU is done with a small matrix before the next one is asked for, so a hundred of them one by one
are a third of a step's time. Knows gradients; knows no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon(torch.optim.Optimizer):  # type: ignore[misc]  # torch may have no types here
    """As `torch.optim.Muon` with Nesterov's momentum; a rate is that of AdamW."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        by_shape: dict[tuple[int, ...], list[Tensor]] = {}
        for matrix in matrices:
            by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
        groups = [{"params": alike} for alike in by_shape.values()]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    def step(self) -> None:
        with torch.no_grad():
            self._step()

    def _step(self) -> None:
        for group in self.param_groups:
            alike, rate = group["params"], group["lr"]
            gradients = torch.stack([matrix.grad for matrix in alike])
            state = self.state[alike[0]]
            mean = state.setdefault("mean", torch.zeros_like(gradients))
            mean.lerp_(gradients, 1 - MOMENTUM)
            turned = orthogonal(gradients.lerp(mean, MOMENTUM)).to(gradients.dtype)
            torch._foreach_mul_(alike, 1 - rate * group["weight_decay"])
            size = 0.2 * max(alike[0].shape) ** 0.5
            torch._foreach_add_(alike, list(turned.unbind()), alpha=-rate * size)


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrix of each, roughly: Newton and Schulz's iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
