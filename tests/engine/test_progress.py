"""Bars on standard error: what they are called, where they are shown, and that pipes stay quiet."""

import gzip
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from invoking import invoke

from gpsuq import GPSClassifier, GPSLinearRegression, GPSPoissonProcess, Recipe, load
from gpsuq.datasets import download
from gpsuq.engine.progress import counting_bar, stage

pytestmark = pytest.mark.filterwarnings("ignore::gpsuq.GPSWarning")


@pytest.fixture
def terminal(monkeypatch):
    """Let every command believe that somebody watches."""
    stderr = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("gpsuq.speaking.sys", SimpleNamespace(stdout=sys.stdout, stderr=stderr))


@pytest.fixture
def table(tmp_path, rng):
    data = pd.DataFrame({"x": rng.normal(size=80)})
    data.assign(y=data["x"] + rng.normal(size=80)).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def test_bars_are_called_after_their_stages(capsys):
    with stage("irises"), counting_bar(True, "fits [1]", 3) as advance:
        advance(2)
    shown = capsys.readouterr().err
    assert "irises: fits [1]" in shown
    assert "2/3" in shown
    with stage("irises"), counting_bar(False, "fits", 3) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_the_stages_of_a_linear_fit(rng, capsys):
    X = rng.normal(size=(300, 1))
    GPSLinearRegression(n_steps=9, spread_weight=0.0, progress=True).fit(X, rng.choice([-1.0, 1.0], 300) * X[:, 0])
    shown = capsys.readouterr().err
    assert "choosing the spread" in shown
    assert "training" in shown


def test_the_stages_of_a_poisson_fit_and_its_check(rng, capsys):
    model = GPSPoissonProcess(n_steps=3, n_chains=2, progress=True).fit(rng.random((80, 2)), (0, 1, 0, 1))
    shown = capsys.readouterr().err
    assert "training" in shown
    model.goodness_of_fit(5)
    shown = capsys.readouterr().err
    assert "simulating" in shown
    assert "comparing distances" in shown
    model.set_params(progress=False).goodness_of_fit(5)
    assert capsys.readouterr() == ("", "")


def test_each_spread_weight_of_a_classifier_has_its_bar(rng, capsys):
    X = rng.normal(size=(200, 2))
    GPSClassifier(recipe=Recipe(epochs=1), spread_weight="auto", progress=True).fit(X, X[:, 0] > 0)
    assert capsys.readouterr().err.count("spread weight") > 1


def test_a_loaded_model_shows_no_bars_unasked(rng, tmp_path):
    X = rng.normal(size=(80, 1))
    model = GPSLinearRegression(n_steps=9).fit(X, X[:, 0]).set_params(progress=True)
    assert load(model.save(tmp_path / "model")).progress is False


@pytest.mark.parametrize(
    ("name", "options", "bars"),
    [
        ("scissors", ("--replicates", 2), ("seed 0: choosing the spread", "seed 1")),
        ("collapse", (), ("paired within draws", "paired across draws")),
        ("noise-dim", ("--replicates", 1), ("replicates", "2/2")),
        ("draws", ("--replicates", 1), ("reference", "gradients", "replicates")),
        ("outliers", ("--replicates", 2), ("replicates", "2/2")),
    ],
)
def test_experiments_show_bars_on_a_terminal(name, options, bars, terminal, tmp_path, monkeypatch):
    monkeypatch.setattr("paper.noise_dim.DIMENSIONS", (1, 2))
    monkeypatch.setattr("paper.draws.DRAWS", (2, 5))
    monkeypatch.setattr("paper.draws._REPEATS", 2)
    result = invoke("paper", name, *options, "--steps", 4, "--out", tmp_path / name)
    assert result.exit_code == 0, result.output
    for bar in bars:
        assert bar in result.stderr
        assert bar not in result.stdout


@pytest.mark.usefixtures("small_demo")
def test_the_parts_of_the_demo_are_named(terminal, tmp_path):
    shown = invoke("demo", "--out", tmp_path / "demo").stderr
    for bar in ("scissors", "irises", "digits"):
        assert bar in shown


def test_pipes_stay_quiet(table, tmp_path):
    assert "/s" not in invoke("paper", "collapse", "--steps", 4, "--out", tmp_path / "collapse").stderr
    shown = invoke("fit", "linear", table, "--target", "y", "--steps", 9, "--out", tmp_path / "model").stderr
    assert "choosing" not in shown
    assert "training" not in shown


def test_a_terminal_shows_how_a_fit_goes(rng, tmp_path):
    table, x = tmp_path / "scissors.csv", rng.normal(size=300)
    pd.DataFrame({"x": x, "y": rng.choice([-1.0, 1.0], 300) * x}).to_csv(table, index=False)
    ours, theirs = pytest.importorskip("pty", reason="there are no pseudo-terminals here").openpty()
    code = "from gpsuq.cli import main; main()"
    command = ("fit", "linear", table, "--target", "y", "--steps", 30, "--out", tmp_path / "model")
    fit = subprocess.Popen([sys.executable, "-c", code, *map(str, command)], stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):  # at once: a terminal that nobody reads fills up, and the fit would wait
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    told = fit.communicate()[0]
    assert fit.returncode == 0
    assert b"choosing the spread" in shown
    assert b"/s" in shown
    assert b"choosing the spread" not in told


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serve a data set of one file on this machine."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    served = tmp_path / "served"
    served.mkdir()
    (served / "a.gz").write_bytes(gzip.compress(np.arange(100_000, dtype=np.uint8).tobytes()))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sums = {"a": download.hashlib.md5(gzip.decompress((served / "a.gz").read_bytes())).hexdigest()}
    source = download.Source(sums, "md5", (f"http://127.0.0.1:{server.server_port}/",), ("a.gz",), "none@1", iter)
    monkeypatch.setitem(download.SOURCES, "tiny", source)
    monkeypatch.setenv("GPSUQ_HOME", str(tmp_path / "home"))
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("mirror")
def test_downloads_show_bytes_on_a_terminal_only(terminal):
    shown = invoke("data", "get", "tiny", "--source", "mirror")
    assert shown.exit_code == 0, shown.output
    assert "a.gz" in shown.stderr
    assert "kB" in shown.stderr or "bytes" in shown.stderr


@pytest.mark.usefixtures("mirror")
def test_downloads_in_a_pipe_are_quiet(capfd):
    download.get("tiny", source="mirror")
    assert capfd.readouterr() == ("", "")
