"""A regressor as the mean of the population: it helps, it does no harm, and it sees no own data."""

import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import ebfed as eb
from ebfed.location.cross_fitting import N_FOLDS, deal
from ebfed.report.view import view_of

M = 300
RNG = np.random.default_rng(0)
W = RNG.uniform(-2, 2, (M, 3))
CURVE = np.sin(2 * W[:, 0]) + (W[:, 1] > 0)  # hardly linear
SIZES = RNG.integers(2, 8, M)
GROUPS = np.repeat(np.arange(M), SIZES)
THETA = RNG.normal(CURVE, 0.3)
Y = RNG.normal(THETA[GROUPS], 1.0)
TREE = DecisionTreeRegressor(min_samples_leaf=10, random_state=0)
FOREST = RandomForestRegressor(50, min_samples_leaf=5, random_state=0)


def means(mean_model=TREE, **settings):
    return eb.GaussianEB(mean_model=mean_model, random_state=0, **settings)


def risk(estimates, truth):
    return float(((np.ravel(estimates) - truth) ** 2).mean())


# What it is -----------------------------------------------------------------------------------


class Recorder(RegressorMixin, BaseEstimator):
    """Predicts by a tree, and notes what it was fitted to and asked for."""

    fits: ClassVar = []  # of all copies

    def fit(self, X, y, sample_weight=None):
        self.tree_ = clone(TREE).fit(X, y, sample_weight)
        self.asked_ = []
        self.fits.append((self, set(y), np.asarray(sample_weight), list(X.columns)))
        return self

    def predict(self, X):
        self.asked_.append(X)
        return self.tree_.predict(X)


def test_no_group_is_predicted_by_a_regressor_that_was_fitted_to_it():
    Recorder.fits.clear()
    covariates = pd.DataFrame(W, columns=["a", "b", "c"]).assign(group=np.arange(M))
    est = means(Recorder()).fit(Y, groups=GROUPS, covariates=covariates)
    own = est.summaries_.mean[:, 0]
    *folds, (_, everything, weights, names) = Recorder.fits
    assert len(folds) == N_FOLDS
    assert names == ["a", "b", "c"]
    assert everything == set(own)
    seen = np.zeros(M, int)
    for model, fitted, *_ in folds:
        (asked,) = model.asked_
        left_out = set(own) - fitted
        rows = [np.flatnonzero((row == W).all(axis=1))[0] for row in asked.to_numpy()]
        assert set(own[rows]) == left_out
        seen[rows] += 1
        given = est._learned.memory["covariates"][rows, 0]
        np.testing.assert_array_equal(given, model.tree_.predict(asked))
    assert (seen == 1).all()
    # weights are precisions around one mean
    plain = eb.GaussianEB().fit(Y, groups=GROUPS)
    total = plain.prior_.variance_ + plain.noise_variance_ / SIZES
    np.testing.assert_allclose(weights, 1 / total, rtol=1e-10)


def test_the_fit_is_that_with_the_predictions_as_covariate():
    est = means().fit(Y, groups=GROUPS, covariates=W)
    x = est._learned.memory["covariates"]
    by_hand = eb.GaussianEB().fit(Y, groups=GROUPS, covariates=x)
    np.testing.assert_array_equal(est.predict(), by_hand.predict())
    np.testing.assert_array_equal(est.posterior().sd, by_hand.posterior().sd)
    assert est.log_likelihood_ == by_hand.log_likelihood_
    assert est.covariate_names_ == ["mean_model(w0, w1, w2)"]
    assert 0.5 < est.coef_[0] < 1.2
    assert "mean_model" in str(est.tidy()["term"].tolist())
    # made again by maximum likelihood, the regressor is not fitted again
    assert view_of(est).maximum() == pytest.approx(view_of(by_hand).maximum(), rel=1e-12)


