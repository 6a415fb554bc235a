"""Tables of estimates, and the formulas of their covariates."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import ebfed as eb

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(
    {"x": RNG.normal(size=12), "kind": list("aabbccaabbcc"), "error": RNG.uniform(0.2, 1, 12)}
)
VALUES = TABLE.x + TABLE.error * RNG.standard_normal(12)


@pytest.mark.parametrize("door", [eb.posterior_from, eb.meta_analysis, eb.fay_herriot])
def test_a_formula_gives_what_its_columns_give(door):
    name = "mean" if door is eb.posterior_from else "covariates"
    columns = pd.DataFrame({"x": TABLE.x, "log(se)": np.log(TABLE.error)})
    expected = door(VALUES, TABLE.error, **{name: columns}).to_frame()
    found = door(VALUES, TABLE.error, **{name: "~ x + log(se)"}, data=TABLE).to_frame()
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("door", [eb.meta_analysis, eb.fay_herriot])
def test_new_units_are_predicted_from_their_columns(door):
    fit = door(VALUES, TABLE.error, "~ center(x) + kind", data=TABLE)
    rows = fit.predict(TABLE[4:6]).reset_index(drop=True)
    whole = fit.predict(TABLE).reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, whole[4:6].reset_index(drop=True))
    with pytest.raises(TypeError, match=r"a frame with the columns of '~ center\(x\) \+ kind'"):
        fit.predict([1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": "x"}, "mean must be a formula such as"),
        ({"mean": "y ~ x"}, "mean must be a formula such as"),
        ({"spread": "~ 0 + x"}, "spread='~ 0 [+] x' must keep its intercept"),
        ({"mean": "~ z"}, "'z' is neither a column of data nor known here"),
        ({"mean": TABLE[["x"]][1:].to_numpy()}, "mean must have a row for each of 12 estimates"),
        ({"spread": np.ones(12)}, "covariates of spread have constant columns"),
        (
            {"mean": "~ x", "spread": "~ x", "mean_model": LinearRegression()},
            "mean_model is for a normal population of constant spread",
        ),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        eb.posterior_from(VALUES, TABLE.error, data=TABLE, **options)


def test_an_estimate_without_a_precision_has_no_population_given_it():
    error = TABLE.error.to_numpy().copy()
    error[3] = np.nan
    with pytest.raises(ValueError, match="Estimate 3 has no positive, finite standard error"):
        eb.posterior_from(VALUES, error, spread="~ log(se)")
