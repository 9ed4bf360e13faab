"""Other ways to predict a number with an interval, behind one interface: ``fit(X, y)``, ``predict``, ``interval``.

Least squares, Tukey's biweight, MM, quantile regression, conformal prediction on least squares, a mixture of lines by
EM, and a random-coefficient model by maximum likelihood: what people use where ``GPSLinearRegression`` could serve.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import qr
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LinearRegression

from gpsuq.core import mixtures
from gpsuq.errors import GPSError
from gpsuq.linear.baselines import BayesianLinearPosterior
from paper.robust import _m_estimate, _statsmodels, _with_constant

Array = NDArray[np.floating]


class Peer(Protocol):
    """What the comparison asks of a method."""

    def fit(self, X: Array, y: Array) -> Peer:
        """Fit rows."""

    def predict(self, X: Array) -> Array:
        """Return the centre of the prediction at every row."""

    def interval(self, X: Array, coverage: float) -> Array:
        """Return lower and upper bounds of new observations, (2, n)."""


class LeastSquares:
    """Least squares with Normal theory: Student-t prediction intervals.

    >>> import numpy as np
    >>> from paper.peers import LeastSquares
    >>> X = np.arange(20.0)[:, None]
    >>> LeastSquares().fit(X, X[:, 0] + np.tile([1.0, -1.0], 10)).interval(X[:1], 0.9).round(1)
    array([[-1.8],
           [ 2.1]])
    """

    def fit(self, X: Array, y: Array) -> LeastSquares:
        """Fit by the flat-prior posterior, which is the same thing."""
        # Columns that depend on others are left out, which changes no prediction.
        self._center, self._scale = X.mean(0), np.where(np.ptp(X, axis=0) > 0, X.std(0), 1.0)
        X = (X - self._center) / self._scale
        _, triangle, order = qr(X, mode="economic", pivoting=True)
        size = np.abs(np.diag(triangle))
        kept = np.zeros(X.shape[1], dtype=bool)
        kept[order[: int((size > 1e-9 * max(size.max(), 1e-300)).sum())]] = True
        self._kept = kept
        self.posterior = BayesianLinearPosterior().fit(X[:, kept], y)
        return self

    def predict(self, X: Array) -> Array:
        """Return fitted values."""
        return self.posterior.predict(self._standardised(X))

    def interval(self, X: Array, coverage: float) -> Array:
        """Return Student-t prediction intervals."""
        return np.asarray(self.posterior.predict_interval(self._standardised(X), coverage), dtype=np.float64)

    def _standardised(self, X: Array) -> Array:
        result: Array = ((X - self._center) / self._scale)[:, self._kept]
        return result


class _Robust:
    """A robust line with Normal noise of the robust scale around it."""

    def fit(self, X: Array, y: Array) -> _Robust:
        self.coefficients, self.scale = self._estimate(X, y)
        return self

    def _estimate(self, X: Array, y: Array) -> tuple[Array, float]:
        raise NotImplementedError

    def predict(self, X: Array) -> Array:
        result: Array = _with_constant(X) @ self.coefficients
        return result

    def interval(self, X: Array, coverage: float) -> Array:
        half = stats.norm.ppf(0.5 + coverage / 2.0) * self.scale
        return np.stack([self.predict(X) - half, self.predict(X) + half])


class Tukey(_Robust):
    """Tukey's biweight, statsmodels' RLM with its defaults."""

    def _estimate(self, X: Array, y: Array) -> tuple[Array, float]:
        fit = _m_estimate("TukeyBiweight", X, y)
        return np.asarray(fit.params), float(fit.scale)


class MM(_Robust):
    """MM-estimate from deterministic starts, statsmodels' RLMDetSMM with its defaults."""

    def _estimate(self, X: Array, y: Array) -> tuple[Array, float]:
        _statsmodels()
        from statsmodels.robust.resistant_linear_model import RLMDetSMM

        fit = RLMDetSMM(y, _with_constant(X)).fit()
        return np.asarray(fit.params), float(fit.scale)


