"""Keep what a page needs of a run of the benchmarks: names, times and ratios in ``results.json``.

pytest -o addopts= tests/benchmarks --benchmark-json=run.json
python tests/benchmarks/record.py run.json
"""

import json
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
        if first["fullname"].split("/")[-1].startswith("test_priors.py") and parameters["peer"]:
            peer = f"R: {parameters['peer']}, processor time of another day"
            time = R[parameters["prior"]]["cpu_seconds"]
            peers.insert(0, {"name": peer, "seconds": time, "target": None})
        for peer in peers:
            peer["ratio"] = ours["seconds"] / peer["seconds"]
        yield (
            first["fullname"].split("/")[-1].split("::")[0],
            {
                "name": name,
                "ours": ours,
                "peers": peers,
            },
        )


def main(run):
    machine = run["machine_info"]
    record = {
        "date": run["datetime"][:10],
        "machine": {
            "processor": machine["cpu"].get("brand_raw", machine["machine"]),
            "cores": machine["cpu"]["count"],
            "system": machine["system"],
            "python": machine["python_version"],
        },
        "files": {},
    }
    for file, workload in workloads(run["benchmarks"]):
        record["files"].setdefault(file, []).append(workload)
    (HERE / "results.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
