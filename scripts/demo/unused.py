"""How likely the model finds ids that it was never shown: by the NumPy forward, in full.

Knows the checkpoint and the exam; needs no engine, because no engine shows every probability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scripts.demo import exam
from scripts.demo.rows import encode
from trt_responses.prepare.checkpoint.forward import Reference
from trt_responses.prepare.checkpoint.safetensors import read_tensors
from trt_responses.prepare.demo import COMPACT, USED_IDS

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.checkpoint.open import Checkpoint


def mass(checkpoint: Checkpoint, source: Path, seed: int) -> dict[str, float]:
    """Probability of all unused ids together, over the tokens of right replies."""
    reference = Reference(checkpoint)
    used = read_tensors(source / COMPACT)[USED_IDS].read()
    found: list[float] = []
    for question in exam.questions(1, seed, held=True):
        reply = encode(question.expected)
        shown = reference.logprobs(question.prompt_ids + reply[:-1], last=len(reply))
        unused = np.ones(shown.shape[1], bool)
        unused[used] = unused[question.prompt_ids] = unused[reply] = False
        found += np.exp(shown[:, unused].astype(np.float64)).sum(axis=1).tolist()
    return {"mean": float(np.mean(found)), "max": float(np.max(found)), "tokens": len(found)}
