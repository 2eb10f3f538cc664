"""Writes the tables of fields into docs/api.md, each between its two marks."""

from __future__ import annotations

import re
from pathlib import Path

from trt_responses.setup.routes import FIELD_TABLES
from trt_responses.web.fields import markdown

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MARKED = re.compile(r"(<!-- fields of (\S+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def main() -> None:
    def written(marks: re.Match[str]) -> str:
        return marks[1] + markdown(FIELD_TABLES[marks[2]]) + marks[3]

    PAGE.write_text(MARKED.sub(written, PAGE.read_text()))


if __name__ == "__main__":
    main()
