"""A Sphinx extension: pages that stand alone, and that load no script which they do not use.

The theme brings every icon of Font Awesome as a script, a search index on each page, and a button
that fetches Thebe from elsewhere. Here a page keeps the icons that stand on it, as SVG, and the
scripts that it uses. What nothing refers to any more is removed from the site. The search index is
without numbers.
"""

import functools
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.search.en import SearchEnglish

from d2ltvm.system import files

FONT_AWESOME = "_static/scripts/fontawesome.js"
LICENCE = "Icons: Font Awesome Free, CC BY 4.0; see _static/scripts/fontawesome.js.LICENSE.txt"
STYLES = {"fa": "fas", "fas": "fas", "fa-solid": "fas", "fab": "fab", "fa-brands": "fab"}

# By name of a script or style sheet: what a page that uses it contains.
USED_BY = {
    "fontawesome.js": None,
    "sphinx-thebe.js": None,
    "sphinx-thebe.css": None,
    "searchtools.js": 'id="search-results"',
    "language_data.js": 'id="search-results"',
    "searchindex.js": 'id="search-results"',
    "design-tabs.js": 'class="sd-tab-',
    "sphinx-design.min.css": 'class="sd-',
    "togglebutton.js": 'class="toggle|admonition[^"]* dropdown',
    "togglebutton.css": 'class="toggle|admonition[^"]* dropdown',
    "copybutton.js": '<div class="highlight',
    "clipboard.min.js": '<div class="highlight',
    "explore.js": 'class="d2l-explorer',
    "explore.css": 'class="d2l-explorer',
}
INLINE = {
    "THEBE_JS_URL": None,
    "togglebuttonSelector": USED_BY["togglebutton.js"],
    "toggleHint": USED_BY["togglebutton.js"],
    "toggleOpenOnPrint": USED_BY["togglebutton.js"],
}

# Files that no page refers to.
UNUSED = ("**/*.map", "locales", "*webpack-macros.html", "scripts/fontawesome.js", "sphinx-thebe.*")

# The theme to begin with, before anything is drawn: the reader's choice, else the system's.
MODE = """<script>
    {
      const root = document.documentElement.dataset;
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      root.mode = localStorage.getItem("mode") || "auto";
      root.theme = root.mode === "auto" ? (dark ? "dark" : "light") : root.mode;
    }
  </script>"""

CONTENTS = re.compile(
    r'\s*<dialog id="pst-secondary-sidebar-modal">.*?'
    r'(?=</div>\s*<footer class="bd-footer-content">)',
    re.DOTALL,
)

# From the disk, browsers fetch no page for a script: results stand there without their lines.
FROM_DISK = (
    "<script>if (location.protocol === 'file:')"
    " DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;</script>"
)


def icons(script: str) -> Callable[[str, str], tuple[int, int, str]]:
    """From Font Awesome's script, a function from style and name to width, height and path."""
    packs, start = {}, 0
    for end in re.finditer(r'\w\("(fa[bsr])",\w+\),\w\("fa-\w+",\w+\)', script):
        packs[end[1]] = script[start : end.end()]
        start = end.end()

    @functools.cache
    def find(style: str, name: str) -> tuple[int, int, str]:
        pattern = rf'[{{,]"?{name}"?:\[(\d+),(\d+),\[[^]]*\],"\w+","([^"]+)"\]'
        found = re.search(pattern, packs[style])
        if found is None:
            raise ValueError(f"the icon is {name!r}; expected a name of Font Awesome's {style}")
        return int(found[1]), int(found[2]), found[3]

    return find


def drawn(html: str, find: Callable[[str, str], tuple[int, int, str]]) -> str:
    """Every icon of a page as SVG, with the classes that the theme knows it by."""

    def svg(match: re.Match[str]) -> str:
        classes = match[1].split()
        style = next((STYLES[c] for c in classes if c in STYLES), None)
        names = [c for c in classes if c.startswith("fa-") and c not in (*STYLES, "fa-lg")]
        if style is None or not names:
            return match[0]
        width, height, path = find(style, names[0].removeprefix("fa-"))
        kept = " ".join(["svg-inline--fa", *(c for c in classes if c not in STYLES)])
        rest = re.sub(r' (title|aria-\w+)="[^"]*"', "", match[2])
        return (
            f'<svg class="{kept}"{rest} aria-hidden="true" viewBox="0 0 {width} {height}">'
            f'<path fill="currentColor" d="{path}"/></svg>'
        )

    done = re.sub(r'<(?:i|span) class="([^"]*\bfa[^"]*)"([^>]*)></(?:i|span)>', svg, html)
    return done.replace("</body>", f"<!-- {LICENCE} -->\n  </body>")


def used(html: str, mark: str | None) -> bool:
    """Does a page contain what a script works on?"""
    return mark is not None and re.search(mark, html) is not None


