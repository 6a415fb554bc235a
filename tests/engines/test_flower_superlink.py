"""The token of a SuperLink, and the keys of nodes."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr")

from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.credential_store.file_credential_store import FileCredentialStore

from ebfed.cli.app import app
from ebfed.engines.flower import superlink
from ebfed.engines.flower.connection import load_key, make_key_pair


def test_a_token_is_made_once_for_its_owner(tmp_path):
    path = tmp_path / "own" / "token"
    token = superlink.make_token(path)
    assert superlink.make_token(path) == token == superlink.read_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o077 == 0
    assert superlink.make_token(tmp_path / "other") != token


def test_only_the_token_is_an_account():
    plugin = superlink._plugin("t" * 40)
    sent = [(ACCESS_TOKEN_KEY, "t" * 40)]
    valid, account = plugin.validate_tokens_in_metadata(sent)
    assert valid
    assert account is not None
    for wrong in ([], [(ACCESS_TOKEN_KEY, "t" * 39)], [("x", "t" * 40)], sent * 2):
        assert plugin.validate_tokens_in_metadata(wrong) == (False, None)
    assert plugin.refresh_tokens(sent) == (None, None)


def test_tokens_that_are_refused(tmp_path):
    (tmp_path / "short").write_text("secret")
    with pytest.raises(ValueError, match="32 characters or more; got 6"):
        superlink.run_superlink(tmp_path / "short", [])
    superlink.make_token(tmp_path / "token")
    with pytest.raises(ValueError, match="leave --insecure out"):
        superlink.run_superlink(tmp_path / "token", ["--insecure"])


def test_login_keeps_the_token_for_flwr(tmp_path):
    token = superlink.make_token(tmp_path / "token")
    words = ["login", "fits.example.org:8000", str(tmp_path / "token")]
    done = CliRunner().invoke(app, words, env={"FLWR_HOME": str(tmp_path / "home")})
    assert done.exit_code == 0, done.output
    kept = tmp_path / "home" / "credentials.yaml"
    assert kept.stat().st_mode & 0o077 == 0
    store = FileCredentialStore(kept)
    key = "flower.account-auth.fits.example.org:8000.oidc-access-token"
    assert store.get(key) == token.encode()
    wrong = CliRunner().invoke(app, [*words[:2], str(tmp_path / "absent")])
    assert wrong.exit_code == 2


def test_a_key_is_made_once_for_its_owner(tmp_path):
    path = tmp_path / "node-key"
    public = make_key_pair(path)
    before = path.read_bytes(), public.read_bytes()
    assert make_key_pair(path) == public
    assert (path.read_bytes(), public.read_bytes()) == before
    assert path.stat().st_mode & 0o077 == 0
    private, shown = load_key(path)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == shown
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