class QuantileRegression:
    """Linear quantiles, statsmodels' QuantReg; the interval has a line of its own for either end."""

    def fit(self, X: Array, y: Array) -> QuantileRegression:
        """Keep the rows: every level is a fit of its own."""
        self._X, self._y = _with_constant(X), y
        self._lines: dict[float, Array] = {}
        return self

    def _line(self, level: float) -> Array:
        if level not in self._lines:
            fit = _statsmodels().QuantReg(self._y, self._X).fit(q=level, max_iter=3000)
            self._lines[level] = np.asarray(fit.params)
        return self._lines[level]

    def predict(self, X: Array) -> Array:
        """Return the median."""
        result: Array = _with_constant(X) @ self._line(0.5)
        return result

    def interval(self, X: Array, coverage: float) -> Array:
        """Return the lines of both ends, sorted where they cross."""
        tail = round((1.0 - coverage) / 2.0, 12)
        both = np.stack([_with_constant(X) @ self._line(level) for level in (tail, 1.0 - tail)])
        return np.sort(both, axis=0)


class Conformal:
    """Least squares with cross-conformal intervals (jackknife+ over ten folds), MAPIE's CrossConformalRegressor."""

    def fit(self, X: Array, y: Array) -> Conformal:
        """Keep the rows: MAPIE wants the coverage when it fits."""
        self._X, self._y = X, y
        self._line = LinearRegression().fit(X, y)
        return self

    def predict(self, X: Array) -> Array:
        """Return fitted values of least squares."""
        result: Array = self._line.predict(X)
        return result

    def interval(self, X: Array, coverage: float) -> Array:
        """Return the intervals of MAPIE."""
        try:
            from mapie.regression import CrossConformalRegressor
        except ImportError as error:
            raise GPSError("this comparison needs MAPIE: pip install 'gpsuq[paper]'") from error
        wrapped = CrossConformalRegressor(LinearRegression(), confidence_level=coverage, method="plus", cv=10)
        wrapped.fit_conformalize(self._X, self._y)
        bounds = np.concatenate([wrapped.predict_interval(block)[1][:, :, 0] for block in _blocks(X, len(self._y))])
        return np.asarray(bounds.T, dtype=np.float64)


