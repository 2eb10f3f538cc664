"""Each test is in one of the two suites, and the list of quick end-to-end tests names tests."""

from __future__ import annotations

import ast

from tests.suites import ALL, FAST, REST, TESTS, Suite, fast_e2e, is_about

TESTS_OF = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / "e2e" / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, TESTS_OF)}


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


def test_a_room_has_its_folder_and_the_files_about_it() -> None:
    assert is_about(TESTS / "unit" / "cli" / "test_cli.py", "cli")
    assert not is_about(TESTS / "unit" / "wire" / "test_request.py", "cli")
    assert is_about(TESTS / "protocol" / "test_conversations.py", "conversations")
