"""The page of settings says what the settings say."""

from __future__ import annotations

from scripts.settings_page import PAGE, page
from trt_responses.settings import Settings


def test_the_page_is_made_from_the_settings() -> None:
    assert PAGE.read_text() == page()


def test_every_setting_is_described() -> None:
    bare = [name for name, field in Settings.model_fields.items() if not field.description]
    assert bare == []