def test_unseen_groups_are_predicted_by_the_regressor_that_was_fitted_to_all():
    est = means().fit(Y, groups=GROUPS, covariates=W)
    new = RNG.uniform(-2, 2, (5, 3))
    x = est.mean_model_.predict(pd.DataFrame(new, columns=["w0", "w1", "w2"]))
    with pytest.warns(eb.UnseenGroupWarning):
        found = est.predict(groups=np.arange(M, M + 5), covariates=new)
    np.testing.assert_allclose(found, est.intercept_ + est.coef_[0] * x, rtol=1e-12)
    # with rows, they are estimated from both, and groups of the fit keep their predictions
    some = est.posterior(np.array([3.0, 3.0, 1.0]), groups=[M, M, 0], covariates=[W[0], new[0]])
    expected = est.intercept_ + est.coef_[0] * np.array(
        [est._learned.memory["covariates"][0, 0], x[0]]
    )
    weight = some.weight[:, 0]
    np.testing.assert_allclose(
        some.mean[:, 0], weight * [1, 3] + (1 - weight) * expected, rtol=1e-9
    )
    with pytest.raises(ValueError, match=r"mean_model\(w0, w1, w2\) of 1 groups that were not"):
        est.posterior(np.array([3.0]), groups=[M])


def test_columns_of_the_frame_of_rows():
    frame = pd.DataFrame(W, columns=["a", "b", "c"]).loc[GROUPS].assign(y=Y, g=GROUPS)
    frame = frame.reset_index(drop=True)
    named = means().fit(frame, groups="g", covariates=["a", "b", "c"])
    plain = means().fit(Y, groups=GROUPS, covariates=W)
    np.testing.assert_array_equal(named.predict(frame), plain.predict(Y, groups=GROUPS))
    assert np.isfinite(named.score(frame))
    assert named.augment(frame).shape[0] == len(frame)


def test_groups_without_rows_are_predicted_like_new_ones():
    n = np.where(np.arange(M) % 10 == 0, 0, 20)
    p = expit(CURVE - 1)
    counts = eb.Summary.from_counts(RNG.binomial(n, p), n)
    est = eb.BernoulliEB(mean_model=TREE, random_state=0).fit(counts, covariates=W)
    empty = n == 0
    x = est.mean_model_.predict(pd.DataFrame(W, columns=["w0", "w1", "w2"]))[empty]
    expected = expit(est.intercept_ + est.coef_[0] * logit(x))
    np.testing.assert_allclose(est.posterior().mean[empty, 0], expected, rtol=1e-8)


# Risk -----------------------------------------------------------------------------------------


def test_a_mean_that_is_not_linear():
    """Half of the linear covariates' error is a lot less than chance could make of 300 groups."""
    est = means(FOREST).fit(Y, groups=GROUPS, covariates=W)
    linear = eb.GaussianEB().fit(Y, groups=GROUPS, covariates=W)
    assert risk(est.predict(), THETA) < 0.7 * risk(linear.predict(), THETA)
    lower, upper = (end[:, 0] for end in est.posterior().interval(0.95))
    held = ((lower < THETA) & (upper > THETA)).mean()
    assert held == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / M) ** 0.5)
    assert (upper - lower).mean() < np.subtract(*linear.posterior().interval(0.95)[::-1]).mean()


@pytest.mark.parametrize("kind", ["rates", "events"])
def test_means_of_rates(kind):
    rng = np.random.default_rng(1)
    n = rng.integers(10, 40, M)
    if kind == "rates":
        mean = expit(CURVE - 1.5)
        truth = rng.beta(mean * 30, (1 - mean) * 30)
        X, more, learner = eb.Summary.from_counts(rng.binomial(n, truth), n), {}, eb.BernoulliEB
    else:
        mean = np.exp(CURVE - 1)
        truth = rng.gamma(10, mean / 10)
        n = n / 5
        X, learner = rng.poisson(n * truth), eb.PoissonEB
        more = {"groups": np.arange(M), "exposure": n}
    est = learner(mean_model=FOREST, random_state=0).fit(X, covariates=W, **more)
    linear = learner().fit(X, covariates=W, **more)
    assert risk(est.predict(), truth) < 0.9 * risk(linear.predict(), truth)
    assert 0.5 < est.coef_[0] < 1.2
    lower, upper = (end[:, 0] for end in est.posterior().interval(0.95))
    # what is left around a forest's predictions is a beta or gamma population only roughly
    assert 0.9 < ((lower < truth) & (upper > truth)).mean() < 0.99


