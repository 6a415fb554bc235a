"""True and False are the only values of arguments that have one of them by default."""

import inspect

import numpy as np
import pytest

import ebfed as eb
from ebfed import models

CLASSES = [
    cls
    for module in (eb.location, eb.regression, eb.learning, models)
    for name in module.__all__
    if inspect.isclass(cls := getattr(module, name))
    and not inspect.isabstract(cls)
    and hasattr(cls, "get_params")
]
CASES = sorted(
    {
        (cls.__name__, name, cls)
        for cls in CLASSES
        for name, argument in inspect.signature(cls).parameters.items()
        if isinstance(argument.default, bool) and cls is not models.Torch
    },
    key=lambda case: case[:2],
)
RNG = np.random.default_rng(0)
X, GROUPS = RNG.normal(size=(40, 2)), np.repeat(np.arange(8), 5)
NUMBERS = X[:, 0] + RNG.normal(size=40)
CLASS_OF_ROW = np.where(NUMBERS > 0, "yes", "no")


def test_there_are_some():
    assert {"LinearEB", "LogisticEB", "AdaMix", "Softmax"} <= {name for name, *_ in CASES}
    assert len(CASES) > 20


@pytest.mark.parametrize("value", [10**9, 1, "no", None, 0.5], ids=repr)
@pytest.mark.parametrize(("cls", "name"), [(cls, name) for _, name, cls in CASES])
def test_other_values_are_refused_by_name(cls, name, value):
    others = {}
    if issubclass(cls, eb.learning.Learner) and cls().protocol().requires_privacy:
        others = {"privacy": eb.learning.ClientPrivacy(epsilon=8)}
    if issubclass(cls, models.Model):
        with pytest.raises(ValueError, match=f"{name} must be True or False; got "):
            cls(**{name: value}).bind(2, 2)
        return
    estimator = cls(**{name: value}, **others)
    y = CLASS_OF_ROW if estimator.__sklearn_tags__().estimator_type == "classifier" else NUMBERS
    with pytest.raises(ValueError, match=f"{name} must be True or False; got "):
        estimator.fit(X, y, groups=GROUPS)
