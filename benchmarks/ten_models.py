"""The models of ``docs/howto/ten-models.md``, fitted as the page has them, beside the truth that the data come from.

For each model and seed: seconds, the mean of each parameter with its error in standard errors, the Wasserstein distance
of each law from the true one in units of its standard deviation (two groups: of their distance), and how new
observations fall under their predictive: the share inside 95% intervals, or the largest calibration error of ten bins
of probabilities. Rows that the results file has are not fitted again.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "ten-models.md"
Law = Callable[[np.random.Generator, int], np.ndarray]
REPEATS = 10  # of the simulation, for new observations of classes: their share in a bin must be known well
DRAWS = 4000


def groups(low: float, high: float, share: float = 0.5) -> Law:
    """Two values, the second of which ``share`` of the observations have."""
    return lambda rng, n: np.where(rng.random(n) < share, high, low)


def normal(mean: float, sd: float) -> Law:
    return lambda rng, n: rng.normal(mean, sd, n)


TRUTH: dict[str, dict[str, float | Law]] = {
    "A logit of persons": {"taste[x0]": groups(-1.0, 2.0, 1 / 3), "taste[x1]": normal(1.0, 0.5), "level": -0.5},
    "A mixed logit": {"taste[x0]": normal(-1.0, 0.5), "taste[x1]": normal(0.8, 1.0)},
    "Counts with too many zeros": {"slope[x0]": groups(0.0, 1.0), "level": 1.0, "never": 0.3},
    "A negative binomial with random slopes": {"slope[x0]": normal(0.5, 0.4), "level": 1.0, "size": 3.0},
    "Durations that were cut off": {"level": normal(0.5, 0.5), "slope[x0]": 0.5, "shape": 1.5},
    "Ordered answers": {"slope[x0]": groups(-1.0, 2.0), "cuts[0]": -1.0, "cuts[1]": 0.0, "cuts[2]": 1.0},
    "A multivariate Normal": {
        "centre[0]": groups(-2.0, 2.0),
        "centre[1]": groups(0.0, 1.0),
        "factor[0, 0]": 1.0,
        "factor[1, 0]": 0.6,
        "factor[1, 1]": 0.8,
    },
    "Heavy tails": {"slope[x0]": normal(1.0, 1.0), "level": 2.0, "scale": 0.5},
    "Shares": {"slope[x0]": normal(0.5, 0.5), "size": 10.0},
    "A mixture of regressions that moves with age": {"slope[x0]": groups(-1.0, 2.0), "scale": 0.5},
}


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def models() -> tuple[str, dict[str, tuple[str, str]]]:
    """Return what all models begin with, and of each the code that simulates and the code that fits."""
    head, *sections = PAGE.read_text().split("\n## ")
    parts = {title: re.split(r"\n\n+(?=def |model = )", "".join(python_blocks(text)), maxsplit=1)
             for title, text in ((section.split("\n")[0], section) for section in sections)}  # fmt: skip
    return "".join(python_blocks(head)), {title: (each[0], each[1]) for title, each in parts.items() if len(each) == 2}


def distance(drawn: np.ndarray, law: Law) -> float:
    """Return the Wasserstein distance of draws from a law, over its standard deviation or its groups' distance."""
    true = np.sort(law(np.random.default_rng(0), 100_000))
    levels = (np.arange(2000) + 0.5) / 2000
    values = np.unique(true)
    unit = np.ptp(values) if len(values) == 2 else true.std()
    return float(np.abs(np.quantile(drawn, levels) - np.quantile(true, levels)).mean() / unit)


def judged(title: str, names: dict[str, Any]) -> dict[str, Any]:
    """Compare a fit with the truth, parameter by parameter."""
    uq, age = names["uq"], names.get("age")
    summary = uq.summary(x=age)
    draws = uq.draws(DRAWS) if age is None else uq.draws(256, age[::16])
    table = {
        label: values.reshape(-1, width)[:, number]
        for name, values in draws.items()
        for width in [int(np.prod(uq.generator.parameter_map.shapes[name]))]
        for number, label in enumerate(uq._labels(name, uq.generator.parameter_map.shapes[name]))
    }
    found = {}
    for label, truth in TRUTH[title].items():
        law = truth if callable(truth) else None
        mean = float(law(np.random.default_rng(0), 1_000_000).mean()) if law else truth
        row = summary.loc[label]
        found[label] = {
            "truth": round(mean, 3),
            "mean": round(float(row["mean"]), 3),
            "standard_error": round(float(row["estimation_sd"]), 3),
            "covered": bool(row["mean_lower"] <= mean <= row["mean_upper"]),
        }
        if law:
            found[label] |= {
                "sd": round(float(row["heterogeneity_sd"]), 3),
                "w1": round(distance(table[label], law), 3),
            }
    return found


def predicted(simulate: str, names: dict[str, Any]) -> float:
    """Return the share of new observations in 95% intervals; of classes, the largest error of ten probabilities."""
    uq, pieces = names["uq"], []
    for _ in range(REPEATS):
        exec(simulate, names)
        X, y = names.get("X"), np.asarray(names["y"], dtype=float)
        if not uq.classifies and set(np.unique(y)) != {0.0, 1.0}:
            about = {} if uq.concomitants is None else {"concomitants": names["age"]}
            draws = uq.predict_draws(X, 250, n_observations=len(y) if X is None else None, **about)
            pooled = draws.reshape(-1, *draws.shape[2:])
            below, upto = (pooled < y).mean(0), (pooled <= y).mean(0)
            chance = below + names["rng"].random(y.shape) * (upto - below)  # discrete outcomes are spread out
            return round(float(((chance > 0.025) & (chance < 0.975)).mean()), 3)
        probability = uq.predict_mean(X, n_draws=250)
        seen = np.eye(probability.shape[-1])[y.astype(int)] if uq.classifies else y
        pieces.append(np.stack([probability.ravel(), seen.ravel()]))
    probability, seen = np.concatenate(pieces, 1)
    bins = np.array_split(np.argsort(probability), 10)
    return round(float(max(abs(probability[rows].mean() - seen[rows].mean()) for rows in bins)), 3)


def fitted(head: str, simulate: str, fit: str, seed: int) -> tuple[dict[str, Any], float, float]:
    """Run a model of the page on data of a seed; return its names, seconds and seconds of the processor."""
    names: dict[str, Any] = {}
    exec(head, names)
    names["rng"] = np.random.default_rng(seed)
    exec(simulate, names)
    clock, processor = time.perf_counter(), time.process_time()
    exec(re.sub(r"^print.*$", "", fit, flags=re.MULTILINE), names)
    return names, time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    from common import kept, write

    from gpsuq import GPSWarning

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", nargs="*", default=[], help="words of their titles")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GPSWarning)
    head, sections = models()
    rows = kept(arguments.out, "ten_models")
    done = {(row["model"], row["seed"]) for row in rows}
    for seed, (title, (simulate, fit)) in itertools.product(range(1, arguments.seeds + 1), sections.items()):
        if (title, seed) in done or (arguments.models and not any(word in title for word in arguments.models)):
            continue
        names, seconds, processor = fitted(head, simulate, fit, seed)
        row = {"model": title, "seed": seed, "seconds": round(seconds, 1), "processor": round(processor, 1)}
        row |= {"steps": len(names["uq"].history.fit), "parameters": judged(title, names)}
        rows.append(row | {"predictive": predicted(simulate, names)})
        print(rows[-1], flush=True)
        write(arguments.out, "ten_models", f"python benchmarks/ten_models.py --seeds {arguments.seeds}", rows)


if __name__ == "__main__":
    main()
