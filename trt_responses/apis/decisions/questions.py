"""Questions about an input, as the model reads them, and answers from the likelihood of its labels.

Each answer has a label of one or two tokens, and the model writes nothing else. Knows no
engine and no request.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from trt_responses.frozen import dataclass

Kind = Literal["predicate", "choice", "score"]
YES_OR_NO = (("yes",), ("no",))
FLAT = 16
"""Labels of one token, below the 20 likeliest tokens that engines give."""
LETTERS = string.ascii_uppercase[:FLAT]


class Option(NamedTuple):
    """One answer that the model may give."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One question, and what may be answered."""

    kind: Kind
    instructions: str
    options: Sequence[Option]
    place: str
    """Where it stands in the request, for faults."""

    @property
    def labels(self) -> Sequence[tuple[str, ...]]:
        """The tokens of each option's label: vocabularies keep letters and digits apart."""
        if self.kind == "predicate":
            return YES_OR_NO
        if self.kind == "score":
            return [(str(number),) for number in range(len(self.options))]
        if len(self.options) <= FLAT:
            return [(letter,) for letter in LETTERS[: len(self.options)]]
        return [(LETTERS[n // FLAT], str(n % FLAT + 1)) for n in range(len(self.options))]

    @property
    def reads(self) -> int:
        """How many requests the engine gets for it."""
        groups = {label[0] for label in self.labels if len(label) > 1}
        return 1 + len(groups)

    def text(self) -> str:
        """The question as the model reads it, behind the input."""
        lines = [f"Question about the above: {self.instructions}"]
        if self.kind == "predicate":
            described = [option for option in self.options if option.description]
            lines += [f"{option.name}: {option.description}" for option in described]
            lines.append("Is that true? Answer with yes or no only.")
            return "\n".join(lines)
        for label, (name, description) in zip(self.labels, self.options, strict=True):
            lines.append(f"{''.join(label)}: {name}" + (f" - {description}" if description else ""))
        what = "number of one level" if self.kind == "score" else "label of one option"
        return "\n".join([*lines, f"Answer with the {what} only."])


class Likelihood(NamedTuple):
    """How likely each option is, and how likely it was that the model answers with a label."""

    options: Sequence[float]
    """They add up to 1."""
    mass: float

    @property
    def best(self) -> int:
        return max(range(len(self.options)), key=self.options.__getitem__)

    @property
    def confidence(self) -> float:
        return self.options[self.best] * self.mass

    @property
    def score(self) -> float:
        """The mean level."""
        return sum(level * share for level, share in enumerate(self.options))


class Scale(NamedTuple):
    """How likelihoods of one kind of question are corrected."""

    temperature: float = 1.0
    """Above 1: less sure."""
    bias: float = 0.0
    """Added to the log odds of a predicate."""


Calibration = Mapping[Kind, Scale]


def likelihood(logs: Sequence[float], scale: Scale, kind: Kind) -> Likelihood:
    """The likelihood of options whose labels have these log probabilities."""
    mass = min(1.0, math.fsum(map(math.exp, logs)))
    scaled = [each / scale.temperature for each in logs]
    if kind == "predicate":
        scaled[0] += scale.bias
    top = max(scaled)
    weights = [math.exp(each - top) for each in scaled]
    total = math.fsum(weights)
    return Likelihood([weight / total for weight in weights], mass)
