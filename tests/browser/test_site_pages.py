"""The site in a browser: no request leaves it, and its search works from files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    pytest.importorskip("zensical", reason="make test-docs installs it")
    subprocess.run([sys.executable, ROOT / "tools" / "make_site.py"], check=True)
    return ROOT / "site"


@pytest.mark.parametrize("page", ["index.html", "metrics.html", "reference/attacks.html"])
@pytest.mark.parametrize("width", [390, 1300])
def test_a_page_loads_nothing_from_elsewhere(site, visits, page, width) -> None:
    visit = visits(viewport={"width": width, "height": 800}, color_scheme="dark")
    opened = visit.open(site / page)
    assert opened.locator("h1").first.is_visible()
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.left == [] and visit.complaints == []


def test_the_search_finds_without_a_server(site, visits) -> None:
    visit = visits(viewport={"width": 1300, "height": 900})
    page = visit.open(site / "metrics.html")
    page.wait_for_timeout(500)
    page.keyboard.press("/")
    page.wait_for_timeout(300)
    page.keyboard.type("minimise")
    page.get_by_text("brusle.minimise").first.wait_for(state="attached")
    assert visit.left == [] and visit.complaints == []
