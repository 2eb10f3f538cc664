"""Each test is in one of the two suites, and the list of quick end-to-end tests names tests."""

from __future__ import annotations

import ast

from tests.suites import (
    ALL,
    FAST,
    REST,
    SUITES,
    TESTS,
    Slow,
    Suite,
    fast_e2e,
    is_about,
    slow_in,
    slow_tests,
)
from tests.support.sampled import sampled

TESTS_OF = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / "e2e" / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, TESTS_OF)}


def test_a_file_of_minutes_is_shared_by_processes_and_a_quick_one_is_not() -> None:
    assert [name for name in SUITES if Suite(name).keeps_files_whole] == [FAST]


def test_the_list_names_tests_that_exist_each_with_a_reason() -> None:
    listed = fast_e2e()
    assert 25 <= len(listed) <= 40
    for entry, reason in listed.items():
        file, _, name = entry.partition("::")
        assert name in functions(file), entry
        assert reason.strip(), entry


def test_a_test_is_in_one_suite_of_two() -> None:
    suites = {name: Suite(name) for name in (FAST, REST, ALL)}
    quick = TESTS / "unit" / "test_suites.py"
    listed, _, name = next(iter(fast_e2e())).partition("::")
    cases = [
        (quick, "test_a", False, FAST),
        (quick, "test_a", True, REST),
        (TESTS / "e2e" / listed, name, False, FAST),
        (TESTS / "e2e" / listed, name, True, REST),
        (TESTS / "e2e" / listed, "test_another", False, REST),
    ]
    for path, test, slow, suite in cases:
        found = [key for key, one in suites.items() if one.has_test(path, test, slow=slow)]
        assert sorted(found) == sorted((suite, ALL)), (path, test, slow)
        assert suites[ALL].has_file(path)


def test_a_sample_leaves_the_other_cases_to_the_rest() -> None:
    mark = sampled("case", [(1,), (2,), (3,), (4,)], every=2).mark
    assert [row.values for row in mark.args[1] if not row.marks] == [((1,),), ((3,),)]
    several = sampled("one, two", [(1, 2), (3, 4)]).mark
    assert [row.values for row in several.args[1]] == [(1, 2), (3, 4)]


def test_whatever_is_slow_says_why() -> None:
    found = list(slow_tests())
    assert len(found) > 50
    assert [f"{path}:{slow.line}" for path, slow in found if not slow.reason] == []


def test_the_rest_reads_every_file_that_leaves_it_something() -> None:
    rest = Suite(REST)
    assert [path for path, _ in slow_tests() if not rest.has_file(path)] == []
    assert rest.has_file(TESTS / "e2e" / "test_drain.py")


def test_slow_tests_samples_cases_and_names_of_marks_are_listed() -> None:
    source = """
LONG = pytest.mark.slow  # 9 s
@sampled(
    "case", range(9)
)  # 3 s
def test_a(case): ...
@pytest.mark.parametrize("case", [
    1,  # one
    pytest.param(2, marks=pytest.mark.slow),  # 2 s
])
def test_b(case): ...
@pytest.mark.slow
def test_c(): ...
"""
    assert sorted(slow_in(source)) == [
        Slow(2, "LONG", "9 s"),
        Slow(3, "test_a", "3 s"),
        Slow(7, "test_b", "2 s"),
        Slow(12, "test_c", ""),
    ]


def test_a_room_has_its_folder_and_the_files_about_it() -> None:
    assert is_about(TESTS / "unit" / "cli" / "test_cli.py", "cli")
    assert not is_about(TESTS / "unit" / "wire" / "test_request.py", "cli")
    assert is_about(TESTS / "protocol" / "test_conversations.py", "conversations")
