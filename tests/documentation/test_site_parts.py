"""What stands beside the pages: navigation, llms.txt, the citation, forms for issues."""

import re
from pathlib import Path, PurePosixPath

import pytest
import yaml
from handbook import checking, overview, staging

import brusle

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_the_navigation_has_every_page_once_and_describes_it() -> None:
    assert [*checking.missing_from_navigation()] == []
    pages = [page for _, inside in overview.navigation() for _, page in inside]
    assert len(pages) == len(set(pages))
    assert set(pages) == set(overview.settings()["extra"]["about"])


def test_llms_txt_is_in_step_and_leads_to_files() -> None:
    text = overview.FILE.read_text(encoding="utf-8")
    assert text == overview.for_repository(), "python tools/make_site.py --llms"
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.M)
    assert len(links) == text.count("\n- ") and all((ROOT / link).is_file() for link in links)


def test_links_out_of_the_pages_stay_in_the_site(tmp_path) -> None:
    staging.Staging(tmp_path).stage()
    extending = (tmp_path / "extending.md").read_text()
    assert "](source/examples/random_search.py.md)" in extending
    shown = (tmp_path / "source" / "examples" / "random_search.py.md").read_text()
    assert "class RandomSearch(SparseAttack)" in shown
    assert "](../gallery.png)" in (tmp_path / "project" / "readme.md").read_text()
    assert (tmp_path / "reference" / "commands.md").is_file()


def test_places_in_the_site() -> None:
    place = staging.place
    assert str(place(PurePosixPath("docs/runs.md"))) == "runs.md"
    assert str(place(PurePosixPath("SECURITY.md"))) == "project/security.md"
    assert str(place(PurePosixPath("tests/faults"))) == "source/tests/faults/index.md"


def test_links_in_code_are_left_alone() -> None:
    text = "[a](b)\n```python\n[a](b)\n```\n[a](b)\n"
    assert staging.with_links(text, str.upper).count("](B)") == 2


def test_the_citation_is_of_this_version() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert said["version"] == brusle.__version__ and said["cff-version"] == "1.2.0"
    assert said["authors"] == [{"name": "The brusle authors"}] and said["message"]
    (paper,) = said["references"]
    assert paper["type"] == "conference-paper" and paper["title"].startswith("BruSLeAttack")


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_ask_for_what_helps(form) -> None:
    said = yaml.safe_load(form.read_text(encoding="utf-8"))
    if form.stem == "config":
        assert said == {"blank_issues_enabled": True}
        return
    assert said["name"] and said["description"]
    names = [part["id"] for part in said["body"] if part["type"] != "markdown"]
    assert len(names) == len(set(names)) > 0
    if form.stem in ("bug", "wrong-result"):
        text = form.read_text()
        assert "brusle --version" in text and "brusle status" in text and "no keys" in text
