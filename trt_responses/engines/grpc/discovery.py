"""Discovers whether a gRPC server accepts requests, and what it supports.

Sends small requests; no other requests and no engine lifetime here.
"""

from __future__ import annotations

from typing import Any

from trt_responses.engine import Limits
from trt_responses.engines.distant import Away, Trouble
from trt_responses.engines.grpc.protocol import IdProtocol, fault_of
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.engines.grpc.vllm import VllmProtocol
from trt_responses.errors import StartupError


async def connected_protocol(channel: Any, answer_s: float) -> IdProtocol:
    """The protocol of a server that accepts requests. Raises an `Away` if it does not, and a
    `StartupError` if the server speaks another protocol."""
    for protocol in (TrtLlmProtocol(channel), VllmProtocol(channel)):
        trouble = await trouble_of(protocol, answer_s)
        if trouble is None:
            return protocol
        if trouble.status != "UNIMPLEMENTED":
            raise Away(trouble.reason)
    raise StartupError(
        "the gRPC server there speaks neither TensorRT-LLM's protocol nor vLLM's: start the engine "
        "with `trtllm-serve MODEL --grpc` or `vllm serve MODEL --grpc`."
    )


async def trouble_of(protocol: IdProtocol, answer_s: float) -> Trouble | None:
    """Why the engine accepts no requests; None if it does."""
    import grpc

    try:
        why = await protocol.trouble(answer_s)
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error)
        return Trouble(str(fault), fault.status)
    return None if why is None else Trouble(why)


async def read_limits(protocol: IdProtocol, answer_s: float) -> Limits:
    """The limits that the engine reports. Raises an `Away` if it does not answer."""
    import grpc

    try:
        return await protocol.describe(answer_s)
    except grpc.aio.AioRpcError as error:
        raise Away(str(fault_of(error))) from None
