"""The program as machine code: steps, memory, and one native call."""
