"""Questions about an input, answered with probabilities."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import get_args

from trt_responses.apis.decisions.endpoint import routes
from trt_responses.apis.decisions.questions import Calibration, Kind, Scale
from trt_responses.apis.decisions.request import FIELDS, SYSTEM_ONE
from trt_responses.apis.decisions.settings import DecisionSettings
from trt_responses.errors import UsageError
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    calibration = calibration_of(DecisionSettings.of(server.settings).decisions_calibration)
    server.field_tables["/v1/decisions"] = FIELDS
    server.field_tables["/v1/systemone"] = SYSTEM_ONE
    server.add_routes(9, partial(routes, calibration=calibration))


def calibration_of(path: Path | None) -> Calibration:
    """What the file says for each kind of question. Raises a `UsageError` for a wrong one."""
    try:
        sent = json.loads(path.read_text()) if path is not None else {}
        scales = {kind: Scale(**sent.pop(kind, {})) for kind in get_args(Kind)}
        wrong = [*sent, *(kind for kind, scale in scales.items() if not scale.temperature > 0)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"TRT_RESPONSES_DECISIONS_CALIBRATION: {error}") from None
    if wrong:
        raise UsageError(
            f"TRT_RESPONSES_DECISIONS_CALIBRATION: '{wrong[0]}' is no kind of question, or its "
            "temperature is not above 0."
        )
    return scales
