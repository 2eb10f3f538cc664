"""Whether something listens at an address, and no more: a key would have to be used to know it."""

from __future__ import annotations

import socket

CONNECT_S = 2.0


def why_not(host: str, port: int) -> str | None:
    """The reason why nothing can be connected to at an address; None when something listens."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return None
    except OSError as error:
        return str(error)
