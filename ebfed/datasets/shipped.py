"""Tables that the package ships."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_shipped"]


def read_shipped(name: str) -> pd.DataFrame:
    """Read a CSV file of the folder ``data``."""
    import pandas as pd

    package = Path(__file__).parents[1]
    path = package / "data" / name
    if not path.is_file():  # an editable install: the file lies beside the package
        path = package.parent / "data" / name
    return pd.read_csv(path)
