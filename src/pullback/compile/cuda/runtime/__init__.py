"""Runs what the GPU's target renders: modules compiled by NVRTC, launches captured into graphs."""
