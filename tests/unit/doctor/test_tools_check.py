"""What `doctor` says of running the model's code."""

from __future__ import annotations

import pytest

from trt_responses.backends import NoBox
from trt_responses.doctor.tools import python_tool_check, shell_tool_check
from trt_responses.settings import Settings


def refuses() -> int:
    raise NoBox("the kernel has no Landlock")


@pytest.mark.parametrize(
    ("python", "boxed", "state"),
    [
        ("off", True, "ok"),
        ("boxed", True, "ok"),
        ("off", False, "note"),
        ("boxed", False, "fault"),
        ("unboxed", True, "note"),
    ],
)
def test_it_says_whether_code_is_shut_in(python: str, boxed: bool, state: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_PYTHON": python})
    check = python_tool_check(settings, (lambda: 4) if boxed else refuses)
    assert check.state == state
    assert ("Landlock 4" in check.found) == (boxed and python != "unboxed")


@pytest.mark.parametrize(
    ("shell", "boxed", "state"),
    [("off", True, "ok"), ("boxed", True, "ok"), ("off", False, "note"), ("boxed", False, "fault")],
)
def test_it_says_whether_commands_are_shut_in(shell: str, boxed: bool, state: str) -> None:
    settings = Settings.from_environment({"TRT_RESPONSES_SHELL": shell})
    check = shell_tool_check(settings, (lambda: 4) if boxed else refuses)
    assert check.state == state
    assert check.found.startswith(f"switched {'off' if shell == 'off' else 'on'}")
