"""A server without background responses."""

from __future__ import annotations

import pytest

from trt_responses.errors import Unsupported
from trt_responses.web.jobs import installed


def test_without_the_feature_a_background_response_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="not installed"):
        installed(None)
