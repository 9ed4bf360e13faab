import pytest


@pytest.fixture
def process(monkeypatch):
    """Let this process be one of several."""

    def be(rank, n_ranks):
        for module in ("ranks", "loaders"):
            monkeypatch.setattr(f"gpsuq.engine.{module}.several", lambda: n_ranks > 1)
            monkeypatch.setattr(f"gpsuq.engine.{module}.rank", lambda: rank)
            monkeypatch.setattr(f"gpsuq.engine.{module}.n_ranks", lambda: n_ranks)

    return be
