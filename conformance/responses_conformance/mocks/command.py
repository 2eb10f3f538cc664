"""The command `mock`: an engine that plays transcripts behind a server of another's make."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from responses_conformance.mocks.play import Player

ABOUT = "Play transcripts of ids as the engine behind a server, without weights"
WIRES = {
    "vllm": "vLLM's engine core over ZMQ, for vLLM's front ends and SMG (needs pyzmq, msgspec)",
    "trtllm-grpc": "TensorRT-LLM's gRPC, for SMG and trt-responses (needs grpcio)",
    "sglang": "SGLang's scheduler over gRPC, for SMG (needs grpcio)",
}
MORE = "\n".join(f"{name}: {about}." for name, about in WIRES.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    add = parser.add_argument
    add("engine", choices=tuple(WIRES), metavar="ENGINE", help=f"Wire: {', '.join(WIRES)}")
    script = add("--script", default="", metavar="FILE")
    script.help = "Transcripts as JSONL (default: those of the kit)"
    record = add("--record", default="", metavar="FILE")
    record.help = "File for the ids of each prompt, a JSON object a line"
    add("--step", type=int, default=1, metavar="N", help="Ids of each step (default: 1)")
    add("--port", type=int, default=0, metavar="PORT", help="Port of a gRPC engine (default: free)")
    add("--handshake", metavar="ADDRESS", help="Handshake of vLLM, such as tcp://127.0.0.1:13345")
    remote = add("--remote", action="store_true")
    remote.help = (
        "Handshake as an engine of another machine (vllm serve --data-parallel-size-local 0)"
    )
    add("--inputs", metavar="ADDRESS", help="Input socket of vLLM, in place of a handshake")
    add("--outputs", metavar="ADDRESS", help="Output socket of vLLM")


def run(options: argparse.Namespace) -> int:
    """Play until interrupted. Returns the exit status."""
    if options.engine == "vllm":
        if not (options.handshake or (options.inputs and options.outputs)):
            return _wrong("vllm needs --handshake, or --inputs and --outputs.")
        return _vllm(options)
    return _grpc(options)


def _vllm(options: argparse.Namespace) -> int:
    try:
        from responses_conformance.mocks import vllm
    except ImportError as fault:
        return _wrong(f"{fault}: run pip install pyzmq msgspec.")
    vllm.serve(vars(options))
    return 0


def _grpc(options: argparse.Namespace) -> int:
    try:
        from responses_conformance.mocks import rpc
    except ImportError as fault:
        return _wrong(f"{fault}: run pip install grpcio.")
    wire = rpc.TRTLLM if options.engine == "trtllm-grpc" else rpc.SGLANG
    if not 0 <= options.port < 65536:
        return _wrong(f"--port {options.port}: expected 0 to 65535.")
    try:
        player = Player.of(options.script, options.record)
    except (OSError, ValueError, KeyError, TypeError) as fault:
        return _wrong(f"--script {options.script}: no transcripts as JSONL ({fault}).")
    asyncio.run(rpc.serve(wire, player, options.port, options.step))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command of this package and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="responses-conformance mock",
        description=f"{ABOUT}.",
        epilog=f"{MORE}\n\nExample:\n  responses-conformance mock trtllm-grpc --port 50051",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def _wrong(why: str) -> int:
    print(f"mock: {why}", file=sys.stderr)
    return 2
