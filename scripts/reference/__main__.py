"""`python -m scripts.reference`: writes what `docs/` has from the code, between its marks."""

from __future__ import annotations

import sys

from scripts.reference.pages import PAGES, written


def main() -> int:
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := written(text)) != text:
            page.write_text(new, "utf-8")
            print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
