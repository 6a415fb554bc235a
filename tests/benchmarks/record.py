"""Keep what a page needs of a run of the benchmarks, and a line of its history.

pytest -o addopts= tests/benchmarks --benchmark-json=run.json
python tests/benchmarks/record.py run.json

Names, times, ratios and growth go to ``results.json``, in place of what an earlier run of the same
files left there; other files keep theirs if they ran on the same machine. The line of
``history.jsonl`` has the commit, the machine and every ratio: ratios of one machine may be compared
between commits.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
R = pd.read_csv(HERE.parent / "reference" / "npmle.csv").set_index(["prior", "quantity"])["value"]


def figures(benchmark):
    """One contender: its name, and the time that counts, as conftest.py prints it."""
    extra = benchmark["extra_info"]
    time = benchmark["stats"][extra["statistic"]]
    return {"name": extra["contender"], "seconds": time, "statistic": extra["statistic"]}


def workloads(benchmarks):
    """Group contenders by workload, ours being the first, and divide ours by each peer's."""
    groups = {}
    for benchmark in benchmarks:
        groups.setdefault(benchmark["group"], []).append(benchmark)
    for name, (first, *others) in groups.items():
        ours = figures(first) | {"median": first["stats"]["median"]}
        peers = [figures(other) | {"target": other["extra_info"]["target"]} for other in others]
        parameters = first["params"] or {}
        file = Path(first["fullname"].split("::")[0]).name  # names of workloads may have slashes
        if file == "test_priors.py" and parameters.get("peer"):
            peer = f"R: {parameters['peer']}, processor time of another day"
            time = R[parameters["prior"]]["cpu_seconds"]
            peers.insert(0, {"name": peer, "seconds": time, "target": None})
        for peer in peers:
            peer["ratio"] = ours["seconds"] / peer["seconds"]
        for peer, other in zip(peers[len(peers) - len(others) :], others, strict=True):
            middle = other["stats"]["median"]
            peer["quartiles"] = [first["stats"][q] / middle for q in ("q1", "q3")]
        yield (
            file,
            {
                "name": name,
                "ours": ours,
                "peers": peers,
            },
        )


def growth(timed):
    """Factors by which times grow between the sizes of a workload.

    `timed` has pairs of what a benchmark tells of itself and its time.
    """
    series = {}
    for extra, time in timed:
        if "of" in extra:
            key = extra["of"], extra["contender"]
            series.setdefault(key, []).append((extra["size"], time))
    for (workload, contender), points in series.items():
        for (size, time), (larger, longer) in itertools.pairwise(sorted(points)):
            yield {
                "name": workload,
                "contender": contender,
                "sizes": [size, larger],
                "factor": longer / time,
            }


def commit():
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(run):
    machine = run["machine_info"]
    date, path = run["datetime"][:10], HERE / "results.json"
    files = {}
    for file, workload in workloads(run["benchmarks"]):
        files.setdefault(file, []).append(workload)
    record = {
        "machine": {
            "processor": machine["cpu"].get("brand_raw", machine["machine"]),
            "cores": machine["cpu"]["count"],
            "system": machine["system"],
            "python": machine["python_version"],
        },
        "dates": dict.fromkeys(files, date),
        "growth": list(
            growth((each["extra_info"], figures(each)["seconds"]) for each in run["benchmarks"])
        ),
        "files": files,
    }
    before = json.loads(path.read_text())
    if before["machine"] == record["machine"]:
        for part in ("dates", "files"):
            record[part] = dict(sorted((before[part] | record[part]).items()))
        grown = [(each["name"], each["contender"]) for each in record["growth"]]
        record["growth"] += [
            each for each in before["growth"] if (each["name"], each["contender"]) not in grown
        ]
    line = {"commit": commit(), "date": date, "machine": record["machine"]}
    path.write_text(json.dumps(record, indent=1) + "\n")
    ratios = {
        f"{workload['name']}: {peer['name']}": float(f"{peer['ratio']:.3g}")
        for file in files.values()
        for workload in file
        for peer in workload["peers"]
    }
    with (HERE / "history.jsonl").open("a") as file:
        file.write(json.dumps(line | {"ratios": ratios}) + "\n")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
