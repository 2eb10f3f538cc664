"""`trt-responses engine promote | rollback | prune | journal | load`, as an operator types them."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from trt_responses.cli.main import main
from trt_responses.prepare.shelf import versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, TWO, THREE = (f"{place}" * 12 for place in "abc")


@pytest.fixture
def engines_dir(tmp_path: Path) -> Path:
    """Three versions of one engine, of which the first is promoted."""
    home = tmp_path / "mine"
    home.mkdir()
    for day, version in enumerate((ONE, TWO, THREE), 10):
        number = versions.new_number(home, version)
        built_at = f"2026-11-{day}T00:00:00+00:00"
        card, _ = carded(tmp_path, version=version, number=number, built_at=built_at)
        versions.promote_first(home, [card])
    return tmp_path


class Typed:
    """What a command prints and how it ends."""

    def __init__(self, engines_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ("--engines-dir", str(engines_dir))
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        try:
            status = main(("engine", *arguments, *self._where))
        except SystemExit as end:
            status = int(end.code or 0)
        said = self._capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def typed(engines_dir: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(engines_dir, capsys)


def test_versions_are_promoted_rolled_back_and_pruned_and_the_journal_tells_it(
    typed: Typed,
) -> None:
    status, out, _ = typed("promote", "mine", "2", "--reason", "it is better")
    assert (status, out.split(":")[0]) == (0, "mine@2 is promoted")
    assert typed("promote", "mine", THREE)[0] == 0
    status, out, _ = typed("rollback", "mine", "--reason", "it was not")
    assert (status, out.split(":")[0]) == (0, "mine@2 is promoted again")
    assert typed("prune", "mine", "--keep", "0", "--dry-run")[1].startswith("would remove mine@3, ")
    assert typed("prune", "mine", "--keep", "0")[1].startswith("removed mine@3, ")
    assert typed("prune", "mine", "--keep", "0")[1] == "nothing to remove\n"
    status, out, _ = typed("journal", "mine", "--json")
    told = [(line["act"], line["number"], line["reason"]) for line in json.loads(out)]
    assert told[3:] == [
        ("built", 3, ""),
        ("promoted", 2, "it is better"),
        ("promoted", 3, ""),
        ("rolled back", 2, "it was not"),
        ("removed", 3, ""),
    ]
    shown = typed("journal", "mine")[1]
    assert "rolled back" in shown
    assert "mine@3" in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("promote", "mine", "9"), "has no version 9"),
        (("promote", "mine", "abc"), "use NAME, NAME@VERSION"),
        (("promote", "other", "1"), "No engine named"),
        (("rollback", "mine"), "has no earlier promoted version"),
        (("rollback", "../mine"), "is not an engine name"),
        (("prune", "other"), "No engine named"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_sentence(
    typed: Typed, arguments: tuple[str, ...], reason: str
) -> None:
    status, out, err = typed(*arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert reason in err


@pytest.mark.parametrize("share", ["nan", "inf", "0", "1", "-0.5", "half"])
def test_a_share_that_is_none_is_refused_and_nothing_is_asked_of_a_server(
    share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(("engine", "load", "mine", "2", f"--canary={share}"))
    assert end.value.code == 2
    assert "argument --canary" in capsys.readouterr().err


def test_a_load_needs_an_admins_key_and_a_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.delenv("TRT_RESPONSES_ADMIN_KEY", raising=False)
    where = ("--port", str(unused_port))
    assert main(("engine", "load", "mine", "2", *where)) == 1
    assert "TRT_RESPONSES_ADMIN_KEY" in capsys.readouterr().err
    monkeypatch.setenv("TRT_RESPONSES_ADMIN_KEY", "k" * 32)
    assert main(("engine", "load", "mine", "2", *where)) == 1
    assert "No server answers" in capsys.readouterr().err


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound, and on which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
