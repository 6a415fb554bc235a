"""Print, at the end of a run, each workload beside its peers: times, ratios, spread, growth."""

import pytest
from record import growth

LINE = "{:<37}{:<36}{:>11}{:>11}{:>8}{:>16}  {}".format


def _time(seconds):
    return f"{seconds:.2f} s " if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def spread(ours, theirs):
    """Ratios of the lower and upper quartiles of our rounds to the peer's median."""
    return ours.q1 / theirs.median, ours.q3 / theirs.median


@pytest.hookimpl(wrapper=True)  # runs before the plugin's own
def pytest_sessionfinish(session):
    """Leave out contests with packages that are not installed: they are skipped, without times."""
    started = getattr(session.config, "_benchmarksession", None)
    if started:
        started.benchmarks[:] = [each for each in started.benchmarks if each.stats.data]
    return (yield)


def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    benchmarks = [each for each in session.benchmarks if not each.has_error] if session else []
    if not benchmarks:
        return
    workloads = {}
    for benchmark in benchmarks:
        workloads.setdefault(benchmark.group, []).append(benchmark)
    write = terminalreporter.write_line
    terminalreporter.section("ratios: our time over theirs, and its quartiles")
    write(LINE("workload", "peer", "ours", "theirs", "ratio", "quartiles", "target"))
    for workload, (first, *others) in workloads.items():
        statistic = first.extra_info["statistic"]
        ours = getattr(first.stats, statistic)
        if not others:
            write(LINE(workload, first.extra_info["contender"], _time(ours), "", "", "", ""))
        for other in others:
            theirs, target = getattr(other.stats, statistic), other.extra_info["target"]
            ratio = ours / theirs
            low, high = spread(first.stats, other.stats)
            aim = "" if target is None else f"<= {target:g}" + " MISSED" * (ratio > target)
            quartiles = f"{low:.3g} to {high:.3g}"
            peer = other.extra_info["contender"]
            write(LINE(workload, peer, _time(ours), _time(theirs), f"{ratio:.3g}", quartiles, aim))
    terminalreporter.section("growth: time of the larger over time of the smaller")
    timed = [
        (each.extra_info, getattr(each.stats, each.extra_info["statistic"])) for each in benchmarks
    ]
    for each in growth(timed):
        size, larger = each["sizes"]
        line = f"{each['name']:<37}{each['contender']:<36}{size:>10,} to {larger:>9,}"
        write(f"{line}{each['factor']:>9.3g}")
