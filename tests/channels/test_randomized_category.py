"""Randomised categories: the exact law of a report, its privacy, and fits to it."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.base import clone

import ebfed as eb
from ebfed.channels import Exact, OneBit, RandomizedCategory
from ebfed.families import Binomial, Categorical
from ebfed.likelihoods import Joined, Multinomial, ReportedCategories
from ebfed.priors.dirichlet import Reports
from ebfed.testing.nodes import fit_on_two_nodes

CHANNELS = [
    RandomizedCategory(1.0),
    RandomizedCategory(2.0, answers=2),
    RandomizedCategory(1.5, answers=3, compare=0.0),
    RandomizedCategory(0.7, answers=1, compare=0.0),
]


def law(channel, rows, k):
    """Probability of each report of a client with these answers, from the words of the channel."""
    epsilon, answers, compare = channel.epsilon, channel.answers, channel.compare
    compare = compare if len(rows) > 1 else 0.0
    m = min(len(rows), answers)
    found = {}

    def add(report, chance):
        found[tuple(report)] = found.get(tuple(report), 0.0) + chance

    draws = list(itertools.permutations(rows, m))
    odds = math.exp(epsilon / m)
    for drawn in draws:
        for shown in itertools.product(range(k), repeat=m):
            same = sum(a == b for a, b in zip(drawn, shown, strict=True))
            chance = odds**same / (odds + k - 1) ** m
            report = [shown.count(j) for j in range(k)] + [0, 0]
            add(report, (1 - compare) * chance / len(draws))
    pairs = list(itertools.permutations(rows, 2)) if compare else []
    for one, other in pairs:
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        for alike in (0, 1):
            chance = truth if alike == (one == other) else 1 - truth
            add([0] * k + [1 - alike, alike], compare * chance / len(pairs))
    return found


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_reports_have_the_stated_law(channel, n):
    """200,000 reports; five standard errors of each frequency."""
    rows = [0, 1, 1, 2][:n]
    counts = np.bincount(rows, minlength=3).astype(float)
    clients = Categorical(3).summarise(np.tile(counts, (200_000, 1)), None)
    reports, seen = np.unique(channel.encode(clients, 0)["report"], axis=0, return_counts=True)
    expected = law(channel, rows, 3)
    assert {tuple(row) for row in reports.tolist()} <= expected.keys()
    for report, times in zip(reports.tolist(), seen, strict=True):
        chance = expected[tuple(report)]
        assert abs(times / 2e5 - chance) < 5 * math.sqrt(chance * (1 - chance) / 2e5)


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_epsilon_is_that_of_all_answers_together(channel):
    """Over all data sets of three answers; the largest ratio is e**epsilon."""
    largest = 0.0
    laws = [law(channel, rows, 3) for rows in itertools.combinations_with_replacement(range(3), 3)]
    for one, other in itertools.permutations(laws, 2):
        assert one.keys() == other.keys()
        largest = max(largest, *(math.log(one[report] / other[report]) for report in one))
    assert largest == pytest.approx(channel.guarantee(3)[0], rel=1e-9)


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_one_answer_is_protected_with_its_part_of_epsilon(channel):
    """Data sets that differ in one of three answers: epsilon / m if only answers are sent."""
    largest = 0.0
    for rest in itertools.combinations_with_replacement(range(3), 2):
        laws = [law(channel, [*rest, own], 3) for own in range(3)]
        for one, other in itertools.permutations(laws, 2):
            largest = max(largest, *(math.log(one[report] / other[report]) for report in one))
    assert largest <= channel.epsilon + 1e-9
    if channel.compare == 0:
        assert largest <= channel.epsilon / channel.answers + 1e-9


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_probabilities_over_a_population(channel):
    """They add up to 1, are averages over draws (five standard errors), and have their slopes."""
    k, alpha = 3, np.array([1.0, 2.0, 0.5])
    rows = np.array([list(report) for report in law(channel, [0, 1, 2, 2], k)])
    said = ReportedCategories(
        rows, np.full(len(rows), 4), channel.epsilon, channel.answers, channel.compare
    )
    mean, correlation = alpha / alpha.sum(), 1 / (1 + alpha.sum())
    value, by_mean, by_correlation = said.dirichlet_scores(mean, correlation)
    assert np.exp(value).sum() == pytest.approx(1.0, rel=1e-12)
    chance = np.exp(said.logpdf(np.random.default_rng(0).dirichlet(alpha, 20_000)))
    np.testing.assert_allclose(chance.sum(axis=0), 1.0, rtol=1e-12)
    error = chance.std(axis=1) / np.sqrt(20_000)
    assert np.all(np.abs(chance.mean(axis=1) - np.exp(value)) < 5 * error + 1e-12)
    slopes = approx_fprime(
        np.append(mean, correlation), lambda x: said.dirichlet_scores(x[:-1], x[-1])[0], 1e-7
    )
    np.testing.assert_allclose(slopes[:, :-1], by_mean, atol=1e-5)
    np.testing.assert_allclose(slopes[:, -1], by_correlation, atol=1e-5)
    best = said.log_peak()
    np.testing.assert_allclose(best, np.diag(said.logpdf(said.local)), rtol=1e-12)
    assert np.all(np.log(chance).max(axis=1) <= best + 1e-12)
    table, times = said.take(np.arange(len(rows)).repeat(2)).compress()
    assert len(table) == len(rows)
    assert np.all(times == 2)


def test_a_certain_channel_is_the_counts():
    """With all answers and certain odds, reports are counts, and so are likelihoods and fits."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(np.full(400, 5), rng.dirichlet([3, 2, 1], 400))
    channel = RandomizedCategory(1e9, answers=5, compare=0.0)
    clients = Categorical(3).summarise(counts.astype(float), None)
    message = channel.encode(clients, 0)
    np.testing.assert_array_equal(message["report"], np.pad(counts, ((0, 0), (0, 2))))
    said = channel.likelihood(message, Categorical(3))
    mean = np.array([0.5, 0.3, 0.2])
    for one, own in zip(
        said.dirichlet_scores(mean, 0.2),
        Multinomial(counts).dirichlet_scores(mean, 0.2),
        strict=True,
    ):
        np.testing.assert_allclose(one, own, rtol=1e-9, atol=1e-9)
    fit, exact = (eb.priors.Dirichlet().fit(x) for x in (said, Multinomial(counts)))
    np.testing.assert_allclose(fit.alpha_, exact.alpha_, rtol=1e-4)


