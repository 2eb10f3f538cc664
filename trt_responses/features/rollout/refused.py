"""The refusal of a version that an admin wants to be served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import ApiError

if TYPE_CHECKING:
    from trt_responses.features.rollout.measures import GateReport


class LoadRefused(ApiError):
    """The version is not served; the one before goes on."""

    status = 409
    type = "invalid_request_error"
    code = "version_refused"

    def __init__(self, message: str, report: GateReport | None = None) -> None:
        super().__init__(message)
        self.report = report
