"""Bietti, Wei, Dudik, Langford and Wu (2022), Personalization improves privacy-accuracy tradeoffs
in federated learning."""
