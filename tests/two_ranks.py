"""Processes that are threads of this one, for tests of what several of them add up to."""

from threading import Barrier, local


class Threads:
    """Stands in for :mod:`gpsuq.engine.ranks`; each thread sets ``own.rank`` first."""

    def __init__(self, n):
        self.n, self.own, self.barrier, self.held = n, local(), Barrier(n, timeout=60), {}

    def join(self):
        pass

    def rank(self):
        return self.own.rank

    def n_ranks(self):
        return self.n

    def gathered(self, value):
        self.held[self.rank()] = value
        self.barrier.wait()
        result = [self.held[rank] for rank in range(self.n)]
        self.barrier.wait()
        return result

    def summed(self, value):
        return sum(self.gathered(value))