def test_districts_of_california():
    """The results of other pupils of a district, from 20 of them and twelve covariates."""
    table = sm.datasets.star98.load_pandas().data
    above = table["NABOVE"].astype(int).to_numpy()
    others = table["NBELOW"].astype(int).to_numpy()
    shown = np.minimum(above + others - 1, 20)
    hits = np.random.default_rng(0).hypergeometric(above, others, shown)
    rate = (above - hits) / (above + others - shown)
    few = eb.Summary.from_counts(hits, shown)
    plain = (eb.BernoulliEB().fit(few).predict() - rate) ** 2
    est = eb.BernoulliEB(mean_model=FOREST, random_state=0)
    gain = plain - (est.fit(few, covariates=table.iloc[:, 2:14].to_numpy()).predict() - rate) ** 2
    assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5
    assert gain.mean() > 0.25 * plain.mean()


@pytest.mark.parametrize("model", [TREE, LinearRegression()], ids=["tree", "linear"])
def test_covariates_of_pure_noise_do_no_harm(model):
    """The risk exceeds that without covariates by less than that differs between two tables."""
    excess, plain_risks, left_out = [], [], 0
    for run in range(40):
        rng = np.random.default_rng([7, run])
        theta = rng.normal(0, 1, 100)
        x, errors = rng.normal(theta, 1), np.ones(100)
        noise = rng.normal(size=(100, 5))
        plain = eb.posterior_from(x, errors)
        found = eb.posterior_from(x, errors, mean=noise, mean_model=model)
        left_out += any("mean_model" in note for note in found.notes)
        plain_risks.append(risk(plain.mean, theta))
        excess.append(risk(found.mean, theta) - plain_risks[-1])
    assert np.mean(excess) < min(np.std(excess), 0.01 * np.mean(plain_risks))
    assert 20 < left_out < 40


def test_predictions_of_no_use_are_left_out():
    plain = eb.GaussianEB().fit(Y, groups=GROUPS)
    for useless in (DummyRegressor(), DummyRegressor(strategy="constant", constant=1.0)):
        est = means(useless).fit(Y, groups=GROUPS, covariates=W)
        np.testing.assert_array_equal(est.predict(), plain.predict())
        assert est.mean_model_ is None
        assert est.covariate_names_ == []
        assert any("say nothing" in note for note in est.notes_)
        # later covariates are read all the same
        with pytest.warns(eb.UnseenGroupWarning):
            new = est.predict(groups=[M + 1], covariates=[[0.0, 0.0, 0.0]])
        np.testing.assert_allclose(new, plain.prior_.mean_)
        with pytest.raises(ValueError, match="the fit had 3"):
            est.predict(groups=[M + 1], covariates=[[0.0]])


# Tables of estimates --------------------------------------------------------------------------


def test_a_table_of_estimates():
    x, errors = RNG.normal(THETA, 0.5), np.full(M, 0.5)
    linear = eb.posterior_from(x, errors, mean=W)
    found = eb.posterior_from(x, errors, mean=W, mean_model=TREE)
    assert risk(found.mean, THETA) < 0.9 * risk(linear.mean, THETA)
    again = eb.posterior_from(x, errors, mean=W, mean_model=TREE)
    np.testing.assert_array_equal(found.mean, again.mean)
    heavy = eb.posterior_from(x, errors, mean=W, mean_model=TREE, df=1e9)
    np.testing.assert_allclose(heavy.mean, found.mean, atol=1e-4)
    missing = np.where(np.arange(M) % 7 == 0, np.nan, 1.0)
    some = eb.posterior_from(x * missing, errors * missing, mean=W, mean_model=TREE)
    assert np.isfinite(some.mean).all()


