"""The conformance kit by itself: it stands alone, and judges shares, schemas and refusals."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import responses_conformance
from responses_conformance import cli
from responses_conformance.checks import CHECKS
from responses_conformance.checks.base import Check, Failure, NotOffered
from responses_conformance.checks.kit import PLACE, Kit
from responses_conformance.client import Exchange, Server
from responses_conformance.repeat import script
from responses_conformance.report import badge, cut
from responses_conformance.runner import judge
from responses_conformance.schema import departure
from responses_conformance.shares import interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from responses_conformance.checks.base import Profile

SERVER = Server("http://127.0.0.1:9/v1", key="sk-secret")
PLACED: dict[str, Any] = {"name": "Bern", "kind": "city", "letters": 4, "tags": ["a"]}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_kit_imports_nothing_of_the_server() -> None:
    files = list(Path(responses_conformance.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    assert [p for p in files if any(n.startswith("trt_responses") for n in imported(p))] == []


def test_each_check_has_a_name_of_its_own_a_sentence_and_a_clause() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.name.split(".")[0] in ("responses", "chat", "messages")
        assert check.judges.endswith(".")
        assert check.clause


@pytest.mark.parametrize(
    ("profile", "by_model", "verdict"),
    [
        ("hosted", True, "passed"),
        ("hosted", False, "failed"),
        ("scripted", True, "failed"),
    ],
)
def test_a_share_is_enough_only_where_the_weights_decide(
    profile: Profile, by_model: bool, verdict: str
) -> None:
    attempts = iter([True] * 8 + [False] * 2)

    def run(kit: Kit) -> None:
        if not next(attempts):
            raise Failure("it does not hold")

    [found] = judge(SERVER, [Check("x", "", "", run, by_model)], profile, 10, lambda *_: None)
    assert (found.verdict, found.held, found.attempts) == (verdict, 8, 10)


def test_the_interval_is_wilsons() -> None:
    assert [round(bound, 3) for bound in interval(8, 10)] == [0.490, 0.943]
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(5, 5)[1] == 1.0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"kind": "planet"}, "`kind` is none of"),
        ({"letters": True}, "`letters` is no integer"),
        ({"letters": 0}, "`letters` is below 1"),
        ({"tags": []}, "`tags` has 0 items"),
        ({"tags": [1]}, "`tags`[0] is no string"),
        ({"more": 1}, "it has `more`"),
    ],
)
def test_a_value_is_held_against_a_schema(changed: dict[str, Any], why: str | None) -> None:
    found = departure(PLACED | changed, PLACE)
    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_refusal_by_name_is_not_offered_and_another_one_is_a_failure() -> None:
    kit = Kit(SERVER, "scripted")

    def reply(status: int, **error: str) -> Exchange:
        return Exchange(
            "POST", "/responses", b"", status, {}, json.dumps({"error": error}).encode()
        )

    with pytest.raises(NotOffered, match="refused with 400"):
        kit.ok(reply(400, message="background is not supported"), "background")
    with pytest.raises(NotOffered, match="no endpoint POST /responses"):
        kit.ok(reply(404))
    for status, message in ((400, "bad"), (404, "no such model"), (500, "background")):
        with pytest.raises(Failure):
            kit.ok(reply(status, message=message), "background")


def test_the_key_is_in_no_report_and_no_script() -> None:
    exchange = Exchange(
        "POST", "/responses", b'{"input": "it\'s"}', 200, {}, b'{"id": "resp_1234"}'
    )
    for steps in ([exchange], [exchange, Exchange("GET", "/responses/resp_1234", None)]):
        text = script(SERVER, steps)
        assert "sk-secret" not in text
        assert "KEY" in text
    assert "'/responses/' + r1[0]" in text
    assert "sk-secret" not in cut(SERVER, b"Bearer sk-secret")


def test_a_badge_says_how_many_of_the_judged_passed() -> None:
    assert "3/4" in badge({"summary": {"passed": 3, "failed": 1, "not offered": 9}})


def test_the_command_lists_its_checks_and_refuses_wrong_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["--list", "--only", "chat.stream"]) == 0
    assert "chat.stream.role\n" in capsys.readouterr().out
    assert cli.main(["--script"]) == 0
    assert capsys.readouterr().out.startswith("# What the model says")
    for given, why in (
        ([], "no address"),
        (["http://127.0.0.1:9/v1", "--only", "nothing"], "no check is named nothing"),
        (["ftp://here"], "no address of a server"),
        (["http://127.0.0.1:9/v1"], "does not answer"),
    ):
        assert cli.main(given) == 2
        assert why in capsys.readouterr().err
