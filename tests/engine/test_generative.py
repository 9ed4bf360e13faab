from dataclasses import replace

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.distributions import Normal

from gpsuq import GPS, MLP, MMD, Algorithm, Algorithm1, FromModule, Gaussian, Location, ObservationModel, Scale
from gpsuq.core.generators import Generator
from gpsuq.core.models import linear_regression
from gpsuq.core.observations import observations
from gpsuq.core.parameters import ParameterMap
from gpsuq.engine.chains import ChainPlan
from gpsuq.engine.checkpoints import BEFORE, FILE
from gpsuq.engine.generative import _condition_gradients, init
from gpsuq.engine.loop import take_step, train
from gpsuq.engine.problem import Problem
from gpsuq.engine.scoring import evaluate, predictive_spread
from gpsuq.engine.sources import ArraySource
from gpsuq.errors import CheckpointError, DivergenceError, GPSError, GPSWarning

MODEL = linear_regression(intercept=False)


def make_problem(algorithm, plan=None, *, distance=None, seed=0, n=120, spec=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    data = observations(X, X @ [1.0, -1.0] + 0.3 * rng.normal(size=n))
    plan = plan or ChainPlan(3, holdout=0.2)
    fabric = Fabric(accelerator="cpu", devices=1)
    source = ArraySource(data, plan, algorithm.batch_size, seed)
    problem = Problem(source, plan, algorithm, distance or MMD(), seed, fabric)
    parameter_map = ParameterMap(MODEL.parameters, 2, data.scale())
    body = (spec or MLP(hidden=(8,))).build(parameter_map.width(random=True), plan.n_chains, data.scale(), 2, seed)
    state = init(problem, Generator(body, parameter_map, plan.n_chains), MODEL)
    return problem, state


def run(problem, state, on_step=None, checkpoint=None):
    train(state, problem.fabric, on_step=on_step, checkpoint=checkpoint)
    return state


def step(problem, state):
    take_step(state, problem.fabric)


def flat(state):
    return torch.cat([p.detach().flatten() for p in state.generator.parameters()])


def test_steps_lower_the_score(short):
    problem, state = make_problem(replace(short, n_steps=200))
    batch = problem.source.sample.rows()
    before = evaluate(state, batch).score.mean()
    state = run(problem, state)
    assert evaluate(state, batch).score.mean() < before - 0.05
    assert len(state.history.fit) == len(state.history.pair) == state.step
    assert state.history.score().shape == (state.step, 3)


def test_same_seed_same_numbers(short):
    first, second, other = (run(*make_problem(short, seed=s)) for s in (0, 0, 1))
    assert torch.equal(flat(first), flat(second))
    assert not torch.equal(flat(first), flat(other))


@pytest.mark.parametrize("stop_at", [7, 20, 33])
@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(n_steps=40, batch_size=32, n_draws=8, evaluate_every=5),
        Algorithm(n_steps=40, batch_size=32, n_draws=8, evaluate_every=5, optimizer="adagrad", n_outcomes=2),
        Algorithm1(n_steps=40, batch_size=32, learning_rate=0.1, evaluate_every=5),
    ],
    ids=["adam", "adagrad", "algorithm1"],
)
def test_a_resumed_run_ends_bit_for_bit_where_the_uninterrupted_one_ends(tmp_path, algorithm, stop_at):
    problem, state = make_problem(algorithm)
    whole = run(problem, state)

    def stop(current):
        if current.step == stop_at:
            raise KeyboardInterrupt

    problem, state = make_problem(algorithm)
    state.keep_every = 3
    with pytest.raises(KeyboardInterrupt):
        run(problem, state, stop, tmp_path)
    problem, fresh = make_problem(algorithm)
    resumed = run(problem, fresh, checkpoint=tmp_path)
    assert torch.equal(flat(resumed), flat(whole))
    assert torch.equal(resumed.history.score(), whole.history.score())
    assert resumed.history.evaluated_at == whole.history.evaluated_at
    assert resumed.step == whole.step


