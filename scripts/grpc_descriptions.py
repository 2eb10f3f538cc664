"""Writes the descriptions of the gRPC protocols from their published `.proto` files:
`python -m scripts.grpc_descriptions`."""

from __future__ import annotations

from tests.support.grpc_bindings import describe
from trt_responses.engine.grpc.messages import HERE

PROTOCOLS = ("trtllm", "openengine")


def main() -> None:
    for name in PROTOCOLS:
        describe(name, HERE / f"{name}.binpb")


if __name__ == "__main__":
    main()
