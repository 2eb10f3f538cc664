"""systemd's variables and its socket for news, without systemd."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from trt_responses.errors import StartupError
from trt_responses.systemd import Notifier, handed_socket

if TYPE_CHECKING:
    from pathlib import Path


def test_sockets_for_another_process_are_left_alone_and_the_variables_go() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http", "HOME": "/"}
    assert handed_socket(environment) is None
    assert environment == {"HOME": "/"}
    assert handed_socket({}) is None


@pytest.mark.parametrize("count", ["0", "2", "x", ""])
def test_any_other_number_of_sockets_than_one_stops_the_start(count: str) -> None:
    with pytest.raises(StartupError, match="expected exactly one"):
        handed_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count})


@pytest.mark.parametrize("abstract", [False, True])
def test_news_are_told_to_a_path_or_to_an_abstract_name(tmp_path: Path, abstract: bool) -> None:
    name = f"@trt-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        environment = {"NOTIFY_SOCKET": name}
        notifier = Notifier(environment)
        assert not environment
        notifier.tell("READY=1", "ready at http://127.0.0.1:8000")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=ready at http://127.0.0.1:8000"


def test_news_for_nobody_are_dropped_and_a_listener_who_has_gone_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier({}).tell("READY=1", "ready")
    assert caplog.messages == []
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1", "ready")
    assert caplog.messages == ["failed to notify systemd: status=ready"]
