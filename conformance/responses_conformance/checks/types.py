"""The types of OpenAI's SDK as a strict judge. Nothing else of the SDK is used."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from responses_conformance.client import Json


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    if kind == "event":
        from openai.types.responses import ResponseStreamEvent

        return TypeAdapter(ResponseStreamEvent)
    if kind == "response":
        from openai.types.responses import Response

        return TypeAdapter(Response)
    if kind == "chat.completion":
        from openai.types.chat import ChatCompletion

        return TypeAdapter(ChatCompletion)
    from openai.types.chat import ChatCompletionChunk

    return TypeAdapter(ChatCompletionChunk)


def fault_of(kind: str, found: Json) -> str | None:
    """Why an object is none of the SDK's; None if it is one."""
    try:
        _adapter(kind).validate_json(json.dumps(found), strict=True)
    except ValidationError as fault:
        faults = fault.errors(include_url=False)
        others = {each["loc"][0] for each in faults if each["loc"][-1:] == ("type",)}
        # Of a union, the fault of the member whose type is the right one.
        first = next((each for each in faults if each["loc"][0] not in others), faults[0])
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
