"""Pages that stand alone: formulas as MathML, icons as SVG, scripts that are used."""

import re
import xml.etree.ElementTree as ElementTree

import mathml
import pytest
import standalone
from PIL import Image

FORMULAS = {
    r"\frac{a}{b}": ["mfrac"],
    r"\sum_{k=0}^{l-1} A_{ik} B_{kj}": ["munderover", "msub"],
    r"\left\lceil \frac{n}{32} \right\rceil": ["mo", "mfrac"],
    r"t \text{ where } n \ge 3 \text{ and } a < b": ["mtext"],
    r"\begin{aligned} a &= b \\ c &= d \end{aligned}": ["mtable", "mtr", "mtd"],
    r"a &= b \\ c &= d": ["mtable", "mtr", "mtd"],
    r"\begin{cases} 1 & x > 0 \\ 0 & \text{else} \end{cases}": ["mtable"],
    r"\sqrt{x} \cdot 10^{3}\,\mu\mathrm{s}": ["msqrt", "msup", "mspace"],
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}": ["mtable"],
}


@pytest.mark.parametrize("tex", FORMULAS)
def test_a_formula_is_mathml(tex):
    root = ElementTree.fromstring(mathml.mathml(tex, "block"))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert root.get("alttext") == tex and root.get("display") == "block"
    assert names >= set(FORMULAS[tex])
    assert "\\" not in "".join(root.itertext()) and "&" not in "".join(root.itertext())


def test_lines_that_are_aligned_have_no_numbers_of_their_own():
    assert "(1)" not in mathml.mathml(r"\begin{align} a &= b \\ c &= d \end{align}", "block")


@pytest.mark.parametrize(
    ("tex", "says"),
    [(r"\foo{x}", r"'\\foo'"), ("a & b", "'&'"), (r"\frac{1", "more of its mfrac")],
)
def test_what_cannot_be_typeset_is_refused(tex, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        mathml.mathml(tex)


def find(style, name):
    return {("fas", "sun"): (10, 20, "M0 0"), ("fab", "github"): (30, 20, "M1 1")}[style, name]


def test_an_icon_keeps_what_the_theme_knows_it_by():
    html = '<i class="theme-switch fa-solid fa-sun   fa-lg" data-mode="light" title="Light"></i>'
    assert standalone.drawn(html, find) == (
        '<svg class="svg-inline--fa theme-switch fa-sun fa-lg" data-mode="light"'
        ' aria-hidden="true" viewBox="0 0 10 20"><path fill="currentColor" d="M0 0"/></svg>'
    )
    assert "0 0 30 20" in standalone.drawn('<i class="fab fa-github"></i>', find)
    assert standalone.drawn('<i class="other"></i>', find) == '<i class="other"></i>'


def test_icons_are_found_in_the_themes_script():
    script = (
        '({sun:[5,6,[9728],"f185","M5"],"sun-b":[7,8,[],"f1","M7"]});c("far",p),c("fa-regular",p)'
    )
    script += '({sun:[1,2,[],"f185","M1"]});d("fas",p),d("fa-solid",p)'
    icon = standalone.icons(script)
    assert icon("far", "sun") == (5, 6, "M5") and icon("fas", "sun") == (1, 2, "M1")
    assert icon("far", "sun-b") == (7, 8, "M7")
    with pytest.raises(ValueError, match="the icon is 'moon'; expected a name of Font Awesome's"):
        icon("fas", "moon")


PAGE = """<html><head><link rel="stylesheet" href="_static/sphinx-design.min.css?v=1" />
<script src="_static/scripts/fontawesome.js?digest=1"></script>
<script src="_static/copybutton.js?v=1"></script><script src="_static/own.js"></script>
<script>const THEBE_JS_URL = "https://example.invalid"</script>
<script>console.log("here"), b = 1</script></head><body>%s</body></html>"""


def test_a_page_keeps_the_scripts_that_it_uses():
    done = standalone.without_unused(PAGE % '<div class="highlight"></div>')
    for name in ("fontawesome", "THEBE", "sphinx-design", "console"):
        assert name not in done, name
    assert "copybutton.js" in done and "own.js" in done and 'void("here"), b = 1' in done
    done = standalone.without_unused(PAGE % '<div class="sd-card"></div>')
    assert "copybutton.js" not in done and "sphinx-design.min.css" in done


def test_an_empty_cell_heads_nothing_and_roles_are_the_standards():
    html = '<th class="head"><p></p></th><th>a</th><div id="x" role="doc-biblioentry">'
    assert standalone.accessible(html) == '<td></td><th>a</th><div id="x">'


def test_figures_that_are_alike_have_labels_that_are_not():
    form = '<form class="d2l-controls" style="" aria-label="Banks">'
    assert re.findall('label="(.*?)"', standalone.accessible(3 * form)) == [
        *("Banks", "Banks, 2", "Banks, 3"),
    ]


def test_a_picture_says_how_large_it_is(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    (tmp_path / "b.svg").write_text('<svg viewBox="0 0 220 63.6">')
    html = '<img src="a.png"><img src="b.svg"><img style="width: 7px; height: 5px;" src="a.png">'
    assert standalone.sized(html, tmp_path / "page.html") == (
        '<img width="30" height="20" src="a.png"><img width="220" height="64" src="b.svg">'
        '<img width="7" height="5" src="a.png">'
    )


def test_the_index_has_words_and_no_numbers():
    words = standalone.Words({})
    found = ("tile", "h200", "sm_90", "1x1", "4096", "000967979", "128wait", "the")
    assert [word for word in found if words.word_filter(word)] == ["tile", "h200", "sm_90", "1x1"]
