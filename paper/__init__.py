"""The paper's figures and tables, and studies of its claims: each a function that writes what it measured."""
