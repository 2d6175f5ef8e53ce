"""Predictions and targets in, one number to make small out (or one for each, by `reduction`)."""
