"""Tasks give the same wherever they run, and bring back what they would have said here."""

import os
import time
import warnings
from importlib.util import find_spec

import joblib
import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_predict, cross_val_score
from torch import nn

from gpsuq import GPSClassifier, GPSLinearRegression, GPSWarning, Recipe
from gpsuq.classify.baselines import DropoutClassifier, EnsembleClassifier, PlainClassifier
from gpsuq.engine.checkpoints import resumable, was_resumed
from gpsuq.engine.parallel import independent
from gpsuq.errors import DivergenceError

SHORT = Recipe(epochs=2, batch_size=20)
LOKY = {"backend": "loky", "n_jobs": 2}


def own_network():
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))


@pytest.fixture(scope="module")
def table():
    X = np.random.default_rng(0).normal(size=(80, 2))
    return X, (X[:, 0] > 0).astype(int)


FITS = {
    "parts": lambda X, y: GPSClassifier(recipe=SHORT).fit(X, y).uncertainty(X, 9).uqc,
    "ensemble": lambda X, y: EnsembleClassifier(own_network, n_members=3, recipe=SHORT).fit(X, y).sample_proba(X),
    "spread weight": lambda X, y: GPSClassifier(recipe=SHORT, spread_weight="auto").fit(X, y).sample_proba(X, 9),
}


@pytest.fixture(scope="module")
def wanted(table):
    """What fits give without any configuration, in a process that has two threads."""
    torch.set_num_threads(2)
    try:
        return {name: fit(*table) for name, fit in FITS.items()}
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_change_nothing(name, backend, table, wanted):
    with joblib.parallel_config(backend, n_jobs=2):
        assert np.array_equal(FITS[name](*table), wanted[name])


