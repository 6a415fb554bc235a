"""Files of fits of formulas: a frame is read from a file's terms as from the fit's own."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import ebfed as eb
from ebfed.channels import Gaussian
from ebfed.report.view import view_of

RNG = np.random.default_rng(3)
N = 240
ROWS = pd.DataFrame(
    {
        "county": np.repeat([f"c{i:02d}" for i in range(12)], N // 12),
        "x": RNG.normal(2.0, 1.0, N),
        "z": RNG.gamma(2.0, 1.0, N),
        "kind": RNG.choice(["a", "b", "c"], N),
        "grade": pd.Categorical(RNG.choice(["low", "mid", "high"], N), ["low", "mid", "high"]),
        "flag": RNG.random(N) > 0.5,
        "u": np.repeat(RNG.normal(size=12), N // 12),
        "times": RNG.integers(1, 5, N),
    }
)
ROWS["y"] = ROWS["x"] + RNG.normal(size=12).repeat(N // 12) + RNG.normal(size=N)
ROWS["won"] = ROWS["y"] > 2
ROWS["events"] = RNG.poisson(np.exp(0.2 * ROWS["u"]) * ROWS["times"])
ROWS["hits"] = RNG.binomial(ROWS["times"], 0.4)
FORMULAS = {
    "y ~ x + z + (1 + x | county)": {},
    "y ~ center(x) * kind + C(kind):flag + (1 | county)": {},
    "np.log(y**2) ~ poly(z, 2) + bs(x, df=5) + C(grade, contr.sum) + (1 | county)": {},
    "y ~ 0 + grade + I(x > 1) | county": {},
    "won ~ scale(x) + grade + (1 | county)": {"family": "binomial"},
    "won ~ 1 + (1 | county)": {"family": "binomial", "prior": "logit-normal"},
    "cbind(hits, trials=times) ~ u + (1 | county)": {"family": "binomial", "prior": "beta"},
    "events ~ u + offset(np.log(times)) + (1 | county)": {"family": "poisson"},
    "y | county": {},
}


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("formula", FORMULAS)
def test_files_give_the_fit_back(formula, groups, tmp_path):
    fit = eb.from_formula(formula, ROWS, **FORMULAS[formula])
    fit.save(tmp_path / "fit.json", groups=groups)
    again = eb.load_fit(tmp_path / "fit.json")
    assert isinstance(again, eb.formula.FormulaFit)
    assert repr(again) == repr(fit)
    assert again.design_.names == fit.design_.names
    some = ROWS.iloc[[5, 100, 239]].drop(columns="county")  # few rows, without most categories
    assert_array_equal(again.predict(some), fit.predict(some))
    assert view_of(again).formula == view_of(fit).formula
    if groups:
        assert_array_equal(again.predict(ROWS), fit.predict(ROWS))
        assert_array_equal(again.predict(pl.from_pandas(ROWS)), fit.predict(ROWS))
        assert_array_equal(again.posterior().mean, fit.posterior().mean)
        assert str(again.summary()) == str(fit.summary())
        pd.testing.assert_frame_equal(again.augment(ROWS), fit.augment(ROWS))
        assert again.score(ROWS) == fit.score(ROWS)
    again.save(tmp_path / "twice.json", groups=groups)
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "fit.json").read_bytes()


def test_terms_of_a_file_explain_mistakes_as_the_fit_does(tmp_path):
    fit = eb.from_formula("y ~ x + C(kind) + (1 | county)", ROWS)
    fit.save(tmp_path / "fit.json")
    again = eb.load_fit(tmp_path / "fit.json")
    for wrong in (ROWS.assign(kind="other"), ROWS.assign(x="text"), ROWS.drop(columns="kind")):
        with pytest.raises(ValueError, match=r"kind|x") as there:
            fit.predict(wrong)
        with pytest.raises(ValueError, match=r"kind|x") as here:
            again.predict(wrong)
        assert str(here.value) == str(there.value)
    with pytest.raises(ValueError, match="has no rows; give a frame"):
        again.predict()


def test_values_of_the_caller_are_in_the_file_but_not_functions(tmp_path):
    limit = 1.5
    fit = eb.from_formula("y ~ I(x > limit) + (1 | county)", ROWS)
    fit.save(tmp_path / "fit.json")
    assert_array_equal(eb.load_fit(tmp_path / "fit.json").predict(ROWS), fit.predict(ROWS))

    def own(x):
        return x + limit

    fit = eb.from_formula("y ~ own(x) + (1 | county)", ROWS)
    with pytest.raises(TypeError, match="uses 'own' of the caller"):
        fit.save(tmp_path / "own.json")


@pytest.mark.parametrize(
    "text",
    [
        "y ~ x + __import__('os').system('touch HERE') + (1 | county)",
        "y ~ open('HERE', 'w') + (1 | county)",
        "y ~ np.save('HERE', x) + (1 | county)",
        "open('HERE', 'w') ~ x + (1 | county)",
    ],
)
def test_a_formula_that_runs_code_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "fit.json"
    eb.from_formula("y ~ x + (1 | county)", ROWS).save(path)
    content = json.loads(path.read_text())
    content["formula"]["text"] = text
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is damaged"):
        eb.load_fit(path).predict(ROWS)
    assert not (tmp_path / "HERE").exists()


HIDDEN = Gaussian(2.0, 1e-5, (-5.0, 5.0))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_files_of_private_fits_have_nothing_of_the_rows(tmp_path):
    estimator = eb.AdaMix(channel=HIDDEN, n_rounds=2, noise_variance=1.0)
    fit = eb.from_formula("y ~ center(x) | county", ROWS, estimator)
    with pytest.raises(ValueError, match=r"'center\(x\)' keeps figures of the rows"):
        fit.save(tmp_path / "fit.json", groups=False)
    fit = eb.from_formula("y ~ x | county", ROWS, estimator)
    fit.save(tmp_path / "fit.json", groups=False)
    assert "c07" not in (tmp_path / "fit.json").read_text()
    again = eb.load_fit(tmp_path / "fit.json")
    assert_array_equal(again.predict(ROWS), fit.published().predict(ROWS))
