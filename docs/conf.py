"""Sphinx configuration."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder paper/ is not installed

from gpsuq import __version__

project = "gpsuq"
author = "The gpsuq developers"
copyright = "2026, the gpsuq developers"
release = version = __version__

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas show without a network
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
exclude_patterns = ["_build", "examples", "figures", "auto_examples/**.py", "auto_examples/**.ipynb"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = True
napoleon_google_docstring = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
}

plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("svg", 100)]

html_theme = "furo"
html_title = f"gpsuq {__version__}"
