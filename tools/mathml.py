"""A Sphinx extension: formulas as MathML, made when the site is built. No script typesets them."""

import html
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from docutils import nodes
from latex2mathml import converter
from sphinx.util import logging

CHILDREN = {
    "mfrac": 2,
    "msup": 2,
    "msub": 2,
    "mover": 2,
    "munder": 2,
    "msubsup": 3,
    "munderover": 3,
}
ALIGNED = re.compile(r"\\(begin|end)\{(?:aligned|split|align)\}")


def mathml(tex: str, display: str = "inline") -> str:
    """A formula as MathML, with its TeX as the text that stands for it.

    Raises:
        ValueError: TeX that cannot be typeset: an unknown command, a brace that is missing.
    """
    tex = tex.strip()
    body = ALIGNED.sub(r"\\\1{align*}", tex)
    if r"\\" in tex and r"\begin" not in tex:
        body = rf"\begin{{align*}}{tex}\end{{align*}}"
    done = str(converter.convert(body, display=display))
    sound(tex, done)
    return done.replace("<math ", f'<math alttext="{html.escape(tex)}" ', 1)


def sound(tex: str, done: str) -> None:
    """Refuse MathML with TeX left in it, or without what its elements need."""
    left = re.search(r"\\[A-Za-z]+|(?<=>)&(?=<)", done)
    if left:
        raise ValueError(f"the formula {tex!r} has {left[0]!r}; expected TeX that MathML can say")
    for element in ElementTree.fromstring(done).iter():
        name = element.tag.rpartition("}")[2]
        if len(element) != CHILDREN.get(name, len(element)):
            raise ValueError(f"the formula {tex!r} is not whole; expected more of its {name}")


def written(node: Any, display: str) -> str:
    """MathML of a node, or its TeX after a warning, which `make book` takes as an error."""
    try:
        return mathml(node.astext(), display)
    except Exception as error:
        logging.getLogger(__name__).warning(str(error), location=node)
        return html.escape(node.astext())


def inline(translator: Any, node: Any) -> None:
    """A formula in a line."""
    translator.body.append(written(node, "inline"))
    raise nodes.SkipNode


def block(translator: Any, node: Any) -> None:
    """A formula in a paragraph of its own, with its number if it has one."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(written(node, "block"))
    if node.get("number"):
        translator.body.append(f'<span class="eqno">({node["number"]})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
