"""The command line: `ebfed fit`, `study`, `audit`, `federate` and others."""
