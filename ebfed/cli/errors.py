"""Errors of the user: one line and exit code 2, in place of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["errors_of_the_user"]


@contextmanager
def errors_of_the_user(*others: type[Exception]) -> Iterator[None]:
    """Print errors of files, arguments and missing packages in one line, and exit with code 2.

    Parameters
    ----------
    *others : exception types
        Errors of the user beside OSError, ValueError and ImportError.
    """
    kinds: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, *others)
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # a RuntimeError; and a reader, as head, that has enough
        raise
    except kinds as error:
        typer.echo(f"ebfed: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
