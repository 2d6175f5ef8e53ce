"""Loops that keep a few snapshots: `checkpoint_loop`, its schedule and its two sweeps."""
