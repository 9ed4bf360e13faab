"""Spatial Poisson processes: point patterns in, a random intensity out."""
