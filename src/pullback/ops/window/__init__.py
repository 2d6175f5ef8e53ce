"""Ops over windows: convolutions, pooling, sliding views."""
