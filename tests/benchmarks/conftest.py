"""Print, at the end of a run, every workload beside its peers: ours, theirs, and the ratio."""


def _time(seconds):
    return f"{seconds:.2f} s " if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    workloads = {}
    for benchmark in session.benchmarks if session else ():
        if not benchmark.has_error:
            figure = getattr(benchmark.stats, benchmark.extra_info["statistic"])
            contender = (benchmark.extra_info["contender"], benchmark.extra_info["target"], figure)
            workloads.setdefault(benchmark.group, []).append(contender)
    if not workloads:
        return
    terminalreporter.section("ratios: our time over theirs")
    line = "{:<36}{:<36}{:>11}{:>11}{:>8}  {}".format
    terminalreporter.write_line(line("workload", "peer", "ours", "theirs", "ratio", "target"))
    for workload, (ours, *peers) in workloads.items():
        for peer, target, theirs in peers:
            ratio = ours[2] / theirs
            aim = "" if target is None else f"<= {target:g}" + " MISSED" * (ratio > target)
            terminalreporter.write_line(
                line(workload, peer, _time(ours[2]), _time(theirs), f"{ratio:.3g}", aim)
            )
