"""Conversations that a model of another vocabulary has begun: a stored history made fit for the
model that goes on with it.

The ids in a history are of the vocabulary of the model that wrote them, and mean other things to
another one. What they say stands in the items beside them: those are rendered anew. Knows records
and the renderer; knows no store and no concrete dialect.
"""

from __future__ import annotations

from dataclasses import replace

from trt_responses.errors import InvalidRequest
from trt_responses.prompt.conversation import ITEM, input_blocks
from trt_responses.run.parts import Parts
from trt_responses.setup.server import Server
from trt_responses.store import Block, Record


def install(server: Server) -> None:
    server.translation = translated


async def translated(record: Record, parts: Parts) -> Record:
    """The record with blocks of this model's vocabulary. What this model wrote after another one's
    turn is kept as it wrote it, for the next record is its own. Raises `InvalidRequest` where only
    ids hold the text."""
    vocabulary = parts.dialect.vocabulary
    if any(block.kind in ("summary", "context") for block in record.blocks):
        raise _compacted(record, parts)
    items = [ITEM.validate_json(block.item) for block in record.blocks]
    rendered = await input_blocks(items, parts.renderer, (), None, note_media=True)
    blocks = map(_with_ids, record.blocks, rendered)
    return replace(record, blocks=tuple(blocks), vocabulary=vocabulary)


def _with_ids(block: Block, rendered: Block) -> Block:
    """A block with other ids; one that says nothing goes on to say nothing."""
    return replace(block, ids=rendered.ids if block.ids else b"", digest=b"")


def _compacted(record: Record, parts: Parts) -> InvalidRequest:
    return InvalidRequest(
        f"'{record.id}' holds a compaction that a model of another vocabulary has made "
        f"('{record.vocabulary or 'gpt-oss'}'), and the model '{parts.model}' cannot read it "
        f"('{parts.dialect.vocabulary or 'gpt-oss'}'): send the conversation's items instead.",
        param="conversation" if record.version else "previous_response_id",
        code="other_vocabulary",
    )
