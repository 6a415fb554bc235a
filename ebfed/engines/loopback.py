"""A federation on one machine: a SuperLink and its SuperNodes as processes, on loopback only.

It serves for tests, and to try out an app that will later run between machines. Every process is a
session of its own: ctrl-C in a terminal does not reach it, and ending it ends nothing else. Every
process is noted in the folder as soon as it starts; `down` ends exactly the noted ones.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ebfed.engines.flower.connection import make_key_pair
from ebfed.engines.flower.superlink import make_token, remember_token
from ebfed.tables.replacing import replaced

__all__ = ["Federation", "make_certificates"]

HOST = "127.0.0.1"
# Seconds to wait until a process is ready.
PATIENCE = 60.0
SERVER = ("superlink", "superexec")
# Of the SuperLink: keys of nodes, runs, and messages that were not collected yet.
DATABASE = "superlink.db"
# Flower sends no telemetry and installs nothing.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
# Variables that ask for colours although nothing reads them; Jupyter and CI services set them.
COLOURFUL = {"FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "PYTHON_COLORS", "TTY_COMPATIBLE"}
# Codes of terminals, which Flower's logs have in spite of NO_COLOR.
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What Flower prints among the lines of the server's program: records of its log, and these.
RECORD = re.compile(
    r"(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\s*:|Traceback \(most recent call last\)"
)
NOISE = re.compile(r"Using SuperLink: |Successfully installed |Loading project|Success$")
# The last line of a traceback.
ERROR = re.compile(r"(?:\w+\.)*(\w+): (.*)")


class Federation:
    """A SuperLink and SuperNodes on this machine.

    Parameters
    ----------
    directory : path
        Folder of certificates, logs and the numbers of processes.

    Examples
    --------
    >>> with Federation("trial").up({"north": {}, "south": {}}) as federation:  # doctest: +SKIP
    ...     federation.run("trial/app")
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory).resolve()
        self._file = self.directory / "processes.json"
        self._children: list[subprocess.Popen] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(
        self,
        nodes: Mapping[str, str | Path],
        *,
        database: bool = False,
        seed: int | None = None,
        host: str | None = None,
        port: int | None = None,
    ) -> Self:
        """Start a SuperLink, and a node for each name.

        Connections are encrypted. The SuperLink accepts only nodes whose keys were registered, and
        runs of who can read the token in ``flower``, a folder of the user alone.

        Parameters
        ----------
        nodes : dict of paths
            Directory of each node by its name, with its `node.toml`.
        database : bool
            Whether the SuperLink stores keys, runs and messages in a file, from which it goes on
            after it was killed. Exchanges are slower then.
        seed : int, optional
            Seed of simulated noise, for tests.
        host : str, optional
            Name by which nodes on other machines reach this one: the SuperLink then listens on all
            addresses, its certificates are kept, and nodes of `register` are known again.
        port : int, optional
            Where the SuperLink listens; a free port if None.

        Raises
        ------
        RuntimeError
            If it runs already, or does not start; in the last case all its processes are ended.
        """
        if self.status():
            raise RuntimeError(f"a federation is running in {self.directory}; take it down first.")
        self._check_names(nodes)
        flower = self.directory / "flower"
        (self.directory / "logs").mkdir(parents=True, exist_ok=True)
        flower.mkdir(mode=0o700, exist_ok=True)
        port = _free_ports(1)[0] if port is None else port
        certificates = self.directory / "certificates"
        if host is None:
            make_certificates(certificates)
        elif not (certificates / host).exists():  # which says whom they are for
            make_certificates(certificates, 365, host)
            (certificates / host).touch()
        with replaced(flower / "listen") as new:
            new.write_text(HOST if host is None else "0.0.0.0")
        self._forget_messages()  # of a federation that was not taken down
        if database:
            (flower / DATABASE).touch(mode=0o600)
        make_token(flower / "secret")  # of the process that runs the server's program
        remember_token(flower, f"{HOST}:{port}", make_token(flower / "token"))
        with replaced(flower / "config.toml") as new:
            new.write_text(
                f'[superlink.loopback]\naddress = "{HOST}:{port}"\n'
                f"root-certificates = {json.dumps(str(certificates / 'ca.crt'))}\n"
            )
        with replaced(flower / "address") as new:
            new.write_text(f"{HOST}:{port}")
        try:
            self._start_server()
            self._register(nodes)
            for key in sorted((self.directory / "keys").glob("*.pub")) if host else []:
                self._flwr("supernode", "register", str(key), "loopback", "--name", key.stem)
            for name, directory in nodes.items():
                self.start_node(name, directory, seed=seed)
            for name, child in zip(
                nodes, self._children[len(self._children) - len(nodes) :], strict=True
            ):
                self._wait(name, child, partial(self._has_logged, name, "Connected as node"))
            self._note_helpers()
        except BaseException:
            self.down()
            raise
        return self

    def _register(self, nodes: Mapping[str, str | Path]) -> None:
        for name, directory in nodes.items():
            public = make_key_pair(Path(directory) / "node-key")
            self._flwr("supernode", "register", str(public), "loopback", "--name", name)

    def register(self, name: str, public: str | Path) -> None:
        """Let a node on another machine connect, by the public part of its key.

        Parameters
        ----------
        name : str
            Under which its answers are taken.
        public : path
            ``node-key.pub`` of the node, which is copied into the folder ``keys``.
        """
        self._check_names([name])
        own = self.directory / "keys" / f"{name}.pub"
        own.parent.mkdir(exist_ok=True)
        text = Path(public).read_text(encoding="ascii")
        if own.exists() and own.read_text(encoding="ascii") != text:
            raise ValueError(f"{own} is another key of {name!r}; delete it to replace it.")
        self._flwr("supernode", "register", str(public), "loopback", "--name", name)
        with replaced(own) as new:
            new.write_text(text)

    @staticmethod
    def _check_names(names: Iterable[str]) -> None:
        for name in names:
            if not re.fullmatch(r"[\w.-]+", name) or name in ("server", *SERVER):
                raise ValueError(
                    "names of nodes hold only letters, digits, ., _ and -, and are not those of "
                    f"the server; got {name!r}."
                )

    def _start_server(self) -> None:
        """Start the SuperLink, and the process that starts the server's program for each run."""
        flower, certificates = self.directory / "flower", self.directory / "certificates"
        address, root = (flower / "address").read_text(), certificates / "ca.crt"
        port = address.partition(":")[2]
        self._start(
            "superlink",
            *["ebfed", "superlink", str(flower / "token"), "--ssl-ca-certfile", str(root)],
            *["--ssl-certfile", str(certificates / "server.pem")],
            *["--ssl-keyfile", str(certificates / "server.key")],
            *["--host", (flower / "listen").read_text(), "--port", port, "--enable-supernode-auth"],
            *["--isolation", "process", "--superexec-auth-secret-file", str(flower / "secret")],
            *(["--database", str(flower / DATABASE)] if (flower / DATABASE).exists() else []),
            "--disable-runtime-dependency-installation",
        )
        self._wait("superlink", self._children[-1], self._server_answers)
        if "superexec" not in self.status():
            self._start(
                "superexec",
                *["flower-superexec", "--runtime-api-address", address],
                *["--root-certificates", str(root)],
                *["--superexec-auth-secret-file", str(flower / "secret")],
            )

    def restart_server(self, nodes: Mapping[str, str | Path]) -> None:
        """End the SuperLink, if it runs, and start it again.

        Nodes connect again by themselves. With a database, the server's program goes on; without
        one, these nodes are registered anew, and the next run goes on with an unfinished fit.
        """
        if not self.status():
            raise RuntimeError(f"nothing runs in {self.directory}; take it up first.")
        self._end({"superlink"})
        self._start_server()
        if not (self.directory / "flower" / DATABASE).exists():
            self._register(nodes)

    def _forget_messages(self) -> None:
        for path in (self.directory / "flower").glob(f"{DATABASE}*"):
            path.unlink()

    def start_node(self, name: str, directory: str | Path, *, seed: int | None = None) -> None:
        """Start a node, which was registered by `up`; again, if it was ended."""
        address = (self.directory / "flower" / "address").read_text()
        command = ["ebfed", "node", str(Path(directory).resolve()), "--name", name]
        command += ["--superlink", address]
        command += ["--root-certificates", str(self.directory / "certificates" / "ca.crt")]
        self._start(name, *command, *([] if seed is None else ["--seed", str(seed)]))

    def restart(self, name: str, directory: str | Path, *, seed: int | None = None) -> None:
        """End a node, if it runs, and start it again."""
        self._end({name})
        self.start_node(name, directory, seed=seed)
        self._wait(name, self._children[-1], partial(self._has_logged, name, "Connected as node"))

    def run(self, app: str | Path, config: Mapping[str, Any] | None = None) -> None:
        """Run an app and print its output, until it ends; ctrl-C stops the run, and nothing else.

        If the SuperLink dies, this waits until it is started again.

        Parameters
        ----------
        app : path
            Folder of its ``pyproject.toml``.
        config : dict, optional
            Numbers and strings that replace those of its run-config.

        Raises
        ------
        RuntimeError
            If the app was not started. The files of the server say whether there is a fit.
        KeyboardInterrupt
            When the run was stopped, and the server's program has ended.
        """
        words = ["run", str(app), "loopback", *(["--run-config", _words(config)] if config else [])]
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(self._flwr, *words)  # ctrl-C does not interrupt a thread
            try:
                self._follow(begun.result()["run-id"])
            except KeyboardInterrupt:
                self._flwr("stop", begun.result()["run-id"], "loopback")
                self._wait_for_program()
                raise

    def _flwr(self, *words: str) -> dict[str, Any]:
        """Run a command of Flower; returns what it says."""
        done = subprocess.run(
            [_program("flwr"), *words, "--format", "json"],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        said = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        if not said.get("success"):
            reason = said.get("error-message") or done.stderr or done.stdout
            raise RuntimeError(f"flwr {words[0]}: {COLOURS.sub('', reason).strip()}")
        return said

    def _follow(self, run: str) -> None:
        """Print what the server's program prints, until the run is over."""
        printed, failures = 0, 0
        lines = OwnLines()
        self._log("server").parent.mkdir(parents=True, exist_ok=True)
        self._log("server").touch(mode=0o600)
        while failures < 5:
            new, complete = self._print_output(run, printed, lines)
            if complete:
                return
            printed, failures = printed + new, 0 if new else failures + 1
            if not self._server_answers():
                print("The server does not answer; ebfed federate restart "
                      f"{self.directory} server starts it again.", flush=True)  # fmt: skip
            while not self._server_answers():
                time.sleep(1.0)
        raise RuntimeError(f"the output of run {run} cannot be read.")

    def _print_output(self, run: str, printed: int, own: OwnLines) -> tuple[int, bool]:
        """Print new lines of the server's program; all that Flower says is in ``server.log``.

        Returns how many there are, and whether the run is over.
        """
        lines = 0
        with (
            subprocess.Popen(
                [_program("flwr"), "log", run, "loopback", "--stream"],
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            ) as child,
            open(self._log("server"), "a", encoding="utf-8") as log,
        ):
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    lines += 1
                    if lines > printed:
                        plain = COLOURS.sub("", line)
                        log.write(plain)
                        if own.take(plain):
                            print(plain, end="", flush=True)
                if complete := child.wait() == 0:
                    print(*own.reasons, sep="\n", end="\n" * bool(own.reasons), flush=True)
                return max(lines - printed, 0), complete
            finally:
                child.kill()

    def _server_answers(self) -> bool:
        port = int((self.directory / "flower" / "address").read_text().partition(":")[2])
        return _answers(port, self.directory / "certificates" / "ca.crt")

    def _wait_for_program(self) -> None:
        """Wait until the server's program has ended: another run may go on with its files."""
        group = self.status().get("superexec")
        end = time.monotonic() + PATIENCE
        while any(row[2] == group != row[0] and not row[3].startswith("Z") for row in _processes()):
            if time.monotonic() > end:
                raise RuntimeError("the run was stopped, but the server's program does not end.")
            time.sleep(0.1)

    def status(self) -> dict[str, int]:
        """Return the names of the running processes, with the process group of each."""
        return {
            name: group for name, (group, began) in self._noted().items() if _lives(group, began)
        }

    def down(self, patience: float = 5.0) -> None:
        """End every process that was started, by force where it does not end itself.

        What the SuperLink has stored, messages among it, is deleted.

        Raises
        ------
        RuntimeError
            If one still runs afterwards.
        """
        self._end(self.status().keys(), patience)
        self._forget_messages()
        self._file.unlink(missing_ok=True)

    def _end(self, names: Collection[str], patience: float = 5.0) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for name, group in self.status().items():
                if name in names:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(group, sign)
            end = time.monotonic() + patience
            while (left := self.status().keys() & names) and time.monotonic() < end:
                self._reap()
                time.sleep(0.1)
            if not left:
                self._reap(1.0)  # one that is about to end may not be collected at once
                return
        raise RuntimeError(f"processes do not end: {', '.join(sorted(left))}")

    def _start(self, name: str, program: str, *arguments: str) -> None:
        with open(self._log(name), "wb") as log:
            child = subprocess.Popen(
                [_program(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=self._environment(),
                start_new_session=True,
            )
        self._children.append(child)
        self._note({name: child.pid})

    def _environment(self) -> dict[str, str]:
        # the SuperLink finds its helpers by name
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        home = str(self.directory / "flower")
        inherited = {name: value for name, value in os.environ.items() if name not in COLOURFUL}
        return {**inherited, **QUIET, "PATH": path, "FLWR_HOME": home}

    def _wait(self, name: str, child: subprocess.Popen, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start; {self._log(name)} says why.")
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def _has_logged(self, name: str, words: str) -> bool:
        return words in self._log(name).read_text(errors="replace")

    # Processes are noted by process group and by the time when its first process began, because the
    # system may give the number to another process later.

    def _noted(self) -> dict[str, tuple[int, str]]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def _note(self, groups: Mapping[str, int]) -> None:
        noted = self._noted() | {name: (group, _began(group)) for name, group in groups.items()}
        with replaced(self._file) as new:
            new.write_text(json.dumps(noted, indent=1))

    def _note_helpers(self) -> None:
        """Note process groups that our processes have made, as the SuperLink does."""
        groups = {group for group, _ in self._noted().values()}
        own, rows = set(groups), _processes()
        for _ in rows:  # generation after generation
            own |= {pid for pid, parent, *_ in rows if parent in own}
        others = {group for pid, _, group, *_ in rows if pid in own} - groups
        self._note({f"helper-{group}": group for group in others})

    def _reap(self, patience: float = 0.0) -> None:
        living = set(self.status().values()) if patience else set()
        for child in self._children:
            if child.poll() is None and patience and child.pid not in living:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(patience)


class OwnLines:
    """Separates the lines of the server's program from those of Flower, one after the other.

    Attributes
    ----------
    reasons : list of str
        One line for an error that ended the program: the last of its traceback.

    Examples
    --------
    >>> lines = OwnLines()
    >>> text = ["INFO :  Start", "round 1", "ERROR : failed", "  in main", "ValueError: no"]
    >>> [line for line in text if lines.take(line)], lines.reasons
    (['round 1'], ['no'])
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._failed = False

    def take(self, line: str) -> bool:
        """Return whether a line is the program's own."""
        if record := RECORD.match(line):
            self._failed = self._failed or record[1] in ("ERROR", "CRITICAL", None)
            return False
        if self._failed:  # what follows is Flower's, and the traceback
            if error := ERROR.fullmatch(line.rstrip()):
                kind, text = error.groups()
                plain = text if kind in ("RuntimeError", "ValueError") else f"{kind}: {text}"
                self.reasons = [plain] if kind.endswith(("Error", "Exception")) else self.reasons
            return False
        return not NOISE.match(line)


def _processes() -> list[tuple[int, int, int, str, str]]:
    """Return number, parent, group, state and beginning of every process."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    rows = (line.split(None, 4) for line in listed.splitlines())
    return [(int(a), int(b), int(c), state, began.strip()) for a, b, c, state, began in rows]


def _began(pid: int) -> str:
    return next((began for number, *_, began in _processes() if number == pid), "")


def _lives(group: int, began: str) -> bool:
    """Return whether a process of a noted group is running."""
    members = [row for row in _processes() if row[2] == group and not row[3].startswith("Z")]
    return bool(members) and all(row[4] == began for row in members if row[0] == group)


def _answers(port: int, root: Path | None) -> bool:
    """Return whether the SuperLink answers."""
    handlers: list[Any] = [urllib.request.ProxyHandler({})]  # no proxy for this machine
    if root is not None:
        context = ssl.create_default_context(cafile=str(root))
        handlers.append(urllib.request.HTTPSHandler(context=context))
    address = f"{'http' if root is None else 'https'}://{HOST}:{port}/health"
    try:
        urllib.request.build_opener(*handlers).open(address, timeout=1).close()
    except OSError:
        return False
    return True


def _words(config: Mapping[str, Any]) -> str:
    """Write settings as Flower reads them: a string is in quotes, without escapes."""
    for key, value in config.items():
        if isinstance(value, str) and re.search(r'["\\\n]', value):
            raise ValueError(f"{key} must hold no quotes, backslashes or line ends; got {value!r}.")
    return " ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in config.items()
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise RuntimeError(f'{name} is part of Flower: pip install "ebfed[flower]"')
    return found


def make_certificates(directory: Path, days: int = 30, host: str | None = None) -> None:
    """Make an authority and the certificate of a server on this machine.

    Parameters
    ----------
    directory : path
        Folder for ``ca.crt``, ``server.pem`` and ``server.key``. The authority's own key is not
        stored: nothing else can be signed with it.
    days : int
        Number of days that the certificates are valid.
    host : str, optional
        Name, or number, by which other machines reach this one.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now = datetime.datetime.now(datetime.UTC)
    issuer = named("ebfed trial authority")

    def certificate(subject: x509.Name, key: Any, extensions: list[tuple[Any, bool]]) -> bytes:
        builder = x509.CertificateBuilder(
            issuer,
            subject,
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(minutes=5),  # clocks differ
            now + datetime.timedelta(days=days),
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        signed = builder.sign(authority, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def usage(**allowed: bool) -> x509.KeyUsage:
        every = ["digital_signature", "content_commitment", "key_encipherment", "key_cert_sign"]
        every += ["data_encipherment", "key_agreement", "crl_sign", "encipher_only"]
        return x509.KeyUsage(**(dict.fromkeys([*every, "decipher_only"], False) | allowed))

    known: list[x509.GeneralName] = [x509.DNSName("localhost")]
    known.append(x509.IPAddress(ipaddress.ip_address(HOST)))
    if host is not None:
        try:
            known.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            known.append(x509.DNSName(host))
    names = x509.SubjectAlternativeName(known)
    files = {
        "ca.crt": certificate(
            issuer,
            authority,
            [
                (x509.BasicConstraints(ca=True, path_length=0), True),
                (usage(key_cert_sign=True, crl_sign=True), True),
                (x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), False),
            ],
        ),
        "server.pem": certificate(
            named("localhost"),
            own,
            [
                (x509.BasicConstraints(ca=False, path_length=None), True),
                (usage(digital_signature=True), True),
                (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
                (names, False),
                (
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
                    False,
                ),
            ],
        ),
        "server.key": own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with replaced(directory / name, private=name.endswith(".key")) as new:
            new.write_bytes(content)
