"""Tests whether something listens at an address. It does not authenticate."""

from __future__ import annotations

import socket

CONNECT_S = 2.0


def why_not(host: str, port: int) -> str | None:
    """Why a connection to the address fails; None if something listens."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return None
    except OSError as error:
        return str(error)