def test_chains_do_not_touch_each_other(short):
    """Another spread weight for chain 0 changes chain 0 and nothing else."""
    plans = [ChainPlan(3, holdout=0.2, spread_weight=weights) for weights in ((0.0, 1e-9, 0.5), (2.0, 1e-9, 0.5))]
    # A fixed bandwidth: the default's second phase takes it from the noise that all chains found together.
    first, second = (run(*make_problem(short, plan, distance=MMD(Gaussian(1.0)))) for plan in plans)
    for (_, a, _), (_, b, _) in zip(first.generator.chain_views(), second.generator.chain_views(), strict=True):
        assert torch.equal(a[1:], b[1:])
        assert a.numel() == 0 or not torch.equal(a[0], b[0])


def test_a_spread_penalty_shrinks_and_a_reward_widens(short):
    plan = ChainPlan(3, None, 0.0, spread_weight=(1.0, 0.0, -0.3))
    problem, state = make_problem(replace(short, n_steps=150), plan)
    state = run(problem, state)
    batch = problem.source.sample.rows()
    noise = torch.randn(3, 1, 200, 2)
    with torch.no_grad():
        spread = predictive_spread(state.loss.predictive(noise, batch)).mean(1)
    assert spread[0] < 0.5 * spread[1]
    assert spread[1] < spread[2]


