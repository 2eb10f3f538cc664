"""What an admin asks of the versions of an engine."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trt_responses.wire.parse import fault_of, json_of


def _text(value: object) -> object:
    """A number is as good as its digits."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class LoadRequest(BaseModel):
    """The body of `POST /admin/engines/{name}/load`; an empty one loads what is promoted."""

    model_config = ConfigDict(extra="forbid")

    version: Annotated[
        Annotated[str, Field(pattern=r"^([0-9a-f]{12}|[1-9][0-9]{0,8})$")] | None,
        BeforeValidator(_text),
    ] = Field(
        None,
        description="Its number or its digest; without: the promoted version if it is not the one "
        "that is served, else the newest.",
    )
    gate: bool = Field(True, description="Compare it with the one that is served, first.")
    exact: bool = Field(False, description="Ask for the very same tokens.")
    canary: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Give it this share of the conversations, and promote nothing.",
    )
    pause: bool = Field(
        True,
        description="Where memory does not hold both: pause what is running, and exchange the "
        "engine under it; false: refuse.",
    )
    reason: str = Field("", max_length=1000, description="What the journal says of it.")


def load_request(body: bytes) -> LoadRequest:
    """What a body asks for; raises an `InvalidRequest` that names the first fault."""
    return load_request_of(json_of(body) if body.strip() else {})


def load_request_of(value: object) -> LoadRequest:
    """The load that a JSON value asks for. Raises an `InvalidRequest` that names the first
    fault."""
    try:
        return LoadRequest.model_validate(value)
    except ValidationError as error:
        raise fault_of(error) from None
