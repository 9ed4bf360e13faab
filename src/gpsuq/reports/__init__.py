"""The page kit: one self-contained HTML file; families bring their own pages."""
