"""The errors and warnings that gpsuq raises; their messages say what was wrong, where, and what to do."""


class GPSError(ValueError):
    """Something the caller gave cannot be used; the message names it and says what to do.

    Examples
    --------
    >>> from gpsuq import Gaussian
    >>> Gaussian(-1.0)
    Traceback (most recent call last):
    gpsuq.errors.GPSError: Gaussian: the bandwidth must be a positive number, got -1.0
    """


class DivergenceError(GPSError):
    """Training produced no finite loss in any chain."""


class CheckpointError(GPSError):
    """A checkpoint is damaged or belongs to another fit."""


class MissingCodeError(GPSError):
    """A saved model needs a piece of the user's code, which no saved model holds."""


class GPSWarning(UserWarning):
    """A result exists but needs care; the message says why in plain words.

    Examples
    --------
    In a pipeline that must not go on with a doubtful result, turn it into an error:

    >>> import warnings
    >>> from gpsuq import GPSWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", GPSWarning)
    """