def draw(alpha, n, m, seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(alpha, m)
    return shares, rng.multinomial(np.full(m, n), shares)


@pytest.mark.parametrize(
    ("alpha", "channel"),
    [
        ([3.0, 2.0, 1.0], RandomizedCategory(4.0)),
        ([0.6, 0.3, 0.1], RandomizedCategory(1.0)),
        ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], RandomizedCategory(4.0)),
        ([3.0, 2.0, 1.0], RandomizedCategory(8.0, answers=4, compare=0.0)),
    ],
)
def test_risk_is_near_the_oracle(alpha, channel):
    """10,000 clients: within 1 % of who knows the population; own shares are 70 % worse or more."""
    shares, counts = draw(alpha, 8, 10_000, 3)
    fit = eb.CategoricalEB(channel=channel, random_state=0).fit(counts)
    total = 8 + np.sum(alpha)
    oracle = np.mean(((counts + np.array(alpha)) / total - shares) ** 2)
    assert np.mean((fit.predict() - shares) ** 2) < 1.01 * oracle
    lower, upper = fit.posterior().interval(0.95)
    assert 0.93 < np.mean((lower <= shares) & (shares <= upper)) < 0.965


def test_comparing_answers_finds_the_spread():
    """At a small epsilon, half of the clients that compare show it better than two answers each."""
    errors = {}
    for channel in (RandomizedCategory(1.0), RandomizedCategory(1.0, answers=2, compare=0.0)):
        found = []
        for seed in range(8):
            _, counts = draw([3.0, 2.0, 1.0], 8, 5000, seed)
            prior = eb.CategoricalEB(channel=channel, random_state=seed).fit(counts).prior_
            found.append(1 / (1 + prior.concentration_) - 1 / 7)
        errors[channel.answers] = np.sqrt(np.mean(np.square(found)))
    assert errors[1] < 0.5 * errors[2]


@pytest.mark.parametrize("channel", [RandomizedCategory(2.0), RandomizedCategory(6.0, answers=2)])
def test_standard_errors_of_the_population(channel):
    """Over 100 fits to 2,000 clients, a quarter of how much fits scatter (its error is 7 %)."""
    found, stated = [], []
    for seed in range(100):
        _, counts = draw([3.0, 2.0, 1.0], 8, 2000, 1000 + seed)
        clients = Categorical(3).summarise(counts.astype(float), None)
        said = channel.likelihood(channel.encode(clients, seed), Categorical(3))
        reports = Reports.of(said)
        best = reports.maximise()
        found.append(np.append(*best))
        stated.append(np.sqrt(np.diag(reports.covariance(*best))))
    np.testing.assert_allclose(np.mean(stated, axis=0), np.std(found, axis=0), rtol=0.25)
    assert np.abs(np.mean(found, axis=0) - [3 / 6, 2 / 6, 1 / 6, 1 / 7]).max() < 0.02