def test_tables_that_are_refused():
    x, errors = RNG.normal(THETA, 0.5), np.full(M, 0.5)
    with pytest.raises(ValueError, match="independent"):
        eb.posterior_from(x, np.diag(errors), mean=W, mean_model=TREE)
    with pytest.raises(ValueError, match="both mean_model and covariates"):
        eb.posterior_from(x, errors, mean_model=TREE)
    with pytest.raises(TypeError, match="Discrete"):
        eb.posterior_from(x, errors, "npmle", mean=W, mean_model=TREE)


# As an estimator of scikit-learn --------------------------------------------------------------


def test_arguments_of_the_regressor_are_arguments():
    est = means().set_params(mean_model__max_depth=1)
    assert est.get_params()["mean_model__max_depth"] == 1
    assert clone(est).mean_model.max_depth == 1
    est.fit(Y, groups=GROUPS, covariates=W)
    assert est.mean_model_.get_depth() == 1
    assert not hasattr(TREE, "tree_")  # copies are fitted


def test_a_pipeline_has_no_weights():
    model = make_pipeline(StandardScaler(), TREE)
    est = means(model).fit(Y, groups=GROUPS, covariates=W)
    assert risk(est.predict(), THETA) < risk(eb.GaussianEB().fit(Y, groups=GROUPS).predict(), THETA)


def test_a_seed_decides_the_parts():
    fits = [
        means().set_params(random_state=seed).fit(Y, groups=GROUPS, covariates=W)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0].predict(), fits[1].predict())
    assert (fits[0].predict() != fits[2].predict()).any()
    assert np.ptp(np.bincount(deal(M + 2, N_FOLDS, 3))) == 1


def test_a_pickle_has_the_regressor():
    est = means().fit(Y, groups=GROUPS, covariates=W)
    again = pickle.loads(pickle.dumps(est))
    rows = {"X": np.array([1.0]), "groups": [M], "covariates": [[0.5, 1.0, 0.0]]}
    np.testing.assert_array_equal(again.predict(**rows), est.predict(**rows))


def test_files_and_copies_of_a_server_have_no_regressor(tmp_path):
    est = means().fit(Y, groups=GROUPS, covariates=W)
    with pytest.raises(TypeError, match="no form in JSON"):
        est.save(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="copies of a server have no regressor"):
        est.save(tmp_path / "fit.json", groups=False)
    with pytest.raises(ValueError, match="copies of a server have no regressor"):
        est.published()
    with pytest.raises(TypeError, match="no form in JSON"):
        est._intake.as_data()
    assert not list(tmp_path.iterdir())


def test_nodes_of_a_federation_are_refused():
    est = means()
    clients, memory = est.protocol().prepare(Y, groups=GROUPS, covariates=W)
    with pytest.raises(ValueError, match="nodes of a federation"):
        est.protocol().describe(clients, memory)


@pytest.mark.parametrize(
    ("settings", "given", "error", "message"),
    [
        ({}, {}, ValueError, "both mean_model and covariates"),
        ({"mean_model": 3}, {"covariates": W}, TypeError, "regressor of scikit-learn; got 3"),
        ({"mean_model": LogisticRegression()}, {"covariates": W}, TypeError, "regressor"),
        ({"prior": "npmle"}, {"covariates": W}, TypeError, "one population for all"),
        ({"participation": 10}, {"covariates": W}, ValueError, "participation must be None"),
        (
            {"channel": eb.channels.AddNoise(1.0), "variances": 1.0},
            {"covariates": W},
            ValueError,
            "figures: channel must be",
        ),
    ],
)
def test_mistakes(settings, given, error, message):
    with pytest.raises(error, match=message):
        means().set_params(**settings).fit(Y, groups=GROUPS, **given)


def test_blocks_columns_and_few_groups_are_refused():
    assert not hasattr(means(), "partial_fit")
    with pytest.raises(ValueError, match="for one column; X has 2"):
        means().fit(np.column_stack([Y, Y]), groups=GROUPS, covariates=W)
    few = GROUPS < 9
    with pytest.raises(ValueError, match="at least 10 groups with rows; there are 9"):
        means().fit(Y[few], groups=GROUPS[few], covariates=W[:9])

    class Broken(LinearRegression):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match="missing or infinite"):
        means(Broken()).fit(Y, groups=GROUPS, covariates=W)
