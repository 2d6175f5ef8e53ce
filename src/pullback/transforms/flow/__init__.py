"""Control flow as equations: branches and loops whose bodies are routines, with rules of every kind."""
