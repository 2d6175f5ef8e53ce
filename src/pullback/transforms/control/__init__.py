"""Control flow: branches, loops and scans, eager and staged."""
