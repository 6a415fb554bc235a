"""Sums of integer vectors of nodes, of which the server sees nothing but the sum.

The protocol of Bonawitz et al. (2017). Each node adds to its vector masks that it shares with each
other node, with opposite signs, so that they cancel in the sum, and a mask of its own. Secrets of
both kinds of masks are divided among the nodes (Shamir's shares). When the vectors are in, nodes
that are left give the server what removes the own masks of those that answered, and the shared
masks of those that were lost. So a round ends if at least `threshold` nodes stay to the end.

A round has four steps, or five:

========== ============================================ ==========================================
step       the server sends                             a node answers
========== ============================================ ==========================================
``keys``   the number of the round                      two public keys
``shares`` the public keys of all                       shares of its secrets, encrypted for each
``masked`` the shares that are for this node            its vector with masks
``agree``  who is counted (only with ``verify``)        a signature of who is counted
``unmask`` who is counted, and the signatures           shares: of own masks, or of shared masks
========== ============================================ ==========================================

The steps of a node are `node.sign_up` and `node.answer`, those of the server `server.begin` and
`server.advance`: functions from a state and a message to a state and messages, all dicts that
`ebfed.wire` can pack. `server.secure_sum` holds a round with nodes wherever they are, and
`server.SecureSums` the rounds of a run, whose first two steps are sent with the round before.
`stored.StoredNode` is a node that survives a restart, `local.LocalNodes` are nodes in this process.

**What the server learns**: the sum over the nodes that are counted, who these are, and when others
were lost. **What nodes learn**: who takes part. A sum shows what its terms have in common: the sum
of two nodes that one of them sees is the vector of the other. Differential privacy of the sum is
noise in the vectors (`ebfed.channels.integer_sum`).

**Against whom.** With n nodes, threshold t, and c of the nodes on the side of the server:

- A server that follows the protocol and keeps all that it sees learns one sum of a round, over two
  honest nodes or more, if t >= c + 2.
- A server that sends different lists to nodes, or keys of its own in place of a node's, learns no
  more if nodes know each other's signing keys (`terms(verify=...)`, from each owner, not from the
  server) and also 2 t > n + c. Without signing keys such a server can see every vector.
- Both together are `least_threshold`: of 5 nodes 3, 4, 4 and 5 for c from 0 to 3. The default of
  `terms`, 3 of 5, protects from a server that no node helps. With c = n - 2 no node may be lost.
- Outsiders are kept off by the transport (TLS).

A vector is summed once: a node refuses a round that it has begun before, because sums of the same
vectors over other nodes differ by a node's vector. Keys and masks are of one round. With signing
keys, nodes sign with their vectors what these answer (``about``), and none gives a share before
all that are counted have signed the same. The tests in ``test_collusion.py`` show by linear
algebra, for 5 nodes and three rounds, what follows from all that such a server sees.

It is not protected: the result. A node can send a wrong vector, and a server can report a wrong
sum. Shares that do not fit are found.

**What it costs.** A node sends its vector, of 2, 4 or 8 bytes a number; a kilobyte and some 400
bytes for each other node come on top. Five nodes with a million numbers of 32 bits take 30 ms each.
Shamir's shares grow with the square of the number of nodes: of 100 nodes each takes 0.3 s, and the
server 16 s.

The primitives are those of two libraries. ``cryptography``: X25519 for agreement on keys, HKDF with
SHA-256 to derive keys, ChaCha20 for masks, ChaCha20-Poly1305 to encrypt, Ed25519 to sign;
``pycryptodome``: Shamir's secret sharing. Secrets that are shared have 128 bits. Flower's own
SecAgg+ is not used: its masks (version 1.41) are drawn by a Mersenne Twister from a seed of 32
bits, which a server can try out.

References
----------
Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and Seth (2017), Practical
secure aggregation for privacy-preserving machine learning, Figure 4.
"""

from typing import TYPE_CHECKING

from ebfed.lazily import at_first_use

if TYPE_CHECKING:
    from ebfed.engines.secure_sum.local import LocalNodes as LocalNodes
    from ebfed.engines.secure_sum.messages import Terms as Terms
    from ebfed.engines.secure_sum.messages import least_threshold as least_threshold
    from ebfed.engines.secure_sum.messages import terms as terms
    from ebfed.engines.secure_sum.node import answer as answer
    from ebfed.engines.secure_sum.node import sign_up as sign_up
    from ebfed.engines.secure_sum.server import SecureSum as SecureSum
    from ebfed.engines.secure_sum.server import SecureSums as SecureSums
    from ebfed.engines.secure_sum.server import secure_sum as secure_sum
    from ebfed.engines.secure_sum.stored import StoredNode as StoredNode
    from ebfed.engines.secure_sum.stored import stored_key as stored_key

__getattr__ = at_first_use(__name__)
