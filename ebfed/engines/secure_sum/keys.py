"""Keys, masks, encryption, signatures and shares: calls of libraries, on arrays of bytes.

Each derived key is for one purpose and one message: its context names the run, the round, the
purpose, and who sends to whom.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Octets",
    "agreed",
    "decrypt",
    "derived",
    "digest",
    "digested",
    "draw",
    "encrypt",
    "mask",
    "need",
    "public",
    "recover",
    "sign",
    "signing_key",
    "split",
    "verified",
    "verify_key",
]

Octets = NDArray[np.uint8]
"""Bytes as an array, which `ebfed.wire` can pack."""

KEY, SECRET, NONCE = 32, 16, 12  # bytes; a secret is one block of the library's Shamir shares


def _octets(data: bytes) -> Octets:
    return np.frombuffer(data, np.uint8)


def need() -> None:
    """Raise ImportError if a library is missing."""
    if not (find_spec("Crypto") and find_spec("cryptography")):
        raise ImportError(
            "secure sums need the packages cryptography and pycryptodome: "
            'pip install "ebfed[secure]".'
        )


def draw(size: int = SECRET) -> Octets:
    """Draw bytes from the operating system."""
    return _octets(secrets.token_bytes(size))


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 of some bytes, each with its length."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def digested(*parts: bytes) -> Octets:
    """Return the SHA-256 of some bytes as an array, which `ebfed.wire` can pack."""
    return _octets(digest(*parts))


def derived(secret: Octets, *context: bytes) -> Octets:
    """Derive a key from a secret (HKDF, RFC 5869), another one for each context."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    kdf = HKDF(algorithm=SHA256(), length=KEY, salt=None, info=digest(*context))
    return _octets(kdf.derive(secret.tobytes()))


def public(private: Octets) -> Octets:
    """Return the public key of a private one (X25519, RFC 7748)."""
    return _octets(_private(private).public_key().public_bytes_raw())


def agreed(private: Octets, other: Octets, *context: bytes) -> Octets:
    """Return the key that the owners of two private keys can compute, and nobody else.

    Raises
    ------
    ValueError
        If the other's public key is none.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    shared = _private(private).exchange(X25519PublicKey.from_public_bytes(other.tobytes()))
    return derived(_octets(shared), *context)


def _private(private: Octets) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private.tobytes())


def mask(key: Octets, size: int, dtype: np.dtype) -> NDArray:
    """Return the numbers of a key: uniform, and random to all without the key (ChaCha20)."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # a key is for one mask, so that the nonce need not differ
    stream = Cipher(ChaCha20(key.tobytes(), bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(size * dtype.itemsize)), dtype)


def encrypt(key: Octets, text: Octets, context: bytes) -> Octets:
    """Encrypt and authenticate bytes (ChaCha20-Poly1305, RFC 8439)."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = secrets.token_bytes(NONCE)
    sealed = ChaCha20Poly1305(key.tobytes()).encrypt(nonce, text.tobytes(), context)
    return _octets(nonce + sealed)


def decrypt(key: Octets, box: Octets, context: bytes) -> Octets:
    """Return the bytes that were encrypted.

    Raises
    ------
    ValueError
        If they were changed, or are of another key or context.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce, sealed = box[:NONCE].tobytes(), box[NONCE:].tobytes()
    try:
        return _octets(ChaCha20Poly1305(key.tobytes()).decrypt(nonce, sealed, context))
    except InvalidTag:
        raise ValueError("an encrypted share was changed, or is of another round.") from None


def split(secret: Octets, threshold: int, count: int) -> list[Octets]:
    """Divide a secret of 16 bytes into shares, of which `threshold` are needed (Shamir, 1979).

    Returns
    -------
    list of arrays of shape (16,)
        Share i is the value at i + 1 of a random polynomial over the field of 2^128 elements.
    """
    from Crypto.Protocol.SecretSharing import Shamir

    shares = Shamir.split(threshold, count, secret.tobytes(), ssss=False)
    return [_octets(share) for _, share in shares]


def recover(shares: Mapping[int, Octets]) -> Octets:
    """Return the secret of as many shares as are needed, by their places from 0 on."""
    from Crypto.Protocol.SecretSharing import Shamir

    points = [(place + 1, share.tobytes()) for place, share in shares.items()]
    return _octets(Shamir.combine(points, ssss=False))


def signing_key() -> Octets:
    """Draw a private key for signatures (Ed25519, RFC 8032); its owner keeps it.

    Examples
    --------
    >>> signing_key().shape
    (32,)
    """
    return draw(KEY)


def verify_key(signing: Octets) -> Octets:
    """Return the public key by which signatures of a private one are verified.

    Examples
    --------
    >>> verify_key(signing_key()).shape
    (32,)
    """
    return _octets(_signer(signing).public_key().public_bytes_raw())


def sign(signing: Octets, data: bytes) -> Octets:
    """Sign some bytes."""
    return _octets(_signer(signing).sign(data))


def verified(key: Octets, signature: Octets, data: bytes) -> bool:
    """Return whether that is the signature of these bytes by the owner of the key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.tobytes()).verify(signature.tobytes(), data)
    except InvalidSignature:
        return False
    return True


def _signer(signing: Octets) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing.tobytes())
