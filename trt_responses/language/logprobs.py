"""What an engine says of a token's likelihood, as the API tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.wire.output import TokenLogprob, TopLogprob

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.engine.base import Logprob

LEAST = -9999.0
"""What the API says for a token that could not be: JSON has no infinity."""


def token_logprob(chosen: Logprob, bytes_of: Callable[[int], bytes | None]) -> TokenLogprob:
    """The chosen token and the likeliest ones beside it, spelled out."""

    def told(token_id: int, logprob: float) -> tuple[str, float, tuple[int, ...]]:
        raw = bytes_of(token_id) or b""
        return raw.decode("utf-8", "replace"), max(logprob, LEAST), tuple(raw)

    top = tuple(TopLogprob(*told(*likely)) for likely in chosen.top)
    return TokenLogprob(*told(chosen.token_id, chosen.logprob), top)
