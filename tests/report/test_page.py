"""The report is one file, says what the fit says, and loads nothing."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ebfed as eb
from ebfed.report import page, write_report

RNG = np.random.default_rng(0)
NAMES = np.array([f"<b>{i}</b> & co" for i in range(12)])
ROWS = pd.DataFrame({"firm": np.repeat(NAMES, 6), "x": RNG.normal(size=72)})
ROWS["y"] = RNG.normal(size=12).repeat(6) + RNG.normal(1, 1, 12).repeat(6) * ROWS["x"]
ROWS["y"] += RNG.normal(size=72)
ROWS["won"] = (ROWS["y"] > 0).astype(int)


class Reader(HTMLParser):
    """Rows of tables, sources of pictures, and whether what is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.sources, self.addresses = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.addresses += [named[key] for key in ("src", "href") if key in named]
        if tag == "img":
            assert named["alt"]
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag not in ("img", "meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.rows[-1][-1] += data


@pytest.mark.parametrize(
    ("formula", "options", "pictures"),
    [
        ("y ~ x + (1 + x || firm)", {}, 4),
        ("y ~ x + (1 + x | firm)", {}, 4),
        ("y | firm", {}, 4),
        ("y | firm", {"prior": "npmle"}, 4),
        ("won | firm", {"family": "binomial"}, 4),
        ("won ~ x + (1 | firm)", {"family": "binomial"}, 2),
    ],
)
@pytest.mark.parametrize("backend", [pd.DataFrame, pl.DataFrame])
def test_everything_is_in_the_file(formula, options, pictures, backend, tmp_path):
    fit = eb.from_formula(formula, backend(ROWS), **options)
    text = write_report(fit, tmp_path / "fit.html", title="<what>").read_text(encoding="utf-8")
    read = Reader(text)
    assert not re.search(r"https?:|//", re.sub(r"base64,[^']*", "", text).replace("</", ""))
    assert all(address.startswith("data:") for address in read.addresses)
    assert text.count("data:image/png;base64,") == pictures
    assert "<h1>&lt;what&gt;</h1>" in text
    shown = fit.posterior().using("pandas").to_frame()
    found = [row for row in read.rows if row and row[0] in NAMES]
    assert [row[0] for row in found] == list(shown["firm"])
    column = shown.columns.tolist().index("estimate")
    np.testing.assert_allclose(
        [float(row[column]) for row in found], shown["estimate"], rtol=5.1e-4
    )


@pytest.mark.parametrize("formula", ["y | firm", "y ~ x + (1 + x | firm)"])
def test_estimates_lead_and_diagnostics_follow(formula, tmp_path):
    fit = eb.from_formula(formula, ROWS)
    text = write_report(fit, tmp_path / "fit.html").read_text(encoding="utf-8")
    order = ["Estimates of ", "<img", "<table class='groups'>", "<th>AIC</th>", "<h2>Diagnostics"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "for 12 groups (firm)" in text
    assert "<em>local</em> from own data alone" in text or "~" in formula
    captions = re.findall("<figcaption>(.*?)</figcaption>", text)
    first = "Estimates against own data alone." if formula == "y | firm" else "From own data alone"
    assert captions[0].startswith(first)


STRANGE = [
    r"$\frac{1}$",
    "$x^$",
    "a$",
    "\x00\x01",
    "two\nlines",
    "_hidden",
    "\u5317\u4eac",
    "x" * 5000,
    "<&>",
    "",
]


@pytest.mark.parametrize("formula", ["`$y^$` | g", "`$y^$` ~ `$\\x$` + (1 + `$\\x$` | g)"])
def test_strange_names_are_drawn_as_they_are(formula, tmp_path):
    rows = ROWS.assign(g=np.repeat([*STRANGE, "b", "c"], 6))
    rows = rows.rename(columns={"y": "$y^$", "x": "$\\x$"})
    fit = eb.from_formula(formula, rows)
    text = write_report(fit, tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "is not drawn" not in text
    assert text.count("data:image/png;base64,") == 4


def test_private_reports_are_in_the_ledger(tmp_path):
    est = eb.BernoulliEB(channel=eb.channels.TwoBit(epsilon=1.5), random_state=0)
    est.fit(ROWS[["won"]], groups=ROWS["firm"])
    text = write_report(est, tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "epsilon = 1.5 for each client" in text
    assert "This page is not private." in text
    plain = eb.BernoulliEB().fit(ROWS[["won"]], groups=ROWS["firm"])
    text_of_plain = write_report(plain, tmp_path / "plain.html").read_text(encoding="utf-8")
    assert "not private" not in text_of_plain
    assert any("1.5" in row for row in Reader(text).rows)


def test_many_groups_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_ROWS", 5)
    est = eb.GaussianEB().fit(ROWS[["y"]], groups=ROWS["firm"])
    text = write_report(est, tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "The first 5 of 12 rows." in text
    assert len([row for row in Reader(text).rows if row and row[0] in NAMES]) == 5


def test_a_fit_without_posteriors_is_refused(tmp_path):
    learner = eb.learning.LocalOnly(n_rounds=1).fit(ROWS[["x"]], ROWS["won"], groups=ROWS["firm"])
    with pytest.raises(TypeError, match="LocalOnly has no posterior"):
        write_report(learner, tmp_path / "fit.html")
