"""The stand-in for `systemctl` reads units as systemd does, as far as the pages use them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scripts.docs_systemctl import is_running, read_environment, read_unit

if TYPE_CHECKING:
    from pathlib import Path


def test_every_value_of_a_key_counts() -> None:
    unit = read_unit("[Unit]\nAfter=a\n[Service]\nEnvironment=A=1\nEnvironment=B=2 C=3\n# D=4\n")
    assert unit["Environment"] == ["A=1", "B=2 C=3"]
    assert unit["After"] == ["a"]
    assert unit["Type"] == []


def test_a_file_of_variables_has_values_with_equals_signs(tmp_path: Path) -> None:
    (path := tmp_path / "env").write_text("# a comment\nA=1\n\nKEY=abc=\n")
    assert read_environment(path) == {"A": "1", "KEY": "abc="}


def test_a_process_that_has_ended_does_not_run() -> None:
    assert is_running(os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not is_running(child)
    os.waitpid(child, 0)
    assert not is_running(child)
