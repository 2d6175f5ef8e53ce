"""Recompute instead of remember: derivatives in less memory."""
