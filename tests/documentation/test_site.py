"""The site: built from all pages, whole, and readable without a network."""

import subprocess
import sys
from pathlib import Path

import pytest
from handbook import checking

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    """Built as `make docs` does, which looks at links and at what a browser would load."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_site.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "site"


def test_nothing_is_wrong_with_it(site) -> None:
    assert [*checking.problems(site)] == []


def test_every_page_is_there_as_html_and_as_markdown(site) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.name).is_file() and (site / page.name).with_suffix(".html").is_file()
    for line in (site / "llms.txt").read_text().splitlines():
        if line.startswith("- ["):
            assert (site / line.partition("](")[2].partition(")")[0]).is_file(), line


def test_what_is_missing_is_noticed(site, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<h1 id=here></h1><a href='#here'></a><a href='#there'></a><a href='gone.html'></a>"
        "<script src='https://example.org/a.js'></script><img src='gone.png'>"
    )
    found = [line for line in checking.problems(tmp_path) if line.startswith("page.html")]
    assert len(found) == 4
    assert not any("#here" in line for line in found)
