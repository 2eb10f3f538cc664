"""Writes the tables of fields into docs/api.md, each between its two marks."""

from __future__ import annotations

import re
from pathlib import Path

from trt_responses.web.fields import markdown

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MARKED = re.compile(r"(<!-- fields of (\S+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def main() -> None:
    page = MARKED.sub(lambda marks: marks[1] + markdown(marks[2]) + marks[3], PAGE.read_text())
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
