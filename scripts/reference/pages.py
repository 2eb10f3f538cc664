"""The parts of pages that are generated, each between `<!-- generated: NAME -->` and
`<!-- end -->`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.reference import commands, fields, schemas, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
MARKED = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS: Mapping[str, Callable[[], str]] = {
    **{f"fields of {at}": partial(fields.table, rows) for at, rows in fields.FIELD_TABLES.items()},
    "settings": settings.tables,
    "commands": commands.tables,
    "limits of schemas": schemas.bounds,
    "keywords of schemas": schemas.lists,
}


def written(page: str) -> str:
    """A page with its generated parts as the code has them now."""
    return MARKED.sub(lambda mark: f"{mark[1]}\n{PARTS[mark[2]]()}\n{mark[3]}", page)
