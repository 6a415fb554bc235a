"""Posteriors of the coefficients of groups."""
