"""systemd's two protocols, without a library: a socket that is handed over, and news of the start
and the end.

Both are variables of the environment and a socket, so that anything can play systemd. The variables
are for this process alone and are removed, or a child would believe them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

from trt_responses.errors import StartupError

logger = logging.getLogger(__name__)

FIRST_FD = 3


def handed_socket(environment: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """The listening socket that systemd holds for this process; None when it hands over none."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise StartupError(f"systemd hands over {count or 'no'} sockets: expected exactly one.")
    try:
        handed = socket.socket(fileno=FIRST_FD)
    except OSError as error:
        raise StartupError(f"systemd's socket cannot be used: {error.strerror}.") from None
    handed.set_inheritable(False)
    if handed.type != socket.SOCK_STREAM or handed.family not in (socket.AF_INET, socket.AF_INET6):
        raise StartupError("systemd's socket must be a ListenStream= of an IP address and a port.")
    return handed


class Notifier:
    """Reports the state of the service to systemd, if it started the service so."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")

    def tell(self, state: str, status: str) -> None:
        """`state` is a line of sd_notify's, such as `READY=1`, or empty to send the status alone. A
        failure is logged: the listener may be gone."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(filter(None, (state, f"STATUS={status}")))
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(message.encode(), address)
            return
        logger.warning("failed to notify systemd: status=%s", status)
