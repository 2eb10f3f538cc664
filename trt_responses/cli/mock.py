"""`trt-responses mock`: the mock engines of `responses_conformance`, behind any server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from responses_conformance.mocks import command

from trt_responses.cli.commands import add_command

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands


def add(commands: Commands, name: str, text: str) -> None:
    """Add the command `mock` and its options."""
    example = "mock trtllm-grpc --port 50051 --record prompts.jsonl"
    parser = add_command(commands, name, text, command.run, example=example, more=command.MORE)
    command.add_arguments(parser)
