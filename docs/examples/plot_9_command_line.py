"""
A table from the command line
=============================

No Python is needed for a table of your own: ``gpsuq fit`` reads a CSV file and writes a directory, and the other
commands read that. Here they are called inside Python, so that this page can show what they print.
"""

import contextlib
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from typer.testing import CliRunner

from gpsuq.cli import app

folder = Path(tempfile.mkdtemp())


def terminal(command):
    """Show what a terminal in the folder would show."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, command.split()[1:], env={"COLUMNS": "100"}, catch_exceptions=False)
    print(f"$ {command}\n{done.output}")
    assert done.exit_code == 0


# %%
# Patients of two clinics: the dose helps some and harms others, and nobody wrote down whom.

rng = np.random.default_rng(0)
dose, age = rng.uniform(-2.0, 2.0, 300), rng.normal(size=300)
effect = np.where(rng.random(300) < 0.6, 1.5, -1.0)
clinic = np.where(rng.random(300) < 0.5, "north", "south")
response = effect * dose + 0.5 * age + 0.4 * (clinic == "south") + 0.3 * rng.normal(size=300)
patients = pd.DataFrame({"dose": dose.round(2), "age": age.round(2), "clinic": clinic, "response": response.round(3)})
patients.to_csv(folder / "patients.csv", index=False)
patients.drop(columns="response").head(3).to_csv(folder / "new.csv", index=False)

# %%
# One command fits. (``--steps`` makes training shorter than by default, so that this page builds quickly.) Text becomes
# a column of 0 and 1; heterogeneity and estimation uncertainty are side by side.

terminal("gpsuq fit linear patients.csv --target response --steps 200 --out model")

# %%
# The directory has a figure of the coefficients, a table of what each row speaks for (``dose`` is the coefficient, not
# the dose), and ``report.html``, a page to mail.

figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
ax.imshow(plt.imread(folder / "model" / "coefficients.png"))
ax.set_axis_off()
print(pd.read_csv(folder / "model" / "rows.csv")[["row", "dose", "subgroup", "outlier_score"]].head(4).round(2))

# %%
# Come back next week: other intervals of the same model, and predictions for new patients.

terminal("gpsuq summary model --coverage 0.8")
terminal("gpsuq predict model new.csv --coverage 0.8 --out predictions.csv")
print(pd.read_csv(folder / "predictions.csv").round(2))
