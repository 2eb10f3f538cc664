"""`make` on machines whose Python is too old or has no venv, which a stand-in for it plays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

OLD = f"""#!/bin/sh
[ "$1" = -c ] || exit 9
exec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 4); exec(sys.argv[2])' "$@"
"""
BARE = f"""#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
  *ensurepip*) exit 1;;
  "-m pip "*) exit 0;;
esac
exec {sys.executable} "$@"
"""


BUILT = f"""#!/bin/sh
exec {sys.executable} -c 'import sys, sysconfig
sysconfig.get_config_vars().update({{}})
exec(sys.argv[2])' "$@"
"""
"""A Python that was built so."""
BY_HAND = {"PGO_PROF_USE_FLAG": "-fprofile-use", "CONFIG_ARGS": "--enable-shared"}


def outside() -> dict[str, str]:
    """The environment without that of a `make` which runs these tests."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}


def made(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """`make serve` in a checkout with such a Python."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    program = folder / "python"
    program.write_text(python)
    program.chmod(0o755)
    env = outside() | {
        "CALLS": str(folder / "calls"),
        "PIP_NO_INDEX": "1",
        "PIP_CONSTRAINT": "/none",
    }
    command = ["make", "serve", f"PYTHON={program}"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_an_old_python_is_named_in_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    ended = made(tmp_path, OLD)
    said, *others = ended.stderr.splitlines()
    assert said.startswith("Python 3.11 or later is needed, and ")
    assert "is 3.10.4: run make with PYTHON=" in said
    assert all(line.startswith("make: ***") for line in others)
    assert not (tmp_path / ".venv").exists()


def test_what_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    left = tmp_path / ".venv" / "bin" / "left"
    left.parent.mkdir(parents=True)
    left.write_text("")
    assert made(tmp_path, BARE).returncode == 2  # there is no index to install from
    assert not left.exists()
    assert (tmp_path / ".venv" / "bin" / "python").exists()


def test_without_venvs_own_pip_the_systems_installs_it(tmp_path: Path) -> None:
    made(tmp_path, BARE)
    calls = (tmp_path / "calls").read_text().splitlines()
    venv, pip = calls[-2:]
    assert venv == "-m venv --clear --without-pip .venv"
    assert pip.startswith("-m pip --quiet --python .venv/bin/python install ")


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (BY_HAND, BY_HAND | {"CONFIG_ARGS": "--enable-optimizations"}, "second"),
        (BY_HAND, BY_HAND | {"PGO_PROF_USE_FLAG": ""}, "second"),  # as Debian's says
        (BY_HAND | {"PGO_PROF_USE_FLAG": ""}, BY_HAND, "first"),
        (BY_HAND, BY_HAND, "python3"),
    ],
)
def test_a_python_that_was_built_with_a_profile_is_taken_before_one_that_was_not(
    tmp_path: Path, first: dict[str, str], second: dict[str, str], chosen: str
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name, built in (("first", first), ("second", second)):
        (tmp_path / name).write_text(BUILT.format(json.dumps(built)))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "which.mk").write_text("include Makefile\n$(info $(PYTHON))\n")
    command = ["make", "-n", "-f", "which.mk", "PYTHONS=./first ./second", "help"]
    ended = subprocess.run(command, cwd=tmp_path, env=outside(), capture_output=True, text=True)
    assert ended.stdout.splitlines()[0].removeprefix("./") == chosen
