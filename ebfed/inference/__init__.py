"""Tests, intervals and diagnostics of fitted mixed models."""
