"""Plots of fits and studies: one file for each kind.

Functions draw on `ax` and return it; without one they open a figure of pyplot, which a notebook
shows. `new_axes` gives axes outside pyplot, for files: they need no display and no closing. Plots
can be read without colours. Those of fits take an estimator, a formula or its `view`.
"""
