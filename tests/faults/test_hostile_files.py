"""Files that are not what they seem: each is one line, none hangs, fills the memory or runs."""

import gzip
import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from entry import run as command
from models import random_images
from PIL import Image

from brusle.data import load, source
from brusle.data.fetch import Archive, unpack
from brusle.data.sets import different_names
from brusle.errors import BrusleError, DataError
from brusle.evaluation import Manifest, choose
from brusle.evaluation.running.plan import Plan

pytestmark = pytest.mark.slow

LEVELS = (random_images(4, (3, 8, 8)) * 255).round().byte().numpy()
VICTIM = """
from brusle.victims import wrap

def make():
    return wrap(lambda x: x[:, :, 0, :2].flatten(1)[:, :4] * 3, output="logits", shape=(3, 8, 8))
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Iterator[Path]:
    (tmp_path / "own_victim.py").write_text(VICTIM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("own_victim", None)


def refused(*arguments: object, message: str = "") -> None:
    """A command that ends with one short line."""
    answer = command(*arguments)
    assert answer.returncode == 2, answer
    assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1, answer.stderr
    assert len(answer.stderr) < 600 and message in answer.stderr, answer.stderr


OWN = ("--victim", "python:own_victim:make")
CHECK = ("check", *OWN, "--limit", 8)


def png(place: Path, at: int = 0) -> None:
    Image.fromarray(LEVELS[at].transpose(1, 2, 0)).save(place, format="PNG")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_bomb(path: Path) -> None:
    """A picture of 60 000 x 60 000 pixels in some kilobytes."""
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * 1_000_000, 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body))


def text_bomb(path: Path) -> None:
    """A picture with a comment that unpacks to 300 megabytes."""
    head = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    comment = b"x\0\0" + zlib.compress(b"\0" * 300_000_000, 9)
    rows = zlib.compress(b"\0" * 72)
    body = chunk(b"IHDR", head) + chunk(b"zTXt", comment) + chunk(b"IDAT", rows)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))


def truncated(path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(LEVELS[0].transpose(1, 2, 0)).save(file, format="PNG")
    path.write_bytes(file.getvalue()[:-40])


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) run\n%%EOF\n"
IMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "pipe or a device"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "pipe or a device"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "cannot open"),
    "broken link": (lambda path: path.symlink_to("nothing"), "No such file"),
    "link to itself": (lambda path: path.symlink_to(path.name), "symbolic links"),
    "nothing in it": (lambda path: path.touch(), "is empty"),
    "zeros": (lambda path: path.write_bytes(b"\0" * 1000), "no image"),
    "text": (lambda path: path.write_text("<svg onload=alert(1)>"), "no image"),
    "half": (truncated, "no image"),
    "bomb": (png_bomb, "no image"),
    "comment": (text_bomb, "no image"),
    "PostScript": (lambda path: path.write_bytes(POSTSCRIPT), "no image"),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_that_are_none(here, kind) -> None:
    make, message = IMAGES[kind]
    (here / "images" / "cat").mkdir(parents=True)
    png(here / "images" / "cat" / "a.png")
    path = here / "images" / "cat" / "b.png"
    make(path)
    refused("attack", path, *OWN, message=message)
    refused("attack", here / "images" / "cat" / "a.png", *OWN, "--start", path, message=message)
    for data in ("folder:images", "imagenet:images"):
        refused(*CHECK, "--data", data, message=message)
    (here / "images" / "labels.csv").write_text("file,class_index\ncat/a.png,0\ncat/b.png,1\n")
    refused(*CHECK, "--data", "folder:images", message="b.png")


def test_images_that_only_look_odd(here) -> None:
    (here / "images" / "cat" / "folder.png").mkdir(parents=True)  # a folder is no image
    png(here / "images" / "cat" / "folder.png" / "a.png")
    png(here / "images" / "cat" / "b.jpg", 1)  # another ending than its content
    with zipfile.ZipFile(here / "images" / "cat" / "b.jpg", "a") as zipped:
        zipped.writestr("evil.py", "raise SystemExit")  # a picture and an archive
    (here / "images" / "cat" / "loop").symlink_to(here / "images")
    (here / "images" / "cat" / "up").symlink_to("..")
    (here / "images" / "loop").symlink_to("loop")
    os.mkfifo(here / "images" / "cat" / "pipe")  # no name of an image
    found = load("folder:images")
    assert found.names == ("cat-b", "cat-folder.png-a")
    np.testing.assert_array_equal((found.images[0] * 255).round().byte().numpy(), LEVELS[1])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folders_and_files_without_rights(here) -> None:
    (here / "images" / "cat").mkdir(parents=True)
    png(here / "images" / "cat" / "a.png")
    for path in ("images/cat/a.png", "images/cat", "images"):
        (here / path).chmod(0)
        refused(*CHECK, "--data", "folder:images", message="Permission denied")
        (here / path).chmod(0o700)


# labels.csv

ROW = "a.png,0\n"
LABELS: dict[str, tuple[bytes, str]] = {
    "large": (b"a.png,1000000000\n", "class_index '1000000000': give a whole number from 0 to"),
    "larger": (b"a.png," + b"9" * 30 + b"\n", "give a whole number from 0 to 999999"),
    "largest": (b"a.png," + b"9" * 5000 + b"\n", "give a whole number from 0 to 999999"),
    "negative": (b"a.png,-1\n", "class_index '-1'"),
    "power": ("a.png,²\n".encode(), "class_index '²'"),
    "nothing": (b"a.png\n", "class_index ''"),
    "NUL": (b"a.png\0,0\n", "labels.csv"),
    "NUL in the number": (b"a.png,0\0\n", "class_index"),
    "UTF-16": ("a.png,0\n".encode("utf-16"), "give CSV in UTF-8"),
    "Latin-1": ("é.png,0\n".encode("latin-1"), "give CSV in UTF-8"),
    "open quote": (b'"a.png,0\n' + b"x" * 200_000, "give CSV in UTF-8"),
    "short open quote": (b'"a.png,0\n' * 3, "which does not exist"),
    "long name": (b"a" * 5000 + b",0\n", "which does not exist"),
    "escapes": (b"\x1b[31m.png,0\n", "which does not exist"),
    "folder": (b".,0\n", "which does not exist"),
    "many columns": (b"b.png,0" + b"," * 1_000_000 + b"\n", "which does not exist"),
    "nobody": (b"", "there are no images"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_lists_of_labels(here, kind) -> None:
    text, message = LABELS[kind]
    png(here / "a.png")
    (here / "labels.csv").write_bytes(b"file,class_index\n" + text)
    refused(*CHECK, "--data", "folder:.", message=message)


def test_lists_of_labels_that_are_fine(here) -> None:
    png(here / "a.png")
    (here / "labels.csv").write_bytes(
        b"\xef\xbb\xbffile,class_index" + b"," * 100_000 + b"\na.png,3\n"
    )
    assert load("folder:.").labels.tolist() == [3]


def test_a_pipe_for_labels(here) -> None:
    png(here / "a.png")
    os.mkfifo(here / "labels.csv")
    refused(*CHECK, "--data", "folder:.", message="pipe or a device")
    (here / "labels.csv").unlink()
    (here / "labels.csv").symlink_to("nothing")
    refused(*CHECK, "--data", "folder:.", message="No such file")


# npz


def member(shape: str, kind: str = "|u1", body: bytes = b"") -> bytes:
    """An array whose header may lie."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + body


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(f"{name}.npy", content)
    return file.getvalue()


