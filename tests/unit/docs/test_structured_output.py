"""The page on structured output says what the code does."""

from __future__ import annotations

from scripts.structured_output_page import PAGE, page


def test_the_page_says_what_the_code_does() -> None:
    assert PAGE.read_text() == page()
