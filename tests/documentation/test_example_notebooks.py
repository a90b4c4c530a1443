"""The notebooks run from top to bottom, and are stored without what they print."""

import json
import subprocess
import sys

import pytest
from blocks import PAGES, ROOT
from playing import environment

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
names = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)


@names
def test_it_is_stored_without_what_it_prints(notebook) -> None:
    assert notebook.stat().st_size < 10_000
    book = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert book["metadata"]["kernelspec"]["name"] == "python3"


@names
def test_a_page_leads_to_it_and_its_own_links_lead_somewhere(notebook) -> None:
    assert any(notebook.name in page.read_text(encoding="utf-8") for page in PAGES)
    text = notebook.read_text(encoding="utf-8")
    for part in text.split("](")[1:]:
        target = part.partition(")")[0].partition("#")[0]
        assert (notebook.parent / target).exists(), target


@pytest.mark.docs
@names
def test_it_runs(notebook, tmp_path) -> None:
    done = run(notebook, tmp_path)
    assert done.returncode == 0, done.stdout


def run(notebook, folder) -> "subprocess.CompletedProcess[str]":
    """A notebook, in an empty folder and without a network."""
    copy = folder / notebook.name
    copy.write_bytes(notebook.read_bytes())
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--nbmake", "-p", "no:cacheprovider", str(copy)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.docs
def test_a_notebook_that_fails_is_found(tmp_path) -> None:
    book = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    cell = next(cell for cell in book["cells"] if cell["cell_type"] == "code")
    book["cells"] = [cell | {"source": "assert 1 + 1 == 3"}]
    wrong = tmp_path / "wrong.ipynb"
    wrong.write_text(json.dumps(book), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    done = run(wrong, tmp_path / "empty")
    assert done.returncode == 1 and "1 + 1 == 3" in done.stdout