def test_observation_weights_count_like_repetitions(short):
    """Weighting an observation by 2 gives the loss of entering it twice."""
    y = torch.tensor([0.0, 1.0, 5.0])
    plan = ChainPlan(1, None, 0.0)
    losses = []
    for data in (observations(None, y, weight=[1.0, 2.0, 1.0]), observations(None, torch.tensor([0.0, 1.0, 1.0, 5.0]))):
        source = ArraySource(data, plan, 10, 0)
        batch, weight = source.batch(0)
        terms = MMD(Gaussian()).terms(Normal(torch.linspace(-1, 1, 8)[None, None], 1.0), batch)
        losses.append(float((weight * terms.score).mean()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_gradients_are_clipped_per_chain():
    problem, state = make_problem(Algorithm(n_steps=2, n_draws=4, clip=1e-3))
    step(problem, state)
    squared = sum(p.grad.square().flatten(1).sum(1) for p in state.generator.body.parameters())
    assert (squared.sqrt() <= 1e-3 * 1.001).all()
    assert (squared.sqrt() > 0.5e-3).all()


def test_a_chain_that_breaks_is_left_out_and_the_others_go_on(short):
    problem, state = make_problem(short)
    with torch.no_grad():
        state.generator.body.layers[0].weight[1] = torch.nan
    with pytest.warns(GPSWarning, match=r"chains \[1\]"):
        state = run(problem, state)
    assert state.failed.tolist() == [False, True, False]
    assert torch.isfinite(state.history.score()[-1][[0, 2]]).all()


def test_a_gradient_that_is_not_finite_is_dropped_in_its_chain_only(short):
    problem, state = make_problem(short)
    step(problem, state)
    before = {}
    for name, parameter, _ in state.generator.chain_views():
        parameter.grad[1] = torch.inf
        before[name] = parameter.grad.clone()
    _condition_gradients(state, None, torch.tensor([False, False, True]))
    for name, parameter, _ in state.generator.chain_views():
        assert torch.equal(parameter.grad[0], before[name][0])
        assert (parameter.grad[1:] == 0).all()
    assert state.skipped.tolist() == [0, 1, 0]


def test_when_all_chains_break_the_error_says_what_to_do(short):
    problem, state = make_problem(short)
    with torch.no_grad():
        state.generator.body.layers[0].weight[:] = torch.nan
    with pytest.raises(DivergenceError, match="learning rate"):
        run(problem, state)


def test_copies_of_a_module_are_clipped_and_restored_like_stacked_weights(short):
    module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    problem, state = make_problem(replace(short, clip=1e-3), spec=FromModule(module, noise_dim=2))
    step(problem, state)
    for chain in state.generator.body.copies:
        norm = sum(p.grad.square().sum() for p in chain.parameters()).sqrt()
        assert 0 < norm <= 1e-3 * 1.001
    assert run(problem, state).finished


def test_a_clearly_worse_end_is_replaced_by_the_best_state():
    """A learning rate that suddenly ruins the fit must not ruin the result."""
    algorithm = Algorithm(n_steps=60, n_draws=20, evaluate_every=10, schedule="constant", learning_rate=0.01)
    problem, state = make_problem(algorithm, distance=MMD(Gaussian(2.0)), n=400)
    evaluated = []

    def ruin(current):
        if current.step % 10 == 0 and current.step <= 50:
            evaluated.append(current.generator.body.layers[0].weight.detach().clone())
        if current.step == 59:
            with torch.no_grad():
                for _, parameter, _ in current.generator.chain_views():
                    parameter.mul_(30.0)

    state = run(problem, state, on_step=ruin)
    lowest = torch.stack(state.history.held_out).argmin(0)
    for chain, weight in enumerate(state.generator.body.layers[0].weight):
        assert torch.equal(weight, evaluated[int(lowest[chain])][chain])


def test_training_stops_when_nothing_improves():
    algorithm = Algorithm(n_steps=500, n_draws=8, evaluate_every=5, patience=3, learning_rate=1e-9)
    problem, state = make_problem(algorithm, distance=MMD(Gaussian(2.0)))
    assert run(problem, state).step < 400


def test_a_chain_stops_by_itself():
    """A chain that has not improved for ``patience`` evaluations stays where it is while others go on."""
    algorithm = Algorithm(
        n_steps=300, n_draws=20, evaluate_every=5, patience=3, schedule="constant", optimizer="sgd", learning_rate=0.3
    )
    problem, state = make_problem(algorithm, ChainPlan(3, None, 0.2), distance=MMD(Gaussian(2.0)))
    stale, weights = [], []

    def watch(current):
        stale.append(current.stale.clone())
        weights.append(current.generator.body.layers[0].weight.detach().clone())

    run(problem, state, on_step=watch)
    stopped = torch.stack(stale)[1:] >= 3
    moved = (torch.stack(weights)[1:] != torch.stack(weights)[:-1]).flatten(2).any(2)
    assert stopped.any()
    assert not moved[stopped].any()
    assert moved[~stopped].all()


def test_the_second_phase_has_the_bandwidth_of_the_noise():
    problem, state = make_problem(Algorithm(n_steps=600, n_draws=50), n=500)
    state = run(problem, state)
    assert state.phase == 1
    assert state.loss.distance.kernel.value == pytest.approx(14 * state.noise_variance)
    assert 0.05**2 < state.noise_variance < 0.6**2


def test_checkpoints_of_another_fit_and_damaged_ones_are_refused(tmp_path, short):
    run(*make_problem(short), checkpoint=tmp_path)
    for other in (
        make_problem(replace(short, n_draws=12)),
        make_problem(short, spec=MLP(hidden=(8,), activation="relu")),
    ):
        with pytest.raises(CheckpointError, match="other data, settings or seed"):
            run(*other, checkpoint=tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for content in (whole[:100], b"cos\nsystem\n(S'echo malicious'\ntR.", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged"):
            run(*make_problem(short), checkpoint=tmp_path)


def test_a_failed_write_leaves_the_old_checkpoint_and_training_goes_on(tmp_path, short, monkeypatch):
    problem, state = make_problem(short)
    state.keep_every, before = 10, []

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    def fill(current):
        if current.step == 15:
            before.append((tmp_path / FILE).read_bytes())
            monkeypatch.setattr("os.fsync", full_disk)

    with pytest.warns(GPSWarning, match="No space left"):
        run(problem, state, fill, tmp_path)
    assert state.finished
    assert (tmp_path / FILE).read_bytes() == before[0]
    assert {p.name for p in tmp_path.iterdir()} == {FILE, BEFORE}


def test_mistakes_in_the_model_are_named_before_training(short, rng):
    with pytest.raises(GPSError, match="shape"):
        GPS(ObservationModel(Normal, loc=Location(), scale=Scale()), algorithm=short).fit(rng.normal(size=(30, 2)))
