"""The package as its users get it: built, checked, and installed where nothing else is."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from playing import play

from brusle.cli import cli

pytestmark = pytest.mark.package
ROOT = Path(__file__).parents[1]
MOST = 8_000_000  # bytes of a wheel


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints, with nothing in its environment that leads back to this clone."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel, and the archive that it was built from."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory) -> Path:
    """The commands of an environment that has the wheel, what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
    # constraints choose the build of torch, which without them brings gigabytes of CUDA
    run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return folder / "bin"


def test_the_registry_would_take_it(built) -> None:
    said = run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=built)
    assert said.count("PASSED") == 2


def test_the_wheel_is_small_and_holds_the_library_alone(wheel) -> None:
    assert wheel.stat().st_size < MOST
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"brusle"}
    assert {"brusle/py.typed", "brusle/zoo/models/cifar10-resnet20.safetensors"} < set(names)
    assert not [name for name in names if "train" in name or name.endswith(".pyc")]


def test_the_archive_holds_what_a_contributor_needs(built) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = run("git", "ls-files", cwd=ROOT).split()
    left_out = {name.split("/")[0] for name in listed} - {name.split("/")[0] for name in names}
    assert left_out <= {".ci", ".github"}


def test_nothing_is_missing_where_nothing_else_is_installed(empty, tmp_path) -> None:
    run(empty / "python", "-m", "pip", "check", cwd=tmp_path)
    code = "import brusle; [getattr(brusle, name) for name in brusle.__all__]"
    run(empty / "python", "-c", code, cwd=tmp_path)
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        assert "Usage: brusle" in run(empty / "brusle", name, "--help", cwd=tmp_path)


def test_the_main_job_runs_from_the_wheel(empty, tmp_path) -> None:
    said = run(empty / "brusle", "evaluate", "--limit", "4", "--out", "run", cwd=tmp_path)
    assert "rows, summary and pictures are in run" in said
    assert {"rows.csv", "run.json", "gallery.png"} < set(os.listdir(tmp_path / "run"))


def test_an_extra_is_named_where_its_package_is_missing(empty, tmp_path) -> None:
    done = subprocess.run(
        [empty / "brusle", "evaluate", "--victim", "timm:resnet18", "--limit", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3 and 'pip install "brusle[timm]"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", ["index", "start-model", "start-paper", "science", "traps"])
def test_who_is_new_gets_through_with_the_wheel_alone(empty, page, tmp_path) -> None:
    assert not play(page, _page(page), tmp_path, installed=empty)


def test_who_has_a_service_needs_two_extras(empty, wheel, tmp_path) -> None:
    """The last test: the environment is not empty any more."""
    pip = (empty / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    run(*pip, f"{wheel}[remote,serve]", cwd=tmp_path)
    assert not play("start-api", _page("start-api"), tmp_path, installed=empty)


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
