"""The errors and warnings that gpsuq raises; their messages say what was wrong, where, and what to do."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_BETWEEN = ("gpsuq", "sklearn", "joblib")


class GPSError(ValueError):
    """Something the caller gave cannot be used; the message names it and says what to do.

    >>> from gpsuq import Gaussian
    >>> Gaussian(-1.0)
    Traceback (most recent call last):
    gpsuq.errors.GPSError: Gaussian: the bandwidth must be a positive number, got -1.0
    """


class DivergenceError(GPSError):
    """Training diverged, so that its result cannot be used.

    >>> import numpy as np
    >>> from gpsuq import GPSClassifier, Recipe
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> GPSClassifier(recipe=Recipe(epochs=5, learning_rate=1e30)).fit(X, X[:, 0] > 0)
    Traceback (most recent call last):
    gpsuq.errors.DivergenceError: the loss is not finite at step 1: lower the learning rate, check the inputs' scale
    """


class CheckpointError(GPSError):
    """A checkpoint is damaged or belongs to another fit.

    >>> import tempfile, numpy as np
    >>> from gpsuq import GPSClassifier, Recipe
    >>> from gpsuq.errors import CheckpointError
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for seed in (1, 2):
    ...         try:
    ...             _ = GPSClassifier(recipe=Recipe(epochs=1), random_state=seed).fit(X, X[:, 0] > 0, checkpoint=folder)
    ...         except CheckpointError:
    ...             print(f"seed {seed} needs a directory of its own")
    seed 2 needs a directory of its own
    """


class MissingCodeError(GPSError):
    """A saved model needs the user's own code, which is never stored with it.

    >>> import tempfile
    >>> from torch import nn
    >>> from gpsuq import load, noisify, save
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     load(save(noisify(nn.Sequential(nn.Linear(4, 3)), "0"), f"{folder}/noisy"))
    Traceback (most recent call last):
    gpsuq.errors.MissingCodeError: this model holds your own network (Sequential), and a saved model holds no code: ...
    """


class GPSWarning(UserWarning):
    """A result exists but needs care; the message says why in plain words.

    In a pipeline that must not go on with a doubtful result, turn it into an error:

    >>> import warnings
    >>> from gpsuq import GPSWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", GPSWarning)
    """


def warn(message: str) -> None:
    """Warn at the line of the user's own code that led here, also through a pipeline of scikit-learn.

    >>> import warnings
    >>> from gpsuq.errors import warn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("take care")
    >>> caught[0].category.__name__
    'GPSWarning'
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, GPSWarning, stacklevel=level)


def stopped(by: KeyboardInterrupt | SystemExit, message: str) -> KeyboardInterrupt | SystemExit:
    """Return what stopped a program once more, with a message for whoever speaks; an exit code stays as it is.

    >>> from gpsuq.errors import stopped
    >>> stopped(KeyboardInterrupt(), "interrupted at step 7")
    KeyboardInterrupt('interrupted at step 7')
    >>> stopped(SystemExit(143), "interrupted at step 7").__notes__
    ['interrupted at step 7']
    """
    if isinstance(by, KeyboardInterrupt):
        return KeyboardInterrupt(message)
    again = SystemExit(by.code)
    again.add_note(message)
    return again


def listed(names: Iterable[object], most: int = 20) -> str:
    """Name some of what a message is about, and say how many more there are.

    >>> from gpsuq.errors import listed
    >>> listed(["age", "site", "dose"]), listed(range(1000), most=3)
    ('age, site, dose', '0, 1, 2 and 997 more')
    """
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most:,} more" if len(every) > most else "")


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Turn an import that fails inside into an error that names the extra to install.

    >>> from gpsuq.errors import needs
    >>> with needs("points", "reading windows"):
    ...     import shapely_that_is_missing
    Traceback (most recent call last):
    gpsuq.errors.GPSError: reading windows needs shapely_that_is_missing: pip install 'gpsuq[points]'
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or str(error)).split(".")[0]
        raise GPSError(f"{what} needs {package}: pip install 'gpsuq[{extra}]'") from error
