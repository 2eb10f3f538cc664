"""Writes the description of the gRPC protocol from its published `.proto` files:
`python -m scripts.grpc_descriptions`."""

from __future__ import annotations

from tests.support.grpc_bindings import describe
from trt_responses.engines.grpc.messages import HERE


def main() -> None:
    describe(HERE / "trtllm.binpb")


if __name__ == "__main__":
    main()