def test_opting_out_joins_counts_and_reports():
    _, counts = draw([3.0, 2.0, 1.0], 6, 3000, 5)
    consent = np.where(np.arange(3000) % 3 == 0, "open", "private")
    channels = {"private": RandomizedCategory(1.0), "open": Exact()}
    fit = eb.CategoricalEB(channel=channels, random_state=0).fit(
        counts, groups=np.arange(3000), consent=consent
    )
    alone = eb.CategoricalEB().fit(counts[::3])
    assert fit.privacy_["epsilon"].tolist() == [1.0, math.inf]
    assert fit.prior_.mean_error().max() < alone.prior_.mean_error().max()
    np.testing.assert_allclose(fit.prior_.mean_, [1 / 2, 1 / 3, 1 / 6], atol=0.02)
    parts = (
        Multinomial(counts[:2]),
        ReportedCategories(np.array([[1, 0, 0, 0, 0]]), np.array([4]), 1.0, 1, 0.5),
    )
    joined = Joined(parts)
    assert joined.adds_up
    assert len(eb.priors.Dirichlet([3, 2, 1]).fit(joined).log_marginal(joined)) == 3


@pytest.mark.parametrize("channel", [RandomizedCategory(2.0), RandomizedCategory(6.0, answers=3)])
def test_nodes_and_blocks_give_the_same_fit(channel):
    _, counts = draw([3.0, 2.0, 1.0], 6, 60, 7)
    fit = eb.CategoricalEB(channel=channel, random_state=0).fit(counts, groups=np.arange(60))
    blocks = eb.CategoricalEB(channel=channel, random_state=0, engine=eb.engines.Local(7))
    np.testing.assert_array_equal(blocks.fit(counts).predict(), fit.predict())
    nodes = fit_on_two_nodes(clone(fit), counts, np.arange(60))
    apart = np.concatenate([node.predict() for node in nodes])
    np.testing.assert_array_equal(apart, fit.predict())


def test_the_ledger_and_bits():
    _, counts = draw([3.0, 2.0, 1.0], 6, 50, 5)
    fit = eb.CategoricalEB(channel=RandomizedCategory(1.0), random_state=0).fit(counts)
    (row,) = fit.privacy_.to_dict("records")
    assert (row["epsilon"], row["delta"], row["clients"]) == (1.0, 0.0, 50)
    assert row["relation"] == "any two data sets of one client"
    assert row["bits"] == 50 * 3  # three categories, and two answers to the other question
    assert "RandomizedCategory" in str(fit.summary())


def test_one_answer_of_each_client():
    """Nothing shows the spread then: it is said, before anything is sent where it is known."""
    _, counts = draw([3.0, 2.0, 1.0], 1, 500, 6)
    with pytest.warns(eb.priors.IdentificationWarning, match="two answers"):
        fit = eb.CategoricalEB(channel=RandomizedCategory(3.0), random_state=0).fit(counts)
    assert fit.prior_.variance_.max() == 0
    with pytest.raises(ValueError, match="nothing about the spread"):
        eb.CategoricalEB(channel=RandomizedCategory(3.0, compare=0)).fit(counts)
    empty = np.zeros((4, 3))
    with pytest.warns(eb.priors.IdentificationWarning, match="No client has data"):
        eb.CategoricalEB(channel=RandomizedCategory(3.0)).fit(empty)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"answers": 0}, "answers"),
        ({"answers": 65}, "at most 64"),
        ({"answers": 1.5}, "answers"),
        ({"compare": 1.0}, "compare must be from 0 to below 1"),
        ({"compare": math.nan}, "compare"),
        ({"compare": True}, "compare"),
    ],
)
def test_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        eb.CategoricalEB(channel=RandomizedCategory(**{"epsilon": 1.0} | arguments)).fit(
            [[2, 3], [1, 0]]
        )


def test_other_rows_and_reports_are_refused():
    with pytest.raises(ValueError, match="for categories, as CategoricalEB has"):
        eb.BernoulliEB(channel=RandomizedCategory(1.0)).fit([0, 1, 1])
    with pytest.raises(ValueError, match=r"RandomizedCategory\(\)"):
        eb.CategoricalEB(channel=OneBit(1.0)).fit(["a", "b"])
    rates = eb.Summary.from_counts([1, 2], [3, 3])
    with pytest.raises(ValueError, match="shares of two categories or more"):
        RandomizedCategory(1.0).encode(rates)
    with pytest.raises(TypeError, match="rows are binomial"):
        RandomizedCategory(1.0).likelihood({"n": np.array([1]), "report": np.eye(4)}, Binomial())
    for report in ([2, 0, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [-1, 2, 0, 0], [0, 0, 0, 0]):
        with pytest.raises(ValueError, match="one of the reports"):
            RandomizedCategory(1.0).decode({"n": np.array([5]), "report": np.array([report])})
