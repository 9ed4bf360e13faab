"""gpsuq: uncertainty quantification by generative parameter samplers.

Three ways in: an observation model and :class:`GPS` for any model, an estimator for a table, the command line. What
there is stands in ``__init__.pyi``; it is loaded when it is first used, so that importing gpsuq costs little.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
