"""Published chat templates that describe themselves: `tests/data/templates/forms`.

The folder that `CHAT_TEMPLATES` names may hold more of them, such as those whose licences do not
let them stand here; a template counts only with the digest that `forms.json` has of it. To write
that file anew, in an environment with transformers and with the folder: `python -m
tests.support.golden_renders`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_responses.dialects.templates.families import find
from trt_responses.dialects.templates.forms import fitted
from trt_responses.dialects.templates.pieces import core
from trt_responses.dialects.templates.read.bodies import marks_of
from trt_responses.dialects.templates.write.template import Template

if TYPE_CHECKING:
    from trt_responses.dialects.templates.families import Family

FOLDER = Path(__file__).parents[1] / "data" / "templates" / "forms"
FILE = FOLDER.parent / "forms.json"
SPECIAL = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
TOKEN = re.compile(
    r"<\|\"\|>|<[^<>\s=\"]+>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[|[\[\]](?:~!?b|e~)[\[\]]"
)
"""What would be one token of a checkpoint's vocabulary."""


class Every:
    """A vocabulary with every token."""

    def __contains__(self, text: object) -> bool:
        return True


@cache
def recorded() -> dict[str, Any]:
    """What is known of each template."""
    known: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return known


@cache
def places() -> dict[str, Path]:
    """Where the templates stand."""
    others = os.environ.get("CHAT_TEMPLATES")
    found = [*([*Path(others).glob("*.jinja")] if others else ()), *FOLDER.glob("*.jinja")]
    return {path.stem: path for path in sorted(found)}


@cache
def names() -> list[str]:
    """The templates that are here, as they were when `forms.json` was written."""
    known = recorded()["templates"]
    return [name for name in places() if known.get(name, {}).get("digest") == digest(name)]


def with_calls() -> list[str]:
    """Those whose calls can be read."""
    return [name for name in names() if recorded()["templates"][name]["calls"]]


def source(name: str) -> str:
    return places()[name].read_text("utf-8")


def digest(name: str) -> str:
    return hashlib.sha256(source(name).encode()).hexdigest()


def template(name: str) -> Template:
    return Template(source(name), SPECIAL)


@cache
def family(name: str) -> Family:
    row = find(source(name), Every(), terminators=())  # type: ignore[arg-type]  # enough for a row
    return fitted(row, template(name).render, source(name))


def controls(one: Family) -> tuple[str, ...]:
    """The tokens of a vocabulary that has the family's marks."""
    marks = {
        *one.terminators,
        *one.foreign,
        *one.frames,
        *(one.thought or ()),
        SPECIAL["eos_token"],
    }
    if (calls := one.calls) is not None:
        marks |= {*marks_of(calls), calls.open, calls.close, *map(core, calls.section or ())}
    return tuple(sorted(mark for mark in marks if TOKEN.fullmatch(mark)))
