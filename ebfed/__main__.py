"""Run the command line with ``python -m ebfed``."""

from ebfed.cli import app

app(prog_name="ebfed")
