import re

import numpy as np
import pytest

from gpsuq import GPSPoissonProcess
from gpsuq.poisson.report import poisson_page
from gpsuq.reports.page import Picture
from gpsuq.spatial import CovariateGrid, Envelope, Window

R = np.linspace(0.0, 0.2, 5)


@pytest.fixture(scope="module")
def model():
    window = Window.rectangle(0, 4, 0, 2, unit="micron", multiple=250.0)
    east = CovariateGrid("east", np.array([0.0, 4.0]), np.array([0.0, 2.0]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    points = np.random.default_rng(0).random((120, 2)) ** [0.5, 1.0] * [4, 2]
    return GPSPoissonProcess(n_chains=2, n_steps=20, n_cells=256, frequency=1.0).fit(points, window, covariates=[east])


def page_of(model, above):
    return poisson_page(model, Envelope(R, R + above, R - 0.01, R + 0.01, R, p_value=0.025))


def test_numbers_have_the_unit_of_the_window(model):
    page = page_of(model, 0.0)
    assert ("area", "0.5 mm²") in page.facts
    assert dict(page.facts)["points per mm²"] == f"{model.integral() / 0.5:.3g}"


@pytest.mark.parametrize(
    ("above", "said"), [(0.05, "attract each other.*more variable"), (-0.05, "keep apart.*less variable")]
)
def test_what_to_be_careful_about_follows_the_side_of_the_envelope(model, above, said):
    advice = [text.text for text in page_of(model, above).trust if text.kind == "advice"]
    assert any(re.search(said, text) for text in advice)


def test_every_covariate_has_its_curves(model):
    section = next(section for section in page_of(model, 0.0).sections if section.title == "Along the covariates")
    assert [type(block) for block in section.blocks] == [Picture] * 3
    effect = model.partial_effect("east")
    assert (effect["lower"] < effect["mean"]).all()
    assert (effect["mean"] < effect["upper"]).all()


def test_the_partial_effect_of_a_covariate_that_acts_alone_is_the_intensity(model):
    """Without places, chains see the covariate only: along it their mean is the intensity there."""
    points, east = model.points_[0], model.fit_.locations.covariates
    alone = GPSPoissonProcess(n_chains=2, n_steps=20, n_cells=256, frequency=0.0)
    alone.fit(points, model.window_, covariates=east)
    effect = alone.partial_effect("east")
    places = np.column_stack([4.0 * effect["value"], np.ones(len(effect))])
    assert np.allclose(effect["mean"], alone.intensity(places), rtol=0.05)
