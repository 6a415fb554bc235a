"""Moderated t-statistics."""

import microarrays
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ebfed as eb


def genes(n, seed=0, df0=6.0, df=4, scale=0.5):
    """Estimates whose true values are 0, and their ordinary standard errors."""
    rng = np.random.default_rng(seed)
    variances = df0 / rng.chisquare(df0, n)
    estimates = rng.normal(0.0, np.sqrt(variances) * scale)
    return estimates, np.sqrt(variances * rng.chisquare(df, n) / df) * scale


def test_formula():
    estimates, errors = genes(50)
    tests = eb.moderated_t(estimates, errors, 4, unscaled=0.5, method="moments")
    df0, scale = tests.prior.df_[0], tests.prior.scale_[0]
    variances = (df0 * scale + 4 * (errors / 0.5) ** 2) / (df0 + 4)
    np.testing.assert_allclose(tests.std_error, 0.5 * np.sqrt(variances), rtol=1e-12)
    np.testing.assert_allclose(tests.p_value, 2 * stats.t(df0 + 4).sf(abs(tests.statistic)))
    lower, upper = tests.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * stats.t(df0 + 4).ppf(0.95) * tests.std_error)


def test_errors_of_the_first_kind():
    """Of 20,000 true hypotheses, shares rejected; five standard errors, 1e-6 a figure."""
    tests = eb.moderated_t(*genes(20_000), 4, unscaled=0.5)
    for level in (0.05, 0.001):
        error = np.sqrt(level * (1 - level) / 20_000)
        assert abs((tests.p_value < level).mean() - level) < 5 * error


def test_limma():
    """Genes of two leukaemias. What R found is stored with 10 digits."""
    found, genes = microarrays.found("golub", "limma"), microarrays.genes()
    difference, std_error, df, unscaled = microarrays.leukaemias()
    tests = eb.moderated_t(difference, std_error, df, unscaled=unscaled, method="moments")
    np.testing.assert_allclose(tests.prior.df_, found["df.prior"], rtol=1e-7)
    np.testing.assert_allclose(tests.prior.scale_, found["s2.prior"], rtol=1e-7)
    for name, values in {
        "difference": tests.estimate,
        "t": difference / std_error,
        "moderated.error": tests.std_error,
        "moderated.t": tests.statistic,
        "moderated.df": tests.df,
        "moderated.p": tests.p_value,
    }.items():
        np.testing.assert_allclose(values[::10], genes[name], rtol=1e-7, err_msg=name)


def test_maximum_likelihood_is_near_the_moments_of_limma():
    """3,051 genes say much of the population of variances, by either method."""
    difference, std_error, df, unscaled = microarrays.leukaemias()
    tests = eb.moderated_t(difference, std_error, df, unscaled=unscaled)
    found = microarrays.found("golub", "limma")
    np.testing.assert_allclose(tests.prior.df_, found["df.prior"], rtol=0.03)
    np.testing.assert_allclose(tests.prior.scale_, found["s2.prior"], rtol=0.01)
    np.testing.assert_allclose(
        tests.statistic[::10], microarrays.genes()["moderated.t"], rtol=0.005
    )


def test_errors_of_the_first_kind_on_real_genes():
    """Labels of samples are permuted, so that all genes are null, and correlated as they are.

    The share of p-values below .05 is .01 to .15 in single tables, as genes are correlated, and .05
    on average over tables. Four standard errors of 60 tables: a right method fails in 6 of 100,000.
    """
    shares = []
    for seed in range(60):
        (difference, std_error, df, unscaled), _ = microarrays.permuted(seed)
        p = eb.moderated_t(difference, std_error, df, unscaled=unscaled).p_value
        shares.append([(p < 0.05).mean(), (p < 0.005).mean()])
    error = np.std(shares, axis=0) / np.sqrt(60)
    assert (error < [0.005, 0.001]).all()
    assert (abs(np.mean(shares, axis=0) - [0.05, 0.005]) < 4 * error).all()


def test_trend():
    """Where log variances depend on a covariate, both ends of it have the level."""
    rng = np.random.default_rng(1)
    w = rng.uniform(-1, 1, 10_000)
    estimates, errors = (x * np.exp(0.6 * w) for x in genes(10_000, 2))
    tests = eb.moderated_t(estimates, errors, 4, unscaled=0.5, covariates=w)
    np.testing.assert_allclose(tests.prior.coefficients_[1], 1.2, atol=0.1)
    for end in (w < -0.5, w > 0.5):
        error = np.sqrt(0.05 * 0.95 / end.sum())
        assert abs((tests.p_value[end] < 0.05).mean() - 0.05) < 5 * error


def test_degrees_are_at_most_all_there_are():
    tests = eb.moderated_t([1.0, 2.0, 0.5], [1.0, 1.0, 1.0], df=[3, 3, 0])
    np.testing.assert_array_equal(tests.df, 6.0)
    np.testing.assert_allclose(tests.std_error, 1.0)


def test_labels():
    estimates, errors = genes(4)
    named = pd.Series(estimates, pd.Index(list("abcd"), name="gene"))
    table = eb.moderated_t(named, pd.Series(errors, list("abcd"))[::-1], 4).to_frame()
    assert table["gene"].tolist() == list("abcd")
    plain = eb.moderated_t(estimates, errors, 4).to_frame()
    np.testing.assert_allclose(table["t"], plain["t"])
    assert "gene" not in plain


def test_a_frame_of_covariates_is_read_row_by_row():
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0, 5.0, 4.0]}, index=list("abcde"))
    given = [1.0, 2.0, 3.0, 1.0, 0.0], [1.0, 2.0, 1.5, 2.0, 1.0], 4
    frame = eb.moderated_t(*given, covariates=table).to_frame()
    np.testing.assert_array_equal(
        frame, eb.moderated_t(*given, covariates=table["size"].to_numpy()).to_frame()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimates": [1.0, np.nan]}, "estimates must be finite"),
        ({"std_errors": [1.0, -1.0]}, "std_errors must be finite and not negative"),
        ({"std_errors": [1.0, np.nan]}, "std_errors must be finite and not negative"),
        ({"std_errors": [1.0, 1e200]}, "Rescale"),
        ({"df": -1}, "df must be"),
        ({"df": 0}, "df must be positive for some"),
        ({"df": [1, 2, 3]}, r"of one length; they have shapes \(2,\) and \(2,\) and \(3,\)"),
        ({"unscaled": 0.0}, "unscaled must be"),
    ],
)
def test_bad_input(change, message):
    arguments = {"estimates": [1.0, 2.0], "std_errors": [1.0, 2.0], "df": 3}
    with pytest.raises(ValueError, match=message):
        eb.moderated_t(**(arguments | change))


def test_labels_of_another_length_are_refused():
    with pytest.raises(ValueError, match="labels has 1 entries for 3 estimates"):
        eb.moderated_t([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 4, labels=["a"])


def test_covariates_need_maximum_likelihood():
    given = [1.0, 2.0, 3.0, 1.0], [1.0, 2.0, 1.0, 2.0], 4
    with pytest.raises(ValueError, match="method must be 'ml' with covariates; got 'moments'"):
        eb.moderated_t(*given, covariates=[1.0, 2.0, 3.0, 5.0], method="moments")


@pytest.mark.parametrize("df", [np.inf, np.nan])
def test_one_number_of_degrees_that_is_not_finite(df):
    """It was said to have the wrong shape."""
    with pytest.raises(ValueError, match="df must be finite"):
        eb.moderated_t([0.1, 0.2], [1.0, 1.0], df)
