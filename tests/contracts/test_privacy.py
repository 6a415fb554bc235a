"""The privacy contract of every channel: the largest ratio of the probabilities of a report.

That of the stated law, of the law that simulations draw from, and of the law that is drawn with the
randomness of the operating system. The last two are computed, not sampled: a channel's code runs
once for each outcome of its draws, whose probabilities are multiplied.
"""

import itertools
import secrets
from collections import defaultdict

import numpy as np
import pytest

from ebfed import Summary, families
from ebfed.channels import (
    Hybrid,
    Laplace,
    OneBit,
    Piecewise,
    RandomizedCategory,
    RandomizedResponse,
    TwoBit,
    UnaryEncoding,
    levels,
    one_bit,
    piecewise,
    randomized_category,
    randomized_response,
    secure,
    two_bit,
    unary_encoding,
)
from ebfed.channels.private import has_epsilon, registered
from ebfed.likelihoods import multinomial

UNIT = (-1.0, 1.0)
PURE = {
    "Hybrid": lambda epsilon: Hybrid(epsilon, UNIT),
    "Laplace": lambda epsilon: Laplace(epsilon, UNIT),
    "OneBit": lambda epsilon: OneBit(epsilon, UNIT),
    "Piecewise": lambda epsilon: Piecewise(epsilon, UNIT),
    "RandomizedResponse": lambda epsilon: RandomizedResponse(epsilon, UNIT, levels=3),
    "TwoBit": lambda epsilon: TwoBit(epsilon, 0.3, UNIT),
    "UnaryEncoding": lambda epsilon: UnaryEncoding(epsilon, UNIT, levels=3),
}
EPSILONS = [0.2, 1.0, 4.0]
VALUES = np.array([-1.0, -0.4, 0.0, 0.7, 1.0])
STRATA = (np.arange(400) + 0.5) / 400
FEW = STRATA[4::10]


def excess(channel, epsilon, law, values=VALUES):
    """Largest log ratio of probabilities of a report, over epsilon, less one."""
    tables = [law(channel, value) for value in values]
    reports = set().union(*tables)
    ratios = [
        max(table.get(report, 0.0) for table in tables)
        / max(min(table.get(report, 0.0) for table in tables), 1e-300)
        for report in reports
    ]
    return np.log(max(ratios)) / epsilon - 1


def every_path(run):
    """Outcomes of a function of draws, with their probabilities.

    ``run(choose)`` calls ``choose(probabilities)`` for the number of an outcome.
    """
    found, open_ = defaultdict(float), [[]]
    while open_:
        path, chance, place = open_.pop(), 1.0, 0

        def choose(probabilities, path=path):
            nonlocal chance, place
            if place == len(path):
                open_.extend([*path, k] for k in range(1, len(probabilities)))
                path.append(0)
            k, place = path[place], place + 1
            chance *= probabilities[k]
            return k

        outcome = run(choose)
        found[outcome] += chance
    return {outcome: chance for outcome, chance in found.items() if chance > 0}


class Choices:
    """Stands for a `Stream` of one client: bits are chosen, and uniforms are in the strata."""

    def __init__(self, choose):
        self.choose = choose

    def bernoulli(self, probabilities):
        p = np.asarray(probabilities, float)
        bits = [self.choose([1 - each, each]) == 1 for each in p.ravel()]
        return np.array(bits, bool).reshape(p.shape)

    def uniforms(self, n_clients, stride=1):
        picked = [self.choose([1 / len(FEW)] * len(FEW)) for _ in range(n_clients * stride)]
        return FEW[picked].reshape(n_clients, stride)


def drawn(channel, value):
    """Law of reports that a simulation draws, finite ones."""
    law, size = channel._law(1), np.zeros(1, int)

    def run(choose):
        return int(law.draw(np.array([[value]]), size, Choices(choose)).item())

    return every_path(run)


