"""The runner, the plan before it, the report, and the table of known-bad releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import ROOT
from trt_responses.cli.main import main
from trt_responses.prepare.known_bad import known_bad
from trt_responses.prove.bench import Bench, Wish
from trt_responses.prove.claims import Failed, Figures, Skipped
from trt_responses.prove.report import clean, document, page, secrets_of, write
from trt_responses.prove.run import announced, attempt, run
from trt_responses.prove.serving import AGREE
from trt_responses.prove.steps import STEPS, Step, chosen
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hf_0123456789"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Wish(None, "demo", "llamacpp"), Settings(engines_dir=tmp_path), tmp_path)


def step(name: str, work: Callable[[Bench], Figures], **more: object) -> Step:
    given: dict[str, object] = {"proves": "run on GPUs", "loads": 0, "seconds": 7.0, **more}
    return Step(name, f"what {name} does", run=work, **given)  # type: ignore[arg-type]  # its fields


def failing(_: Bench) -> Figures:
    raise Failed(f"no answer with {SECRET}", {"text": [f"{AGREE} {Path.home()}/x"]})


def skipping(_: Bench) -> Figures:
    raise Skipped("no adapter")


def raising(_: Bench) -> Figures:
    raise KeyError("usage")


TABLE = (
    step("holds", lambda _: {"tokens": 3}),
    step("fails", failing),
    step("skips", skipping),
    step("raises", raising, proves="Malformed Harmony never ends a turn"),
    step("other", failing, skip=lambda _: "no LoRA given"),
)


def test_the_plan_names_steps_times_and_reasons(bench: Bench) -> None:
    lines = list(announced(TABLE, bench))
    assert lines[0].split() == ["holds", "7.0", "s,", "what", "holds", "does"]
    assert lines[-2].split(maxsplit=1) == ["other", "skipped: no LoRA given"]
    assert lines[-1] == "about 28.0 s in all"


def test_a_failed_step_ends_no_other_one(bench: Bench) -> None:
    said: list[str] = []
    found = run(TABLE, bench, said.append)
    assert [outcome.state for outcome in found] == [
        "held",
        "failed",
        "skipped",
        "failed",
        "skipped",
    ]
    assert said[0] == "[1/5] holds: what holds does …"
    assert "KeyError: 'usage'" in said[7]


def test_an_interrupt_ends_the_steps_and_keeps_what_was_found(bench: Bench) -> None:
    def interrupted(_: Bench) -> Figures:
        raise KeyboardInterrupt

    table = (TABLE[0], step("long", interrupted), TABLE[0])
    found = run(table, bench, lambda _: None)
    assert [(outcome.state, outcome.why) for outcome in found] == [
        ("held", ""),
        ("failed", "interrupted"),
        ("failed", "interrupted"),
    ]


def test_the_report_has_neither_secrets_nor_prompts(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    report = document(bench, [attempt(each, bench) for each in TABLE])
    place = write(tmp_path / "proof", report)
    text = (place.with_suffix(".json")).read_text()
    assert json.loads(text) == report
    for whole in (text, place.read_text(), page(report)):
        assert SECRET not in whole
        assert AGREE not in whole
        assert f"{Path.home()}/x" not in whole
        assert "no answer with [secret]" in whole
        assert "[prompt] ~/x" in whole
    assert report["status"] == "failed"
    assert report["rows of README"] == {
        "run on GPUs": "not run on a GPU",
        "Malformed Harmony never ends a turn": "failed",
    }


def test_parts_of_a_variable_are_secret_and_short_words_are_not() -> None:
    found = secrets_of({"API_KEYS": "ann:sk-abcdef,bob:sk-ghijkl", "MY_TOKEN": "yes", "PATH": "/x"})
    assert {"sk-abcdef", "sk-ghijkl"} <= found
    assert not {"yes", "/x"} & found
    assert clean({"why": ["sk-abcdef"]}, found) == {"why": ["[secret]"]}


def test_each_step_proves_a_row_of_readme() -> None:
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    for each in STEPS:
        assert each.proves in readme, each.name


def test_a_single_step_brings_the_build_that_it_needs() -> None:
    assert [each.name for each in chosen(["stops"])] == ["build", "stops"]
    assert chosen([]) == [*STEPS]


def test_a_release_is_known_bad_where_its_row_says_so() -> None:
    accuracy = [row.sentence() for row in known_bad({"tensorrt_llm": "1.3.0rc24+cu13"}, 2)]
    assert accuracy == [
        "tensorrt_llm 1.3.0rc24: by its release notes gpt-oss loses accuracy on several GPUs"
    ]
    assert [*known_bad({"tensorrt_llm": "1.3.0rc24"}, 1)] == []
    assert [*known_bad({}, 8)] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing-of-this-name"], "no checkpoint, and no engine in"),
        (["demo", "--lora", "/no/such/folder"], "/no/such/folder: no such file or directory"),
        (["demo", "--only", "everything"], "invalid choice"),
    ],
)
def test_wrong_use_is_status_2(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(["prove", *arguments, "--engines-dir", str(tmp_path)])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert sentence in capsys.readouterr().err
