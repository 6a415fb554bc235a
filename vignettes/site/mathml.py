r"""Equations of Markdown become MathML when the site is built: no page runs a script for them.

``$…$`` and ``$$…$$`` in pages, ``:math:`…``` and ``.. math::`` in docstrings. Tables of
reStructuredText, which docstrings have too, are shown as they are.
"""

import re
from textwrap import dedent

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

BLOCK = re.compile(r"\$\$([^$]+)\$\$|^\.\. math::(.*\n(?:[ \t]+\S.*\n|\n(?=[ \t]))*)", re.M)
TABLE = re.compile(r"^(=+(?: +=+)+\n(?:.+\n)+?=+(?: +=+)+\n(?:.+\n)+?=+(?: +=+)+)$", re.M)


def equation(tex: str, display: str = "inline") -> str:
    """Turn TeX into MathML, whose brackets find their size by themselves."""
    plain = re.sub(r"\\[Bb]igg?[lr]?(?![a-zA-Z])\s*", "", tex)
    html = convert(plain.replace(r"\arg", r"\operatorname{arg}"), display=display)
    html = html.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation, with its spaces
    if "\\" in html:
        raise ValueError(f"latex2mathml does not know all of {tex!r}.")
    return html


class Blocks(Preprocessor):
    """Equations that stand alone, and tables."""

    def run(self, lines: list[str]) -> list[str]:
        text = TABLE.sub(self.table, "\n".join(lines) + "\n")
        return BLOCK.sub(self.equation, text).split("\n")

    def equation(self, match: re.Match) -> str:
        html = equation(dedent(match[1] or match[2]).strip(), "block")
        html = f'<div class="equation">{html}</div>'
        return f"\n\n{self.md.htmlStash.store(html)}\n\n"

    def table(self, match: re.Match) -> str:
        return f"\n\n{self.md.htmlStash.store(f'<pre><code>{match[1]}</code></pre>')}\n\n"


class Inline(InlineProcessor):
    """Equations within a line."""

    def handleMatch(self, m: re.Match, data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(equation(m[1])), m.start(0), m.end(0)


class MathML(Extension):
    """Equations of pages and docstrings."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Blocks(md), "equations", 24)  # after fenced code, which has 25
        md.inlinePatterns.register(
            Inline(r":math:`(.+?)`", md), "math role", 191
        )  # before code: 190
        md.inlinePatterns.register(Inline(r"\$(?!\s)([^$]+?)(?<!\s)\$", md), "math", 185)


def makeExtension(**options: object) -> MathML:
    """Tell Markdown what this module has."""
    return MathML(**options)
