"""The git revision of a folder, read from its files.

git itself is not asked. A repository may name programs that git runs (monitors, filters, hooks),
and git rewrites the index when it looks at the state of the files; an evaluation may be started in
any folder, whoever made it. So it is not known whether files differ from the revision.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")  # SHA-1 or SHA-256
_REFERENCE = re.compile(r"refs(/(?!\.)[\w.@+-]+)+", re.ASCII)  # no part of it leads elsewhere
_LINKS = 5  # from reference to reference, as many as git follows
_LARGEST = 64 << 20  # bytes of a file that are read; a long list of packed references has a few


def git_revision(folder: Path, file: str | None = None) -> str | None:
    """The first digits of the commit that is checked out in ``folder``.

    Args:
        folder: the folder.
        file: a file in it that must be under version control: an installed package may lie
            inside somebody else's repository.

    Returns:
        None if there is no repository, or none that can be read.
    """
    folder = folder.resolve()
    for root in (folder, *folder.parents):
        if os.path.lexists(root / ".git"):
            git = _git_folder(root / ".git")
            if git is None or (file and not _has(git, (folder / file).relative_to(root))):
                return None
            commit = _commit(git, "HEAD")
            return commit and commit[:12]
    return None


def _git_folder(entry: Path) -> Path | None:
    """Where the repository is; in worktrees and submodules a file says so."""
    if entry.is_dir():
        return entry
    word, _, path = _text(entry).strip().partition("gitdir: ")
    return entry.parent / path if path and not word else None


def _commit(git: Path, name: str) -> str | None:
    """The commit that a reference stands for."""
    common = git / _text(git / "commondir").strip()  # of a worktree, the repository's own
    for _ in range(_LINKS):
        found = _text(git / name) or _text(common / name)
        if not found:
            return _packed(common).get(name)
        found = found.strip()
        if _COMMIT.fullmatch(found):
            return found
        name = found.removeprefix("ref: ")
        if name == found or not _REFERENCE.fullmatch(name):
            return None
    return None


def _packed(git: Path) -> dict[str, str]:
    """The references that lie in one file, by name."""
    lines = (line.split(" ") for line in _text(git / "packed-refs").splitlines())
    pairs = (parts for parts in lines if len(parts) == 2)
    return {name: commit for commit, name in pairs if _COMMIT.fullmatch(commit)}


def _has(git: Path, path: Path) -> bool:
    """Whether the index lists the file; not known of an index of version 4, which cuts names."""
    return os.fsencode(path.as_posix()) + b"\0" in _read(git / "index")


def _text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    """What a file holds; nothing if it cannot be read, or only by waiting for somebody."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):  # no rights, or a name that no file can have
        return b""
