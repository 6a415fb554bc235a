"""Numerical methods of regressions: functions of arrays."""