def stated(channel, value, reports=None):
    law = channel._law(1)
    reports = law.outcomes(0)[0] if reports is None else reports
    density = law.density(reports, np.array([value]), np.zeros(len(reports), int))[:, 0]
    return dict(zip(reports.tolist(), density.tolist(), strict=True))


def really_drawn(monkeypatch):
    """Law of reports from the operating system's randomness, at both ends of the range.

    There nothing is rounded at random. A cell of a window is one of equally likely ones, of which
    only the first is drawn.
    """

    def law(channel, value):
        own = channel._law(1)

        def run(choose):
            many = []

            def answer(bit, epsilon):
                truth = 1 / (1 + np.exp(-epsilon))
                return bool(bit) == (choose([truth, 1 - truth]) == 0)

            def pick(value, count, truth):
                others = [(1 - truth) / (count - 1)] * count
                others[value] = truth
                return choose(others)

            def below(n):
                many.append(n)
                return 0

            class Ends:
                def random(self):
                    return (1e-12, 1 - 1e-12)[choose([0.5, 0.5])]

            monkeypatch.setattr(secure, "answer", answer)
            monkeypatch.setattr(secure, "choose", pick)
            monkeypatch.setattr(secrets, "randbelow", below)
            monkeypatch.setattr(secrets, "randbits", lambda bits: choose([0.5, 0.5]))
            for module in (levels, one_bit, two_bit, piecewise):
                monkeypatch.setattr(module, "SystemRandom", Ends, raising=False)
            report = own.secure(float(value), 0)
            return float(report), *many

        return every_path(run)

    return law


# Every channel --------------------------------------------------------------------------------


def test_every_channel_with_epsilon_is_here():
    here = {*PURE, "Gaussian", "DiscreteGaussian", "RandomizedCategory"}
    assert {name for name, each in registered().items() if has_epsilon(each)} == here


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", PURE)
def test_stated_law(name, epsilon):
    """It keeps epsilon, and uses it up."""
    channel = PURE[name](epsilon)
    assert channel.guarantee(1) == (epsilon, 0.0)
    assert abs(excess(channel, epsilon, stated)) < 1e-6


