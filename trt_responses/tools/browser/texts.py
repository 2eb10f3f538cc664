"""The browser's description in the prompt, as in gpt-oss's training, and its error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trt_responses.tool import Function

DESCRIPTION = """\
// Tool for browsing.
// The `cursor` appears in brackets before each browsing display: `[{cursor}]`.
// Cite information from the tool using the following format:
// `【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.
// Do not quote more than 10 words directly from the tool output.
// sources=web (default: web)
namespace browser {

// Searches for information related to `query` and displays `topn` results.
type search = (_: {
query: string,
topn?: number, // default: 10
source?: string,
}) => any;

// Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing \
`num_lines` lines.
// Valid link ids are displayed with the formatting: `【{id}†.*】`.
// If `cursor` is not provided, the most recent page is implied.
// If `id` is a string, it is treated as a fully qualified URL associated with `source`.
// If `loc` is not provided, the viewport will be positioned at the beginning of the document or \
centered on the most relevant passage, if available.
// Use this function without `id` to scroll to a new location of an opened page.
type open = (_: {
id?: number | string, // default: -1
cursor?: number, // default: -1
loc?: number, // default: -1
num_lines?: number, // default: -1
view_source?: boolean, // default: false
source?: string,
}) => any;

// Finds exact matches of `pattern` in the current page, or the page given by `cursor`.
type find = (_: {
pattern: string,
cursor?: number, // default: -1
}) => any;

} // namespace browser"""


def _function(description: str, needed: tuple[str, ...] = (), **properties: Any) -> Function:
    schema = {"type": "object", "properties": properties, "required": list(needed)}
    return Function(description, schema | {"additionalProperties": False})


_CURSOR = {
    "type": "integer",
    "description": "The page with this number in brackets; the newest, if it is left out.",
}
FUNCTIONS: Mapping[str, Function] = {
    "browser.search": _function(
        "Searches the web, and displays the results. The number of each display stands in brackets "
        "before it: `[{cursor}]`. Cite lines of displays as `【{cursor}†L{start}(-L{end})?】`, "
        "such as `【6†L9-L11】` or `【8†L3】`. Do not quote more than 10 words directly.",
        ("query",),
        query={"type": "string"},
        topn={"type": "integer", "description": "The most results; 10, if it is left out."},
    ),
    "browser.open": _function(
        "Opens a link of a displayed page, which stands there as `【{id}†.*】`, or a URL; without "
        "`id`, it scrolls to another line of an opened page.",
        id={"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Link or URL."},
        cursor=_CURSOR,
        loc={"type": "integer", "description": "The first line that is shown."},
        num_lines={"type": "integer", "description": "The number of lines that are shown."},
    ),
    "browser.find": _function(
        "Finds a text in a page, exactly as it is given.",
        ("pattern",),
        pattern={"type": "string"},
        cursor=_CURSOR,
    ),
}
"""The browser as functions, for models with templates."""

NO_PAGES = "No pages to access!"
NO_CURSOR = "Cursor `{}` is out of range. Available cursor indices: [0 - {}]."
NO_LINK = "Invalid link id `{}`."
NO_LINE = "Invalid location parameter: `{}`. Cannot exceed page maximum of {}."
NOT_FETCHED = "Error fetching URL `{}`: {}."
NOT_SEARCHED = "Error during search for `{}`: {}."
NOT_FOUND = "No `find` results for pattern: `{}`"
NOT_TO_BE_FOUND_IN = "Cannot run `find` on search results page or find results page"
BAD_ARGUMENT = "The argument `{}` is missing, or is no {}."
UNSEEN = (
    "it is not among the results, the links of opened pages and the URLs of the user's messages, "
    "which are all that may be opened"
)
NOT_ALLOWED = "its domain is not among those that are allowed: {}"
