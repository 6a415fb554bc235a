"""Beyond the papers: how much to personalise, and intervals of mixed models."""
