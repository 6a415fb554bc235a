"""Limits of the structure; `python tests/house.py` prints the figures and their places."""

import importlib.util
import textwrap
from pathlib import Path

import pytest

LIMITS = {
    # a model of classes in nested groups: what all fits, mixed models, nested models and estimators
    # of clients have is said once each
    "classes of the longest MRO": 10,
    "keys without a type": 0,
    "isinstance of a family": 0,
    "messages with 'came'": 0,
    "classes of ambiguous name": 0,
    "tests not named after a module": 0,
    "modules that import each other": 0,
    # what a method that overrides another does is said once
    "public methods without a docstring": 0,
}


@pytest.fixture(scope="module")
def house():
    spec = importlib.util.spec_from_file_location("house", Path(__file__).with_name("house.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measures(house):
    return house.measures()


@pytest.mark.parametrize("name", LIMITS)
def test_limit(measures, name):
    assert measures[name] <= LIMITS[name]


def test_measures_have_limits(measures):
    assert measures.keys() == LIMITS.keys()


@pytest.fixture
def planted(house, monkeypatch, tmp_path):
    """Give the measures a package of one module with this code."""

    def plant(code, path="ebfed/engines/planted.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(textwrap.dedent(code))
        monkeypatch.setattr(house, "ROOT", tmp_path)
        monkeypatch.setattr(house, "PACKAGE", tmp_path / "ebfed")
        monkeypatch.setattr(house, "TESTS", tmp_path / "tests")
        house.sources.cache_clear()
        house.trees.cache_clear()
        return house

    yield plant
    house.sources.cache_clear()
    house.trees.cache_clear()


def test_methods_are_counted(planted):
    house = planted("""
        class Two:
            @overload
            def first(self): ...
            def first(self): ...
            @property
            def second(self): ...
    """)
    assert house.methods() == {"ebfed/engines/planted.py:Two": 2}


def test_keys_without_a_type_are_found(planted):
    house = planted("""
        class Facts(TypedDict):
            n: int

        class More(Facts, total=False):
            m: int

        def f(self, facts, state, other):
            facts["n"], facts["m"], other["ignored"], facts[0]
            facts["subscript"]
            facts.get("get")
            "inside" in state
            self._memory | {"merged": 1}
            message = {"made": 1}
            state |= {"updated": 1}
            sent: dict = {"annotated": 1}
    """)
    found = {"subscript", "get", "inside", "merged", "made", "updated", "annotated"}
    assert house.untyped_keys().keys() == found


def test_questions_for_a_family_are_found(planted):
    house = planted("""
        isinstance(x, (Reported,
            likelihoods.Binomial))
        isinstance(
            f(x),
            GaussianMixture,
        )
        isinstance(x, Likelihood)
    """)
    assert [each.split(":")[1] for each in house.asked_families()] == ["2", "4"]


def test_literary_messages_are_found(planted):
    house = planted("""
        raise ValueError(f"{x!r} came.")
        became = "became"
    """)
    assert len(house.literary_messages()) == 1


def test_ambiguous_classes_are_found(planted):
    house = planted("""
        class _Model: ...
        class Law: ...
        class Other:
            class Law: ...
        Model = dict
    """)
    assert [each.split()[1] for each in house.ambiguous_classes()] == [
        "_Model",
        "Law",
        "Law",
        "Model",
    ]


def test_misnamed_tests_are_found(planted):
    house = planted("")
    folder = house.TESTS / "engines"
    folder.mkdir(parents=True)
    for name in ("planted", "planted_twice", "other"):
        (folder / f"test_{name}.py").touch()
    assert house.misnamed_tests() == ["tests/engines/test_other.py"]


def test_methods_without_a_docstring_are_found(house):
    class Base:
        def told(self):
            """Say what this does."""

        def silent(self): ...

    class Derived(Base):
        def told(self): ...

        @property
        def untold(self): ...

        def _own(self): ...

    found = house.undocumented([("Base", Base), ("Derived", Derived)])
    assert found == ["Base.silent", "Derived.untold"]
