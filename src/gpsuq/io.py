"""Saved models: a directory of ``config.json`` (what it is, in words) and ``model.safetensors`` (its numbers).

Nothing in it is code: loading reads numbers into objects that gpsuq itself builds.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpsuq._version import __version__
from gpsuq.diagnostics import Finding
from gpsuq.errors import GPSError
from gpsuq.estimators import GPSLinearRegression
from gpsuq.generators import MLP, Generator
from gpsuq.linear import LinearFit, LinearUnits
from gpsuq.parameters import DataScale, ParameterMap
from gpsuq.spread import SpreadChoice

FORMAT = 1
_CONFIG, _MODEL = "config.json", "model.safetensors"
_UNITS = ("center", "matrix", "slope")
FILES = (_CONFIG, _MODEL, "summary.csv", "rows.csv", "coefficients.png")
"""What a saved model's directory may hold; all but the first two are written for people by ``gpsuq fit``."""


def save(estimator: GPSLinearRegression, path: str | Path, *, force: bool = False) -> Path:
    """Write a fitted estimator into the directory ``path``, whole or not at all; ``force`` replaces what is there."""
    if not isinstance(estimator, GPSLinearRegression):
        raise GPSError(f"save knows GPSLinearRegression, got {type(estimator).__name__}")
    check_is_fitted(estimator)
    directory = Path(path).absolute()
    refuse_existing(directory, force=force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    config, tensors = _describe(estimator)
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        (temporary / _CONFIG).write_text(json.dumps(config, indent=2, allow_nan=False, default=_plain) + "\n")
        (temporary / _MODEL).write_bytes(save_tensors(tensors))
        temporary.chmod(0o755)
        _swap(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Path(path)


def refuse_existing(directory: Path, *, force: bool) -> None:
    """Raise where a directory exists, or, with ``force``, where it holds anything that gpsuq did not write."""
    if not directory.exists():
        return
    if not force:
        raise GPSError(f"{directory} exists already; choose another directory, or pass --force (force=True)")
    foreign = [] if not directory.is_dir() else sorted({path.name for path in directory.iterdir()} - set(FILES))
    if foreign or not directory.is_dir():
        raise GPSError(
            f"{directory} is not replaced: it holds {foreign[0] if foreign else 'a file'}, which is no part of a saved "
            "model; choose another directory"
        )


def _swap(new: Path, directory: Path) -> None:
    """Put ``new`` in the place of ``directory``; whatever goes wrong, one of the two is there afterwards."""
    if not directory.exists():
        os.replace(new, directory)
        return
    retired = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.old."))
    os.replace(directory, retired / "old")
    try:
        os.replace(new, directory)
    except BaseException:
        os.replace(retired / "old", directory)
        raise
    finally:
        shutil.rmtree(retired, ignore_errors=True)


def _plain(value: Any) -> Any:
    """Give a NumPy number as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    raise GPSError(f"cannot save {value!r}: JSON has no such thing")


def load(path: str | Path) -> GPSLinearRegression:
    """Read a saved estimator; it gives the same draws for the same seed."""
    directory = Path(path)
    if not (directory / _CONFIG).is_file():
        raise GPSError(f"{directory} holds no saved model: there is no {_CONFIG} in it")
    try:
        config = json.loads((directory / _CONFIG).read_text())
        version = config["format"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise GPSError(f"{directory / _CONFIG} is damaged: {error}") from error
    if version != FORMAT:
        raise GPSError(f"{directory} has format {version}, this version of gpsuq ({__version__}) reads {FORMAT}")
    if config.get("type") != "GPSLinearRegression":
        raise GPSError(f"{directory} holds a {config.get('type')}, which this version of gpsuq does not know")
    try:
        tensors = load_tensors((directory / _MODEL).read_bytes())
        return _restore(config, tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise GPSError(f"the saved model in {directory} is damaged or incomplete: {error}") from error


def _describe(estimator: GPSLinearRegression) -> tuple[dict[str, Any], dict[str, Tensor]]:
    fit = estimator.fit_
    params = estimator.get_params()
    params["generator"] = asdict(estimator.generator or MLP())
    params["random_state"] = estimator.seed_
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "format": FORMAT,
        "type": type(estimator).__name__,
        "gpsuq": __version__,
        "params": params,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_chains": fit.generator.n_chains,
        "chains": fit.chains,
        "level": fit.units.level,
        "scale": fit.units.scale,
        "sigma_factor": fit.sigma_factor,
        "sigma_range": fit.sigma_range,
        "spread_weight": fit.spread_weight,
        "spread_path": None if fit.choice is None else fit.choice.table.reset_index().to_dict("list"),
        "reweighted": fit.reweighted,
        "findings": [asdict(finding) for finding in fit.findings],
    }
    tensors = {f"generator/{name}": tensor.clone().contiguous() for name, tensor in fit.generator.state_dict().items()}
    tensors |= {f"units/{name}": torch.from_numpy(np.ascontiguousarray(getattr(fit.units, name))) for name in _UNITS}
    return config, tensors | {"offset": fit.offset.contiguous()}


def _restore(config: dict[str, Any], tensors: dict[str, Tensor]) -> GPSLinearRegression:
    params = dict(config["params"])
    spec = params.pop("generator")
    spec = MLP(**spec | {"hidden": tuple(spec["hidden"])})  # JSON has no tuples
    estimator = GPSLinearRegression(**params, generator=spec)
    units = LinearUnits(
        **{name: tensors[f"units/{name}"].numpy() for name in _UNITS}, level=config["level"], scale=config["scale"]
    )
    declared = estimator.settings().model().parameters
    one = torch.ones(())
    rank = torch.ones(units.rank)
    scale = DataScale(torch.zeros(()), one, torch.zeros(units.rank), rank, units.rank)
    parameter_map = ParameterMap(declared, units.rank, scale)
    body = spec.build(parameter_map.width(random=True), config["n_chains"], scale, units.rank, 0)
    generator = Generator(body, parameter_map, config["n_chains"])
    prefix = "generator/"
    generator.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    path = config["spread_path"]
    choice = (
        None if path is None else SpreadChoice(config["spread_weight"], pd.DataFrame(path).set_index("spread_weight"))
    )
    fit = LinearFit(
        generator=generator.eval(),
        units=units,
        chains=list(config["chains"]),
        offset=tensors["offset"],
        sigma_factor=config["sigma_factor"],
        sigma_range=(config["sigma_range"][0], config["sigma_range"][1]),
        choice=choice,
        spread_weight=config["spread_weight"],
        reweighted=config["reweighted"],
        findings=[Finding(**finding) for finding in config["findings"]],
    )
    estimator.n_features_in_ = config["n_features"]
    if config["feature_names"] is not None:
        estimator.feature_names_in_ = np.asarray(config["feature_names"], dtype=object)
    estimator.set_fit(fit, config["params"]["random_state"])
    return estimator
