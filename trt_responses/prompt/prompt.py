"""Makes the ids that the engine is shown: history, items and instructions, as far as there is room.

Knows the store's seam and the renderer; knows no engine and no run.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import orjson

from trt_responses.errors import InvalidRequest, unsupported_value
from trt_responses.frozen import dataclass
from trt_responses.language.messages import NOTHING, Developer, Namespace, ResponseFormat, System
from trt_responses.prompt import conversation
from trt_responses.prompt.carrier import RequestItems
from trt_responses.prompt.history import spoken_here
from trt_responses.steering.tools import shown
from trt_responses.wire.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    ItemReference,
)
from trt_responses.wire.past_calls import PlainPastCall, settled_places

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, Effort
    from trt_responses.dialect import Continuation
    from trt_responses.language.messages import Effort as LanguageEffort
    from trt_responses.prompt.history import Prior
    from trt_responses.run.parts import Parts
    from trt_responses.store import Block, Records
    from trt_responses.wire.items import InputItem, SentItem

EFFORTS: Mapping[Effort | None, LanguageEffort] = {
    None: "medium",
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""The efforts as gpt-oss knows them, which are three; others go to the nearest, and are echoed
unchanged."""
ALONE = (
    InputMessage,
    FunctionCall,
    FunctionCallOutput,
    PlainPastCall,
)
"""Kinds of items that, without an id, refer to nothing and carry nothing sealed."""
_one_system = lru_cache(maxsize=64)(System)
"""The same content once, so that a renderer sees at a glance that it is the last one's."""
OLD_CONTEXTS = 8
"""The length, in contexts, up to which an old message may be dropped with `truncation: auto`; a
longer one is refused."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and the conversation that it shows."""

    ids: array[int]
    blocks: tuple[Block, ...]
    prior_count: int
    date: str
    truncated: Sequence[str] = ()
    """The ids of items that were left out, for want of room."""
    continuation: Continuation | None = None
    """What goes on behind it; None behind ids that the client has rendered."""


class Shown(Protocol):
    """What a prompt is made of."""

    @property
    def accepted(self) -> Accepted: ...

    @property
    def parts(self) -> Parts: ...

    @property
    def owner(self) -> str: ...

    @property
    def records(self) -> Records: ...

    @property
    def date(self) -> str | None:
        """Of a conversation that begins; None: today."""
        ...

    @property
    def silent(self) -> Collection[int]:
        """The places of input items that say nothing to the model."""
        ...

    @property
    def at_call(self) -> bool:
        """Whether it ends where the answers of calls follow."""
        ...


async def prompt_of(shown: Shown, prior: Prior) -> Prompt:
    """The prompt behind what the request continues."""
    accepted, parts = shown.accepted, shown.parts
    if accepted.prompt_ids is not None:
        return Prompt(array("i", accepted.prompt_ids), (), 0, shown.date or parts.today())
    if prior.record is not None:
        prior = replace(prior, blocks=(await spoken_here(prior.record, parts)).blocks)
    if not accepted.input and not prior.blocks:
        raise InvalidRequest(
            "'input' is empty: send a text, or at least one item.",
            param="input",
            code="invalid_value",
        )
    whose = (shown.owner, shown.records, parts.dialect, parts.model)
    given = RequestItems(accepted, prior.blocks, *whose, shown.silent)
    own, since = await blocks_of(given, parts)
    blocks = (*prior.blocks, *own)
    date = prior.date or since or shown.date or parts.today()
    ids, continuation, gone = await _joined(blocks, accepted, parts, date)
    if shown.at_call:
        ids = await continuation.at_call(ids)
    names = [orjson.loads(blocks[place].item)["id"] for place in sorted(gone)] if gone else ()
    return Prompt(ids, blocks, len(prior.blocks), date, names, continuation)


async def prompt_behind(
    prompt: Prompt, block: Block, accepted: Accepted, parts: Parts
) -> tuple[array[int], Continuation]:
    """The ids of the same conversation with one block more, and what goes on behind them."""
    blocks = (*prompt.blocks, block)
    ids, continuation, _ = await _joined(blocks, accepted, parts, prompt.date)
    return ids, continuation


