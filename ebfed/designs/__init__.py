"""Formulas as columns of numbers: a text is parsed into terms, and a table gives their columns."""
