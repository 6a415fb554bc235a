"""A SuperLink whose runs are started by those only who have its token.

Flower's SuperLink lets everybody who reaches its port start runs, register nodes and read logs. It
has a place for another way to know accounts, which its open distribution leaves empty. Here, an
account is who sends a secret token; connections are encrypted, or the token could be read.
"""

from __future__ import annotations

import dataclasses
import hmac
import importlib
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebfed.engines.flower.files import write
from ebfed.engines.flower.messages import need_flower

__all__ = ["make_token", "read_token", "remember_token", "run_superlink"]


def make_token(path: Path) -> str:
    """Return the token in a file, which is made if there is none, and only its owner may read."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32).encode())
    return read_token(path)


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If the token is too short to be a secret.
    """
    token = path.read_text(encoding="ascii").strip()
    if len(token) < 32:
        raise ValueError(f"the token in {path} must have 32 characters or more; got {len(token)}.")
    return token


def remember_token(home: Path, address: str, token: str) -> None:
    """Let the command `flwr` send a token to a SuperLink.

    Parameters
    ----------
    home : path
        Folder of Flower's settings, ``FLWR_HOME``.
    address : str
        Host and port of the SuperLink.
    token : str
    """
    need_flower()
    from flwr.cli.constant import (
        ACCESS_TOKEN_STORE_KEY,
        AUTHN_TYPE_STORE_KEY,
        REFRESH_TOKEN_STORE_KEY,
    )
    from flwr.common.constant import AuthnType
    from flwr.supercore.credential_store.file_credential_store import FileCredentialStore

    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = FileCredentialStore(home / "credentials.yaml")
    store.set(AUTHN_TYPE_STORE_KEY % address, AuthnType.OIDC.encode())
    for key in (ACCESS_TOKEN_STORE_KEY, REFRESH_TOKEN_STORE_KEY):
        store.set(key % address, token.encode())


def run_superlink(token_file: Path, arguments: Sequence[str]) -> None:
    """Run a SuperLink until the process is ended.

    Parameters
    ----------
    token_file : path
        File of the token, of 32 characters or more.
    arguments : sequence of str
        Those of ``flower-superlink``.

    Raises
    ------
    ValueError
        If there is no such token, or connections are not to be encrypted.
    """
    need_flower()
    from flwr.supercore.logger import update_console_handler

    # the package has a function of the same name
    program = importlib.import_module("flwr.superlink.cli.flower_superlink")
    plugin = _plugin(read_token(token_file))
    if "--insecure" in arguments:
        raise ValueError("a token that is not encrypted can be read; leave --insecure out.")
    update_console_handler(colored=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
    os.umask(0o077)  # a database has messages of nodes
    sys.argv = ["flower-superlink", *arguments]
    config = program._parse_superlink_lifespan_config()
    program._run_superlink_http_api(dataclasses.replace(config, authn_plugin=plugin))


def _plugin(token: str) -> Any:
    """Make the part of a SuperLink that knows accounts: one, who has the token."""
    from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.supercore.auth.typing import AccountInfo
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

    class TokenPlugin(NoOpControlAuthnPlugin):
        def validate_tokens_in_metadata(self, metadata: Any) -> tuple[bool, AccountInfo | None]:
            sent = [value for name, value in metadata if name == ACCESS_TOKEN_KEY]
            if len(sent) == 1 and hmac.compare_digest(str(sent[0]).encode(), token.encode()):
                return True, AccountInfo(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME)
            return False, None

        def refresh_tokens(self, metadata: Any) -> tuple[Any, AccountInfo | None]:
            return None, None

    return TokenPlugin()
