"""Searches that end at questions."""

from functools import partial

import pytest

from ebfed.priors.search import Unanswered, together


def test_questions_of_all_searches_are_asked_at_once():
    def search(known, name):
        for i in range(3):
            if (name, i) not in known:
                raise Unanswered([(name, i)])
        return name

    known = set()

    def searches():
        return [partial(search, known, name) for name in "ab"]

    for i in range(3):
        with pytest.raises(Unanswered) as open_:
            together(searches())
        assert open_.value.question == [("a", i), ("b", i)]
        known.update(open_.value.question)
    assert together(searches()) == ["a", "b"]


def test_other_errors_are_raised():
    with pytest.raises(ZeroDivisionError):
        together([lambda: 1 / 0])