def without_unused(html: str) -> str:
    """A page without the scripts and style sheets that it does not use."""

    def keep(match: re.Match[str]) -> str:
        name = re.search(r'(?:src|href)="[^"?]*?([^"?/]+\.(?:js|css))[?"]', match[0])
        if name:
            return match[0] if used(body, USED_BY.get(name[1], "")) else ""
        inside = (mark for text, mark in INLINE.items() if text in match[0])
        return quiet(match[0]) if all(used(body, mark) for mark in inside) else ""

    body = html[html.index("<body") :]
    tags = r"<script\b[^>]*>[^<]*</script>\s*|<link\b[^>]*\.(?:js|css)\b[^>]*>\s*"
    return re.sub(tags, keep, html)


def accessible(html: str) -> str:
    """A page mended where the theme's markup names a wrong role, or none."""
    html = html.replace(
        '<div id="pst-primary-sidebar"',
        '<div id="pst-primary-sidebar" role="region" aria-label="Site"',
    )
    html = re.sub(r' role="(doc-biblioentry|doc-footnote)"', "", html)
    html = html.replace('<div role="list" class="citation-list">', '<div class="citation-list">')
    seen: Counter[str] = Counter()

    def numbered(match: re.Match[str]) -> str:
        seen[match[2]] += 1
        number = f", {seen[match[2]]}" if seen[match[2]] > 1 else ""
        return f'{match[1]}{match[2]}{number}"'

    html = re.sub(r'(<form class="d2l-controls"[^>]*aria-label=")([^"]*)"', numbered, html)
    html = re.sub(r"<th[^>]*>\s*(?:<p>\s*</p>)?\s*</th>", "<td></td>", html)
    return html


def extent(picture: Path) -> tuple[int, int] | None:
    """Width and height of a PNG, by its first bytes, or of an SVG, by its box."""
    if picture.suffix == ".png":
        return struct.unpack(">II", picture.read_bytes()[16:24])
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture.read_text())
    return (round(float(box[1])), round(float(box[2]))) if box else None


def sized(html: str, page: Path) -> str:
    """A page whose pictures say how large they are, so that their room is kept while they load."""

    def said(match: re.Match[str]) -> str:
        tag = match[0]
        style = re.search(r' style="width: (\d+)px; height: (\d+)px;"', tag)
        if style:
            return tag.replace(style[0], f' width="{style[1]}" height="{style[2]}"')
        source = re.search(r'src="([^":]+\.(?:svg|png))"', tag)
        size = extent(page.parent / source[1]) if source and " width=" not in tag else None
        return tag.replace("<img", f'<img width="{size[0]}" height="{size[1]}"') if size else tag

    return re.sub(r"<img\b[^>]*>", said, html)


def contents_first(html: str) -> str:
    """A page with its contents ahead of the article, beside which they stand.

    Where they come after it, a browser that has drawn half of a long page makes room for them late;
    and it opens late what stands under their first entry.
    """
    found = CONTENTS.search(html)
    if found is None:
        return html
    contents = found[0].rstrip().replace('nav-item toc-entry"', 'nav-item toc-entry active"', 1)
    html = html[: found.start()] + html[found.end() :]
    return html.replace('<div class="bd-content">', '<div class="bd-content">' + contents, 1)


def alone(html: str, find: Callable[[str, str], tuple[int, int, str]]) -> str:
    """A page as it goes to the reader."""
    html = re.sub(r'<script data-cfasync="false">.*?</script>', MODE, html, count=1, flags=re.S)
    if 'id="search-results"' in html:
        html = html.replace("</head>", f"  {FROM_DISK}\n  </head>")
    return contents_first(accessible(drawn(without_unused(html), find)))


def quiet(script: str) -> str:
    """A theme's script that says nothing on the console, and names no map of its source."""
    script = re.sub(r"console\.(log|info|debug)\(", "void(", script)
    return re.sub(r"\n//# sourceMappingURL=\S+", "", script)


def finish(app: Any, exception: Exception | None) -> None:
    """Bring the pages to the form in which they stand alone, and remove what is left over."""
    site = Path(app.outdir)
    if exception or app.builder.format != "html" or not (site / FONT_AWESOME).exists():
        return
    find = icons((site / FONT_AWESOME).read_text())
    for page in site.rglob("*.html"):
        if "_static" not in page.parts and "<body" in (html := page.read_text()):
            files.write(page, sized(alone(html, find), page))
    for script in [*site.glob("_static/scripts/*.js"), *site.glob("_static/*.js")]:
        files.write(script, quiet(script.read_text()))
    for pattern in UNUSED:
        for path in list((site / "_static").glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


class Words(SearchEnglish):
    """What can be searched for: words, and no numbers.

    Sphinx's own script takes no number as a query. Some thousand numbers of outputs, alone or with
    what stands behind them, would be a tenth of the index. Short ones are kept, such as 1x1.
    """

    def word_filter(self, word: str) -> bool:
        """Whether a word stands in the index."""
        number = word.isdigit() or (word[:1].isdigit() and len(word) > 4)
        return not number and super().word_filter(word)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_search_language(Words)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
