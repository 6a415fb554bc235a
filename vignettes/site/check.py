"""Look at every page of ``site/`` in Chromium: ``python vignettes/site/check.py [--pictures DIR]``.

A page fails if it prints an error, asks anybody else for anything, lacks a picture, or scrolls
sideways on a phone. The search has to find an estimator, served and from the file system. Needs
``pip install playwright`` and a Chromium (``CHROMIUM`` is its path, else it is searched).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
PICTURES = ("index", "groups/index", "cost", "vignettes/counties", "api/location/GaussianEB")
SIDEWAYS = "document.documentElement.scrollWidth > window.innerWidth"
# Results of the search that show more than one paragraph.
LONG = """[...document.querySelectorAll(".md-search-result__article")].filter(result =>
  [...result.querySelectorAll(":scope > p:not(.md-search-result__terms), :scope > * > li")]
  .filter(each => each.checkVisibility()).length > 1).length"""
EMPTY = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"


def chromium() -> str | None:
    """Find the browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not print every request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def watch(page: Any, home: str, defects: list[str]) -> None:
    """Note what a page prints, misses or asks of others."""

    def request(asked: Any) -> None:
        if not asked.url.startswith((home, "data:", "blob:", "about:")):
            defects.append(f"{page.url} asks for {asked.url}")

    def failed(asked: Any) -> None:
        if asked.failure != "net::ERR_ABORTED":  # the next page is opened before an icon is loaded
            defects.append(f"{asked.url}: {asked.failure}")

    page.on("request", request)
    page.on("requestfailed", failed)
    page.on("pageerror", lambda error: defects.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda line: (
            line.type in ("error", "warning")
            and defects.append(f"{page.url}: {line.type}: {line.text}")
        ),
    )


def search(page: Any, address: str, word: str) -> list[str]:
    """Type a word into the search; returns what is wrong with the results."""
    from playwright.sync_api import TimeoutError as NothingFound

    page.goto(address)
    page.locator("label[for=__search]:visible").first.click()
    page.locator("input.md-search__input").press_sequentially(word)
    result = page.locator(".md-search-result__item", has_text=word).first
    try:
        result.wait_for(timeout=20_000)
    except NothingFound:
        return [f"{address}: the search does not find {word}"]
    if results := page.evaluate(LONG):
        return [f"{address}: {results} results for {word} are longer than a paragraph"]
    return []


def check(site: Path = SITE, pictures: Path | None = None) -> list[str]:
    """Visit every page on a desk and on a phone; returns the defects."""
    from playwright.sync_api import sync_playwright

    defects: list[str] = []
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    with served(site) as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for label, size in (("desktop", DESKTOP), ("phone", PHONE)):
            page = browser.new_page(viewport=size)
            watch(page, home, defects)
            for name in names:
                settled = "load" if name.startswith("api/") else "networkidle"  # they are many
                page.goto(home + name, wait_until=settled)
                defects += [f"{name}: no picture at {src}" for src in page.evaluate(EMPTY)]
                if page.evaluate(SIDEWAYS):
                    defects.append(f"{name}: scrolls sideways on a {label}")
                if pictures and name.removesuffix(".html") in PICTURES:
                    picture = name.removesuffix(".html").replace("/", "-")
                    page.screenshot(path=pictures / f"{label}-{picture}.png")
            page.close()
        for address in (home, (site / "index.html").as_uri()):
            page = browser.new_page(viewport=PHONE)
            watch(page, address.removesuffix("index.html"), defects)
            defects += search(page, address, "GaussianEB")
            page.close()
        browser.close()
    print(f"{len(names)} pages, {len(defects)} defects")
    return defects


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for screenshots of a few pages")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    sys.exit("\n".join(check(pictures=arguments.pictures)) or 0)
