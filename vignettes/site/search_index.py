"""Keep code, tables and equations out of the search, so that a result is a paragraph.

A hook of mkdocs. The search of the theme leaves out elements that ask for it.
"""

import re
from typing import Any


def on_page_content(html: str, **kwargs: Any) -> str:
    """Mark what the search leaves out."""
    return re.sub(r"<(pre|table|math)(?=[ >])", r"<\1 data-search-exclude", html)
