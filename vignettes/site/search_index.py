"""Make each result of the search a paragraph: a hook of mkdocs.

Code, tables and equations that stand alone are not searched. The search of the theme leaves out
elements that are marked.
"""

import re
from typing import Any

CODE = re.compile(r"<(?=pre[ >]|table[ >]|math[^>]* display=\"block\")(\w+)")
# The theme begins a nameless section at whatever is before the first heading.
FIRST = re.compile(r'^(\s*<div class="doc doc-object[^>]*>\s*)(<h1\b.*?</h1>)', re.DOTALL)


def on_page_content(html: str, **kwargs: Any) -> str:
    """Mark what is not searched; put the heading of an API page first."""
    return FIRST.sub(r"\2\1", CODE.sub(r"<\1 data-search-exclude", html))