@pytest.fixture(scope="module")
def dask_cluster():
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    options = {"n_workers": 2, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(threads_per_worker=1, **options) as cluster, distributed.Client(cluster):
        yield


@pytest.mark.usefixtures("dask_cluster")
def test_a_dask_cluster_changes_nothing(table, wanted):
    with joblib.parallel_config("dask"):
        for name, fit in FITS.items():
            assert np.array_equal(fit(*table), wanted[name]), name
        assert os.getpid() not in independent(worker, [(), ()])
        assert [len(found) for found in independent(workers_of_a_task, [(), ()])] == [1, 1]
        # Scikit-learn's task is an ensemble's fit, whose members are tasks again.
        scores = cross_val_score(EnsembleClassifier(n_members=2, recipe=SHORT), *table, cv=2)
    assert np.array_equal(scores, cross_val_score(EnsembleClassifier(n_members=2, recipe=SHORT), *table, cv=2))


@pytest.mark.ray
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")
def test_a_ray_cluster_changes_nothing(table, wanted):
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config("ray", n_jobs=2):
            for name, fit in FITS.items():
                assert np.array_equal(fit(*table), wanted[name]), name
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    "estimator",
    [
        GPSLinearRegression(n_steps=20, n_chains=3),
        GPSClassifier(recipe=SHORT),
        PlainClassifier(recipe=SHORT),
        DropoutClassifier(own_network, recipe=SHORT),
        EnsembleClassifier(lambda: nn.Linear(2, 2), n_members=2, recipe=SHORT),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")
def test_cross_validation_gives_the_same_in_workers(estimator, table):
    def validated():
        return cross_val_score(estimator, *table, cv=2), cross_val_predict(estimator, *table, cv=2)

    with joblib.parallel_config(**LOKY):
        in_workers = validated()
    assert all(np.array_equal(a, b) for a, b in zip(in_workers, validated(), strict=True))


def worker():
    return os.getpid()


def test_results_come_in_the_order_of_tasks():
    with joblib.parallel_config(**LOKY):
        assert independent(divmod, [(number, 3) for number in range(20)]) == [divmod(n, 3) for n in range(20)]
        assert independent(worker, [()]) == [os.getpid()]  # one that is alone needs no worker
        assert independent(worker, []) == []


def test_what_is_done_is_told_at_once():
    told = []

    def second_sees_first(number):
        assert len(told) == number
        return -number

    assert independent(second_sees_first, [(0,), (1,)], on_done=lambda *done: told.append(done)) == [0, -1]
    assert told == [(0, 0), (1, -1)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_task_has_one_thread_and_the_caller_its_own_again(n_jobs):
    from threadpoolctl import threadpool_info

    def threads():
        return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}

    torch.set_num_threads(2)
    try:
        with joblib.parallel_config("loky", n_jobs=n_jobs):
            assert independent(threads, [(), ()]) == [{1}, {1}]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_threads_of_a_process_take_turns():
    running = []

    def alone(number):
        running.append(number)
        time.sleep(0.01)
        assert running == [number]
        running.remove(number)

    with joblib.parallel_config("threading", n_jobs=4):
        independent(alone, [(number,) for number in range(8)])


def workers_of_a_task():
    return {os.getpid(), *independent(worker, [(), ()])}


def test_a_tasks_own_tasks_run_where_it_does():
    with joblib.parallel_config(**LOKY):
        assert [len(found) for found in independent(workers_of_a_task, [(), ()])] == [1, 1]


def doubtful(number):
    warnings.warn("the same of all", GPSWarning, stacklevel=1)
    warnings.warn(f"number {number}", GPSWarning, stacklevel=1)


def test_warnings_of_workers_are_told_once_and_in_order():
    with warnings.catch_warnings(record=True) as told, joblib.parallel_config(**LOKY):
        warnings.simplefilter("default")
        independent(doubtful, [(number,) for number in range(3)])
    assert [str(each.message) for each in told] == ["the same of all", "number 0", "number 1", "number 2"]
    assert {each.category for each in told} == {GPSWarning}
    with warnings.catch_warnings(), joblib.parallel_config(**LOKY):
        warnings.simplefilter("error", GPSWarning)
        with pytest.raises(GPSWarning, match="the same"):
            independent(doubtful, [(0,), (1,)])


def interrupted_at(number, X, y):
    """Train, then stop in the second task."""
    PlainClassifier(recipe=SHORT, random_state=number).fit(X, y)
    if number == 1:
        raise KeyboardInterrupt


def goes_on(number, X, y):
    PlainClassifier(recipe=SHORT, random_state=number).fit(X, y)
    return was_resumed()


def test_trainings_of_workers_are_kept_and_gone_on_from(table, tmp_path):
    place, tasks = tmp_path / "kept", [(number, *table) for number in range(2)]
    with pytest.raises(KeyboardInterrupt, match="give the same command again"), resumable(place):
        independent(interrupted_at, tasks)
    with resumable(place, keep=True), joblib.parallel_config(**LOKY):
        assert independent(goes_on, [*tasks[::-1], (2, *table)]) == [True, True, False]  # whatever their order
        assert was_resumed()
    with resumable(place):
        assert independent(goes_on, [(2, *table), tasks[0]]) == [True, True]
        assert was_resumed()
    assert not place.exists()


def test_a_bar_counts_tasks_side_by_side_and_those_in_turn_show_their_own(table, capsys):
    fit = EnsembleClassifier(n_members=2, recipe=SHORT, progress=True).fit
    with joblib.parallel_config("threading", n_jobs=2):
        fit(*table)
    shown = capsys.readouterr().err
    assert "members" in shown
    assert "2/2" in shown
    assert "loss" not in shown
    fit(*table)
    shown = capsys.readouterr().err
    assert "members" not in shown
    assert shown.count("loss") > 1


def test_errors_of_workers_are_those_of_gpsuq(table):  # the last test: joblib ends workers after an error
    diverging = EnsembleClassifier(n_members=2, recipe=Recipe(epochs=2, learning_rate=1e30))
    with joblib.parallel_config(**LOKY), pytest.raises(DivergenceError, match="lower the learning rate"):
        diverging.fit(*table)
    assert not hasattr(diverging, "classes_")
