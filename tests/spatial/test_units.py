import pytest

from gpsuq import GPSError
from gpsuq.spatial import Window, as_window
from gpsuq.spatial.units import shown_area, shown_density, shown_length

RANGES = {"type": "rectangle", "xrange": [0, 40], "yrange": [0, 10]}


@pytest.mark.parametrize(
    "units",
    [["micron", "microns", "250"], {"singular": ["micron"], "plural": ["microns"], "multiplier": [250]}],
)
def test_units_with_a_multiple_count_where_they_are_shown(units):
    window = as_window(RANGES | {"units": units})
    assert (window.unit, window.multiple, window.area) == ("micron", 250.0, 400.0)
    assert as_window(window.to_json()) == window
    assert shown_length(window).text(40.0, 10.0) == "10 x 2.5 mm"
    assert shown_area(window, 0.25).text(window.area) == "25 mm²"
    density = shown_density(window, 0.25)
    assert density.unit == "points per mm²"
    assert density.factor * 0.25 == pytest.approx(4.0)  # 62,500 square microns each


def test_units_that_are_not_metric_are_kept_and_multiplied():
    window = as_window(RANGES | {"units": ["foot", "feet", 100]})
    assert shown_length(window).text(40.0) == "4,000 foot"
    assert (shown_density(window, 5.0).factor, shown_density(window, 5.0).unit) == (1e-4, "points per square foot")


def test_no_unit_is_none():
    window = as_window(RANGES)
    assert (shown_length(window).text(40.0), shown_length(window).labelled("x")) == ("40", "x")


def test_degrees_are_refused_and_the_fix_is_named():
    with pytest.raises(GPSError, match=r"degrees are no lengths.*to_crs"):
        Window.rectangle(8.0, 9.0, 50.0, 51.0, unit="degrees")
    with pytest.raises(GPSError, match="positive number"):
        Window.rectangle(0.0, 1.0, 0.0, 1.0, multiple=0.0)
