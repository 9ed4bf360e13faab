"""Reports: one self-contained HTML page for a fit, a classifier or an experiment; no network is needed to read it."""

from gpsuq.reports.classifier import classifier_page
from gpsuq.reports.experiment import experiment_page
from gpsuq.reports.linear import linear_page
from gpsuq.reports.page import Gallery, Page, Picture, Section, Table, Text, write_page
from gpsuq.reports.poisson import poisson_page
from gpsuq.reports.saved import saved_page
from gpsuq.reports.uq import uq_page

__all__ = [
    "Gallery",
    "Page",
    "Picture",
    "Section",
    "Table",
    "Text",
    "classifier_page",
    "experiment_page",
    "linear_page",
    "poisson_page",
    "saved_page",
    "uq_page",
    "write_page",
]