def _blocks(X: Array, n: int) -> list[Array]:
    """Cut rows so that n numbers for each fit in memory."""
    step = max(1, int(2e7) // n)
    return [X[start : start + step] for start in range(0, len(X), step)]


class MixtureOfLines:
    """1 to 4 lines by the EM algorithm, as many as the Bayesian information criterion says; ten random starts each."""

    most, starts, sweeps = 4, 10, 100

    def fit(self, X: Array, y: Array) -> MixtureOfLines:
        """Fit every number of lines and keep the best."""
        rng, A, n = np.random.default_rng(0), _with_constant(X), len(y)
        best = np.inf
        for k in range(1, self.most + 1):
            for _ in range(self.starts if k > 1 else 1):
                fit, likelihood = self._em(A, y, rng.dirichlet(np.ones(k), n))
                criterion = -2.0 * likelihood + np.log(n) * (k * (A.shape[1] + 2) - 1)
                if criterion < best:
                    best, self.share, self.lines, self.sigma = criterion, *fit
        return self

    def _em(self, A: Array, y: Array, belongs: Array) -> tuple[tuple[Array, Array, Array], float]:
        floor, last = 1e-3 * y.std(), -np.inf
        for _ in range(self.sweeps):
            share = belongs.mean(0)
            gram = np.einsum("nk,np,nq->kpq", belongs, A, A) + 1e-9 * len(y) * np.eye(A.shape[1])
            lines = np.linalg.solve(gram, np.einsum("nk,np,n->kp", belongs, A, y)[..., None])[..., 0]
            squared = np.square(y[:, None] - A @ lines.T)
            sigma = np.maximum(np.sqrt((belongs * squared).sum(0) / np.maximum(belongs.sum(0), 1e-9)), floor)
            log = np.log(share + 1e-300) - np.log(sigma) - 0.5 * squared / sigma**2 - 0.5 * np.log(2 * np.pi)
            each = logsumexp(log, axis=1)
            belongs = np.exp(log - each[:, None])
            if each.sum() - last < 1e-6 * len(y):
                break
            last = each.sum()
        return (share, lines, sigma), float(each.sum())

    def predict(self, X: Array) -> Array:
        """Return the mean of the mixture."""
        result: Array = _with_constant(X) @ (self.share @ self.lines)
        return result

    def interval(self, X: Array, coverage: float) -> Array:
        """Return quantiles of the mixture."""
        tail = (1.0 - coverage) / 2.0
        return mixtures.quantiles([tail, 1.0 - tail], _with_constant(X) @ self.lines.T, self.sigma, self.share).T

    def sample_slopes(self, n: int, rng: np.random.Generator) -> Array:
        """Draw slopes (n, p) from the law that was found."""
        result: Array = self.lines[rng.choice(len(self.share), n, p=self.share), 1:]
        return result


class RandomCoefficients:
    r"""Normal coefficients, independent of each other, by maximum likelihood.

    .. math:: y \sim N(x'\mu,\ \sigma^2 + \textstyle\sum_j \tau_j^2 x_j^2)
    """

    def fit(self, X: Array, y: Array) -> RandomCoefficients:
        """Maximise the likelihood in the logarithms of the variances; means are weighted least squares."""
        A, squares = _with_constant(X), np.square(X)

        def variance(log: Array) -> Array:
            result: Array = np.exp(log[0]) + squares @ np.exp(log[1:])
            return result

        def centre(log: Array) -> tuple[Array, Array, Array]:
            v = variance(log)
            line = np.linalg.lstsq(A / np.sqrt(v)[:, None], y / np.sqrt(v), rcond=None)[0]
            return v, line, y - A @ line

        def loss(log: Array) -> tuple[float, Array]:
            v, _, residual = centre(log)
            slope = 0.5 * (1.0 / v - np.square(residual / v))
            gradient = np.concatenate([[slope.sum() * np.exp(log[0])], (slope @ squares) * np.exp(log[1:])])
            return float(0.5 * (np.log(v) + np.square(residual) / v).sum()), gradient

        least = np.log(np.var(y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) / 2.0)
        start = np.concatenate([[least], least - np.log(X.shape[1]) - np.log(squares.mean(0) + 1e-12)])
        log = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(s - 12.0, s + 6.0) for s in start]).x
        self._log, self.line = log, centre(log)[1]
        return self

    def predict(self, X: Array) -> Array:
        """Return the mean."""
        result: Array = _with_constant(X) @ self.line
        return result

    def interval(self, X: Array, coverage: float) -> Array:
        """Return Normal intervals."""
        sd = np.sqrt(np.exp(self._log[0]) + np.square(X) @ np.exp(self._log[1:]))
        half = stats.norm.ppf(0.5 + coverage / 2.0) * sd
        return np.stack([self.predict(X) - half, self.predict(X) + half])

    def sample_slopes(self, n: int, rng: np.random.Generator) -> Array:
        """Draw slopes (n, p) from the law that was found."""
        result: Array = self.line[1:] + rng.standard_normal((n, len(self.line) - 1)) * np.exp(0.5 * self._log[1:])
        return result


PEERS: dict[str, Callable[[], Any]] = {
    "least squares": LeastSquares,
    "Tukey": Tukey,
    "MM": MM,
    "quantile regression": QuantileRegression,
    "conformal": Conformal,
    "EM lines": MixtureOfLines,
    "random coefficients": RandomCoefficients,
}
"""From the name of a method to what makes one."""


def interval_score(bounds: Array, y: Array, coverage: float) -> float:
    r"""Return the mean width of intervals (2, n) plus :math:`2 / \alpha` times what lies outside: lower is better.

    >>> import numpy as np
    >>> from paper.peers import interval_score
    >>> interval_score(np.array([[0.0], [1.0]]), np.array([1.5]), 0.5)  # 1 + 4 x 0.5
    3.0
    """
    lower, upper = bounds
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 2.0 / (1.0 - coverage) * outside))


def fit_quietly(make: Callable[[], Any], X: Array, y: Array) -> Any:
    """Fit a method without the warnings of its library; None where it fails on these data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make().fit(X, y)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            return None
