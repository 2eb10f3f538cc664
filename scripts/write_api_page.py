"""Writes the table of fields into docs/api.md, between its two marks."""

from __future__ import annotations

import re
from pathlib import Path

from trt_responses.web.fields import markdown

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MARKED = re.compile(r"(<!-- fields -->\n).*(<!-- end of fields -->)", re.DOTALL)


def main() -> None:
    page = MARKED.sub(lambda marks: marks[1] + markdown() + marks[2], PAGE.read_text())
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
