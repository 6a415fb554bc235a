"""Studies: published experiments run again, each a module with one function `run`."""