async def blocks_of(given: RequestItems, parts: Parts) -> tuple[list[Block], str | None]:
    """The blocks that the request itself brings, and the date of the conversation that it carries,
    if it carries one."""
    accepted = given.accepted
    at_most = parts.engine.limits().context_tokens * (OLD_CONTEXTS if accepted.truncates else 1)
    if isinstance(accepted.input, str):  # which refers to nothing, and carries nothing
        return [await conversation.text_block(accepted.input, parts.renderer, at_most)], None
    render_items = partial(
        conversation.input_blocks,
        renderer=parts.renderer,
        at_most=at_most,
        note_media=parts.note_media,
        places=accepted.places,
    )
    alone = [item for item in accepted.input if isinstance(item, ALONE) and item.id is None]
    if len(alone) == len(accepted.input):
        return await render_items(alone, prior=given.prior), None
    if parts.carrier is not None:
        return await parts.carrier(given, accepted.input, render_items)
    blocks = await render_items(_plain(given, accepted.input), prior=given.prior)
    for place in {*given.silent, *settled_places(accepted.input)}:
        blocks[place] = replace(blocks[place], ids=b"")
    return blocks, None


def _plain(given: RequestItems, sent: Sequence[SentItem]) -> Sequence[InputItem]:
    """The items, none of which stands for others."""
    items: list[InputItem] = []
    for number, item in enumerate(sent):
        if isinstance(item, ItemReference | Compaction):
            what = f"items of the type '{item.type or 'item_reference'}' are not installed here"
            raise unsupported_value(given.place(number), what)
        items.append(item)
    return items


async def _joined(
    blocks: Sequence[Block], accepted: Accepted, parts: Parts, date: str
) -> tuple[array[int], Continuation, frozenset[int]]:
    """The ids of the prompt, what goes on behind them, and the places of what was left out."""
    renderer, context = parts.dialect.renderer, parts.engine.limits().context_tokens
    system, developer = _system(accepted, parts, date), _developer(accepted)
    selected = renderer.keeps([block.kind for block in blocks])
    gone: frozenset[int] = frozenset()
    if accepted.truncates:
        frame = await renderer.preface(system, developer, context)
        assert parts.overflow is not None, "another request is refused"
        gone = parts.overflow(blocks, selected, context - frame - _reserve(accepted, context))
    held = [
        block
        for place, (block, keep) in enumerate(zip(blocks, selected, strict=True))
        if keep and place not in gone
    ]
    pieces = (system, developer, held, conversation.entries)
    ids = await renderer.prompt(*pieces, context)
    return ids, renderer.continuation(ids, *pieces), gone


def _reserve(accepted: Accepted, context: int) -> int:
    """The tokens that `truncation: auto` leaves for the answer."""
    return min(accepted.max_output_tokens or context // 8, context // 2)


def _system(accepted: Accepted, parts: Parts, date: str) -> System:
    return _one_system(
        parts.identity,
        parts.knowledge_cutoff,
        date,
        EFFORTS[accepted.effort],
        bool(accepted.tools),
        _namespaces(accepted, parts) if accepted.built_in else (),
        accepted.thought is None or accepted.thought.tokens > 0,
    )


def _namespaces(accepted: Accepted, parts: Parts) -> tuple[Namespace, ...]:
    tools = [parts.tools[tool.kind] for tool in accepted.built_in]
    return tuple(
        Namespace(tool.name, tool.description) for tool in tools if tool.description is not None
    )


def _developer(accepted: Accepted) -> Developer:
    answer, form = accepted.answer, None
    if accepted.instructions is None and answer is None and not accepted.tools:
        return NOTHING
    if answer is not None and answer.grammar is None:
        schema = {"type": "object"} if answer.schema is None else answer.schema
        form = ResponseFormat(answer.name, answer.description, schema)
    return Developer(accepted.instructions, shown(accepted.tools), form)
