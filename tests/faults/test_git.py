"""The revision of a folder that somebody else has prepared: nothing of it is run or written."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from brusle.evaluation.running.revision import git_revision

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "mine.py").write_text("1")
    git(folder, "add", "mine.py")
    git(folder, "commit", "-qm", "one")
    return folder


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")[:12]


def script(folder: Path) -> tuple[Path, Path]:
    """A program, and the file that is there once it has been run."""
    program, trace = folder / "program", folder / "trace"
    program.write_text(f"#!/bin/sh\ntouch {trace}\ncat\n")
    program.chmod(0o755)
    return program, trace


def by_fsmonitor(repository: Path, program: Path) -> None:
    git(repository, "config", "core.fsmonitor", str(program))


def by_filter(repository: Path, program: Path) -> None:
    git(repository, "config", "filter.mine.clean", str(program))
    (repository / ".gitattributes").write_text("*.py filter=mine\n")


def by_process_filter(repository: Path, program: Path) -> None:
    git(repository, "config", "filter.mine.process", str(program))
    (repository / ".gitattributes").write_text("*.py filter=mine\n")


def by_include(repository: Path, program: Path) -> None:
    (repository / "more").write_text(f"[core]\n\tfsmonitor = {program}\n")
    git(repository, "config", f"includeIf.gitdir:{repository}/.path", str(repository / "more"))
    git(repository, "config", "include.path", str(repository / "more"))


def by_hooks(repository: Path, program: Path) -> None:
    hooks = repository / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout", "pre-commit"):
        (hooks / name).symlink_to(program)
    git(repository, "config", "core.hooksPath", str(hooks))


def by_worktree(repository: Path, program: Path) -> None:
    git(repository, "config", "core.worktree", str(repository.parent))
    by_fsmonitor(repository, program)


@pytest.mark.parametrize(
    "prepare", [by_fsmonitor, by_filter, by_process_filter, by_include, by_hooks, by_worktree]
)
def test_nothing_of_a_repository_is_run_or_written(
    repository, tmp_path, prepare: Callable[[Path, Path], None]
) -> None:
    commit = head(repository)
    program, trace = script(tmp_path)
    prepare(repository, program)
    (repository / "mine.py").write_text("2")  # git would look into it, through its filters
    index = (repository / ".git" / "index").read_bytes()
    assert git_revision(repository) == commit
    assert git_revision(repository, "mine.py") == commit
    assert not trace.exists()
    assert (repository / ".git" / "index").read_bytes() == index


def test_the_repositories_of_these_tests_are_hostile(repository, tmp_path) -> None:
    program, trace = script(tmp_path)
    by_fsmonitor(repository, program)
    subprocess.run(["git", "-C", str(repository), "status"], capture_output=True, check=False)
    assert trace.exists()


def test_an_embedded_bare_repository_is_no_repository(repository, tmp_path) -> None:
    program, trace = script(tmp_path)
    bare = repository / "vendored"
    git(repository, "init", "-q", "--bare", str(bare))
    with (bare / "config").open("a") as config:
        config.write(f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n")
    (bare / "HEAD").write_text(COMMIT)
    assert git_revision(bare) == head(repository)  # that of the folder around it
    assert not trace.exists()


def test_revisions_are_found_wherever_git_keeps_them(repository, tmp_path) -> None:
    commit = head(repository)
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    assert git_revision(inner) == commit
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert git_revision(repository) == commit
    git(repository, "checkout", "-q", "-b", "feature/deep")
    git(repository, "commit", "-qm", "two", "--allow-empty")
    assert git_revision(repository) == head(repository) != commit
    git(repository, "worktree", "add", "-q", "-b", "beside", str(tmp_path / "beside"), commit)
    assert (tmp_path / "beside" / ".git").is_file()
    assert git_revision(tmp_path / "beside", "mine.py") == commit
    git(repository, "pack-refs", "--all")
    assert git_revision(tmp_path / "beside") == commit
    git(repository, "checkout", "-q", "--detach", commit)
    assert git_revision(repository) == commit


def test_symbolic_references_are_followed(repository) -> None:
    commit = head(repository)
    git(repository, "symbolic-ref", "refs/heads/other", "refs/heads/main")
    git(repository, "symbolic-ref", "HEAD", "refs/heads/other")
    assert git_revision(repository) == commit
    (repository / ".git" / "HEAD").unlink()
    (repository / ".git" / "HEAD").symlink_to("refs/heads/main")  # as git did long ago
    assert git_revision(repository) == commit


def test_submodules_have_their_own_revision(repository, tmp_path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    allowed = ("-c", "protocol.file.allow=always")
    git(outer, *allowed, "submodule", "--quiet", "add", str(repository), "inner")
    assert git_revision(outer / "inner") == head(repository)


def test_a_repository_without_a_commit_has_no_revision(tmp_path) -> None:
    git(tmp_path, "init", "-q")
    assert git_revision(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "ref: ",
        "ref: ../../secret",
        "ref: refs/../../../secret",
        "ref: refs/heads/../../../secret",
        "ref: refs//heads/main",
        "ref: /etc/passwd",
        "ref: refs/heads",
        "ref: refs/heads/.invalid",
        "ref: refs/heads/main\0",
        "ref: HEAD",
        "ref: refs/heads/loop",
        "ref: refs/heads/secret",
        "ref: refs/heads/no-text",
        "ref: refs/heads/pipe",
        "password",
        "0123456789abcdef",
        COMMIT + "0",
        "\N{SNOWMAN}" * 10,
    ],
)
def test_a_hostile_head_is_no_revision(repository, tmp_path, content) -> None:
    (tmp_path / "secret").write_text(COMMIT)
    heads = repository / ".git" / "refs" / "heads"
    (heads / "loop").write_text("ref: refs/heads/loop")
    (heads / "secret").symlink_to("/etc/passwd")
    (heads / "no-text").write_bytes(bytes(range(256)))
    os.mkfifo(heads / "pipe")
    (repository / ".git" / "HEAD").write_text(content)
    assert git_revision(repository) is None


@pytest.mark.parametrize("content", ["", "x", *map("gitdir: {}".format, ("", "/etc", "\0", "."))])
def test_a_hostile_git_file_is_no_repository(tmp_path, content) -> None:
    (tmp_path / ".git").write_text(content)
    assert git_revision(tmp_path) is None


def test_special_files_in_place_of_a_repository_are_not_waited_for(repository, tmp_path) -> None:
    for name in ("HEAD", "packed-refs", "commondir", "index"):
        path = repository / ".git" / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    assert git_revision(repository, "mine.py") is None
    other = tmp_path / "other"
    other.mkdir()
    os.mkfifo(other / ".git")
    assert git_revision(other) is None
