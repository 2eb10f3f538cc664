"""Fragments: what a reader of model output returns. Values only: no ids, no items, no HTTP.

A generation is a sequence of messages, each `Opened`, any number of `Text`, `Closed`. A `Repaired`
may come anywhere: the model broke its dialect's rules, and the reader mended that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.wire.output import TokenLogprob

RepairKind = Literal[
    "stray_text",  # text where a header must begin
    "stray_control",  # a control id without a meaning at its place
    "malformed_header",  # a header that openai-harmony refuses
    "cut_header",  # the output ended inside a header
    "foreign_author",  # a message in another author's name; it ends the generation
    "missing_terminator",  # the engine reported a stop inside a message
    "undecodable",  # an id outside the vocabulary
    "unknown_recipient",  # a call to a tool that the request did not offer
    "no_answer",  # a turn that ended after its reasoning; it was continued once
]


class Opened(NamedTuple):
    """The header of a message. `channel` is None when the model named none."""

    channel: str | None
    recipient: str | None
    content_type: str | None


class Text(NamedTuple):
    """Content, as JSON string bodies: escaped, UTF-8, without quotes; joined they are the text.

    One piece per id that completed a character, or per stretch of a mended header.
    """

    pieces: Sequence[bytes]


class Scored(NamedTuple):
    """Content with log probabilities: the tokens of each piece."""

    pieces: Sequence[bytes]
    logprobs: Sequence[tuple[TokenLogprob, ...]]


class Closed(NamedTuple):
    """The end of a message: `whole` at a terminator, else cut."""

    whole: bool


class Repaired(NamedTuple):
    """A violation of the dialect's rules, which the reader mended."""

    kind: RepairKind


Fragment = Opened | Text | Scored | Closed | Repaired
