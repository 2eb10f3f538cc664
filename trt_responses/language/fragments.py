"""Fragments: what a reader of a model's language says. Values only: no ids, no items, no HTTP.

A generation is a row of messages, each `Opened`, any number of `Text`, `Closed`. A `Repaired` may
stand anywhere and says that what the model wrote broke its dialect's rules and how it was mended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.wire.output import TokenLogprob

RepairKind = Literal[
    "stray_text",  # text where a header must begin
    "stray_control",  # a control id where it means nothing
    "malformed_header",  # a header that openai-harmony refuses
    "cut_header",  # the output ended inside a header
    "foreign_author",  # a message in another author's name; it ends the generation
    "missing_terminator",  # the output ended inside a message although the engine said it stopped
    "undecodable",  # an id outside the vocabulary
    "unknown_recipient",  # a call to something that the request did not offer
    "no_answer",  # a turn that ended after its thought; it was continued once
]


class Opened(NamedTuple):
    """The header of a message was read. `channel` is None when the model named none."""

    channel: str | None
    recipient: str | None
    content_type: str | None


class Text(NamedTuple):
    """Content, as JSON string bodies: escaped, UTF-8, without quotes; joined they are the text.

    One piece for each id that completed a character, or for the words of a mended header.
    """

    pieces: Sequence[bytes]


class Scored(NamedTuple):
    """Content with its likelihood: for each piece, the tokens that make it up."""

    pieces: Sequence[bytes]
    logprobs: Sequence[tuple[TokenLogprob, ...]]


class Closed(NamedTuple):
    """The message ended, whole at a terminator, or cut."""

    whole: bool


class Repaired(NamedTuple):
    """The model broke its dialect's rules, which was mended as `kind` says."""

    kind: RepairKind


Fragment = Opened | Text | Scored | Closed | Repaired
