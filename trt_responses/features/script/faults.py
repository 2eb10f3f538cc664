"""Faults that a request's header asks for, where the server was started to honour it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]  # ships no types
from pydantic import ValidationError

from trt_responses.errors import ApiError, InvalidRequest, Overloaded, ServerBusy
from trt_responses.features.script.rules import Faults, Refusal, Rule, first_fault

KINDS: Mapping[int, type[ApiError]] = {429: Overloaded, 503: ServerBusy}
LIMIT = 60
"""Requests a minute, of an owner that has used them up."""


def with_faults(rule: Rule, header: str) -> Rule:
    """A rule with the faults of a header: `refuse=503; retry_after=1`, `cut_after=900`."""
    found: dict[str, Any] = {}
    for part in filter(str.strip, header.split(";")):
        key, _, value = map(str.strip, part.partition("="))
        found[key] = value if key in ("fail", "message") else _value(value)
    if "refuse" in found:
        keys = [key for key in Refusal.model_fields if key in found]
        found["refuse"] = {"status": found["refuse"], **{key: found.pop(key) for key in keys}}
    if unknown := [key for key in found if key not in Faults.model_fields]:
        raise InvalidRequest(
            f"X-Fault: {unknown[0]}: unknown fault; known: {', '.join(Faults.model_fields)}.",
            code="invalid_fault",
        )
    try:
        new = Faults.model_validate(found)
    except ValidationError as error:
        raise InvalidRequest(f"X-Fault: {first_fault(error)}.", code="invalid_fault") from None
    return rule.model_copy(update={key: getattr(new, key) for key in found})


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def refused(refusal: Refusal) -> ApiError:
    """The error of a refusal, with type, code and headers as a server has them that means it."""
    kind = KINDS.get(refusal.status)
    wait_s = refusal.retry_after
    if wait_s is None and kind is not None:
        wait_s = 1
    headers = {
        "x-ratelimit-limit-requests": f"{LIMIT}",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": f"{wait_s}s",
    }
    server = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return ApiError(
        refusal.message,
        status=refusal.status,
        code=refusal.code or (kind.code if kind else None),
        type=kind.type if kind else server,
        retry_after_s=wait_s,
        headers=headers if kind is Overloaded else None,
    )
