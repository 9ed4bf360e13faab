"""Figures that all families share, in one colour-blind safe style."""
