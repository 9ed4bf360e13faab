"""Twelve tasks of a newcomer, with the default settings: lines of code and seconds of each, and what came out.

Each task is the text that somebody would write, with names that the documentation has, in a folder with the
files that it reads. Seconds are those of the processor, imports left out. A task that fails says so, and how.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import write

TASKS = {
    "own CSV with dates and text": """
        import pandas as pd
        from gpsuq import GPSRegressor
        table = pd.read_csv("patients.csv")
        model = GPSRegressor().fit(table.drop(columns="response"), table["response"])
        answer = model.predict_interval(table.drop(columns="response").head(), 0.9)
    """,
    "polars": """
        import polars as pl
        from gpsuq import GPSLinearRegression
        table = pl.read_csv("numbers.csv")
        model = GPSLinearRegression().fit(table.drop("y"), table["y"])
        answer = model.predict_interval(table.drop("y").head(), 0.9)
    """,
    "own CNN": """
        import numpy as np
        from torch import nn
        from gpsuq import GPSClassifier
        images, labels = np.load("images.npy"), np.load("labels.npy")
        head = nn.Sequential(nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 10))
        network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), head)
        model = GPSClassifier(network).fit(images[:1000], labels[:1000])
        answer = model.uncertainty(images[1000:]).uncertain.mean()
    """,
    "tokens": """
        import numpy as np
        from torch import nn
        from gpsuq import GPSClassifier
        tokens, labels = np.load("tokens.npy"), np.load("topics.npy")
        network = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 2))
        model = GPSClassifier(network).fit(tokens[:800], labels[:800])
        answer = (model.predict(tokens[800:]) == labels[800:]).mean()
    """,
    "polygon pattern": """
        import pandas as pd
        from gpsuq import GPSPoissonProcess
        trees = pd.read_csv("trees.csv")
        model = GPSPoissonProcess().fit(trees[["x", "y"]], window="forest.geojson")
        model.plot().savefig("intensity.png")
        answer = model.region_counts([(0, 100, 0, 100)], coverage=0.9)
    """,
    "own model": """
        import numpy as np
        from torch.distributions import Normal
        from gpsuq import GPS, Location, ObservationModel
        y = np.load("heaps.npy")
        uq = GPS(ObservationModel(lambda theta: Normal(theta, 1.0), theta=Location())).fit(y)
        answer = uq.summary()
    """,
    "save, load, resume": """
        import pandas as pd
        from gpsuq import GPSLinearRegression, load
        table = pd.read_csv("scissors.csv")
        model = GPSLinearRegression().fit(table[["x"]], table["y"], checkpoint="unfinished")  # or goes on from there
        model.save("model")
        answer = load("model").predict(table[["x"]].head())
    """,
    "in a Pipeline": """
        import pandas as pd
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from gpsuq import GPSLinearRegression
        table = pd.read_csv("numbers.csv")
        X, y = table.drop(columns="y"), table["y"]
        pipeline = make_pipeline(StandardScaler(), GPSLinearRegression()).fit(X, y)
        answer = pipeline[-1].predict_interval(pipeline[:-1].transform(X.head()), 0.9)
    """,
    "in a notebook": """
        import pandas as pd
        from gpsuq import GPSLinearRegression
        table = pd.read_csv("numbers.csv")
        model = GPSLinearRegression().fit(table.drop(columns="y"), table["y"])
        model.plot_coefficients()
        answer = model.summary()
    """,
    "compare two models": """
        import pandas as pd
        from gpsuq import GPSRegressor
        table = pd.read_csv("curve.csv")
        train, new = table.head(150), table.tail(100)
        normal = GPSRegressor().fit(train[["x"]], train["y"])
        heavy = GPSRegressor(family="student-t").fit(train[["x"]], train["y"])
        answer = [model.crps(new[["x"]], new["y"]).mean() for model in (normal, heavy)]
    """,
    "calibrate": """
        import numpy as np
        from gpsuq import GPSClassifier
        images, labels = np.load("images.npy"), np.load("labels.npy")
        X = images.reshape(len(images), -1)
        model = GPSClassifier().fit(X[:1000], labels[:1000])
        model.calibrate(X[1000:1400], labels[1000:1400], target=0.05)
        verdicts = model.uncertainty(X[1400:])
        answer = (verdicts.prediction != labels[1400:])[~verdicts.uncertain].mean()
    """,
    "export": """
        import numpy as np
        from gpsuq import GPSClassifier
        images, labels = np.load("images.npy"), np.load("labels.npy")
        model = GPSClassifier().fit(images.reshape(len(images), -1), labels)
        answer = model.export_onnx("exported")
    """,
}


def lines(task: str) -> list[str]:
    """Return the lines of code of a task."""
    return textwrap.dedent(TASKS[task]).strip().splitlines()


def world(folder: Path) -> None:
    """Write the files that tasks read."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    n = 300
    when = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 730, n), unit="D")
    patients = pd.DataFrame({"visited": when.strftime("%d.%m.%Y"), "site": rng.choice(["north", "south"], n)})
    patients["dose"] = rng.normal(size=n).round(3)
    season = np.sin(2.0 * np.pi * when.day_of_year / 365.0)
    patients["response"] = season + (patients["site"] == "south") + patients["dose"] + 0.2 * rng.normal(size=n)
    patients.to_csv(folder / "patients.csv", index=False)
    numbers = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    numbers.assign(y=numbers["a"] + 0.3 * rng.normal(size=n)).to_csv(folder / "numbers.csv", index=False)
    x = rng.normal(size=n)
    slopes = rng.choice([-1.0, 1.0], n)
    scissors = pd.DataFrame({"x": x, "y": slopes * x + 0.2 * rng.normal(size=n)})
    scissors.to_csv(folder / "scissors.csv", index=False)
    curve = pd.DataFrame({"x": rng.uniform(-2.0, 2.0, 250)})
    curve.assign(y=np.sin(2.0 * curve["x"]) + 0.2 * rng.standard_t(3, 250)).to_csv(folder / "curve.csv", index=False)
    digits, labels = load_digits(return_X_y=True)
    np.save(folder / "images.npy", digits.reshape(-1, 1, 8, 8).astype(np.float32) / 16.0)
    np.save(folder / "labels.npy", labels)
    tokens = rng.integers(0, 30, (1000, 12))
    np.save(folder / "tokens.npy", tokens)
    np.save(folder / "topics.npy", (tokens < 15).sum(1) > 6)
    np.save(folder / "heaps.npy", np.where(rng.random(600) < 0.3, -3.0, 3.0) + rng.normal(size=600))
    border = [[0, 0], [400, 0], [400, 200], [300, 250], [0, 200], [0, 0]]
    (folder / "forest.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [border]}))
    pd.DataFrame(rng.random((250, 2)) * [400, 200], columns=["x", "y"]).to_csv(folder / "trees.csv", index=False)


def done(task: str) -> dict[str, Any]:
    """Run a task in the current folder."""
    text = "\n".join(lines(task))
    found: dict[str, Any] = {"lines": len(lines(task))}
    exec("\n".join(line for line in lines(task) if line.startswith(("import ", "from "))), {})
    start, failed = time.process_time(), None
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if task == "in a notebook":
                names["answer"] = in_a_notebook(text)
            else:
                exec(compile(text, task, "exec"), names)
        except Exception as error:  # a task that fails is a result
            failed = f"{type(error).__name__}: {error}"
    found["seconds"] = round(time.process_time() - start, 1)
    if failed is not None:
        return found | {"failed": failed}
    said = [str(each.message) for each in caught if type(each.message).__name__ == "GPSWarning"]
    return found | {"answer": str(names["answer"]), "said": said}


def in_a_notebook(text: str) -> str:
    """Run the lines as a notebook, each a cell of its own, and return what the last shows; its own process counts."""
    import nbformat
    from nbclient import NotebookClient

    cells = [*text.splitlines(), "import time", "answer", "time.process_time()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    *_, table, seconds = NotebookClient(notebook, timeout=600).execute().cells
    shown, spent = table.outputs[0]["data"]["text/html"], float(seconds.outputs[0]["data"]["text/plain"])
    return f"a table of {len(shown)} characters of HTML; {spent:.1f} s of its own process, imports among them"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS), help="Tasks to run.")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        world(Path(folder))
        before = Path.cwd()
        os.chdir(folder)
        try:
            for task in options.only:
                results[task] = done(task)
                found = results[task]
                said = found.get("failed", "done")
                print(f"{task:<30}{found['lines']:>3} lines {found['seconds']:>7.1f} s  {said}", flush=True)
        finally:
            os.chdir(before)
    if options.only == list(TASKS):
        write(options.out, "twelve_tasks", "python benchmarks/twelve_tasks.py", results)


if __name__ == "__main__":
    main()
