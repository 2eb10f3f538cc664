"""The pictures of a benchmark, read as a reader of SVG does. Budget: 3 s."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench import fleet, goals, inprocess, peers, pictures
from bench.check import Seen
from bench.pictures import Bar, Chart
from bench.report import Report
from bench.timing import Repeats

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
SEEN = Seen(1, 1, 1, 1)
CHART = Chart(
    "Ratios & <goals>",
    "a processor",
    (Bar("good", 1.5, "1.50 ×", 2.0, True), Bar("bad", 3.0, "3.00 ×", 2.0, False)),
    1.0,
    "the floor",
)


def parts(document: str, tag: str, kind: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(document)
    return [each.attrib for each in root.iter(SVG + tag) if each.get("class") == kind]


def test_each_value_is_a_bar_and_one_line_goes_through_all() -> None:
    document = pictures.svg(CHART)
    good, bad = parts(document, "rect", "bar")
    assert float(bad["width"]) == pytest.approx(2 * float(good["width"]), rel=0.01)
    assert good["fill"] != bad["fill"]
    (line,) = parts(document, "line", "line")
    begin = float(good["x"])
    assert float(line["x1"]) - begin == pytest.approx(float(good["width"]) / 1.5, rel=0.01)
    assert float(line["y1"]) < float(good["y"]) < float(bad["y"]) < float(line["y2"])
    marks = parts(document, "line", "mark")
    assert len(marks) == 2
    assert float(marks[0]["x1"]) - begin == pytest.approx(float(good["width"]) / 0.75, rel=0.01)
    texts = [each.text for each in ElementTree.fromstring(document).iter(SVG + "text")]
    assert {"Ratios & <goals>", "a processor", "good", "3.00 ×", "the floor"} <= set(texts)


def test_a_long_axis_is_a_logarithm() -> None:
    bars = tuple(Bar(str(n), n, "") for n in (1.0, 10.0, 100.0))
    document = pictures.svg(Chart("", "", bars, 1.0, "the floor", log=True))
    one, ten, hundred = (float(bar["width"]) for bar in parts(document, "rect", "bar"))
    assert ten - one == pytest.approx(hundred - ten, abs=0.2)


def report() -> Report:
    floor_us, ours_us = Repeats((1.0, 1.0)), Repeats((1.9, 1.9))
    others: dict[str, Repeats | str] = {"this": Repeats((30.0, 30.0)), "that": "absent"}
    noisy = Repeats((1.0, 3.0))
    two = tuple(fleet.Cost(100, 1.0, (5.0, 5.0), 1.0) for _ in range(2))
    one = tuple(fleet.Cost(100, 1.0, (8.0,), 1.0) for _ in range(2))
    return Report(
        {"cpu": "a processor"},
        0.0,
        inprocess=[
            inprocess.Row(448, 1, SEEN, floor_us, ours_us, floor_us),
            inprocess.Row(8192, 1, SEEN, noisy, ours_us, floor_us),
            inprocess.Row(448, 4, SEEN, floor_us, ours_us, floor_us),
        ],
        fleet=[fleet.Row(1, 0, one, one, two)],
        peers=[
            peers.Row(448, floor_us, ours_us, others),
            peers.Row(8192, noisy, ours_us, others),
        ],
    )


def test_goals_are_met_or_missed_in_their_own_direction() -> None:
    told = {goal.name: goal for goal in goals.goals(report())}
    assert told["in process, 448 tokens"].met
    assert told["in process, 448 tokens"].share == pytest.approx(0.95)
    scale = told["two front ends by one, 1 id a step"]
    assert not scale.met
    assert scale.share == pytest.approx(1.7 / 1.6)
    assert "in process, 8,192 tokens" not in told, "its floor was noisy"


def test_pictures_lie_beside_the_results_and_what_is_absent_is_no_bar(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    goals.draw(report(), tmp_path / "20260101.json", console)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == ["20260101-floor.svg", "20260101-goals.svg", "20260101-peers.svg"]
    names = {each.stem for each in tmp_path.glob("*.png")}
    assert names == ({name[:-4] for name in drawn} if pictures.has_png() else set())
    assert pictures.has_png() or "matplotlib is not installed" in console.export_text()
    peers_told = (tmp_path / "20260101-peers.svg").read_text()
    assert "this, 448 tokens" in peers_told
    assert "that" not in peers_told
    assert "8,192" not in peers_told, "its floor was noisy"
