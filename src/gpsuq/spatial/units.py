"""Units that people read: what a coordinate, an area and an intensity are shown in.

A window says what one unit of its coordinates is: ``multiple`` times a ``unit``, such as 250 microns. Metric lengths
are shown in the unit in which they are neither tiny nor huge.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpsuq.core.numbers import shown_number
from gpsuq.spatial.windows import Window

_SYMBOLS = {"nm": 1e-9, "µm": 1e-6, "mm": 1e-3, "m": 1.0, "km": 1e3}
_METRES = _SYMBOLS | {"um": 1e-6, "micron": 1e-6, "cm": 1e-2}
_PREFIXES = {"nano": 1e-9, "micro": 1e-6, "milli": 1e-3, "centi": 1e-2, "": 1.0, "kilo": 1e3}
_METRES |= {f"{prefix}{name}": size for prefix, size in _PREFIXES.items() for name in ("metre", "meter")}
_METRES |= {f"{name}s": size for name, size in _METRES.items() if len(name) > 2}
_AREAS = {"nm²": 1e-18, "µm²": 1e-12, "mm²": 1e-6, "m²": 1.0, "ha": 1e4, "km²": 1e6}


@dataclass(frozen=True)
class Shown:
    """What numbers in coordinates are multiplied by to be shown, and the unit they then have ("" if none is known)."""

    factor: float
    unit: str

    def labelled(self, name: str) -> str:
        """Return a label for an axis: the name, with the unit in brackets if there is one."""
        return f"{name} ({self.unit})" if self.unit else name

    def text(self, *values: float) -> str:
        """Return values as people read them: one, or the sides of something."""
        return f"{' x '.join(shown_number(self.factor * value) for value in values)} {self.unit}".rstrip()


def shown_length(window: Window, typical: float | None = None) -> Shown:
    """Return how to show lengths like ``typical``, by default the longest side of the window.

    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.units import shown_length
    >>> shown_length(Window.rectangle(0.0, 60000.0, 0.0, 100.0, unit="metre"))
    Shown(factor=0.001, unit='km')
    >>> shown_length(Window.rectangle(0.0, 1.0, 0.0, 1.0, unit="mm", multiple=25.0))
    Shown(factor=25.0, unit='mm')
    """
    x_min, x_max, y_min, y_max = window.bounds
    typical = max(x_max - x_min, y_max - y_min) if typical is None else typical
    size = _METRES.get(window.unit)
    if size is None:
        return Shown(window.multiple, "" if window.unit == "unit" else window.unit)
    fits = [name for name, one in _SYMBOLS.items() if typical * window.multiple * size >= one]
    unit = fits[-1] if fits else "nm"
    return Shown(window.multiple * size / _SYMBOLS[unit], unit)


def shown_area(window: Window, intensity: float) -> Shown:
    """Return how to show areas beside intensities like this one: in the smallest unit of area that holds a point.

    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.units import shown_area
    >>> shown_area(Window.rectangle(0.0, 1000.0, 0.0, 500.0, unit="metre"), intensity=0.0072)
    Shown(factor=0.0001, unit='ha')
    """
    size = _METRES.get(window.unit)
    if size is None:
        return Shown(window.multiple**2, "" if window.unit == "unit" else f"square {window.unit}")
    area = (window.multiple * size) ** 2
    unit = next((name for name, one in _AREAS.items() if intensity / area * one >= 1.0), "km²")
    return Shown(area / _AREAS[unit], unit)


def shown_density(window: Window, intensity: float) -> Shown:
    """Return how to show intensities like this one: per smallest unit of area that holds a point.

    >>> from gpsuq.spatial import Window
    >>> from gpsuq.spatial.units import shown_density
    >>> shown_density(Window.rectangle(0.0, 1000.0, 0.0, 500.0, unit="metre"), intensity=0.0072)
    Shown(factor=10000.0, unit='points per ha')
    >>> shown_density(Window.rectangle(0.0, 1.0, 0.0, 1.0), intensity=100.0)
    Shown(factor=1.0, unit='points per unit of area')
    """
    area = shown_area(window, intensity)
    return Shown(1.0 / area.factor, f"points per {area.unit or 'unit of area'}")
