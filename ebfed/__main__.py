"""Run the command line with ``python -m ebfed``."""

from ebfed.cli.app import app

app(prog_name="ebfed")