def arrays(**given: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{"images": LEVELS, "labels": np.arange(4)} | given)
    return file.getvalue()


def encrypted(content: bytes) -> bytes:
    """The same with the flag that says so."""
    changed, at = bytearray(content), content.find(b"PK\x01\x02")
    while at >= 0:
        changed[at + 8] |= 1
        at = content.find(b"PK\x01\x02", at + 1)
    return bytes(changed)


OBJECTS = np.array([{}, None, 1, 2], dtype=object)
NPZ: dict[str, tuple[bytes, str]] = {
    "objects": (arrays(images=OBJECTS), "could run code"),
    "labels of objects": (arrays(labels=OBJECTS), "could run code"),
    "names of objects": (arrays(names=OBJECTS), "could run code"),
    "huge": (archive(images=member("(1000000000000, 3, 8, 8)")), "says that it has"),
    "absurd": (archive(images=member("(" + "9" * 200 + ", 3)")), "is damaged"),
    "negative": (archive(images=member("(-1, 3, 8, 8)")), "is damaged"),
    "deep": (archive(images=member("(" * 3000 + ")" * 3000)), "is damaged"),
    "half an array": (archive(images=member("(4, 3, 8, 8)", body=b"\0" * 700)), "is damaged"),
    "half an archive": (arrays()[:-100], ".npz"),
    "no archive": (b"\x93NUMPY", "is no .npz file"),
    "password": (encrypted(arrays()), "is damaged"),
    "no array": (archive(images=b"import os"), "is damaged"),
    "labels of a billion": (arrays(labels=np.array([0, 1, 2, 10**9])), "go up to 1000000000"),
    "labels of 64 bits": (arrays(labels=np.array([0, 1, 2, 2**64 - 1], np.uint64)), "go up to"),
    "no characters": (arrays(classes=np.frombuffer(b"\xff\xff\xff\x7f" * 4, "<U1")), "no text"),
    "structure": (arrays(images=np.zeros(4, [("a", "u1")])), "have shape (4,)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NPZ)
def test_arrays(here, kind) -> None:
    content, message = NPZ[kind]
    (here / "x.npz").write_bytes(content)
    refused(*CHECK, "--data", "npz:x.npz", message=message)
    with pytest.raises(BrusleError):
        load("npz:x.npz")


def test_more_than_the_memory_holds_is_not_unpacked(here, monkeypatch) -> None:
    pages = os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_PHYS_PAGES" else 4096)
    (here / "x.npz").write_bytes(archive(images=member("(4, 3, 200, 200)", body=b"\0" * 480_000)))
    assert (here / "x.npz").stat().st_size < 2000 and pages > 1
    with pytest.raises(DataError, match="more than the memory holds"):
        load("npz:x.npz")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_arrays_that_are_no_files(here, make) -> None:
    make(here / "x.npz")
    refused(*CHECK, "--data", "npz:x.npz", message="cannot open x.npz: ")


@pytest.mark.parametrize("name", ["cifar10", "stl10"])
def test_pipes_in_data_sets(here, name) -> None:
    folder = here / name
    folder.mkdir()
    if name == "cifar10":
        os.mkfifo(folder / "test_batch.png")
    else:
        (folder / "test_X.bin").write_bytes(bytes(3 * 96 * 96))
        (folder / "test_y.bin").write_bytes(b"\1")
        os.mkfifo(folder / "class_names.txt")
    refused(*CHECK, "--data", f"{name}:test?dir={folder}", message="pipe or a device")


def test_a_bomb_in_cifar10(here) -> None:
    head = struct.pack(">IIBBBBB", 1024, 2_000_000, 8, 2, 0, 0, 0)
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0"))
    (here / "test_batch.png").write_bytes(picture)
    refused(*CHECK, "--data", "cifar10:test?dir=.", message="fetch it again")


# names


def test_many_equal_names_are_no_long_search() -> None:
    """Counted, not timed: a search from 2 for each would be five billion steps."""
    names = different_names(["same"] * 100_000)
    assert len(set(names)) == 100_000 and names[:3] == ("same", "same-2", "same-3")
    assert names[-1] == "same-100000"
    mixed = different_names(["a-2", "A", "a", "a", "a-2", "a-2-2"])
    assert mixed == ("a-2", "A", "a-3", "a-4", "a-2-2", "a-2-2-2")


# plans

BILLION = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)
)
# the value itself would be told in the error
VALUE = "victim: [&b0 [x, x]" + "".join(
    f", &b{i} [*b{i - 1}, *b{i - 1}, *b{i - 1}, *b{i - 1}, *b{i - 1}]" for i in range(1, 40)
)
PLANS: dict[str, tuple[str, str]] = {
    "billion in a value": (VALUE + "]\n", "has an alias"),
    "billion": (BILLION, "has an alias"),
    "billion attacks": (BILLION.replace("a39:", "attacks:"), "has an alias"),
    "itself": ("attacks: &a [*a]\n", "has an alias"),
    "merged": ("x: &x {queries: 3}\n<<: *x\n", "has an alias"),
    "Python": ("victim: !!python/object/apply:os.system [id]\n", "is no YAML"),
    "own tag": ("victim: !own x\n", "is no YAML"),
    "twice": ("queries: 3\nqueries: 4\n", "has the key 'queries' twice"),
    "twice inside": ("pixels: {targeted: 1, targeted: 2}\n", "has the key 'targeted' twice"),
    "two documents": ("queries: 3\n---\nqueries: 4\n", "is no YAML"),
    "deep": ("[" * 5000, "is no YAML"),
    "deep keys": ("{a: " * 3000 + "}" * 3000, "is no YAML"),
    "NUL": ("queries: \0\n", "is no YAML"),
    "escapes": ("queries: \x1b\n", "is no YAML"),
    "long": ("queries: " + "x" * 100_000, "queries is 'xxx"),
    "long key": ("x" * 1000 + ": 1\n", "has no key 'xxx"),
    "longer key": ("x" * 100_000 + ": 1\n", "is no YAML"),
    "many": ("seeds: [" + "x, " * 5000 + "]", "seeds is "),
    "large seed": (f"seeds: {10**30}\n", "seeds is 1000"),
    "large budget": (f"pixels: {10**30}\n", "pixels is 1000"),
    "large limit": (f"queries: {10**30}\n", "queries is 1000"),
    "five thousand digits": ("queries: " + "9" * 5000 + "\n", "5000"),
    "nothing": ("", "is no plan"),
    "date": ("queries: 2020-01-01\n", "queries is "),
    "infinite": ("queries: .inf\n", "queries is inf"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_plans(here, kind) -> None:
    text, message = PLANS[kind]
    (here / "plan.yaml").write_text(text)
    refused("evaluate", "--config", "plan.yaml", "--out", "x", message=message)
    assert not (here / "x").exists()


def test_a_plan_in_other_bytes(here) -> None:
    (here / "plan.yaml").write_bytes("victim: é\n".encode("latin-1"))
    refused("evaluate", "--config", "plan.yaml", message="is no YAML")
    with pytest.raises(BrusleError):
        Plan.of({"seeds": 10**30})


# manifests


def manifest(**changes: object) -> dict[str, object]:
    """A manifest with some changes, and with the hash that belongs to it."""
    (Path("data.npz")).write_bytes(arrays())
    made = choose("npz:data.npz", targets=1)
    made.write("pairs.json")
    content = json.loads(Path("pairs.json").read_text())
    return content | changes


def signed(content: dict[str, object]) -> str:
    """As somebody would who has read how it is done."""
    entries = [(e["sha256"], e["label"], e["targets"]) for e in content["entries"]]
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]
    return json.dumps(content | {"digest": digest})


def entries(**changes: object) -> Callable[[], str]:
    def make() -> str:
        content = manifest()
        content["entries"][0] |= changes
        return signed(content)

    return make


def doubled() -> str:
    content = manifest()
    content["entries"].append(content["entries"][0])
    return signed(content)


MANIFESTS: dict[str, tuple[Callable[[], str], str]] = {
    "large label": (entries(label=10**30), "has class 1000"),
    "label of a billion": (entries(label=10**9), "has class 1000000000"),
    "negative label": (entries(label=-1), "has class -1"),
    "text": (entries(label="3"), "entries.0.label"),
    "half": (entries(label=0.5), "entries.0.label"),
    "no name": (entries(name=None), "entries.0.name"),
    "a list as a name": (entries(name=["x"]), "entries.0.name"),
    "large target": (entries(targets=[10**30]), "has class 1000"),
    "targets of text": (entries(targets="12"), "entries.0.targets"),
    "nested targets": (entries(targets=[[[1]]]), "entries.0.targets"),
    "same names": (doubled, "two images have the same name"),
    "data of numbers": (lambda: signed(manifest(data=3)), "data: "),
    "no images": (lambda: signed(manifest(entries=[])), "it has no images"),
    "list": (lambda: "[]", "no manifest"),
    "number": (lambda: "3", "no manifest"),
    "deep": (lambda: "[" * 100_000, "no manifest"),
    "deep object": (
        lambda: '{"digest":"x","format":' + '{"a":' * 500 + "1" + "}" * 501,
        "manifest",
    ),
    "not JSON": (lambda: "NaN", "no manifest"),
    "NUL": (lambda: "\0", "no manifest"),
    "digits": (lambda: "9" * 10_000, "no manifest"),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifests(here, kind) -> None:
    make, message = MANIFESTS[kind]
    text = make()
    (here / "pairs.json").write_text(text)
    short = ("--queries", 2, "--pixels", 2, "--out", "x")
    refused("evaluate", *OWN, "--pairs", "pairs.json", *short, message=message)
    (here / "pairs.json").write_bytes(b"\xff\xfe" + text.encode())
    refused("evaluate", *OWN, "--pairs", "pairs.json", *short, message="no manifest")


def test_a_manifest_is_still_read(here) -> None:
    content = manifest()
    (here / "pairs.json").write_text(json.dumps(content))
    assert Manifest.read("pairs.json").digest == content["digest"]
    assert signed(content) == json.dumps(content | {"digest": content["digest"]})


# archives of data sets

FORM = Archive("official", "x", "md5", "0", "inner", ("a.bin",), 1)


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        for info, body in members:
            info.size = len(body)
            made.addfile(info, io.BytesIO(body))
    return file.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in more.items():
        setattr(made, key, value)
    return made


GOOD = (info("inner/a.bin"), b"good")
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "above": (tar((info("../evil"), b"x"), GOOD), "not safe to unpack"),
    "above the wanted": (tar((info("inner/../../a.bin"), b"x")), "not safe to unpack"),
    "absolute link": (tar((info("inner/a.bin", tarfile.SYMTYPE, linkname="/etc/passwd"), b"")),
                      "not safe to unpack"),
    "link above": (tar((info("inner/a.bin", tarfile.SYMTYPE, linkname="../../x"), b"")),
                   "not safe to unpack"),
    "hard link": (tar((info("inner/a.bin", tarfile.LNKTYPE, linkname="../../x"), b"")),
                  "not safe to unpack"),
    "device": (tar((info("inner/a.bin", tarfile.CHRTYPE, devmajor=1, devminor=5), b"")),
               "not safe to unpack"),
    "disk": (tar((info("inner/a.bin", tarfile.BLKTYPE), b"")), "not safe to unpack"),
    "pipe": (tar((info("inner/a.bin", tarfile.FIFOTYPE), b"")), "not safe to unpack"),
    "folder": (tar((info("inner/a.bin", tarfile.DIRTYPE), b"")), "has no inner/a.bin"),
    "half": (tar(GOOD)[:-20], "cannot be unpacked"),
    "no tar": (gzip.compress(b"x" * 2000), "cannot be unpacked"),
    "zip": (archive(a=b"x"), "cannot be unpacked"),
    "nothing": (b"", "cannot be unpacked"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ARCHIVES)
def test_archives(here, kind) -> None:
    content, message = ARCHIVES[kind]
    (here / "x.tgz").write_bytes(content)
    before = sorted(os.listdir(here))
    with pytest.raises(DataError, match=message):
        unpack(here / "x.tgz", here / "fresh", FORM, lambda *_: None)
    assert sorted(os.listdir(here)) == sorted([*before, "fresh"])
    if "not safe" in message:
        assert not [path for path in (here / "fresh").rglob("*") if not path.is_dir()]


def test_an_absolute_member_lands_inside(here) -> None:
    (here / "x.tgz").write_bytes(
        tar((info("/inner/b"), b"x"), (info("inner/a.bin", mode=0o7777), b"y"))
    )
    unpack(here / "x.tgz", here / "fresh", FORM, lambda *_: None)
    assert [*(here / "fresh").iterdir()] == [here / "fresh" / "a.bin"]
    assert (here / "fresh" / "a.bin").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize("seed", range(60))
def test_archives_with_any_bytes_changed(here, seed) -> None:
    generator = np.random.default_rng(seed)
    whole = bytearray(gzip.decompress(tar(GOOD, (info("inner/b" * 30), b"z" * 700))))
    for at in generator.integers(0, 1600, 8):
        whole[at] = generator.integers(0, 256)
    (here / "x.tgz").write_bytes(gzip.compress(bytes(whole)))
    with suppress(DataError):
        unpack(here / "x.tgz", here / "fresh", FORM, lambda *_: None)
    assert {path.name for path in here.iterdir()} <= {
        "x.tgz",
        "fresh",
        "own_victim.py",
        "__pycache__",
    }


# numbers


@pytest.mark.parametrize("number", [str(10**30), "9" * 5000, "-1", "1e400", "²"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("attack", "a.png", *OWN, "--label"),
        ("attack", "a.png", *OWN, "--target"),
        ("attack", "a.png", *OWN, "--pixels"),
        ("attack", "a.png", *OWN, "--queries"),
        ("pairs", *OWN, "--data", "npz:data.npz", "--targets"),
        ("evaluate", *OWN, "--data", "npz:data.npz", "--pixels"),
        ("evaluate", *OWN, "--data", "npz:data.npz", "--targets"),
        ("reproduce", "cifar10-targeted", "--plan", "--targets"),
        ("status", ".", "--watch"),
    ],
)
def test_large_numbers(here, arguments, number) -> None:
    png(here / "a.png")
    (here / "data.npz").write_bytes(arrays())
    if arguments[0] == "reproduce" and number == str(10**30):
        number += "0"
    answer = command(*arguments, number)
    assert answer.returncode == 2, answer
    assert answer.stderr.splitlines()[-1].lower().startswith("error: ")
    assert len(answer.stderr) < 1300 and "bug in brusle" not in answer.stderr


def test_a_label_of_a_billion_in_python() -> None:
    from brusle.data import as_source

    with pytest.raises(DataError, match="labels must be 0 ... 999999"):
        as_source((random_images(2, (3, 8, 8)), [0, 10**9]))


def test_seeds_of_many_digits_can_be_exported_or_are_refused(here) -> None:
    (here / "data.npz").write_bytes(arrays())
    short = ("--data", "npz:data.npz", "--goal", "untargeted", "--queries", 2, "--pixels", 2)
    refused("evaluate", *OWN, *short, "--out", "x", "--seed", 10**30, message="seeds is 1000")
    for seed in (2**63 - 1, -(2**63)):
        answer = command("evaluate", *OWN, *short, "--out", "x", "--seed", seed)
        assert answer.returncode == 0, answer
    assert command("export", "x", "--to", "x.parquet").returncode == 0


def test_sizes_that_cannot_be(here) -> None:
    (here / "images" / "cat").mkdir(parents=True)
    png(here / "images" / "cat" / "a.png")
    for size in ("0", "x", "9" * 5000, str(10**30), str(10**9)):
        refused("check", *OWN, "--data", f"folder:images?size={size}", message="")
    assert source("folder:images?size=8").names == ("cat-a",)
