"""Discovers whether a gRPC server accepts requests, and what it supports.

Sends small requests; no other requests and no engine lifetime here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trt_responses.engine import (
    Chunk,
    Gathered,
    GenerateOptions,
    Guide,
    GuideKind,
    Handle,
    Limits,
    Sink,
)
from trt_responses.engines.ask import CANARY, PROBE, PROBE_IDS, Ask, last_chunk
from trt_responses.engines.grpc.protocol import Trouble, fault_of
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.errors import StartupError

Begin = Callable[[Sequence[int], GenerateOptions, int, Sink], Handle]
"""Starts a request with a maximum number of ids."""

logger = logging.getLogger(__name__)

GUIDE_CANARIES: Mapping[GuideKind, Guide] = {
    "json_schema": Guide("json_schema", '{"const": "yes, déjà"}'),
    "regex": Guide("regex", "yes"),
    "lark": Guide("lark", 'start: "yes"'),
}
"""A test guide of each kind for a new engine. xgrammar does not support the third."""


class Away(Exception):
    """The engine does not answer, or accepts no requests."""


async def connected_protocol(channel: Any, answer_s: float) -> TrtLlmProtocol:
    """The protocol of a server that accepts requests. Raises an `Away` if it does not, and a
    `StartupError` if the server speaks another protocol."""
    protocol = TrtLlmProtocol(channel)
    trouble = await trouble_of(protocol, answer_s)
    if trouble is None:
        return protocol
    if trouble.status != "UNIMPLEMENTED":
        raise Away(trouble.reason)
    raise StartupError(
        "the gRPC server there does not speak TensorRT-LLM's protocol: start the engine with "
        "`trtllm-serve MODEL --grpc`."
    )


async def trouble_of(protocol: TrtLlmProtocol, answer_s: float) -> Trouble | None:
    """Why the engine accepts no requests; None if it does."""
    import grpc

    try:
        why = await protocol.trouble(answer_s)
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error)
        return Trouble(str(fault), fault.status)
    return None if why is None else Trouble(why)


async def read_limits(protocol: TrtLlmProtocol, answer_s: float) -> Limits:
    """The limits that the engine reports. Raises an `Away` if it does not answer."""
    import grpc

    try:
        return await protocol.describe(answer_s)
    except grpc.aio.AioRpcError as error:
        raise Away(str(fault_of(error))) from None


async def proven_limits(
    limits: Limits,
    begin: Begin,
    find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]],
    deadline_s: float,
) -> Limits:
    """The limits with working guides only, and with the options that the engine ignores. Raises an
    `Away` if the engine returns no token."""

    async def last(options: GenerateOptions) -> Chunk:
        end = await last_chunk(
            lambda sink: begin(PROBE_IDS, options, options.max_tokens, sink), deadline_s
        )
        if end.lost is not None:
            raise Away(end.error)
        return end

    async def answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Sequence[int]:
        sink = Gathered()
        handle = begin(prompt_ids, options, options.max_tokens, sink)
        try:
            async with asyncio.timeout(deadline_s):
                end = await sink.last
        except TimeoutError:
            return ()
        finally:
            handle.abort()
        return () if end.error else sink.token_ids

    guides = {
        kind: ends
        for kind, ends in limits.guides.items()
        if (await last(replace(CANARY, guide=GUIDE_CANARIES[kind]))).stop_id in ends
    }
    if limits.guides and not guides:
        logger.warning("guides do not work on this engine: refusing requests with one")
    if (end := await last(PROBE)).finish == "error":
        raise Away(f"it returns no token: {end.error}")
    ignored = await find_ignored(answer, PROBE_IDS)
    if ignored:
        logger.warning("this engine ignores %s", ", ".join(sorted(ignored)))
    return replace(limits, guides=guides, ignores=ignored)
