"""Headers that gateways and endpoint pickers of a fleet read: which conversation a request belongs
to, and whose it is. Values are digests: no name of a client leaves the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.frozen import replace
from trt_responses.run.draft import Draft
from trt_responses.run.origin import ORIGIN
from trt_responses.store import Block

DIGEST_BYTES = 16


class EngineHeaders:
    """Sends the same headers with each request to the engine, filled in for its conversation."""

    reads = ("input",)

    def __init__(self, headers: Iterable[str]) -> None:
        """`headers`: each as `name=value`."""
        self._headers = dict(header.split("=", 1) for header in headers)

    def accept(self, accepted: Accepted) -> Step:
        return EngineHeadersStep(self._headers)


class EngineHeadersStep(Step):
    """Adds the headers to the engine's requests of one run."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def write(self, draft: Draft) -> None:
        values = {"session": session_of(draft), "owner": _digest(draft.owner.encode())}
        filled = {
            name: value.format_map(values)
            for name, value in self._headers.items()
            if draft.owner or "{owner}" not in value
        }
        options = draft.options
        draft.options = replace(options, trace_headers={**options.trace_headers, **filled})


def session_of(draft: Draft) -> str:
    """The same text for all turns of a conversation: by the name that the client gives it, or else
    by how it begins, which is what a cache has in common too."""
    accepted = draft.accepted
    named = accepted.conversation or accepted.echo.prompt_cache_key or ORIGIN.get().session
    begins = (named.encode(),) if named else _opening(draft.prompt.blocks)
    return _digest(draft.owner.encode(), *begins)


def _opening(blocks: Sequence[Block]) -> Iterable[bytes]:
    """The ids up to the first user message."""
    for block in blocks:
        yield block.ids
        if block.kind == "user":
            return


def _digest(*parts: bytes) -> str:
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[: 2 * DIGEST_BYTES]
