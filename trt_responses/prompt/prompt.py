"""Makes the ids that the engine is shown: history, items and instructions, as far as there is room.

Knows the store's seam and the renderer; knows no engine and no run.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import orjson

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.language.messages import Developer, Namespace, ResponseFormat, System
from trt_responses.prompt import conversation
from trt_responses.prompt.references import resolved
from trt_responses.prompt.vocabulary import spoken_here
from trt_responses.steering.tools import shown
from trt_responses.store import Block
from trt_responses.wire.items import (
    Compaction,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
)
from trt_responses.wire.past_calls import settled_places

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted, Effort
    from trt_responses.dialect import Continuation
    from trt_responses.language.messages import Effort as LanguageEffort
    from trt_responses.prompt.history import Prior
    from trt_responses.prompt.sealed import SealedCompaction
    from trt_responses.run.parts import Parts
    from trt_responses.store import Kind, Records

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
    CustomToolCall,
    CustomToolCallOutput,
)
"""Kinds of items that, without an id, refer to nothing and carry nothing sealed."""
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
    own, since = await blocks_of(accepted, prior, parts, shown.owner, shown.records, shown.silent)
    blocks = (*prior.blocks, *own)
    date = prior.date or since or shown.date or parts.today()
    ids, continuation, gone = await _joined(blocks, accepted, parts, date)
    if shown.at_call:
        ids = await continuation.at_call(ids)
    names = [orjson.loads(blocks[place].item)["id"] for place in sorted(gone)]
    return Prompt(ids, blocks, len(prior.blocks), date, names, continuation)


async def prompt_behind(
    prompt: Prompt, block: Block, accepted: Accepted, parts: Parts
) -> tuple[array[int], Continuation]:
    """The ids of the same conversation with one block more, and what goes on behind them."""
    blocks = (*prompt.blocks, block)
    ids, continuation, _ = await _joined(blocks, accepted, parts, prompt.date)
    return ids, continuation


async def blocks_of(
    accepted: Accepted,
    prior: Prior,
    parts: Parts,
    owner: str,
    records: Records,
    silent: Collection[int] = (),
) -> tuple[list[Block], str | None]:
    """The blocks that the request itself brings, and the date of the conversation that it carries,
    if it carries one. Items at the `silent` places say nothing to the model."""
    at_most = parts.engine.limits().context_tokens * (OLD_CONTEXTS if accepted.truncates else 1)
    if isinstance(accepted.input, str):  # which refers to nothing, and carries nothing
        renderer = parts.dialect.renderer
        return await conversation.input_blocks(accepted.input, renderer, (), at_most), None
    render_items = partial(
        conversation.input_blocks,
        renderer=parts.renderer,
        at_most=at_most,
        note_media=parts.note_media,
        places=accepted.places,
    )
    alone = [item for item in accepted.input if isinstance(item, ALONE) and item.id is None]
    if len(alone) == len(accepted.input):
        return await render_items(alone, prior=prior.blocks), None
    vocabulary = parts.dialect.vocabulary
    turns = await parts.opener.opened_turns(
        accepted.input,
        owner,
        parts.renderer.pause,
        accepted.places,
        vocabulary=vocabulary,
        verifies=accepted.verifies,
    )
    compactions = opened_compactions(accepted, parts, owner)
    items = await resolved(accepted.input, prior.blocks, records, owner, vocabulary)
    before = (*prior.blocks, *calls_of(compactions))
    rendered = await render_items(items.items, prior=before)
    for place, opened in compactions.items():
        kind: Kind = "summary" if opened.messages is None else "context"
        rendered[place] = replace(rendered[place], kind=kind, ids=opened.ids)
    for place in {*silent, *settled_places(accepted.input)}:
        rendered[place] = replace(rendered[place], ids=b"")
    date = next((opened.date for opened in compactions.values()), turns.date)
    return await items.blocks(rendered, turns, parts.renderer.pause), date


def opened_compactions(accepted: Accepted, parts: Parts, owner: str) -> dict[int, SealedCompaction]:
    """The content of the compactions in the input, by their places."""
    items = () if isinstance(accepted.input, str) else accepted.input
    opened = {}
    for place, item in enumerate(items):
        if isinstance(item, Compaction):
            at = accepted.places[place].item if accepted.places else f"input[{place}]"
            param = f"{at}.encrypted_content"
            content = item.encrypted_content
            opened[place] = parts.opener.open_compaction(
                content, owner, parts.model, param, parts.dialect.vocabulary
            )
    return opened


def calls_of(compactions: Mapping[int, SealedCompaction]) -> list[Block]:
    """The calls that compactions carry, for results that come later."""
    return [
        Block("call", b"", b"", call_id, callee)
        for opened in compactions.values()
        for call_id, callee in opened.calls.items()
    ]


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
    return System(
        identity=parts.identity,
        knowledge_cutoff=parts.knowledge_cutoff,
        date=date,
        effort=EFFORTS[accepted.effort],
        thinks=accepted.thought is None or accepted.thought.tokens > 0,
        has_function_tools=bool(accepted.tools),
        namespaces=_namespaces(accepted, parts) if accepted.built_in else (),
    )


def _namespaces(accepted: Accepted, parts: Parts) -> tuple[Namespace, ...]:
    tools = [parts.tools[tool.kind] for tool in accepted.built_in]
    return tuple(
        Namespace(tool.name, tool.description) for tool in tools if tool.description is not None
    )


def _developer(accepted: Accepted) -> Developer:
    answer, form = accepted.answer, None
    if answer is not None and answer.grammar is None:
        schema = {"type": "object"} if answer.schema is None else answer.schema
        form = ResponseFormat(answer.name, answer.description, schema)
    return Developer(accepted.instructions, shown(accepted.tools), form)
