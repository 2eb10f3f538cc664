"""What everything that a client sends shares. Imports nothing of ours."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field


class Sent(BaseModel):
    """What all input shares: strict types, no change after parsing, unknown keys kept by name."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, hide_input_in_errors=True)


def by_type(*tags: str, untyped: str = "") -> Discriminator:
    """Choose by `type`; tags begin with `~`, so that a fault's place can leave them out."""
    known = {tag: f"~{tag}" for tag in tags}

    def tag(value: Any) -> str | None:
        if isinstance(value, Sent):  # it was parsed before, and is written down now
            named = getattr(value, "type", None)
        else:
            named = value.get("type", untyped) if isinstance(value, dict) else None
        return known.get(named) if isinstance(named, str) else None

    expected = ", ".join(repr(t) for t in tags)
    return Discriminator(
        tag,
        custom_error_type="unknown_type",
        custom_error_message=f"should be an object whose type is one of {expected}",
    )


Named = Annotated[str, Field(min_length=1)]
