"""A store around another one."""

from __future__ import annotations

from typing import Any

from trt_responses.stores.whole import WholeStore


class Around:
    """Passes on each method that a subclass does not define."""

    def __init__(self, inner: WholeStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
