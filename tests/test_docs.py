"""What the documentation says can be done, as far as a test can see it."""

import re
import tomllib
from pathlib import Path

import pytest

import brusle

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}


@pytest.mark.parametrize("page", TEXTS)
def test_names_of_the_package_resolve_after_import_brusle(page) -> None:
    names = set(re.findall(r"(?<![\w/.-])brusle(?:\.[a-zA-Z]\w*)+", TEXTS[page]))
    for name in sorted(names):
        thing: object = brusle
        for part in name.split(".")[1:]:
            if part in ("py", "md", "git"):
                break  # the name of a file
            thing = getattr(thing, part)


@pytest.mark.parametrize("page", TEXTS)
def test_links_to_files_and_headings_lead_somewhere(page) -> None:
    here = ROOT if page == "README.md" else ROOT / "docs"
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if target.startswith("http"):
            continue
        file, _, heading = target.partition("#")
        assert (here / (file or page)).exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", TEXTS[Path(file or page).name], re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_every_extra_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"bench", "dev"}  # for those who develop it
    section = TEXTS["README.md"].partition("## Install")[2].partition("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", "".join(row.split("|")[1] for row in rows))) == extras
