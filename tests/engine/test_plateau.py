"""As long as the score asks: when the rate begins to fall, when training ends, and that it can be resumed."""

import numpy as np
import pytest
import torch

from gpsuq import GPS, Algorithm
from gpsuq.core.models import normal_location
from gpsuq.engine.plateau import Plateau
from gpsuq.engine.spread import SPREAD_WEIGHTS

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


def test_the_rate_falls_once_nothing_is_gained_any_more():
    plateau, scores = Plateau(), torch.randn(2, 50)
    for step in range(50, 1001, 50):
        gained = min(step, 400) / 100
        plateau.see(scores - gained)
        plateau.leave(step, 2000)
        assert (plateau.left is None) == (step < 650)  # five evaluations after the last gain
    assert plateau.end(2000) == 1300
    assert [plateau.rate(1.0, step, 2000) for step in (0, 650, 975, 1300)] == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_noise_is_no_gain():
    plateau, scores = Plateau(), torch.zeros(2, 50)
    plateau.see(scores)
    for sign in (1.0, -1.0):
        plateau.see(scores - 0.01 + sign * torch.linspace(-1.0, 1.0, 50))
    assert plateau.waited == 2


def test_without_a_verdict_the_rate_falls_over_the_second_half():
    plateau = Plateau()
    plateau.leave(999, 2000)
    assert plateau.left is None
    plateau.leave(1000, 2000)
    assert (plateau.left, plateau.end(2000)) == (1000, 2000)


def test_training_ends_by_itself_and_goes_on_from_a_checkpoint(tmp_path, rng):
    y = rng.normal(size=150)
    algorithm = Algorithm(n_steps=3000, n_draws=5, batch_size=20, evaluate_every=5, schedule="plateau")

    def fit(**options):
        return GPS(normal_location(), algorithm=algorithm, n_chains=2).fit(y, **options)

    uq = fit()
    assert len(uq.history.fit) < 1500
    with pytest.MonkeyPatch.context() as patch:
        steps = iter(range(120))
        patch.setattr("gpsuq.gps.train", _interrupted_after(steps))
        with pytest.raises(KeyboardInterrupt):
            fit(checkpoint=tmp_path, checkpoint_every=50)
    again = fit(checkpoint=tmp_path)
    assert np.array_equal(again.draws(50)["loc"], uq.draws(50)["loc"])


def _interrupted_after(steps):
    from gpsuq.engine.loop import train

    def stop(task):
        if next(steps, None) is None:
            raise KeyboardInterrupt

    return lambda task, fabric, **options: train(task, fabric, **options | {"on_step": stop})


def test_the_spread_weight_is_chosen_by_rows_left_out(rng, short):
    gps = GPS(normal_location(scale=1.0), algorithm=short, n_chains=2, spread_weight="auto")
    gps.fit(rng.normal(size=90))
    assert gps.spread_path["spread_weight"].tolist() == list(SPREAD_WEIGHTS)
    assert gps.plan.spread_weights() == (float(gps.spread_path.query("chosen")["spread_weight"].iloc[0]),) * 2
    assert gps.plan.spread_weights()[0] > 0  # all share one location
