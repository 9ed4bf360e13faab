"""Tables from files, and their columns as numbers."""
