"""The seed of every check that draws random numbers."""

SEED = 20230723
