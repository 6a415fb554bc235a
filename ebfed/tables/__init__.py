"""From any table to blocks of clients: frames, lazy tables, files, factors, covariates, consent."""

from ebfed.tables.clients import Clients, Summary

__all__ = ["Clients", "Summary"]
