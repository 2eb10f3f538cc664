"""`python -m scripts.words [ROOM]`: each place where a text or a name uses the private idiom.

A room is a folder of the package, or one page of the documentation. Texts are docstrings, comments
and string literals; a string that is one identifier is a name. A name counts once for each file
that binds it, and a file's own name counts too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = "trt_responses"
FOLDERS = (PACKAGE, "conformance")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")
SITE = (".html", ".css", ".js")

IDIOM = (
    *("told", "asked", "said", "heard", "brought", "taken", "gone on with"),
    *("is there", "is not there", "isn't there", "whoever", "whom", "be it", "lot", "by hand"),
    *("of ours", "what runs", "nobody", "the only one", "a page to look at", "as ever"),
)
_GAP = r"(?:\s+(?:#:?|//|\*)?\s*)"
"""Between two words of a phrase: it may go on in the next line of a comment."""
FOUND = re.compile(
    rf"(?<![A-Za-z0-9_])(?!taken{_GAP}over)"  # a run is taken over: the field's word
    rf"(?:{'|'.join(words.replace(' ', _GAP) for words in IDIOM)})(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_NEAR = r"(?:\\[nt]|[rfu](?=[\"'])|[^a-z])*"
_MAYBE = re.compile("|".join(words.replace(" ", _NEAR) for words in IDIOM))
"""In a text in lower case: cheaper than FOUND, and found wherever that is found, in names too."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_SCRIPT = re.compile(
    r"(?P<text>//[^\n]*|/\*.*?\*/"
    r"|'(?:\\.|[^'\\\n])*'"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|`(?:\\.|[^`\\])*`)"
    r"|(?:(?<=[=(,:])|(?<=[=(,:] ))/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"
    r"|(?P<name>[A-Za-z_$][\w$]*)",
    re.DOTALL,
)
_FIELD = re.compile(r"\$\{[^{}`]*\}")


class Place(NamedTuple):
    path: str
    line: int
    word: str


def places(root: Path = ROOT) -> Iterator[Place]:
    """Every place in the packages and the pages of a repository."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", *SITE):
                yield from _of_file(path, path.relative_to(root).as_posix())
    for pattern in PAGES:
        for page in sorted(root.glob(pattern)):
            yield from _of_file(page, page.relative_to(root).as_posix())


def room(path: str) -> str:
    """The folder that a file of a package stands in; the path of a page."""
    return path.rpartition("/")[0] if path.partition("/")[0] in FOLDERS else path


def counts(found: Iterator[Place]) -> Counter[str]:
    """The number of places in each room."""
    return Counter(room(place.path) for place in found)


def _of_file(path: Path, name: str) -> Iterator[Place]:
    text = path.read_text("utf-8")
    in_name = [(1, word) for word in _in_name(path.stem)] if path.suffix == ".py" else []
    found = in_name + (list(found_in(text, path.suffix)) if _MAYBE.search(text.lower()) else [])
    for line, word in sorted(found):
        yield Place(name, line, word)


def found_in(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """The lines and words of one file's text, read as the suffix says."""
    if suffix == ".py":
        tree = ast.parse(text)
        yield from _in_names(_bound(tree))
        yield from _in_literals(tree, text.split("\n"))
        yield from _in_comments(text)
    elif suffix == ".js":
        yield from _in_script(text)
    else:
        yield from _in_text(text, 1)


def _in_text(text: str, line: int) -> Iterator[tuple[int, str]]:
    for match in FOUND.finditer(text):
        yield line + text.count("\n", 0, match.start()), _plain(match[0])


def _plain(words: str) -> str:
    return " ".join(re.findall(r"[\w']+", words)).lower()


def _in_name(name: str) -> list[str]:
    return FOUND.findall(" ".join(_PARTS.findall(name)).lower())


def _in_names(bound: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    first: dict[str, int] = {}
    for line, name in bound:
        first[name] = min(line, first.get(name, line))
    for name, line in first.items():
        for word in _in_name(name):
            yield line, word


def _bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a module binds: definitions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


def _in_literals(tree: ast.AST, lines: list[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if _IDENTIFIER.fullmatch(node.value):
            for word in _in_name(node.value):
                yield node.lineno, word
            continue
        if found := [_plain(match[0]) for match in FOUND.finditer(node.value)]:
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            seen = [line for line, _ in _in_text(source, node.lineno)]
            same = len(seen) == len(found)  # else parts of the literal stand apart in the source
            yield from zip(seen if same else [node.lineno] * len(found), found, strict=True)


def _in_comments(text: str) -> Iterator[tuple[int, str]]:
    begun, comment = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            if comment and alone and token.start[0] == begun + comment.count("\n") + 1:
                comment += f"\n{token.string}"
                continue
            yield from _in_text(comment, begun)
            begun, comment = token.start[0], token.string
    yield from _in_text(comment, begun)


def _in_script(text: str) -> Iterator[tuple[int, str]]:
    names: list[tuple[int, str]] = []
    for match in _SCRIPT.finditer(text):
        line = 1 + text.count("\n", 0, match.start())
        if match["name"]:
            names.append((line, match["name"]))
        elif piece := match["text"]:
            if piece.startswith("`"):
                fields = " ".join(_FIELD.findall(piece))
                names += [(line, name) for name in _IDENTIFIER.findall(fields)]
                piece = _FIELD.sub("…", piece)
            yield from _in_text(piece, line)
    yield from _in_names(iter(names))


def main(arguments: list[str]) -> int:
    wanted = [argument.rstrip("/") for argument in arguments]
    shown = [
        place
        for place in places()
        if not wanted or any(f"{place.path}/".startswith(f"{name}/") for name in _rooms(wanted))
    ]
    for place in shown:
        print(f"{place.path}:{place.line}: {place.word}")
    print(f"{len(shown)} places")
    return 0


def _rooms(wanted: list[str]) -> Iterator[str]:
    """Each name as it stands, and as a folder of the package."""
    for name in wanted:
        yield from (name, f"{PACKAGE}/{name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
