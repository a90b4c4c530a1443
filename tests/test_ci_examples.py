"""examples/ci: what is copied into pipelines runs, and takes names for names."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

import brusle
from brusle.cli import cli

CI = Path(__file__).parents[1] / "examples" / "ci"
ACTION = yaml.safe_load((CI / "action.yml").read_text())
WORKFLOW = yaml.safe_load((CI / "workflow.yml").read_text())
GITLAB = yaml.safe_load((CI / "gitlab-ci.yml").read_text())
STEPS = ACTION["runs"]["steps"]
SCRIPTS = {step["name"]: step["run"] for step in STEPS if "run" in step}
QUICK = {"victim": "zoo:cifar10-resnet20", "pixels": "5", "queries": "20", "attacks": "brusle\n"}


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment as a runner has it, with the ``brusle`` of these tests in the path."""
    tools = tmp_path / "bin"
    tools.mkdir()
    code = "import sys; from brusle.cli import main; sys.argv[0] = 'brusle'; main()"
    (tools / "brusle").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    (tools / "brusle").chmod(0o755)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(brusle.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }


def given(step: dict[str, Any], inputs: dict[str, str]) -> dict[str, str]:
    """The variables of a step, as GitHub fills them in."""
    values = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()}
    values |= inputs

    def fill(found: re.Match[str]) -> str:
        return values[found[1]]

    return {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", fill, text)
        for name, text in step.get("env", {}).items()
    }


def run_step(name: str, shell: dict[str, str], where: Path, inputs: dict[str, str]) -> Any:
    """As ``shell: bash`` of GitHub runs it."""
    (step,) = (step for step in STEPS if step["name"] == name)
    script = where / "script.sh"
    script.write_text(step["run"])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    env = shell | given(step, inputs)
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_input_becomes_text_of_a_script(script) -> None:
    assert "${{" not in script
    for step in STEPS:
        declared = set(re.findall(r"inputs\.([\w-]+)", str(step)))
        assert declared <= set(ACTION["inputs"])
        used = set(re.findall(r"\$\{?([A-Z_]+)", step.get("run", "")))
        assert used - {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"} == set(step.get("env", {}))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_scripts_are_clean(script, tmp_path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "code", "result"),
    [
        ({"min-robust": "2", "limit": "60"}, (0, 5), ("pass", "undecided")),
        ({"min-robust": "95"}, (4,), ("fail",)),
        ({"min-robust": "45", "limit": "3"}, (5,), ("undecided",)),
        ({"min-robust": "45", "limit": "3", "on-undecided": "pass"}, (0,), ("undecided",)),
    ],
)
def test_the_action_attacks_and_judges(shell, tmp_path, more, code, result) -> None:
    attacked = run_step("Attack", shell, tmp_path, QUICK | more)
    assert attacked.returncode == 0, attacked.stderr
    judged = run_step("Judge", shell, tmp_path, QUICK | more)
    assert judged.returncode in code, judged.stderr
    assert (tmp_path / "output").read_text() in [f"result={one}\n" for one in result]
    assert "robust accuracy of at least" in (tmp_path / "summary.md").read_text()
    assert JUnitXml.fromfile(str(tmp_path / "brusle-run" / "gate.xml")).tests == 1
    assert ("::warning::" in judged.stdout) == ("on-undecided" in more)


@pytest.mark.slow
def test_the_action_compares_with_a_baseline(shell, tmp_path) -> None:
    run_step(
        "Attack", shell, tmp_path, QUICK | {"limit": "20", "out": "before", "baseline": "none"}
    )
    inputs = QUICK | {"limit": "20", "baseline": "before", "max-drop": "5"}
    inputs |= {"victim": "zoo:cifar10-resnet20-l0"}
    assert run_step("Attack", shell, tmp_path, inputs).returncode == 0
    judged = run_step("Judge", shell, tmp_path, inputs)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "below the baseline" in (tmp_path / "summary.md").read_text()


def test_names_with_shell_characters_stay_names(shell, tmp_path) -> None:
    nasty = '$(touch owned) `touch owned`"; touch owned; #'
    inputs = QUICK | {"victim": nasty, "min-robust": "50", "attacks": f"{nasty}\n", "limit": nasty}
    attacked = run_step("Attack", shell, tmp_path, inputs)
    assert attacked.returncode == 2 and not (tmp_path / "owned").exists()
    judged = run_step("Judge", shell, tmp_path, inputs | {"min-robust": nasty, "out": "no run"})
    assert judged.returncode == 2 and not (tmp_path / "owned").exists()
    assert not (tmp_path / "output").exists()


def options_of(command: str) -> set[str]:
    return {
        option for parameter in cli.get_command(None, command).params for option in parameter.opts
    }  # type: ignore[arg-type,union-attr]


@pytest.mark.parametrize("text", [*SCRIPTS.values(), *GITLAB["robustness"]["script"]])
def test_every_option_is_one_of_the_command(text) -> None:
    for command in re.findall(r"brusle (\w+) ", text):
        if command in ("evaluate", "gate"):
            assert set(re.findall(r" (--[a-z-]+)", text)) <= options_of(command), command


@pytest.mark.slow
def test_the_job_for_gitlab_runs(shell, tmp_path) -> None:
    job = GITLAB["robustness"]
    install, *script = job["script"]
    assert install == 'python -m pip install "$PACKAGE"'
    text = "\n".join(script).replace("300", "20")
    values = job["variables"] | {"VICTIM": "zoo:cifar10-resnet20", "DATA": "sample"}
    env = shell | values | {"AT": "5px,20q", "MIN_ROBUST": "90"}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4, done.stderr  # and 5 would be a warning
    assert job["allow_failure"]["exit_codes"] == [5]
    report = tmp_path / job["artifacts"]["reports"]["junit"]
    assert JUnitXml.fromfile(str(report)).failures == 1
    assert all((tmp_path / path).exists() for path in job["artifacts"]["paths"])
    assert job["variables"]["AT"] == "5px,300q" and "--pixels 5 --queries 300" in script[0]


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    steps = WORKFLOW["jobs"]["gate"]["steps"]
    (gate,) = (step for step in steps if step.get("id") == "robust")
    assert set(gate["with"]) <= set(ACTION["inputs"])
    required = {name for name, about in ACTION["inputs"].items() if about.get("required")}
    assert required <= set(gate["with"])
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for step in steps:
        assert "${{" not in step.get("run", "")
        shlex.split(step.get("run", ""))
    assert set(ACTION["outputs"]) == {"result"}
