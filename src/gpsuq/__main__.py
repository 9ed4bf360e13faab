"""``python -m gpsuq``: the command line, as ``torchrun -m gpsuq ...`` starts it."""

from gpsuq.cli import main

main()
