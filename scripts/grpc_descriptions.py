"""Writes the descriptions of the gRPC protocols from their published `.proto` files:
`python -m scripts.grpc_descriptions`."""

from __future__ import annotations

from tests.support.grpc_bindings import describe
from trt_responses.engines.grpc.messages import HERE


def main() -> None:
    describe(HERE)


if __name__ == "__main__":
    main()
