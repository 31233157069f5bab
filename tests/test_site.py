"""The built site: links, pictures, search, buttons. `make book` builds it and then runs this.

A bare `pytest` leaves this module out: a site built earlier says nothing of today's sources.
"""

import gzip
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import api_page
import pytest
import standalone

import book

SITE = book.ROOT / "_build" / "html"
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)

pytestmark = pytest.mark.skipif(not PAGES, reason="the site is not built: make book")


class Page(HTMLParser):
    """What a page links to, its anchors, its pictures, and its text outside of code."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.anchors, self.images, self.text = path, [], set(), [], []
        self._silent = 0
        # The colours of code are most of a page's tags, and say none of this.
        self.feed(re.sub(r'</span>|<span class="[^"]*">', "", path.read_text()))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        self.links += [attributes[a] for a in ("href", "src") if attributes.get(a)]
        if tag == "img":
            self.images.append(attributes)
        self._silent += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag):
        self._silent -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data):
        if not self._silent:
            self.text.append(data)


@pytest.fixture(scope="module")
def pages():
    return {path: Page(path) for path in PAGES}


def broken(page, pages):
    """Links of a page that lead nowhere within the site."""
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        found = target.exists()
        if found and parts.fragment and target in pages:
            place = parts.fragment.partition("?")[0]  # what follows is a figure's state
            found = place in pages[target].anchors
        if not found:
            yield link


def test_no_link_within_the_site_is_broken(pages):
    for page in pages.values():
        assert list(broken(page, pages)) == [], page.path


def test_a_broken_link_would_be_found(tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<a href="#there" id="there"></a><a href="#not"></a><a href="gone.html"></a>')
    page = Page(path)
    assert list(broken(page, {path: page})) == ["#not", "gone.html"]


def test_every_picture_has_an_alt_text(pages):
    for page in pages.values():
        for image in page.images:
            assert (image.get("alt") or "").strip(), f"{page.path}: {image.get('src')}"
            assert not re.search(r"^_images/|\.(png|svg)$", image["alt"]), image["alt"]


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_every_chapter_can_be_opened_in_colab_and_downloaded(path, pages):
    inside = path.relative_to(book.ROOT)
    page = pages[SITE / inside.with_suffix(".html")]
    assert any(
        link.startswith("https://colab.research.google.com/github/") and link.endswith(str(inside))
        for link in page.links
    )
    source = f"_sources/{inside}"
    assert any(unquote(link).endswith(source) for link in page.links)
    assert (SITE / source).exists()


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_figures_are_numbered_and_nothing_is_left_of_the_markup(path, pages):
    page = pages[SITE / path.relative_to(book.ROOT).with_suffix(".html")]
    text = "".join(page.text)
    pictures = [i for i in page.images if "_images/" in i.get("src", "")]
    assert len(set(re.findall(r"Fig\. \d+", text))) >= len(pictures)
    for leftover in ("{numref}", "{ref}", "{cite}", "<!--", "$$", "| --- |", "\\("):
        assert leftover not in text, leftover


def test_a_chapter_has_one_title_and_no_empty_heading(pages):
    for path in book.chapters():
        html = (SITE / path.relative_to(book.ROOT).with_suffix(".html")).read_text()
        article = html[html.index("<article") : html.index("</article>")]
        headings = re.findall(r"<h([1-6])>(.*?)<a ", article, re.DOTALL)
        assert [level for level, _ in headings].count("1") == 1, path
        assert all(text.strip() for _, text in headings), path


def test_search_finds_words_of_every_chapter():
    text = (SITE / "searchindex.js").read_text()
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for path in book.chapters():
        assert str(path.relative_to(book.ROOT).with_suffix("")) in index["docnames"]
    for word in ("barrier", "warp", "bandwidth"):
        assert word in index["terms"], word


def test_the_api_page_has_every_name_of_the_package(pages):
    anchors = pages[SITE / "book" / "api.html"].anchors
    listed = {name for names in api_page.groups().values() for name in names}
    modules = {"contenders", "libraries"}  # which stand below, where they live
    assert {f"d2ltvm.{name}" for name in listed - modules} <= anchors
    for name in ("bench.contenders.tvm_add", "schedules.matmul.matmul_tiled", "hopper.ring.stream"):
        assert f"d2ltvm.{name}" in anchors


BUDGET = 150_000  # bytes of a page's scripts, compressed
INDEX = "searchindex.js", 150_000  # of the words of all pages, beside that: it grows with the book


def scripts(path):
    """The bytes of a page's scripts, each compressed by itself as a server sends it."""
    html = path.read_text()
    files = [
        (path.parent / unquote(urlsplit(source).path)).read_bytes()
        for source in re.findall(r'<script[^>]*?\bsrc="([^"]+)"', html)
        if INDEX[0] not in source
    ]
    inside = [text.encode() for text in re.findall(r"<script[^>]*>([^<]+)</script>", html)]
    return sum(len(gzip.compress(each, 9)) for each in files + inside)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_scripts_of_a_page_are_small(path):
    assert scripts(path) <= BUDGET


def test_the_index_of_words_is_small():
    (path,) = SITE.glob(INDEX[0])
    assert len(gzip.compress(path.read_bytes(), 9)) <= INDEX[1]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_takes_nothing_from_elsewhere(path):
    """Another host stands in the links that a reader follows, and nowhere else."""
    html = re.sub(r"<!--.*?-->", "", path.read_text(), flags=re.DOTALL)
    for tag in re.findall(r"<(?!a\b)\w[^>]*>", html):
        assert not re.search(r"""\b(src|href|data|srcset|action|poster)=["']?(\w+:)?//""", tag), tag
    for script in re.findall(r"<script[^>]*>([^<]+)</script>", html):
        assert "//" not in re.sub(r"^\s*//.*$", "", script, flags=re.MULTILINE), script


def test_no_style_sheet_or_script_takes_anything_from_elsewhere():
    for path in SITE.glob("_static/**/*.css"):
        text = path.read_text()
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", text), path
    for path in SITE.glob("_static/**/*.js"):
        text = path.read_text()
        found = re.search(r"""(fetch|import|importScripts)\(\s*["'`](https?:)?//""", text)
        assert not found, f"{path}: {found}"


def test_icons_are_pictures_in_the_page(pages):
    html = (SITE / "book" / "memory" / "matmul.html").read_text()
    assert 'class="fa' not in html and html.count('class="svg-inline--fa') > 10
    assert standalone.LICENCE in html


def test_nothing_is_left_that_no_page_uses():
    for name in (
        "scripts/fontawesome.js",
        "sphinx-thebe.js",
        "locales",
        "scripts/bootstrap.js.map",
    ):
        assert not (SITE / "_static" / name).exists(), name
