"""Studies: published experiments run again, and coverage of intervals.

Each is a module with one function `run`.
"""

__all__ = ["STUDIES"]

# Names at the command line, and subjects.
STUDIES = {
    "county": "elections of 3,111 counties, each predicted from the others",
    "private-means": "means under local privacy, error against epsilon (Figures 1a, 3a, 3b)",
    "private-rates": "rates under local privacy, gain against epsilon (section K.2)",
    "bits": "means in k bits, error against k (Theorem 2)",
    "regression": "linear models of many clients, error against dimension (section K.2)",
    "mixture": "means of three kinds, clustering against EM (appendix D)",
    "adamix": "linear models of two kinds, error against steps (Table 3)",
    "logistic": "logistic regression for each of many clients, error against rows (section 3)",
    "opt-out": "opting out of privacy, gains of server and client (FeO2, Figures 1-4)",
    "opt-out-learning": "opting out while a network learns digits (FeO2, Tables 4 and 5)",
    "personalization": "images of few classes each, AdaPeD and others (Tables 1 and 2, Figure 2)",
    "personal-strengths": "how much to personalise, HierarchicalEB and tuned rivals",
    "ppsgd": "personalisation and the price of privacy (PPSGD, Figures 1a and 2)",
    "coverage": "coverage and width of 95 % intervals, by prior, likelihood and channel",
    "mixed-models": "coverage of intervals of mixed models, with 8, 20 and 100 groups",
    "joint-dp": "joint privacy between owners, error against their number (Tables 1, 2 and 4)",
}
