"""`trt-responses keys`: what it prints, what it changes, and what it refuses."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING

import pytest

from trt_responses.cli.main import main
from trt_responses.features.limits.key_file import read_file
from trt_responses.features.limits.keys import KeyRing, OwnerLimits

if TYPE_CHECKING:
    from pathlib import Path

Output = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRT_RESPONSES_KEYS_FILE", str(tmp_path / "keys.json"))
    monkeypatch.setenv("TRT_RESPONSES_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "keys.json"


def ring(path: Path) -> KeyRing:
    made = KeyRing(from_file=True)
    made.hold(read_file(path)[1])
    return made


def test_a_new_key_is_shown_once_and_works(path: Path, tmp_path: Path, capsys: Output) -> None:
    assert main(["keys", "new", "ann", "--admin", "--expires", "90d"]) == 0
    shown = capsys.readouterr()
    secret = shown.out.strip()
    assert shown.out.count("\n") == 1, "alone, for `KEY=$(trt-responses keys new …)`"
    assert ring(path).owner_of(secret) == "ann"
    assert ring(path).admin_of(secret)
    main(["keys", "list"])
    main(["keys", "list", "--json"])
    again = capsys.readouterr()
    assert "ann" in again.out
    kept = path.read_text() + (tmp_path / "data" / "audit.jsonl").read_text()
    assert secret not in shown.err + again.out + again.err + kept


def test_the_data_folder_is_private_also_when_keys_are_made_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    monkeypatch.setenv("TRT_RESPONSES_DATA_DIR", str(data))
    for _ in range(2):
        assert main(["keys", "new", "ann", "--file", str(data / "keys" / "keys.json")]) == 0
        assert [path.stat().st_mode & 0o777 for path in (data, data / "keys")] == [0o700, 0o700]
        main(["keys", "revoke", "ann", "--file", str(data / "keys" / "keys.json")])
        data.chmod(0o755)  # as an older version left it
    main(["keys", "list", "--file", str(data / "keys" / "keys.json")])
    assert data.stat().st_mode & 0o777 == 0o700


def test_keys_are_revoked_by_name_or_all_of_an_owners(path: Path, capsys: Output) -> None:
    for owner, name in (("ann", "one"), ("ann", "two"), ("bob", "one"), ("ann", "three")):
        main(["keys", "new", owner, "--name", name])
    assert main(["keys", "revoke", "ann/two"]) == 0
    assert [str(key) for key in read_file(path)[1]] == ["ann/one", "bob/one", "ann/three"]
    assert main(["keys", "revoke", "ann"]) == 0
    assert [str(key) for key in read_file(path)[1]] == ["bob/one"]
    capsys.readouterr()
    assert main(["keys", "revoke", "bob"]) == 0
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out == "revoked bob/one\nNo keys: all requests are rejected.\n"


def test_each_change_stands_in_the_audit_file(path: Path, tmp_path: Path) -> None:
    main(["keys", "new", "ann"])
    main(["keys", "revoke", "ann/default"])
    lines = (tmp_path / "data" / "audit.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [(each["act"], each["key"]) for each in told] == [
        ("keys.new", "ann/default"),
        ("keys.revoke", "ann/default"),
    ]
    assert all(each["by"] and each["at"] and each["file"] == str(path) for each in told)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["new", "ann"], "ann/default"),
        (["new", "a b"], "OWNER 'a b'"),
        (["new", "ann", "--name", "a/b"], "--name 'a/b'"),
        (["revoke", "ann/absent"], "ann/absent"),
        (["revoke", "eve"], "eve"),
        (["list", "--file", "/absent/keys.json"], "--file /absent/keys.json"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_sentence_and_changes_nothing(
    path: Path, arguments: list[str], named: str, capsys: Output
) -> None:
    main(["keys", "new", "ann"])
    before = path.read_bytes()
    capsys.readouterr()
    assert main(["keys", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert named in said.err
    assert said.err.count("\n") == 1
    assert path.read_bytes() == before


def test_a_change_that_cannot_be_audited_is_not_made(
    path: Path, tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "data" / "audit.jsonl").mkdir(parents=True)
    assert main(["keys", "new", "ann"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "the keys are unchanged" in said.err
    assert not path.exists()


@pytest.mark.parametrize("buffering", [-1, 1])
@pytest.mark.parametrize("output", ["/dev/full", None])
def test_a_key_that_cannot_be_shown_is_not_stored(
    path: Path, output: str | None, buffering: int, capsys: Output
) -> None:
    """None: standard output is closed, as by `>&-`."""
    with (
        suppress(OSError),
        open(output or os.devnull, "w", buffering) as file,
        redirect_stdout(file if output else None),
    ):
        assert main(["keys", "new", "ann"]) == 1
    assert "standard output, and is not stored" in capsys.readouterr().err
    assert not path.exists()


def test_a_key_that_cannot_be_stored_is_not_shown(path: Path, capsys: Output) -> None:
    (path.parent / f".keys.json.{os.getpid()}").touch()  # in the way of what would be written
    assert main(["keys", "new", "ann"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "cannot be written" in printed.err


def test_a_file_that_is_broken_is_not_written_over(path: Path, capsys: Output) -> None:
    path.write_text("{")
    assert main(["keys", "new", "ann"]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == "{"


@pytest.mark.parametrize("when", ["soon", "90", "2027-01-31", "2027-01-31T00:00:00", "-1d"])
def test_a_time_without_a_zone_or_sense_is_refused(path: Path, when: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["keys", "new", "ann", f"--expires={when}"])
    assert not path.exists()


def test_without_a_file_it_asks_which(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.delenv("TRT_RESPONSES_KEYS_FILE", raising=False)
    assert main(["keys", "list"]) == 2
    assert "--file" in capsys.readouterr().err


def test_limits_are_written_with_a_key_and_hold(path: Path, capsys: Output) -> None:
    assert main(["keys", "new", "ann", "--limits", "running=4,requests_per_minute=60"]) == 0
    limits = ring(path).limits_of("ann")
    assert (limits.running, limits.requests_per_minute, limits.waiting) == (4, 60, None)
    assert ring(path).limits_of("bob") == OwnerLimits()
    main(["keys", "list"])
    assert "running=4" in capsys.readouterr().out.replace("\n", "").replace(" ", "")
    for wrong in ("running", "running=x", "runs=1", "running=0"):
        with pytest.raises(SystemExit):
            main(["keys", "new", "eve", "--limits", wrong])
