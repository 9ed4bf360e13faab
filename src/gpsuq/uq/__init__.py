"""The UQ distribution of any observation model: draws, intervals, storage and report."""
