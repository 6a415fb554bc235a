"""Aldaghri, Mahdavifar and Beirami (2021), FeO2: federated learning with opt-out differential
privacy."""
