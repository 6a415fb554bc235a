"""The command line: `ebfed fit`, `county`, `audit`, `federate` and others."""
