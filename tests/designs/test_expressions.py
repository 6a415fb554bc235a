"""Formulas are no programs: what they may contain, and what is refused before it is evaluated."""

import numpy as np
import pandas as pd
import pytest

import ebfed as eb
from ebfed.designs.expressions import check_names, names_of

ROWS = pd.DataFrame({"v": np.arange(12.0), "x": np.arange(12) % 5 + 1.0, "g": list("aabbccddeeff")})

ATTACKS = [
    "I(x*0+__import__('os').system('touch {file}'))",
    "I(x*0+open('{file}','w').write('a'))",
    'I(x*0+eval(\'open("{file}","w").close() or 0\'))',
    "`x`.__class__",
    "I(x.__class__.__mro__[1].__subclasses__())",
    "I(x.to_csv('{file}'))",
    "np.save('{file}', x)",
    "np.lib.format.open_memmap('{file}', mode='w+', shape=(1,))",
    "np.log.__class__('x')",
    "contr.__class__",
    "I((lambda: 1)())",
    "I([y for y in x][0])",
    "I(x[0])",
    "I(f'{{x}}')",
    "I(x * getattr(x, 'sum')())",
    "I((x := 1))",
    "I(9**9**9**9 + x)",
    "I('a' * 10000000000 + x)",
    "I([0] * 10000000000 + x)",
    "I((1 << 99999999999) * x)",
    "I(exec('1'))",
    "C(x, levels=globals())",
    "log(*[x])",
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("context", [None, {}])
def test_commands_are_refused(attack, context, tmp_path):
    file = tmp_path / "made"
    formula = f"v ~ {attack.format(file=file)} + (1 | g)"
    with pytest.raises(ValueError, match=r"cannot be|arithmetic|power|function|known here"):
        eb.from_formula(formula, ROWS, context=context)
    assert not file.exists()


@pytest.mark.parametrize("attack", ATTACKS[:6])
def test_commands_in_responses_are_refused(attack, tmp_path):
    file = tmp_path / "made"
    with pytest.raises(ValueError, match=r"cannot be|function"):
        eb.from_formula(f"{attack.format(file=file)} ~ x + (1 | g)", ROWS)
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("np.log(x + 1)", {"np", "x"}),
        ("I(x ** 2 - 3 * (x > 1))", {"I", "x"}),
        ("C(kind, contr.treatment('a'))", {"C", "kind", "contr"}),
        ("C(kind, levels=['a', 'b'])", {"C", "kind"}),
        ("np.where(x < 3, x, np.pi)", {"np", "x"}),
        ("`two words` / 2", {"two words"}),
        ("own(x, k=-1)", {"own", "x"}),
    ],
)
def test_expressions_of_columns(text, names):
    assert names_of(text) == names
    check_names(names - {"x", "kind", "two words"}, {"own": abs, "np": np})


def test_names_of_python_may_be_columns():
    rows = ROWS.rename(columns={"x": "max", "g": "id"})
    fit = eb.from_formula("v ~ max + (1 | id)", rows)
    assert "max" in list(fit.fixef()["term"])


def test_another_np_is_refused():
    with pytest.raises(ValueError, match="'np' has another meaning"):
        eb.from_formula("v ~ np.log(x) + (1 | g)", ROWS, context={"np": pd})


def test_functions_of_the_caller_are_called():
    def twice(x):
        return 2 * x

    fit = eb.from_formula("v ~ twice(x) + (1 | g)", ROWS)
    assert fit.fixef()["estimate"].notna().all()
