"""Rows in parts that are left out in turn."""

import numpy as np
import pytest

from ebfed.learning.minibatches import deal
from ebfed.streams import Stream, make_key
from ebfed.tables.clients import Clients

SIZES = [0, 1, 2, 4, 5, 9, 20, 23, 23]
GROUPS = np.repeat(np.arange(9), SIZES)
ROWS = np.arange(len(GROUPS), dtype=float)  # each row is its own number
CLIENTS = Clients.from_rows(ROWS[:, None], GROUPS, ROWS).merge(
    Clients(np.array([9]), np.zeros(2, np.int64), np.zeros((0, 1)), np.zeros(0))
)


def dealt(**options):
    everyone = np.arange(len(CLIENTS))
    yield from deal(CLIENTS, everyone, Stream(make_key(0), 0), n_parameters=1, **options)


def seen(batch, i):
    return np.unique(batch.X[i, batch.weight[i] > 0, 0])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_every_row_is_left_out_once_and_seen_otherwise(batch_size):
    for who, rows in dealt(batch_size=batch_size):
        for i, client in enumerate(who.tolist()):
            own = ROWS[CLIENTS.indptr[client] : CLIENTS.indptr[client + 1]]
            left_out = []
            for rest, held in rows.folds(5):
                out = seen(held, i)
                trained = [seen(batch, i) for batch in rest.take(20)]  # 80 rows: all of them
                np.testing.assert_array_equal(
                    np.unique(np.concatenate([*trained, []])), np.setdiff1d(own, out)
                )
                assert rest.n[i] == len(own) - len(out)
                assert len(own) // 5 <= len(out) <= -(-len(own) // 5)
                assert set(held.weight[i]) <= {0.0, 1.0}
                left_out.append(out)
            np.testing.assert_array_equal(np.sort(np.concatenate([*left_out, []])), own)


def test_parts_do_not_depend_on_the_round_or_on_other_clients():
    def parts(round_, members):
        found = {}
        rng = Stream(make_key(3), round_)
        for places, rows in deal(CLIENTS, members, rng, n_parameters=1, batch_size=4):
            for k, (_, held) in enumerate(rows.folds(3)):
                for i, place in enumerate(places.tolist()):
                    found[members[place], k] = seen(held, i).tolist()
        return found

    everyone = np.arange(len(CLIENTS))
    whole = parts(0, everyone)
    assert parts(1, everyone) == whole
    few = parts(0, np.array([5, 6]))
    assert few == {key: whole[key] for key in few}
    assert len(few) == 6


def test_weights_of_batches_are_those_of_means():
    for _, rows in dealt(batch_size=None):
        for rest, _ in rows.folds(5):
            (batch,) = rest.take(1)
            np.testing.assert_allclose(batch.weight.sum(axis=1), rest.n > 0, rtol=1e-12)
