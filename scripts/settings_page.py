"""Writes `docs/settings.md` from the settings themselves: `python -m scripts.settings_page`."""

from __future__ import annotations

from pathlib import Path

from trt_responses.settings import PREFIX, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = f"""# Settings

For those who run the server.

Each is an environment variable, `{PREFIX}<NAME>`; the common ones are options of
`trt-responses serve` too. A value that will not parse stops the start with the setting's name.
Lists are written with commas. `trt-responses serve --print-settings` prints those in force, and
where each came from. This page is made from the code (`python -m scripts.settings_page`).

| name | default | what it does |
|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_row(name) for name in Settings.model_fields)


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    default = field.default
    shown = "" if default in (None, ()) else f"`{default}`"
    return f"| `{name.upper()}` | {shown} | {(field.description or '').replace('|', ' or ')} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
