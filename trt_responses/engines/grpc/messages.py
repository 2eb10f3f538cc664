"""Builds a protocol's messages and calls from its published description, on demand.

protoc generates a description from the published `.proto` files (`scripts/grpc_descriptions.py`).
Each has its own pool, so that other packages can define the same messages in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Messages:
    """The messages and calls in a description."""

    def __init__(self, name: str) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        self._class_of = message_factory.GetMessageClass
        self._pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet()
        files.ParseFromString((HERE / f"{name}.binpb").read_bytes())
        for file in files.file:
            self._pool.Add(file)

    def message(self, name: str) -> Any:
        """The class of a message, by its full name."""
        return self._class_of(self._pool.FindMessageTypeByName(name))

    def call(self, channel: Any, name: str) -> Any:
        """A call on a channel by its full name: one message in, one message or a stream out."""
        method = self._pool.FindMethodByName(name)
        service, _, own = name.rpartition(".")
        kind = channel.unary_stream if method.server_streaming else channel.unary_unary
        return kind(
            f"/{service}/{own}",
            request_serializer=self._class_of(method.input_type).SerializeToString,
            response_deserializer=self._class_of(method.output_type).FromString,
        )
