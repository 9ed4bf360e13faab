"""Classifiers that say when they are uncertain: any network with a noise input."""
