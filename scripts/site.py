"""`python -m scripts.site`: builds the site of `docs/` for this version, beside those of others.

Each version has a folder in `site/`; `versions.json` and the first page are for all of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from trt_responses import __version__

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
FIRST = '<!doctype html><title>{0}</title><meta http-equiv="refresh" content="0; url={0}/">\n'
NUMBER = re.compile(r"\d+(?:\.\d+)+")


def main() -> int:
    build = ["mkdocs", "build", "--quiet", "--site-dir", str(SITE / __version__)]
    if (built := subprocess.run([sys.executable, "-m", *build], cwd=ROOT)).returncode:
        return built.returncode
    listed = write_versions(SITE)
    print(f"versions {', '.join(listed)}; look: python3 -m http.server --directory site")
    return 0


def write_versions(site: Path) -> list[str]:
    """Write what the site's selector of versions reads, and the way to the newest one."""
    names = [path.parents[1].name for path in site.glob("*/search/search_index.json")]
    numbered = [name for name in names if NUMBER.fullmatch(name)]
    newest_first = sorted(numbered, key=lambda name: [*map(int, name.split("."))], reverse=True)
    entries = [{"version": name, "title": name, "aliases": []} for name in newest_first]
    (site / "versions.json").write_text(json.dumps(entries), "utf-8")
    (site / "index.html").write_text(FIRST.format(newest_first[0]), "utf-8")
    return newest_first


if __name__ == "__main__":
    sys.exit(main())
