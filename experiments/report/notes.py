# SPDX-License-Identifier: Apache-2.0
"""Notes that people write beside results, in Markdown. They become a part of both pages; neither page
takes HTML from them."""

import html as escape_html
import re

try:
    from markdown_it import MarkdownIt
except ImportError:  # python3-markdown-it; the HTML page then shows the text
    MarkdownIt = None

HEADING_LEVELS = 3  # a note stands below a heading of the third level
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")


def _plain(text):
    return f"<pre>{escape_html.escape(text)}</pre>"


def html(text):
    """The rendered notes. Tags come out as they are written. Images are left out: the page loads
    nothing."""
    text = text.strip()
    if MarkdownIt is None:
        return _plain(text)
    try:
        parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
        tokens = parser.parse(text)
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(6, int(token.tag[1:]) + HEADING_LEVELS)}"
        return parser.renderer.render(tokens, parser.options, {})
    except Exception:  # pylint: disable=broad-except  (no note may cost the report)
        return _plain(text)


def _fenced(lines):
    """[(line, whether it is code or a fence)] and the fence that is still open at the end, or None."""
    marked, fence = [], None
    for line in lines:
        found = _FENCE.match(line)
        inside = fence is not None
        if not inside and found:
            fence = found[1]
        elif inside and found and found[1].startswith(fence) and not line[found.end():].strip():
            fence = None
        marked.append((line, inside or found is not None))
    return marked, fence


def _without_tags(line, has_code):
    """`line` with tags as text, but for those in its code, which Markdown shows as they are."""
    if not has_code:
        return _TAG.sub("&lt;", line)
    parts, end = [], 0
    for code in _CODE.finditer(line):
        parts += [_TAG.sub("&lt;", line[end:code.start()]), code[0]]
        end = code.end()
    return "".join(parts) + _TAG.sub("&lt;", line[end:])


def markdown(text):
    """The notes as a part of a longer page of Markdown: without tags, and with every block closed."""
    lines, fence = _fenced(text.strip().split("\n"))
    # Code that goes on in another line cannot be told from text here.
    has_code = all("\\`" not in line and "`" not in _CODE.sub("", line)
                   for line, is_code in lines if not is_code)
    parts = [line if is_code else _without_tags(line, has_code) for line, is_code in lines]
    return "\n".join(parts + ([fence] if fence else []))
