"""Nine UCI tables with their published splits: GPSRegressor beside seven other methods, all in one thread.

``GPSUQ_DATA=/path/to/data python benchmarks/uci.py`` measures every method on every split and appends a line to
``results/uci/rows.jsonl`` as soon as it has one; lines that are there are not measured again, so a run that was stopped
goes on. ``--tables boston,yacht --splits 0-4 --methods GPS,NGBoost`` measures a part. Two processes share the work when
one is given ``--share 0/2`` and the other ``--share 1/2``. ``--summarise`` measures nothing: it turns all lines into
``results/uci.json`` and ``results/uci.md``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import logging
import os
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded; OpenBLAS reads it too

import numpy as np
import pandas as pd
import torch
from common import write
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from torch import nn

from gpsuq.core import mixtures
from gpsuq.files import write_atomically
from gpsuq.regress.stacking import mixture_crps
from paper.peers import interval_score
from paper.uci import TABLES, read_split, splits

Array = NDArray[np.floating]

COVERAGES = (0.9, 0.95)
TIED = ("wine",)  # targets are grades: a density can be made as high there as one likes
_FINE = (np.arange(200) + 0.5) / 200  # levels at which the CRPS of a forest is summed up
# Midpoints again: 2 x the mean loss at the levels i/20, i = 1..19, would say 1.048 times the CRPS of a Normal, these 20
# say 1.002 times.
_COARSE = (np.arange(20) + 0.5) / 20
_SAMPLES = 500  # of engression, for each row
_MEMBERS = 5


@dataclass(frozen=True)
class Forecast:
    """What a method says of new rows: means (n,), an interval (2, n) by coverage, and what scores targets (n,)."""

    mean: Array
    intervals: dict[float, Array]
    crps: Callable[[Array], Array]
    log_density: Callable[[Array], Array] | None = None


Predict = Callable[[Array], Forecast]


def tails(coverage: float) -> list[float]:
    """Return the levels of both ends of an equal-tailed interval."""
    tail = round((1.0 - coverage) / 2.0, 12)
    return [tail, 1.0 - tail]


ENDS = [level for coverage in COVERAGES for level in tails(coverage)]


def intervals_of(ends: Array) -> dict[float, Array]:
    """Turn quantiles (n, 4) at the levels ``ENDS`` into an interval for each coverage."""
    return {coverage: ends[:, 2 * k : 2 * k + 2].T for k, coverage in enumerate(COVERAGES)}


# Scores.


def quantile_crps(y: Array, levels: Array, quantiles: Array) -> Array:
    """Return twice the mean quantile loss of y (n,) under quantiles (n, levels), which is nearly the CRPS: (n,)."""
    above = y[:, None] - quantiles
    return np.asarray(2.0 * np.maximum(levels * above, (levels - 1.0) * above).mean(1))


def sample_crps(y: Array, samples: Array) -> Array:
    """Return the CRPS of y (n,) from samples (n, m), without the bias that sampling has when pairs include i = j."""
    m = samples.shape[1]
    ordered = np.sort(samples, axis=1)
    spread = ordered @ (2.0 * np.arange(1, m + 1) - m - 1.0) / (m * (m - 1) / 2)  # mean |Y - Y'| over pairs
    return np.asarray(np.abs(samples - y[:, None]).mean(1) - 0.5 * spread)


def mixture_forecast(loc: Array, scale: Array) -> Forecast:
    """Return the forecast of equal-weight mixtures of Normals, loc and scale (n, m)."""
    return Forecast(
        loc.mean(1),
        intervals_of(mixtures.quantiles(ENDS, loc, scale)),
        lambda y: mixture_crps(y, loc, scale, np.full(loc.shape[1], 1.0 / loc.shape[1])),
        lambda y: mixtures.log_density(y, loc, scale),
    )


# Methods: from rows, targets and a seed to what predicts new rows.


def gps(X: Array, y: Array, seed: int) -> Predict:
    """Fit GPSRegressor with its defaults."""
    from gpsuq.regress.estimator import GPSRegressor

    return gps_forecast(GPSRegressor(random_state=seed).fit(X, y))


def gps_forecast(model: Any) -> Predict:
    """Return what a fitted GPSRegressor predicts."""

    def predict(new: Array) -> Forecast:
        return Forecast(
            model.predict(new),
            {coverage: model.predict_interval(new, coverage).to_numpy().T for coverage in COVERAGES},
            lambda target: np.asarray(model.crps(new, target)),
            # A density that underflows counts as 1e-300, so that one row does not make the mean infinite.
            lambda target: np.log(np.maximum(model.predict_density(new, target), 1e-300)),
        )

    return predict


def gps_conformal(X: Array, y: Array, seed: int) -> Predict:
    """Fit GPSRegressor with a fifth of the rows left out for its conformal layer."""
    from gpsuq.regress.estimator import GPSRegressor

    return gps_forecast(GPSRegressor(random_state=seed, conformal=0.2).fit(X, y))


def ngboost(X: Array, y: Array, seed: int) -> Predict:
    """Fit NGBoost's Normal with its defaults, at most 500 trees.

    A tenth of the rows says where to stop, after 50 trees without gain, as its users do; there is no second fit to all
    rows. NGBoost itself predicts by all trees unless it is told which was best.
    """
    from ngboost import NGBRegressor

    rest, aside, y_rest, y_aside = train_test_split(X, y, test_size=0.1, random_state=seed)
    model = NGBRegressor(verbose=False, random_state=seed)
    model.fit(rest, y_rest, X_val=aside, Y_val=y_aside, early_stopping_rounds=50)

    def predict(new: Array) -> Forecast:
        found = model.pred_dist(new, max_iter=model.best_val_loss_itr + 1)
        return mixture_forecast(found.params["loc"][:, None], found.params["scale"][:, None])

    return predict


def quantile_forest(X: Array, y: Array, seed: int) -> Predict:
    """Fit a quantile regression forest with its defaults, 100 trees."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(n_jobs=1, random_state=seed).fit(X, y)

    def predict(new: Array) -> Forecast:
        return Forecast(
            model.predict(new, quantiles="mean"),
            intervals_of(model.predict(new, quantiles=ENDS)),
            lambda target: quantile_crps(target, _FINE, model.predict(new, quantiles=_FINE.tolist())),
        )

    return predict


