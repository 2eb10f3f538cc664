"""Calls of shells and patches as the model writes them: as JSON, without absent fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trt_responses.wire import output as o

if TYPE_CHECKING:
    from collections.abc import Mapping


def action_text(item: o.OutputActionCall) -> str:
    """The text that the model writes to make this call."""
    action = item.operation if isinstance(item, o.OutputPatchCall) else item.action
    return arguments_of(vars(action))


def arguments_of(action: Mapping[str, Any]) -> str:
    """The arguments of an action or an operation as the model writes them."""
    present = {
        key: action[key]
        for key in sorted(action, key=lambda key: key != "type")
        if action[key] not in (None, {}) and (key, action[key]) != ("type", "exec")
    }
    return json.dumps(present, ensure_ascii=False)
