"""Whether estimates depend on their precision."""

import numpy as np
import pytest

import ebfed as eb
from ebfed.location import dependence


def estimates(n, seed, mean=0.0, power=0.0):
    rng = np.random.default_rng(seed)
    log_error = rng.normal(-0.7, 0.5, n)
    spread = 0.3 * np.exp(power * (log_error + 0.7))
    theta = mean * log_error + spread * rng.standard_normal(n)
    error = np.exp(log_error)
    return theta + error * rng.standard_normal(n), error


def test_a_fit_of_dependent_estimates_says_so():
    x, error = estimates(1000, 0, mean=0.6)
    posterior = eb.posterior_from(x, error)
    assert any("mean of the population depends on the precision" in n for n in posterior.notes)
    modelled = eb.posterior_from(x, error, mean="~ log(se)", spread="~ log(se)")
    assert modelled.notes == []
    x, error = estimates(2000, 0, power=0.8)
    assert any("The spread of" in n for n in eb.posterior_from(x, error, "npmle").notes)
    x, error = estimates(2000, 0)
    assert eb.posterior_from(x, error).notes == []


def test_the_picture_has_the_modelled_band():
    x, error = estimates(300, 1, mean=0.6, power=0.8)
    posterior = eb.posterior_from(x, error, mean="~ log(se)", spread="~ log(se)")
    found = dependence(posterior)
    mean, sd = found.band
    order = np.argsort(error)
    assert (np.diff(mean[order]) > 0).all()
    assert sd.std() > 0
    assert found.plot(ax=eb.report.new_axes()[0]).get_xscale() == "log"
    assert str(found).startswith("Dependence of estimates")
    one = dependence(eb.posterior_from(x, error))
    assert np.ptp(one.band[0]) == 0
    assert one.to_frame().p_value.tolist() == found.to_frame().p_value.tolist()


def test_groups_of_rows_have_a_precision_too():
    rng = np.random.default_rng(2)
    sizes = rng.integers(2, 60, 300)
    groups = np.repeat(np.arange(300), sizes)
    theta = 0.5 * np.log(sizes) + 0.2 * rng.standard_normal(300)
    fit = eb.GaussianEB().fit(theta[groups] + rng.standard_normal(len(groups)), groups=groups)
    assert dependence(fit).mean.p_value < 1e-6
    assert any("depends on the precision" in note for note in fit.notes_)


def test_what_is_refused():
    with pytest.raises(TypeError, match="fit must be a posterior"):
        dependence(3)
    with pytest.raises(ValueError, match="must have positive standard errors that differ"):
        dependence(eb.posterior_from(np.arange(20.0), np.ones(20)))


@pytest.mark.slow
def test_level_and_power():
    def rejected(**setting):
        tests = []
        for seed in range(400):
            found = dependence(eb.posterior_from(*estimates(2000, seed, **setting)))
            tests.append((found.mean.p_value < 0.05, found.spread.p_value < 0.05))
        return np.mean(tests, axis=0)

    # the standard error of a level is .011
    level = rejected()
    assert ((level > 0.025) & (level < 0.075)).all()
    assert rejected(mean=0.15)[0] > 0.9
    assert rejected(power=0.8)[1] > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "prior"), [(400, "normal"), (400, "npmle"), (120, "npmle")])
def test_intervals_cover_where_the_spread_is_hardly_seen(n, prior):
    covered, widths = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        error = np.exp(rng.normal(-0.7, 0.5, n))
        spread = 0.35 * error**0.8
        theta = 0.6 * np.log(error) + spread * rng.standard_normal(n)
        x = theta + error * rng.standard_normal(n)
        modelled = eb.posterior_from(x, error, prior, mean="~ log(se)", spread="~ log(se)")
        lower, upper = (ends[:, 0] for ends in modelled.interval())
        covered.append(((lower <= theta) & (theta <= upper)).mean())
        widths.append((upper - lower).mean() / (3.92 / np.sqrt(error**-2 + spread**-2)).mean())
    assert 0.93 < np.mean(covered) < 0.985  # with a prior that is flat in one spread .91 and .89
    assert np.max(widths) < 4  # slopes of a spread that is hardly seen went astray: hundreds
