"""Names of files, and files that are written as a whole or not at all."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from brusle.errors import DataError
from brusle.files import file_name, name_beside, require_file, write_text, written

HOSTILE = [
    "", ".", "..", "...", "../../x", "/etc/passwd", "a/b", "a\\b", "..\\x", "C:\\x", "a\0b", "a\nb",
    "\x1b[31m", "\x7f", "a\tb", " ", " a", "a ", "a.", "-rf", "--", ".hidden", "~", "~root",
    "$HOME", "`id`", "a;b", "a|b", "*", "?", "con", "CON", "con.txt", "nul", "com1", "lpt9.x",
    "prn", "aux.a.b", "IMG", "img", "Img", "\xe9", "e\u0301", "\xc9", "\ufb01", "fi", "\xdf", "ss",
    "\u0130", "i", "\u0131", "\u017f", "s", "S", "\U0001f4a5", "\U0001f468\u200d\U0001f467",
    "\u202egnp.exe", "exe.png", "\ufeffa", "\u200ba", "\udcff", "\ud800", "图片一", "x" * 300,
    "x" * 299, "\xe9" * 300, "\xe9" * 299 + "e", "\U0001f4a5" * 100, "\x1b" * 300, "[/bold]",
    "<script>", "=cmd|'/C calc'!A0", "a-2", "a", "A", "A-559aead08264", "a-559aead08264", "..png",
    "image", "Image", "x.", "x", "x-", "x--", "_x", "x_",
]  # fmt: skip


def folded(name: str) -> str:
    """What the most forgiving file system looks at."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold()).casefold()


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_makes_a_file_in_its_folder(tmp_path, name) -> None:
    made = file_name(name)
    path = tmp_path / "in" / f"{made}-to-999999.png"
    assert path.parent.resolve() == (tmp_path / "in").resolve() == path.resolve().parent
    assert len(os.fsencode(path.name)) <= 143  # the least that a file system in use allows
    assert made.isprintable() and made == made.strip(" .-") and not made.startswith("-")
    assert made.split(".")[0].lower() not in ("con", "prn", "aux", "nul", "com1", "lpt9")
    assert not set(made) & set('<>:"/\\|?*\0')
    write_text(path, "x")
    assert os.listdir(tmp_path / "in") == [path.name] and path.read_text() == "x"


def test_different_names_are_different_files_also_where_capitals_do_not_count() -> None:
    names = list(dict.fromkeys(HOSTILE))
    # the file of a name is another name, too
    names += [made for made in map(file_name, names) if made not in names]
    made = [file_name(name) for name in names]
    assert len({folded(name) for name in made}) == len(names)


def test_plain_names_are_the_names_of_their_files() -> None:
    for name in ("test-0042", "a", "00001", "cat_1.2", "x" * 100):
        assert file_name(name) == name
    # and of others so much is kept as can be
    assert file_name("Cats/IMG 01").startswith("Cats-IMG-01-")
    assert file_name("..").startswith("image-")
    assert file_name("图片一").startswith("图片一-")


def test_a_name_does_not_depend_on_others() -> None:
    assert [file_name(name) for name in HOSTILE] == [file_name(name) for name in reversed(HOSTILE)][
        ::-1
    ]


def test_a_long_name_gets_a_file_beside_it(tmp_path) -> None:
    assert name_beside(tmp_path / "a.b.jpg", "-adversarial.png").name == "a.b-adversarial.png"
    long = [tmp_path / ("é" * 120 + end + ".jpg") for end in "ab"]
    made = [name_beside(path, "-adversarial.png") for path in long]
    assert made[0] != made[1]
    for path in made:
        path.touch()


# writing


def break_off(path: Path, error: BaseException) -> None:
    with written(path) as file:
        file.write_text("half")
        raise error


def test_a_new_file_has_the_permissions_of_any_other(tmp_path) -> None:
    for umask in (0o022, 0o077, 0o000):
        before = os.umask(umask)
        try:
            write_text(tmp_path / f"{umask:o}", "x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{umask:o}").stat().st_mode) == 0o666 & ~umask


def test_a_file_keeps_its_permissions(tmp_path) -> None:
    path = tmp_path / "x.csv"
    for mode in (0o600, 0o664, 0o755):
        path.touch()
        path.chmod(mode)
        write_text(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_text() == "new"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    for error in (ValueError("x"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)):
            break_off(path, error)
        assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.csv"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EROFS, "another place")],
)
def test_what_the_system_refuses_is_one_line(tmp_path, number, remedy) -> None:
    with pytest.raises(DataError, match=f"cannot write .*x.csv: .*{remedy}"):
        break_off(tmp_path / "x.csv", OSError(number, os.strerror(number)))
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_one_line_in_earnest(tmp_path) -> None:
    (tmp_path / "x.csv").symlink_to("/dev/full")  # a link is written through
    with pytest.raises(DataError, match="No space left on device; make room"):
        write_text(tmp_path / "x.csv", "x")


@pytest.mark.parametrize("place", ["file/x", "/proc/x", "n" * 300, "folder"])
def test_places_that_cannot_be_written_to(tmp_path, place, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    with pytest.raises(DataError, match="cannot write .*; choose another place"):
        write_text(place, "x")
    assert sorted(os.listdir(".")) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_protected_files_and_folders(tmp_path) -> None:
    protected = tmp_path / "x"
    protected.write_text("old")
    protected.chmod(0o444)
    with pytest.raises(DataError, match="Permission denied"):
        write_text(protected, "new")
    assert protected.read_text() == "old" and os.listdir(tmp_path) == ["x"]


def test_links_are_written_through(tmp_path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    (tmp_path / "dangling").symlink_to("made")
    write_text(tmp_path / "dangling", "new")
    assert (tmp_path / "made").read_text() == "new"
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_pipes_are_written_to(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_text(tmp_path / "pipe", "through")
    reader.join()
    assert found == ["through"] and stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


def test_standard_output_is_written_to(tmp_path) -> None:
    code = "from brusle.files import write_text; write_text('/dev/stdout', 'said'); print('more')"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout == b"saidmore\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from brusle import files

def stop(*_):
    os.kill(os.getpid(), signal.SIGKILL)

at = sys.argv[1]
if at in ("fsync", "replace"):
    setattr(os, at, stop)
with files.written("x.csv") as file, file.open("w") as out:
    if at == "begin":
        stop()
    out.write("new\\n" * 5000)
    out.flush()
    if at == "middle":
        stop()
    out.write("new\\n" * 5000)
if at == "end":
    stop()
"""


@pytest.mark.parametrize("at", ["begin", "middle", "fsync", "replace", "end"])
@pytest.mark.parametrize("before", ["old\n" * 10, None])
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path, at, before) -> None:
    path = tmp_path / "x.csv"
    if before is not None:
        path.write_text(before)
    answer = subprocess.run([sys.executable, "-c", KILLED, at], cwd=tmp_path, check=False)
    assert answer.returncode == -signal.SIGKILL
    wanted = "new\n" * 10_000 if at == "end" else before
    assert (path.read_text() if path.exists() else None) == wanted


# reading


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: os.mkfifo(path), "is no file but a pipe or a device"),
        (lambda path: path.symlink_to("/dev/zero"), "is no file but a pipe or a device"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to("nothing"), "No such file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
    ],
)
def test_only_files_are_read(tmp_path, make: Callable[[Path], None], message) -> None:
    make(tmp_path / "x")
    with pytest.raises(DataError, match=message):
        require_file(tmp_path / "x")
    with pytest.raises(DataError, match="null"):
        require_file(tmp_path / "a\0b")
