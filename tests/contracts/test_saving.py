"""A fit that was saved and read is the same fit, over every class of fits of a population."""

import inspect
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ebfed as eb
from ebfed import channels, learning, location, models, priors, regression
from ebfed.engines import rounds
from ebfed.report.view import view_of

RNG = np.random.default_rng(5)
M, N = 29, 290
GROUPS = np.array([f"group-{k:03d}" for k in np.repeat(np.arange(M), N // M)])
CODES = np.repeat(np.arange(M), N // M)
THETA = RNG.choice([-1.5, 0.0, 1.5], M)[CODES] + 0.3 * RNG.normal(size=M)[CODES]
X = RNG.normal(size=(N, 2))
MEANS = THETA + RNG.normal(size=N)
Y = THETA + X[:, 0] + 0.5 * RNG.normal(size=N)
RATES = (RNG.random(N) < 1 / (1 + np.exp(-THETA))).astype(float)
CLASSES = np.where(Y > 0, "yes", "no")
KINDS = np.array(["low", "middle", "high"])[np.digitize(Y, [-1, 1])]
COUNTS, YEARS = RNG.poisson(np.exp(THETA)).astype(float), RNG.uniform(0.5, 1.5, N)
AGE = pd.Series(RNG.normal(size=M), np.unique(GROUPS), name="age")
NOISY = channels.Gaussian(4.0, 1e-5, (-4.0, 4.0))

NORMAL = ("normal", "point_normal", "laplace", "point_laplace", "scale_mixture", "log_spline")
FITS = {
    **{f"GaussianEB {p}": (eb.GaussianEB(prior=p), "means") for p in (*NORMAL, "npmle")},
    "GaussianEB instance": (eb.GaussianEB(prior=priors.PointNormal(mode=0.5)), "means"),
    "GaussianEB columns": (eb.GaussianEB([1.0, 2.0], method="ml"), "columns"),
    "GaussianEB covariates": (eb.GaussianEB(), "covariates"),
    "GaussianEB noise": (
        eb.GaussianEB(1.0, channel=channels.AddNoise(0.5), random_state=3),
        "means",
    ),
    "GaussianEB guess": (
        eb.GaussianEB(
            1.0,
            channel=channels.Quantizer(3),
            guess=eb.channels.Guess(mean=(-1.0, 1.0), spread=1.0),
            participation=20,
            random_state=3,
        ),
        "means",
    ),
    **{f"BernoulliEB {p}": (eb.BernoulliEB(prior=p), "rates") for p in ("beta", "log_spline")},
    "BernoulliEB npmle": (eb.BernoulliEB(prior="npmle"), "rates"),
    "BernoulliEB moments": (eb.BernoulliEB(method="moments"), "rates"),
    "BernoulliEB paper": (eb.BernoulliEB(method="paper"), "rates"),
    **{f"PoissonEB {p}": (eb.PoissonEB(prior=p), "events") for p in ("gamma", "log_spline")},
    "PoissonEB npmle": (eb.PoissonEB(prior="npmle"), "events"),
    "NegativeBinomialEB": (eb.NegativeBinomialEB(), "counts"),
    "NegativeBinomialEB known": (eb.NegativeBinomialEB(dispersion=0.47), "counts"),
    "CategoricalEB": (eb.CategoricalEB(), "rates"),
    "CategoricalEB private": (
        # by default half of the clients compare, and a half is a share of some group too
        eb.CategoricalEB(channel=channels.RandomizedCategory(2.0, compare=0.45), random_state=0),
        "rates",
    ),
    "DurationEB": (eb.DurationEB(), "times"),
    "VarianceEB": (eb.VarianceEB(), "means"),
    "MixtureEB": (eb.MixtureEB(3, random_state=0), "means"),
    "MixtureEB diag": (eb.MixtureEB(2, components="diag", random_state=0), "columns"),
    "MixtureEB clustering": (eb.MixtureEB(2, solver="clustering", random_state=0), "means"),
    "OptOutMean": (eb.OptOutMean(1.0, 1.0, gamma2=0.1, random_state=0), "consent"),
    "LinearEB": (eb.LinearEB("full"), "numbers"),
    "LinearEB varying": (eb.LinearEB(varying=["intercept", 1]), "numbers"),
    "LinearEB gradient": (eb.LinearEB("spherical", solver="gradient", n_steps=20), "numbers"),
    "LinearEB covariates": (eb.LinearEB(), "regression on covariates"),
    **{
        f"LogisticEB {method}": (
            eb.LogisticEB(method=method),
            "classes",
        )
        for method in ("aghq", "ep", "laplace")
    },
    "LogisticEB gradient": (eb.LogisticEB("spherical", method="gradient", n_rounds=10), "classes"),
    "GeneralizedEB": (eb.GeneralizedEB(covariance="full"), "counts in rows"),
    "AdaMix": (eb.AdaMix(2, n_init=1, random_state=0), "numbers"),
    "AdaMix gradient": (eb.AdaMix(2, solver="gradient", n_rounds=9, random_state=0), "numbers"),
    "AdaMixClassifier": (eb.AdaMixClassifier(2, n_init=1, n_rounds=9, random_state=0), "kinds"),
    "MixtureLinearEB": (eb.MixtureLinearEB(2, n_init=1, random_state=0), "numbers"),
}
PRIVATE = {
    "GaussianEB private": (eb.GaussianEB(1.0, channel=NOISY), "means"),
    "GaussianEB consent": (
        eb.GaussianEB(1.0, channel={"private": NOISY, "open": channels.Exact()}),
        "consent",
    ),
    "BernoulliEB private": (eb.BernoulliEB(channel=channels.TwoBit(2.0)), "rates"),
    "PoissonEB private": (eb.PoissonEB(channel=channels.Laplace(2.0, (0.0, 9.0))), "events"),
    "MixtureEB private": (
        eb.MixtureEB(
            2, trust="server", channel=channels.Clip(radius=3.0), epsilon=4, delta=1e-5, variances=1
        ),
        "means",
    ),
    "OptOutMean private": (
        eb.OptOutMean(1.0, 1.0, epsilon=1.0, delta=1e-5, range=(-4, 4)),
        "consent",
    ),
    "AdaMix private": (eb.AdaMix(channel=NOISY, n_rounds=3, noise_variance=1.0), "numbers"),
}
EVERY = FITS | PRIVATE
every = pytest.mark.parametrize("name", EVERY)
private = pytest.mark.parametrize("name", PRIVATE)
pytestmark = [
    pytest.mark.filterwarnings("ignore::ebfed.priors.IdentificationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:Expectation propagation"),
]


def given(kind):
    """Rows of a kind, and what goes with them: for a fit, and for what comes later."""
    choice = {label: "open" if k % 2 else "private" for k, label in enumerate(AGE.index)}
    table = pd.DataFrame(X, columns=["a", "b"])
    on_age = {"groups": GROUPS, "covariates": AGE}
    match kind:
        case "means":
            return (MEANS,), {"groups": GROUPS}, {}
        case "columns":
            return (X * [1.0, 2.0] + THETA[:, None],), {"groups": GROUPS}, {}
        case "covariates":
            return (MEANS,), on_age, {}
        case "consent":
            return (MEANS,), {"groups": GROUPS}, {"consent": choice}
        case "rates":
            return (RATES,), {"groups": GROUPS}, {}
        case "counts":
            return (COUNTS,), {"groups": GROUPS}, {}
        case "times":
            return (YEARS,), {"groups": GROUPS, "observed": COUNTS > 0}, {}
        case "events":
            return (COUNTS,), {"groups": GROUPS, "exposure": YEARS}, {}
        case "numbers":
            return (table, Y), {"groups": GROUPS}, {}
        case "counts in rows":
            return (table, COUNTS), {"groups": GROUPS}, {}
        case "regression on covariates":
            return (table, Y), on_age, {}
        case "classes":
            return (table, CLASSES), {"groups": GROUPS}, {}
        case "kinds":
            return (table, KINDS), {"groups": GROUPS}, {}
    raise AssertionError(kind)


@pytest.fixture(scope="module")
def fits():
    """Each fit, made when it is first asked for."""
    made = {}

    def fit(name):
        if name not in made:
            estimator, kind = EVERY[name]
            rows, options, once = given(kind)
            made[name] = clone(estimator).fit(*rows, **options, **once)
        return made[name]

    return fit


def again(fit, path, **options):
    fit.save(path / "fit.json", **options)
    return eb.load_fit(path / "fit.json")


def results(fit, kind, *, groups=True):
    """Everything that a fit says, of its groups, of rows, and of unseen groups."""
    (X, *y), options, _ = given(kind)
    unseen = options | {"groups": np.array([f"new {label}" for label in GROUPS])}
    if "covariates" in options:
        unseen["covariates"] = pd.Series(AGE.to_numpy(), [f"new {label}" for label in AGE.index])
    yield "tidy", fit.tidy()
    yield "glance", fit.glance()
    yield "confint", fit.confint()
    yield "log-likelihood", fit.log_likelihood_
    yield "notes", fit.notes_
    yield "params", str({k: v for k, v in fit.get_params().items() if k != "random_state"})
    if hasattr(fit, "history_"):
        yield "history", fit.history_
    posteriors = [("unseen", fit.posterior(X, *y, **unseen))]
    if groups:
        yield "summary", str(fit.summary())
        yield "ledger", fit.privacy_
        yield "effects", fit.tidy("ran_coefs", conf_int=True)
        yield "ranef", fit.ranef()
        if kind != "regression on covariates":
            yield "augment", fit.augment(X, *y, **options)
        posteriors += [("fit", fit.posterior()), ("rows", fit.posterior(X, *y, **options))]
        yield "predict", fit.predict(X, **options)
    yield "predict unseen", fit.predict(X, **unseen)
    if hasattr(fit, "predict_proba"):
        yield "probabilities", fit.predict_proba(X, **unseen)
    for what, posterior in posteriors:
        yield f"{what} frame", posterior.to_frame(0.9)
        yield f"{what} mean", posterior.mean
        yield f"{what} draws", posterior.sample(3, 0)


def same(found, expected):
    for (what, one), (_, other) in zip(found, expected, strict=True):
        if isinstance(other, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other, check_exact=True, obj=what)
        elif isinstance(other, np.ndarray):
            assert one.dtype == other.dtype, what
            np.testing.assert_array_equal(one, other, err_msg=what)
        else:
            assert one == other or (one != one and other != other), what


def test_every_class_of_fits_is_tried():
    public = [getattr(wing, name) for wing in (location, regression) for name in wing.__all__]
    classes = [each for each in public if inspect.isclass(each) and hasattr(each, "save")]
    concrete = {each.__name__ for each in classes if not inspect.isabstract(each)}
    assert {name.split()[0] for name in EVERY} | {"CrossedEB"} == concrete


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_crossed_factors_come_back_to_the_last_bit(family, tmp_path):
    """They have all levels of all factors, or nothing."""
    rows = pd.DataFrame({"x": X[:, 0], "a": GROUPS, "b": np.arange(N) % 7, "y": Y, "n": COUNTS})
    response = "y" if family == "gaussian" else "n"
    model = f"{response} ~ x + offset(x / 2) + (1 | a) + (1 | b) + (1 | a:b)"
    fit = eb.from_formula(model, rows, family=family)
    read = again(fit, tmp_path)
    for factor in ("a", "b", "a:b"):
        pd.testing.assert_frame_equal(read.ranef(factor), fit.ranef(factor), check_exact=True)
        one, other = (each.estimator_.posterior(factor).to_frame() for each in (read, fit))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    new = rows.assign(a="new")
    for found in ("predict", "predict_interval"):
        np.testing.assert_array_equal(getattr(read, found)(new), getattr(fit, found)(new))
    for found in ("tidy", "glance", "tests", "confint"):
        one, other = getattr(read, found)(), getattr(fit, found)()
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert str(read.summary()) == str(fit.summary())
    assert read.notes_ == fit.notes_
    pd.testing.assert_frame_equal(read.history_, fit.history_)
    first = (tmp_path / "fit.json").read_bytes()
    read.save(tmp_path / "fit.json")
    assert (tmp_path / "fit.json").read_bytes() == first
    with pytest.raises(ValueError, match="save it with groups=True"):
        fit.save(tmp_path / "other.json", groups=False)
    assert not (tmp_path / "other.json").exists()


@every
def test_a_fit_with_groups_comes_back_to_the_last_bit(name, fits, tmp_path):
    fit, kind = fits(name), EVERY[name][1]
    fit.keep_rows = True
    read = again(fit, tmp_path)
    fit.keep_rows = False
    same(results(read, kind), results(fit, kind))
    assert read.groups_.dtype == fit.groups_.dtype
    first = (tmp_path / "fit.json").read_bytes()
    read.save(tmp_path / "fit.json")
    assert (tmp_path / "fit.json").read_bytes() == first


@every
def test_without_groups_a_file_has_the_population(name, fits, tmp_path):
    fit, kind = fits(name), EVERY[name][1]
    read = again(fit, tmp_path, groups=False)
    same(results(read, kind, groups=False), results(fit.published(), kind, groups=False))
    with pytest.raises(ValueError, match=r"give rows to estimate|X must be given"):
        read.posterior()
    assert "not known" in str(read.summary())
    with pytest.raises(ValueError, match="saved without groups"):
        read.save(tmp_path / "other.json")
    again(read, tmp_path, groups=False)


def numbers_in(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        return set().union(*map(numbers_in, tree))
    return {tree} if isinstance(tree, float) else set()


def shapes_in(tree):
    """Shapes of the arrays of a file."""
    if isinstance(tree, list):
        return [shape for part in tree for shape in shapes_in(part)]
    if not isinstance(tree, dict):
        return []
    if tree.keys() == {"array"}:
        return [tree["array"][1]]
    return shapes_in(list(tree.values()))


def own_figures(fit):
    """Numbers that one group alone has."""
    blocks = [fit.summaries_ if hasattr(fit, "summaries_") else fit.clients_]
    memory = fit._learned.memory if hasattr(fit, "summaries_") else fit._memory
    parts = [x for block in blocks for x in vars(block).values()] + list(memory.values())
    arrays = [x for x in parts if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    found = {float(x) for array in arrays for x in array.ravel() if np.isfinite(x)}
    return found - {0.0, 1.0}


@every
def test_without_groups_a_file_has_nothing_of_one_group(name, fits, tmp_path):
    fit = fits(name)
    fit.save(tmp_path / "fit.json", groups=False)
    text = (tmp_path / "fit.json").read_text()
    assert "group-0" not in text
    # a rate of a half is also what noise of a private fit may leave: 10 of 300 fits have it
    by_chance = {0.5} if name == "BernoulliEB private" else set()
    assert not numbers_in(json.loads(text)) & own_figures(fit) - by_chance
    shapes = shapes_in(json.loads(text))
    assert shapes
    assert not any(M in shape for shape in shapes)


@every
def test_the_copy_of_a_server_comes_back(name, fits, tmp_path):
    public = fits(name).published()
    read, kind = again(public, tmp_path), EVERY[name][1]
    same(results(read, kind, groups=False), results(public, kind, groups=False))
    np.testing.assert_array_equal(view_of(read).sizes, view_of(public).sizes)
    pd.testing.assert_frame_equal(read.privacy_, public.privacy_)
    assert view_of(read).is_server


@private
def test_groups_of_a_private_fit_are_written_on_request_only(name, fits, tmp_path):
    fit = fits(name)
    with pytest.raises(ValueError, match="the figures of its groups are exact"):
        fit.save(tmp_path / "fit.json")
    assert not (tmp_path / "fit.json").exists()


@private
@pytest.mark.parametrize("seed", [None, 987_654_321])
def test_neither_keys_nor_the_seed_of_a_private_fit_are_written(name, seed, tmp_path, monkeypatch):
    keys, inner = [], rounds.noise_key

    def noise_key(random_state=None):
        keys.append(inner(random_state))
        return keys[-1]

    monkeypatch.setattr(rounds, "noise_key", noise_key)
    estimator, kind = PRIVATE[name]
    rows, options, once = given(kind)
    fit = clone(estimator).set_params(random_state=seed).fit(*rows, **options, **once)
    fit.keep_rows = True
    assert len(keys) == 1
    for groups in (True, False):
        fit.save(tmp_path / "fit.json", groups=groups)
        text = (tmp_path / "fit.json").read_text()
        assert str(seed or "random_state") not in text
        assert not any(str(part) in text for part in keys[0].tolist())
        read = eb.load_fit(tmp_path / "fit.json")
        assert read.random_state is None
        expected = fit if groups else fit.published()
        pd.testing.assert_frame_equal(read.privacy_, expected.privacy_)


# Learners -----------------------------------------------------------------------------------------

LEARNERS = sorted(
    name
    for name in learning.__all__
    if inspect.isclass(each := getattr(learning, name))
    and issubclass(each, learning.Learner)
    and not inspect.isabstract(each)
)
MLP = models.MLP(hidden=4)


def trained(name, model=None):
    cls = getattr(learning, name)
    privacy = (
        eb.ClientPrivacy(epsilon=8.0, delta=1e-5) if cls().protocol().requires_privacy else None
    )
    steps = {} if name in ("JointDPSGD", "PPSGD") else {"local_steps": 2, "batch_size": 4}
    steps |= {"personal": ["intercept"]} if name == "FedBN" else {}
    learner = cls(model, n_rounds=2, privacy=privacy, random_state=1, **steps)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "answer": CLASSES, "who": GROUPS})
    return learner.fit(frame, "answer", groups="who"), frame


@pytest.mark.filterwarnings("ignore")  # two rounds train nothing
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("groups", [True, False])
def test_a_learner_that_was_read_predicts_as_before(name, groups, tmp_path):
    fit, frame = trained(name, MLP if name in ("FedAvg", "AdaPeD") else None)
    fit.keep_rows = True
    fit.save(tmp_path / "fit.json", groups=groups)
    read = eb.load_fit(tmp_path / "fit.json")
    expected = fit if groups else fit.published()
    np.testing.assert_array_equal(read.parameters_, expected.parameters_)
    np.testing.assert_array_equal(read.classes_, expected.classes_)
    for part, values in expected.shared_.items():
        np.testing.assert_array_equal(read.shared_[part], values)
    new = frame.assign(who=np.where(GROUPS == "group-003", "unseen", GROUPS)).drop(columns="answer")
    for rows in (frame.drop(columns="answer"), new):
        wanted = expected.predict_proba(rows, groups="who")
        np.testing.assert_array_equal(read.predict_proba(rows, groups="who"), wanted)
        np.testing.assert_array_equal(
            read.predict(rows, groups="who"), expected.predict(rows, groups="who")
        )
    pd.testing.assert_frame_equal(read.history_, expected.history_)
    pd.testing.assert_frame_equal(read.privacy_, expected.privacy_)
    assert repr(read.model_) == repr(expected.model_)
    text = (tmp_path / "fit.json").read_text()
    assert repr(float(X[0, 0])) not in text, "no row is in a file"
    if groups:
        assert str(read.summary()) == str(expected.summary())
        pd.testing.assert_frame_equal(read.protocol().estimates(), expected.protocol().estimates())
        pd.testing.assert_frame_equal(read.tidy(), expected.tidy())
        again = tmp_path / "again.json"
        read.save(again)
        assert json.loads(again.read_text()) == json.loads(text)
    else:
        assert "group-003" not in text
        with pytest.raises(ValueError, match="without groups"):
            read.save(tmp_path / "again.json")


def test_parameters_of_a_private_learner_are_not_written_unasked(tmp_path):
    privacy = eb.ClientPrivacy(epsilon=8.0, delta=1e-5)
    fit = eb.learning.AdaPeD(n_rounds=2, privacy=privacy).fit(X, CLASSES, groups=GROUPS)
    with pytest.raises(ValueError, match="groups=False, or set keep_rows"):
        fit.save(tmp_path / "fit.json")
    fit.save(tmp_path / "fit.json", groups=False)
    assert not eb.load_fit(tmp_path / "fit.json").keep_rows


def test_a_regression_learner_keeps_its_numbers(tmp_path):
    fit = eb.learning.FedAvg(models.Linear(), n_rounds=3).fit(X, Y, groups=GROUPS)
    fit.save(tmp_path / "fit.json")
    predicted = eb.load_fit(tmp_path / "fit.json").predict(X, groups=GROUPS)
    np.testing.assert_array_equal(predicted, fit.predict(X, groups=GROUPS))


def test_torn_parameters_are_refused(tmp_path):
    path = tmp_path / "fit.json"
    eb.learning.LocalOnly(n_rounds=1).fit(X, CLASSES, groups=GROUPS).save(path)
    content = json.loads(path.read_text())
    for part in ("labels", "parameters", "n"):
        torn = json.loads(json.dumps(content))
        del torn["groups"][part]
        path.write_text(json.dumps(torn))
        if part == "labels":  # what is left is the copy of a server
            assert view_of(eb.load_fit(path)).is_server
            continue
        with pytest.raises(ValueError, match="is damaged"):
            eb.load_fit(path)


def test_modules_of_torch_and_learners_of_others_are_refused(tmp_path):
    class Own(eb.learning.FedAvg):
        pass

    fit = Own(n_rounds=1).fit(X, CLASSES, groups=GROUPS)
    with pytest.raises(TypeError, match="Own is a class of"):
        fit.save(tmp_path / "fit.json")
    torch = pytest.importorskip("torch")
    fit = eb.learning.FedAvg(models.Torch(torch.nn.Linear(2, 2)), n_rounds=1).fit(
        X, CLASSES, groups=GROUPS
    )
    with pytest.raises(TypeError, match="module of PyTorch is code"):
        fit.save(tmp_path / "fit.json")
