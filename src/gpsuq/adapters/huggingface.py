"""Saved models on the Hugging Face hub and in its folders (extra ``huggingface``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpsuq._version import __version__
from gpsuq.errors import needs
from gpsuq.storage import load, write_model

with needs("huggingface", "gpsuq.adapters.huggingface"):
    from huggingface_hub import ModelHubMixin, snapshot_download


class Pretrained(ModelHubMixin, library_name="gpsuq", tags=["gpsuq", "uncertainty-quantification"]):
    """A fitted model with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    The folder is the one that :func:`gpsuq.save` writes, with a model card beside it: :func:`gpsuq.load` reads it, too.

    Parameters
    ----------
    fitted
        What :func:`gpsuq.save` takes; ``model`` keeps it.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from gpsuq import GPSLinearRegression
    >>> from gpsuq.adapters.huggingface import Pretrained
    >>> X = np.linspace(0.0, 1.0, 50)[:, None]
    >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=50)
    >>> model = GPSLinearRegression(n_chains=2, spread_weight=3.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Pretrained(model).save_pretrained(folder)
    ...     again = Pretrained.from_pretrained(folder).model
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """

    def __init__(self, fitted: Any) -> None:
        self.model = fitted

    def _save_pretrained(self, save_directory: Path) -> None:
        write_model(self.model, save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **code: Any,
    ) -> Pretrained:
        """Load a folder, or what the hub has under a name; ``code`` is what :func:`gpsuq.load` asks for."""
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(
                snapshot_download(
                    model_id,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                    library_name="gpsuq",
                    library_version=__version__,
                )
            )
        return cls(load(folder, **code))
