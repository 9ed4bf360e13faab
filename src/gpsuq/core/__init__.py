"""Mathematics: no files, no training, no printing."""
