"""Nonlinear regression: a whole distribution of y at every x."""