FINITE = ["OneBit", "TwoBit", "UnaryEncoding"]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", FINITE)
def test_bits_are_drawn_from_the_stated_law(name, epsilon):
    channel = PURE[name](epsilon)
    assert abs(excess(channel, epsilon, drawn)) < 1e-6
    for value in VALUES:
        found, said = drawn(channel, value), stated(channel, value)
        assert found.keys() <= said.keys()
        for report, chance in said.items():
            assert found.get(report, 0.0) == pytest.approx(chance, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_levels_are_drawn_from_the_stated_law(epsilon):
    """Another level is any of the others, as the strata are cut evenly between these."""
    channel = PURE["RandomizedResponse"](epsilon)
    assert abs(excess(channel, epsilon, drawn)) < 1e-6


def numbers_drawn(law, value, chosen=()):
    """Numbers that uniforms are turned into, with the density that this gives them."""
    u = np.full((len(STRATA), 1), value)
    sizes, width = np.zeros(len(u), int), 1e-7

    class Moved:
        def __init__(self, by):
            self.by, self.bits = by, iter(chosen)

        def uniforms(self, n_clients, stride=1):
            return STRATA[:, None] + self.by

        def bernoulli(self, probabilities):
            return np.full(np.shape(probabilities), next(self.bits))

    low, high = (law.draw(u, sizes, Moved(by))[:, 0] for by in (-width, width))
    smooth = (high > low) & (high - low < 1e-3)
    return (low + high)[smooth] / 2, 2 * width / (high - low)[smooth]


@pytest.mark.parametrize("epsilon", [1.0, 4.0])  # with less, Hybrid is one bit
@pytest.mark.parametrize("name", ["Laplace", "Piecewise", "Hybrid"])
def test_numbers_are_drawn_from_the_stated_law(name, epsilon):
    """Density by the slope of what a uniform is turned into."""
    law, share, chosen = PURE[name](epsilon)._law(1), 1.0, ()
    if hasattr(law, "share"):
        share, chosen = law.share, (True, True)  # a window is kept, whatever the coin is
    for value in VALUES:
        reports, density = numbers_drawn(law, value, chosen)
        assert len(reports) > 0.95 * len(STRATA)
        said = law.density(reports, np.array([value]), np.zeros(len(reports), int))[:, 0]
        np.testing.assert_allclose(share * density, said, rtol=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", sorted({*PURE} - {"Laplace"}))
def test_reports_of_the_operating_system(name, epsilon, monkeypatch):
    """A number is in one of 2**40 cells, of which a window has no fewer than its width."""
    law = really_drawn(monkeypatch)
    tables = [law(PURE[name](epsilon), value) for value in (-1.0, 1.0)]
    cells = [p / many[0] for table in tables for (_, *many), p in table.items() if many]
    if cells:
        assert -1e-6 < np.log(max(cells) / min(cells)) / epsilon - 1 < 1e-9
    if name != "Piecewise":
        plain = [{r: p for (r, *many), p in table.items() if not many} for table in tables]
        assert abs(excess(plain, epsilon, lambda tables, k: tables[k], (0, 1))) < 1e-9


def test_noise_of_the_operating_system(monkeypatch):
    scales = []
    monkeypatch.setattr(secure, "laplace", lambda value, scale: scales.append(scale) or value)
    for epsilon in EPSILONS:
        PURE["Laplace"](epsilon)._law(1).secure(0.3, 0)
    np.testing.assert_allclose(2 / np.array(scales), EPSILONS, rtol=1e-12)


# Categories -----------------------------------------------------------------------------------


def category_channel(epsilon, answers=1, compare=0.0):
    return RandomizedCategory(epsilon, answers=answers, compare=compare)


def of_category(channel, j, n, k=3):
    """Probabilities of reports of a client with n answers, all of category j."""
    figures = np.zeros((1, k))
    figures[0, j] = 1.0
    report = np.array(list(itertools.product(range(n + 1), repeat=k + 2)))
    asked, compared = report[:, :k].sum(axis=1), report[:, k:].sum(axis=1)
    report = report[((asked == n) & (compared == 0)) | ((asked == 0) & (compared == 1))]
    report = report if channel.compare else report[report[:, k:].sum(axis=1) == 0]
    sizes = np.full(len(report), n)
    said = channel.likelihood({"n": sizes, "report": report}, families.Categorical(k))
    chances = np.exp(said.logpdf(figures)[:, 0])
    return {tuple(each): p for each, p in zip(report.tolist(), chances, strict=True) if p > 0}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("answers", [1, 2])
def test_stated_law_of_categories(epsilon, answers):
    channel = category_channel(epsilon, answers)
    found = excess(channel, epsilon, lambda channel, j: of_category(channel, j, answers), (0, 1, 2))
    assert abs(found) < 1e-9


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("answers", [1, 2])
def test_categories_are_drawn_from_the_stated_law(epsilon, answers):
    """Draws fill their range evenly, so that shares of reports are probabilities to .002."""
    n = 30_000
    channel = category_channel(epsilon, answers)

    class Even(randomized_category.Stream):
        def __init__(self):
            self.calls = 0

        def bernoulli(self, probabilities):
            return np.zeros(np.shape(probabilities), bool)

        def uniforms(self, n_clients, stride=1):
            self.calls += 1
            roots = np.array([[0.5, 2**0.5, 3**0.5], [0.5, 5**0.5, 7**0.5]])[self.calls - 1]
            return (0.5 + np.outer(np.arange(n_clients), roots)) % 1

    means = np.zeros((n, 3))
    means[:, 1] = 1.0
    sizes = np.full(n, answers)
    clients = Summary(np.arange(n), sizes, means, np.zeros((n, 3)))
    report = channel.encode(clients, Even())["report"]
    for each, chance in of_category(channel, 1, answers).items():
        assert np.mean((report == each).all(axis=1)) == pytest.approx(chance, abs=2e-3)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_categories_of_the_operating_system(epsilon, monkeypatch):
    """Answers share epsilon evenly; a comparison has all of it."""
    truths, bits = [], []
    monkeypatch.setattr(
        secure, "choose", lambda value, count, truth: truths.append((count, truth)) or value
    )
    monkeypatch.setattr(secure, "answer", lambda bit, spent: bits.append(spent) or bit)
    randomized_category._secure(np.array([2, 1, 0]), 2, 0.0, epsilon)
    randomized_category._secure(np.array([2, 1, 0]), 2, 1.0, epsilon)
    (count, truth), _ = truths
    assert count == 3
    assert 2 * np.log(truth * 2 / (1 - truth)) == pytest.approx(epsilon, rel=1e-9)
    assert bits == [epsilon]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_stated_law_of_comparisons(epsilon):
    """Answers that are alike, and answers that are not, by shares of one half each."""
    channel = category_channel(epsilon, 2, 0.5)
    report = np.array([[0, 0, 1, 0], [0, 0, 0, 1]])
    said = channel.likelihood({"n": np.full(2, 2), "report": report}, families.Categorical(2))
    alike, both = np.exp(said.logpdf(np.array([[1.0, 0.0], [0.5, 0.5]]))).T
    ratios = np.abs(np.log(alike / (2 * both - alike)))
    np.testing.assert_allclose(ratios, epsilon, rtol=1e-9)


# A change of one term is noticed --------------------------------------------------------------


def more(function, by=1.02):
    """Odds of a function of epsilon as if that were larger."""
    return lambda epsilon, *others: function(by * epsilon, *others)


FAULTS = {
    "Coin.slope": (one_bit.Coin, "slope", property(lambda self: np.tanh(0.51 * self.epsilon))),
    "TwoQuestions.slope": (
        two_bit.TwoQuestions,
        "slope",
        property(lambda self: np.tanh(0.51 * self.epsilon)),
    ),
    "one_bit.odds": (one_bit, "odds", more(one_bit.odds)),
    "two_bit.odds": (two_bit, "odds", more(two_bit.odds)),
    "piecewise.odds": (piecewise, "odds", more(piecewise.odds)),
    "unary_encoding.odds": (unary_encoding, "odds", more(unary_encoding.odds)),
    "Window.width": (
        piecewise.Window,
        "width",
        property(lambda self: 2 / np.expm1(0.51 * self.epsilon)),
    ),
    "WindowOrCoin.coin": (
        piecewise.WindowOrCoin,
        "coin",
        property(lambda self: one_bit.Coin(1.02 * self.epsilon)),
    ),
    "Truth._other": (
        randomized_response.Truth,
        "_other",
        lambda self, count: 1 / (np.exp(1.02 * self.epsilon) + count - 1),
    ),
    "multinomial.truths": (
        multinomial,
        "truths",
        more(multinomial.truths),
    ),
    "randomized_category.truths": (
        randomized_category,
        "truths",
        more(randomized_category.truths),
    ),
}


def faults_are_found():
    """Run the tests above on all channels, and return whether one fails."""
    epsilon = 1.0
    runs = [lambda name=name: test_stated_law(name, epsilon) for name in PURE]
    runs += [
        lambda name=name: test_bits_are_drawn_from_the_stated_law(name, epsilon) for name in FINITE
    ]
    runs += [lambda: test_levels_are_drawn_from_the_stated_law(epsilon)]
    runs += [
        lambda name=name: test_numbers_are_drawn_from_the_stated_law(name, epsilon)
        for name in ("Laplace", "Piecewise", "Hybrid")
    ]
    runs += [lambda: test_stated_law_of_categories(epsilon, 1)]
    runs += [lambda: test_categories_are_drawn_from_the_stated_law(epsilon, 1)]
    for run in runs:
        try:
            run()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS)
def test_a_change_of_one_term_is_noticed(fault, monkeypatch):
    monkeypatch.setattr(*FAULTS[fault])
    assert faults_are_found()
