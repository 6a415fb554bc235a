"""Calls of the libraries: values of the standards, and what may not be confused."""

import numpy as np
import pytest

from ebfed.engines.secure_sum import keys


def octets(text):
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def test_public_keys_are_those_of_the_standard():
    # RFC 7748, section 6.1: the keys of Bob
    private = octets("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    expected = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert keys.public(private).tobytes().hex() == expected


def test_masks_are_those_of_the_standard():
    # RFC 8439, appendix A.1, test vector 1: key, nonce and counter are zero
    block = keys.mask(np.zeros(32, np.uint8), 16, np.dtype("<u4"))
    assert block.tobytes().hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1a")


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<u8"])
def test_a_longer_mask_goes_on(dtype):
    key = keys.draw(32)
    short, long = (keys.mask(key, size, np.dtype(dtype)) for size in (7, 1001))
    assert np.array_equal(long[:7], short)
    assert long.dtype == np.dtype(dtype)
    assert len(np.unique(long)) > 900


def test_both_sides_agree_on_a_key_and_nobody_else():
    one, two, other = (keys.draw(32) for _ in range(3))
    key = keys.agreed(one, keys.public(two), b"context")
    assert np.array_equal(key, keys.agreed(two, keys.public(one), b"context"))
    different = [
        keys.agreed(two, keys.public(one), b"another"),
        keys.agreed(two, keys.public(one), b"con", b"text"),
        keys.agreed(other, keys.public(one), b"context"),
    ]
    assert not any(np.array_equal(key, each) for each in different)
    with pytest.raises(ValueError):
        keys.agreed(one, np.zeros(32, np.uint8), b"context")  # a point of small order


@pytest.mark.parametrize("place", [0, 15, 59])
def test_changed_shares_are_not_decrypted(place):
    key, text = keys.draw(32), keys.draw(32)
    box = keys.encrypt(key, text, b"round 1")
    assert np.array_equal(keys.decrypt(key, box, b"round 1"), text)
    assert not np.array_equal(box, keys.encrypt(key, text, b"round 1"))
    changed = box.copy()
    changed[place] ^= 1
    for wrong in (
        (key, changed, b"round 1"),
        (key, box, b"round 2"),
        (keys.draw(32), box, b"round 1"),
    ):
        with pytest.raises(ValueError, match="changed, or is of another round"):
            keys.decrypt(*wrong)


def test_any_shares_recover_a_secret_if_they_are_enough():
    secret = keys.draw()
    shares = keys.split(secret, 3, 5)
    for places in ((0, 1, 2), (4, 1, 3), (2, 3, 4)):
        assert np.array_equal(keys.recover({i: shares[i] for i in places}), secret)
    assert not np.array_equal(keys.recover({i: shares[i] for i in (0, 1)}), secret)
    # a share of another secret spoils it
    assert not np.array_equal(keys.recover({0: keys.draw(), 1: shares[1], 2: shares[2]}), secret)


def test_signatures_are_of_one_owner_and_text():
    key = keys.signing_key()
    signature = keys.sign(key, b"text")
    assert keys.verified(keys.verify_key(key), signature, b"text")
    assert not keys.verified(keys.verify_key(key), signature, b"test")
    assert not keys.verified(keys.verify_key(keys.signing_key()), signature, b"text")
