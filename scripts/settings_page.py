"""Writes `docs/settings.md` from the settings themselves: `python -m scripts.settings_page`."""

from __future__ import annotations

import argparse
from pathlib import Path

from trt_responses.settings import PREFIX, VARIABLES, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = f"""# Settings

For those who run the server.

Each is an environment variable, `{PREFIX}<NAME>`; the common ones are options of
`trt-responses serve` too. A value that will not parse stops the start with the setting's name.
Lists are written with commas, and switches as 0 or 1. This page is made from the code
(`python -m scripts.settings_page`). Those in force, and where each came from, are printed by

```sh
env {PREFIX}SLOTS=1 trt-responses serve --print-settings
```

| name | default | what it does |
|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_row(name) for name in VARIABLES)


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    default = f"`{_spelled(field.default)}`" if field.default not in (None, ()) else ""
    return f"| `{name.upper()}` | {default} | {(field.description or '').replace('|', ' or ')} |\n"


def _spelled(value: object) -> str:
    """A value as a variable of the environment has it."""
    match value:
        case bool():
            return str(int(value))
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def main() -> None:
    argparse.ArgumentParser(description="Write docs/settings.md from the settings.").parse_args()
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
