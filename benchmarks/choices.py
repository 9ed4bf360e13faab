"""Electricity contracts (361 persons, up to twelve choices among four): six tastes by GPS and by a Normal mixed logit.

Persons are dealt into five folds. Both laws of tastes are fitted without a fold, and judged by the log-likelihood of
the choices of its persons, each person's choices together, per choice. The other is xlogit's, of independent Normal
tastes. Folds that the results file has are not fitted again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.distributions import Categorical

from gpsuq import GPS, GPSWarning, ObservationModel, Real

NAMES = ["pf", "cl", "loc", "wk", "tod", "seas"]
FOLDS, DRAWS, HALTON = 5, 16_384, 600


def tastes() -> ObservationModel:
    """Utilities are sums over columns; written as one product of matrices, which takes a third of the time."""

    def utilities(x: torch.Tensor, taste: torch.Tensor) -> Categorical:
        return Categorical(logits=torch.einsum("cntap,cmp->cnmta", x[:, :, 0], taste[:, 0, :, 0, 0]))

    return ObservationModel(utilities, taste=Real("features"))


def electricity(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x (situation, alternative, column) in standard deviations, the chosen alternatives, and persons."""
    table = pd.read_csv(path).sort_values(["id", "chid", "alt"], kind="stable")
    x = table[NAMES].to_numpy(float).reshape(-1, 4, len(NAMES))
    chosen = table["choice"].to_numpy().reshape(-1, 4)
    assert (chosen.sum(1) == 1).all()
    return x / x.std((0, 1)), chosen.argmax(1), table["id"].to_numpy()[::4]


def held_out(taste: np.ndarray, x: np.ndarray, y: np.ndarray, person: np.ndarray) -> float:
    """Return the log-likelihood per choice of persons whose tastes are drawn from a law, draws (draw, column)."""
    total = 0.0
    draws = torch.from_numpy(taste)
    for each in np.unique(person):
        rows = person == each
        utility = torch.from_numpy(x[rows]) @ draws.T  # (situation, alternative, draw)
        chosen = torch.from_numpy(y[rows])[:, None, None].expand(-1, 1, len(draws))
        logs = torch.log_softmax(utility, 1).gather(1, chosen).sum((0, 1))
        total += float(logs.logsumexp(0)) - np.log(len(draws))
    return total / len(y)


def by_gps(x: np.ndarray, y: np.ndarray, person: np.ndarray, seed: int) -> np.ndarray:
    uq = GPS(tastes(), reweight=None, n_chains=2, seed=seed).fit(x, y, groups=person)
    return uq.draws(DRAWS // 2)["taste"].reshape(-1, len(NAMES)).astype(float)


def by_normal(x: np.ndarray, y: np.ndarray, person: np.ndarray, seed: int) -> np.ndarray:
    from xlogit import MixedLogit

    n = len(y)
    model = MixedLogit()
    chosen = (np.arange(4) == y[:, None]).ravel()
    with contextlib.redirect_stdout(io.StringIO()):
        model.fit(X=x.reshape(4 * n, -1), y=chosen, varnames=NAMES, alts=np.tile(np.arange(4), n),
                  ids=np.repeat(np.arange(n), 4), panels=np.repeat(person, 4), n_draws=HALTON,
                  randvars=dict.fromkeys(NAMES, "n"), verbose=0, skip_std_errs=True)  # fmt: skip
    found = dict(zip(model.coeff_names, model.coeff_, strict=True))
    mean, sd = (np.array([found[prefix + name] for name in NAMES]) for prefix in ("", "sd."))
    return mean + sd * np.random.default_rng(seed).normal(size=(DRAWS, len(NAMES)))


METHODS = {"GPS": by_gps, "Normal mixed logit (xlogit)": by_normal}


def main() -> None:
    from common import kept, write

    from gpsuq.datasets.directory import data_directory

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GPSWarning)
    x, y, person = electricity(data_directory() / "choice" / "electricity_long.csv.gz")
    persons = np.unique(person)
    dealt = np.random.default_rng(arguments.seed).permutation(len(persons)) % FOLDS
    fold = dealt[np.searchsorted(persons, person)]
    rows: list[dict[str, Any]] = kept(arguments.out, "choices")
    done = {(row["fold"], row["method"]) for row in rows}
    for out in range(FOLDS):
        for method, fit in METHODS.items():
            if (out, method) in done:
                continue
            clock = time.process_time()
            draws = fit(x[fold != out], y[fold != out], person[fold != out], arguments.seed)
            processor = time.process_time() - clock
            score = held_out(draws, x[fold == out], y[fold == out], person[fold == out])
            row = {"fold": out, "method": method, "log_likelihood": round(float(score), 4)}
            rows.append(row | {"choices": int((fold == out).sum()), "processor": round(processor, 1)})
            print(rows[-1], flush=True)
            write(arguments.out, "choices", "python benchmarks/choices.py", rows)


if __name__ == "__main__":
    main()