def engression_defaults(X: Array, y: Array, seed: int) -> Predict:
    """Fit engression with its defaults: 500 steps on all rows at the rate 0.0001."""
    return _engression(X, y, seed)


def engression_readme(X: Array, y: Array, seed: int) -> Predict:
    """Fit engression with the settings of its README's example, which trains further than its defaults do."""
    return _engression(X, y, seed, lr=0.01, num_epochs=500, batch_size=1000)


def _engression(X: Array, y: Array, seed: int, **settings: Any) -> Predict:
    from engression import engression

    varies = np.ptp(X, axis=0) > 0.0  # it divides by rounding error where a column is constant
    torch.manual_seed(seed)
    model = engression(X[:, varies], y[:, None], verbose=False, **settings)

    def predict(new: Array) -> Forecast:
        blocks = np.array_split(
            new[:, varies], max(1, len(new) // 200)
        )  # 500 samples of each row are in memory at once
        samples = np.concatenate([model.sample(block, sample_size=_SAMPLES)[:, 0, :].numpy() for block in blocks])
        samples = samples.astype(np.float64)
        ends = np.quantile(samples, ENDS, axis=1).T
        return Forecast(samples.mean(1), intervals_of(ends), lambda target: sample_crps(target, samples))

    return predict


def lightgbm_conformal(X: Array, y: Array, seed: int) -> Predict:
    """Fit LightGBM with its defaults: mean, 20 quantiles for the CRPS, and intervals by MAPIE.

    Intervals are conformalised quantile regressions, which a fifth of the rows calibrates; each coverage has three
    models. All 27 fits are in the seconds.
    """
    from lightgbm import LGBMRegressor
    from mapie.regression import ConformalizedQuantileRegressor

    def machine(**settings: Any) -> Any:
        return LGBMRegressor(n_jobs=1, random_state=seed, verbose=-1, **settings)

    rest, aside, y_rest, y_aside = train_test_split(X, y, test_size=0.2, random_state=seed)
    # MAPIE sets alpha in copies of the machine, but wants it named.
    wrapped = {
        coverage: ConformalizedQuantileRegressor(machine(objective="quantile", alpha=0.5), confidence_level=coverage)
        .fit(rest, y_rest)
        .conformalize(aside, y_aside)
        for coverage in COVERAGES
    }
    mean = machine().fit(X, y)
    lines = [machine(objective="quantile", alpha=level).fit(X, y) for level in _COARSE]

    def predict(new: Array) -> Forecast:
        bounds = {coverage: each.predict_interval(new)[1][:, :, 0].T for coverage, each in wrapped.items()}
        return Forecast(
            mean.predict(new),
            {coverage: np.sort(both, axis=0) for coverage, both in bounds.items()},
            lambda target: quantile_crps(
                target, _COARSE, np.sort(np.stack([line.predict(new) for line in lines], axis=1), axis=1)
            ),
        )

    return predict


def plain_network(X: Array, y: Array, seed: int) -> Predict:
    """Fit one network with a Normal output."""
    return _ensemble(X, y, [seed])


def ensemble(X: Array, y: Array, seed: int) -> Predict:
    """Fit five networks with a Normal output; the first is the plain network."""
    return _ensemble(X, y, [seed + 1000 * member for member in range(_MEMBERS)])


def _ensemble(X: Array, y: Array, seeds: Sequence[int]) -> Predict:
    members = [trained_network(X, y, seed) for seed in seeds]

    def predict(new: Array) -> Forecast:
        loc, scale = (np.stack(parts, axis=1) for parts in zip(*(member(new) for member in members), strict=True))
        return mixture_forecast(loc, scale)

    return predict


def trained_network(
    X: Array, y: Array, seed: int, *, epochs: int = 1000, patience: int = 50
) -> Callable[[Array], tuple[Array, Array]]:
    """Train a perceptron, two layers of 64, for mean and sd; return what gives both for new rows.

    Adam at the rate 0.001 lowers the negative log likelihood of standardised targets. Batches are a hundredth of the
    rows, 32 to 256. A tenth of the rows, drawn by the seed, says which epoch is kept and when to stop.
    """
    torch.manual_seed(seed)
    centre, spread = X.mean(0), np.where(np.ptp(X, axis=0) > 0.0, X.std(0), 1.0)
    y_centre, y_spread = y.mean(), y.std()

    def columns(rows: Array) -> torch.Tensor:
        return torch.from_numpy((rows - centre) / spread).float()

    fitted, aside = train_test_split(np.arange(len(y)), test_size=0.1, random_state=seed)
    inputs, targets = columns(X), torch.from_numpy((y - y_centre) / y_spread).float()
    network = nn.Sequential(nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    batch = int(np.clip(len(y) // 100, 32, 256))

    def normal(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, raw = network(rows).unbind(1)
        return mean, nn.functional.softplus(raw) + 1e-3

    def loss(rows: Any) -> torch.Tensor:
        mean, sd = normal(inputs[rows])
        return (sd.log() + 0.5 * ((targets[rows] - mean) / sd).square()).mean()

    best, kept, waited = np.inf, {}, 0
    order = torch.from_numpy(fitted)
    for _ in range(epochs):
        for rows in order[torch.randperm(len(order))].split(batch):
            optimiser.zero_grad()
            loss(rows).backward()
            optimiser.step()
        with torch.no_grad():
            value = loss(aside).item()
        waited += 1
        if value < best:
            best, waited = value, 0
            kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        if waited >= patience:
            break
    network.load_state_dict(kept)

    def predict(new: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            mean, sd = (part.double().numpy() for part in normal(columns(new)))
        return y_centre + y_spread * mean, y_spread * sd

    return predict


METHODS: dict[str, tuple[Callable[[Array, Array, int], Predict], tuple[str, ...]]] = {
    "GPS": (gps, ("gpsuq.regress.estimator",)),
    "GPS + conformal": (gps_conformal, ("gpsuq.regress.estimator",)),
    "NGBoost": (ngboost, ("ngboost",)),
    "quantile forest": (quantile_forest, ("quantile_forest",)),
    "engression": (engression_defaults, ("engression",)),
    "engression (README)": (engression_readme, ("engression",)),
    "LightGBM + conformal": (lightgbm_conformal, ("lightgbm", "mapie")),
    "plain network": (plain_network, ("torch",)),
    "ensemble": (ensemble, ("torch",)),
}
"""From the name of a method to what fits it, and the modules it needs. treeffuser needs NumPy 1 and is not here."""


# Measuring.


def interval_measures(intervals: dict[float, Array], y: Array) -> dict[str, float]:
    """Return the score and the width of intervals of 90%, and the coverage of both."""
    covered = {c: float(((lower <= y) & (y <= upper)).mean()) for c, (lower, upper) in intervals.items()}
    lower, upper = intervals[0.9]
    return {
        "interval score 90": interval_score(intervals[0.9], y, 0.9),
        "coverage 90": covered[0.9],
        "coverage 95": covered[0.95],
        "width 90": float((upper - lower).mean()),
    }


def measured(name: str, split: int, method: str) -> dict[str, Any]:
    """Fit a method to one split and return what it measures on the test part.

    Seconds of prediction are those of means and both intervals; what only the scores need comes after them.
    """
    X, y, new, target = read_split(name, split)
    fit = METHODS[method][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started, processor = time.perf_counter(), time.process_time()
        predict = fit(X, y, split)
        fitted, fitted_processor = time.perf_counter(), time.process_time()
        forecast = predict(new)
        predicted = time.perf_counter()
        density = None if name in TIED else forecast.log_density
        return {
            "table": name,
            "split": split,
            "method": method,
            "crps": float(np.mean(forecast.crps(target))),
            "log score": None if density is None else float(-np.mean(density(target))),
            **interval_measures(forecast.intervals, target),
            "rmse": float(np.sqrt(np.square(forecast.mean - target).mean())),
            "fit seconds": round(fitted - started, 3),
            "fit processor seconds": round(fitted_processor - processor, 3),
            "predict seconds": round(predicted - fitted, 4),
            "version": version(method),
        }


def _git(*words: str) -> str:
    root = Path(__file__).parents[1]
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=root).stdout.strip()


def version(method: str) -> str:
    """Return the versions of the packages a method is from; of GPS and the networks here, the commit."""
    modules = METHODS[method][1]
    if modules[0].startswith(("gpsuq", "torch")):
        changed = _git("status", "--porcelain", "--", "src", "benchmarks/uci.py")  # files that git does not know too
        return (_git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")
    return ", ".join(
        f"{module}=={importlib.metadata.version(module.split('.')[0].replace('_', '-'))}" for module in modules
    )


def available(methods: Sequence[str]) -> list[str]:
    """Return the methods whose modules can be loaded, and say which cannot."""
    found = []
    for method in methods:
        try:
            for module in METHODS[method][1]:
                importlib.import_module(module)
            found.append(method)
        except ImportError as error:
            print(f"{method} is skipped: {error}", flush=True)
    return found


def rows_of(path: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Read all lines by table, split and method; the last one counts, and a line that was cut off does not."""
    rows = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            print(f"a broken line of {path} is left out: {line[:60]}", flush=True)
            continue
        rows[row["table"], row["split"], row["method"]] = row
    return rows


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a line by one write, so that lines of two processes do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps(row) + "\n").encode())
    finally:
        os.close(file)


def units(tables: Sequence[str], wanted: Sequence[int] | None, share: tuple[int, int]) -> Iterator[tuple[str, int]]:
    """Yield the splits of a share of the work, all tables of a split first.

    All methods of a split are measured by one process, and the shares have as many splits of every table, or one less.
    """
    counts = {name: len(splits(name)) for name in tables}
    for split in range(max(counts.values())):
        for name in tables:
            asked = split < counts[name] and (wanted is None or split in wanted)
            if asked and (split + TABLES.index(name)) % share[1] == share[0]:
                yield name, split


def measure(path: Path, work: Iterator[tuple[str, int]], methods: Sequence[str], *, again: bool) -> int:
    """Measure what has no line yet; return how many fits failed, which have none."""
    failed = 0
    for name, split in work:
        done = {} if again else rows_of(path)
        for method in methods:
            if (name, split, method) in done:
                continue
            try:
                row = measured(name, split, method)
            except Exception:
                print(f"{method} failed on {name}, split {split}:\n{traceback.format_exc()}", flush=True)
                failed += 1
                continue
            append(path, row)
            print(f"{name} {split} {method}: CRPS {row['crps']:.4g}, {row['fit seconds']:.1f} s", flush=True)
    return failed


# Summaries.

MEASURES = {
    "crps": "CRPS",
    "log score": "Log score (negative mean log density)",
    "interval score 90": "Interval score at 90%",
    "coverage 90": "Coverage of 90% intervals",
    "coverage 95": "Coverage of 95% intervals",
    "width 90": "Mean width of 90% intervals",
    "rmse": "RMSE",
    "fit seconds": "Seconds of a fit, one thread (median)",
    "fit processor seconds": "Processor seconds of a fit (median)",
    "predict seconds": "Seconds of prediction for the test rows (median)",
}
LOWER_IS_BETTER = ("crps", "log score", "interval score 90", "rmse")


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Return, by table and method, the splits and mean and standard error of all measures (medians of seconds)."""
    result: dict[str, Any] = {}
    for (name, method), part in rows.groupby(["table", "method"], sort=False):
        own = result.setdefault(name, {})[method] = {"splits": len(part)}
        for measure in MEASURES:
            values = part[measure].astype(float).dropna() if measure in part else pd.Series(dtype=float)
            if len(values) and "seconds" in measure:
                own[measure] = round(float(values.median()), 4)
            elif len(values):
                own[measure] = [float(values.mean()), float(values.sem()) if len(values) > 1 else None]
    return result


def overall(rows: pd.DataFrame, measure: str = "crps") -> dict[str, Any]:
    """Return how methods compare over tables, by means over the splits that all of a table's methods have.

    ``over GPS`` is the geometric mean over tables of a method's measure over that of GPS; ``best on`` names the tables
    where no other method has a lower one.
    """
    rows = rows[rows["method"] != "GPS + conformal"]  # another setting of the same method
    wide = rows.pivot_table(index=["table", "split"], columns="method", values=measure, sort=False)
    common = {name: part.dropna(axis=1, how="all").dropna() for name, part in wide.groupby(level="table", sort=False)}
    table = pd.DataFrame({name: part.mean() for name, part in common.items()}).T
    return {
        method: {
            "splits": {name: len(part) for name, part in common.items() if method in part},
            "over GPS": float(np.exp(np.log(table[method] / table["GPS"]).mean())) if "GPS" in table else None,
            "best on": [name for name in table.index if table.loc[name, method] == table.loc[name].min()],
        }
        for method in METHODS
        if method in table
    }


def shown(value: Any, best: float | None, splits_of: int, most: int) -> str:
    """Write a mean with its standard error, the best in bold, and how many splits it is of where some are missing."""
    if value is None:
        return ""
    mean, error = value if isinstance(value, list) else (value, None)
    text = f"**{mean:.4g}**" if best is not None and mean == best else f"{mean:.4g}"
    text += f" ± {error:.2g}" if error is not None else ""
    return text if splits_of == most else f"{text} ({splits_of} of {most} splits)"


def markdown(results: dict[str, Any], compared: dict[str, Any]) -> str:
    """Write a table for every measure, methods in columns, and one of all tables together."""
    methods = [method for method in METHODS if any(method in own for own in results.values())]
    lines = ["Means over splits ± standard errors; the lowest is bold where lower is better.", ""]
    for measure, title in MEASURES.items():
        lines += [f"## {title}", "", "| table | " + " | ".join(methods) + " |", "|" + "---|" * (1 + len(methods))]
        for name in (table for table in TABLES if table in results):
            own = results[name]
            most = max(own[method]["splits"] for method in own)
            whole = [each for each in own.values() if each["splits"] == most]  # means of fewer splits are not compared
            means = [each[measure][0] for each in whole if measure in LOWER_IS_BETTER and measure in each]
            cells = [
                shown(own[method].get(measure), min(means, default=None), own[method]["splits"], most)
                if method in own
                else ""
                for method in methods
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## All tables: CRPS over that of GPS, geometric mean", "", "| method | ratio | splits | lowest on |"]
    lines += ["|---|---|---|---|"]
    for method, own in compared.items():
        ratio = "" if own["over GPS"] is None else f"{own['over GPS']:.3f}"
        lines.append(f"| {method} | {ratio} | {sum(own['splits'].values())} | {', '.join(own['best on'])} |")
    return "\n".join(lines) + "\n"


def summarise(out: Path) -> list[Path]:
    """Write uci.json and uci.md from all lines."""
    rows = pd.DataFrame(list(rows_of(out / "uci" / "rows.jsonl").values()))
    if rows.empty:
        raise SystemExit(f"there are no lines in {out / 'uci' / 'rows.jsonl'}; measure some first")
    rows = rows.sort_values("split", kind="stable")
    results, compared = summary(rows), overall(rows)
    ordered = {name: results[name] for name in TABLES if name in results}
    versions = {method: sorted(part["version"].unique()) for method, part in rows.groupby("method", sort=False)}
    command = "python benchmarks/uci.py && python benchmarks/uci.py --summarise"
    record = {"seed of a fit": "its split", "versions": versions, "tables": ordered, "all tables": compared}
    return [
        write(out, "uci", command, record),
        write_atomically(out / "uci.md", markdown(ordered, compared).encode()),
    ]


def numbers(text: str) -> list[int]:
    """Read "0,1" or "0-19" or both together."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what reads names with commas between them, all of which must be known."""

    def read(text: str) -> list[str]:
        found = [part.strip() for part in text.split(",")]
        unknown = [part for part in found if part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown} is not among {', '.join(known)}")
        return found

    return read


def part_of(text: str) -> tuple[int, int]:
    """Read "0/2": the first of two shares."""
    number, _, count = text.partition("/")
    if not 0 <= int(number) < int(count or 0):
        raise argparse.ArgumentTypeError(f"{text} is no share: the first of two is 0/2, the second 1/2")
    return int(number), int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--tables", type=names(TABLES), default=list(TABLES), help="names with commas between them")
    parser.add_argument("--splits", type=numbers, help='such as "0,1" or "0-19"; all where it is not given')
    parser.add_argument("--methods", type=names(list(METHODS)), default=list(METHODS), help="with commas between them")
    parser.add_argument("--share", type=part_of, default=(0, 1), help="0/2 and 1/2: two processes halve the work")
    parser.add_argument("--again", action="store_true", help="measure what has a line too; the last line counts")
    parser.add_argument("--summarise", action="store_true", help="write uci.json and uci.md from all lines")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.INFO)  # MAPIE says at every prediction that quantiles cross
    if arguments.summarise:
        print(*summarise(arguments.out), sep="\n")
        return
    work = units(arguments.tables, arguments.splits, arguments.share)
    rows = arguments.out / "uci" / "rows.jsonl"
    failed = measure(rows, work, available(arguments.methods), again=arguments.again)
    if failed:
        raise SystemExit(f"{failed} fits failed and have no line; the same command tries them again")


if __name__ == "__main__":
    main()
