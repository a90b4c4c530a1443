"""Real Chromium, driven by Playwright: pages are looked at as people do.

Requests to anything but loopback and the page's own file are refused and written down, so that a
test can say that no request leaves a page.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CHROMIUM = os.environ.get("BRUSLE_TEST_CHROMIUM") or shutil.which("chromium")
HERE = Path(__file__).parent
_ARGUMENTS = [
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    if CHROMIUM is None:
        pytest.fail(
            "there is no Chromium: `make test-browser` installs it, or say where it is in "
            "BRUSLE_TEST_CHROMIUM"
        )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """Pages of one visitor.

    Attributes:
        left: addresses of requests that would have left this machine.
        complaints: errors of scripts, and what the console calls an error.
    """

    def __init__(self, browser, **look) -> None:
        self.context = browser.new_context(**look)
        self.left: list[str] = []
        self.complaints: list[str] = []
        self.context.route("**/*", self._watch)

    def open(self, address: str | Path):
        """A page, after it has loaded."""
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        page.goto(address.resolve().as_uri() if isinstance(address, Path) else address)
        return page

    def _watch(self, route) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in ("file", "data", "blob") or parts.hostname in ("127.0.0.1", "localhost"):
            route.continue_()
        else:
            self.left.append(route.request.url)
            route.abort()


@pytest.fixture
def visits(chromium) -> Iterator[type[Visit]]:
    """Makes a `Visit`: ``visits(viewport={"width": 390, "height": 800}, color_scheme="dark")``."""
    made: list[Visit] = []

    def make(**look) -> Visit:
        made.append(Visit(chromium, **look))
        return made[-1]

    yield make
    for visit in made:
        visit.context.close()
