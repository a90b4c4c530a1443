"""Images that the page chooses: framed as by the commands, small enough, and nothing but data."""

import base64
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from served import png
from studios import CLASSES, SHAPE, Asker, toy, toy_data

import brusle
from brusle.data.photos import Photo
from brusle.studio import Studio
from brusle.studio.pictures import AT_ONCE, KEPT
from brusle.victims import wrap


@pytest.fixture(scope="module")
def asker():
    free = wrap(lambda images: images.mean((2, 3)), output="logits", name="free")
    ten = {"output": "logits", "shape": (3, 16, 16), "name": "large"}
    large = wrap(lambda images: images.flatten(1)[:, :10], **ten)
    with Studio([toy(), free, large], [toy_data()]) as studio, Asker(studio) as asker:
        yield asker


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def picture(size: tuple[int, int], kind: str = "PNG", mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], len(mode)), np.uint8)
    Image.fromarray(noise).save(file, kind)
    return file.getvalue()


def send(asker, content: bytes | str, name: str = "cat.png", **more):
    content = content if isinstance(content, str) else encoded(content)
    return asker.post(
        "/api/images/file", json={"victim": 0, "name": name, "content": content} | more
    )


def refused(answer) -> str:
    assert answer.status_code == 400, answer.text
    (line,) = answer.json()["error"].splitlines()
    assert "Traceback" not in line and len(line) <= 1000
    return line


def pixels(found) -> np.ndarray:
    channels, h, w = found["shape"]
    levels = np.frombuffer(base64.b64decode(found["levels"]), np.uint8)
    return levels.reshape(h, w, channels).transpose(2, 0, 1)


def test_an_image_of_the_data_is_the_image_of_the_data(asker) -> None:
    data = toy_data()
    answer = asker.post("/api/images/data", json={"victim": 0, "data": 0, "row": 3}).json()
    assert (answer["name"], answer["label"]) == ("toy-3", int(data.labels[3]))
    assert answer["label_name"] == data.classes[int(data.labels[3])]
    assert np.array_equal(pixels(answer), (data.images[3] * 255).round().numpy())


def test_names_of_classes_are_the_victims_or_else_the_data_s(asker) -> None:
    small = wrap(lambda images: images.flatten(1)[:, :5], output="logits", name="nameless")
    with Studio([small], [toy_data()]) as studio, Asker(studio) as other:
        asked = {"victim": 0, "data": 0, "row": 0}
        assert other.post("/api/images/data", json=asked).json()["names"] == list(CLASSES)
        assert send(other, picture((8, 8))).json()["names"] == []
    assert send(asker, picture((8, 8))).json()["names"] == list(CLASSES)


def test_thumbnails_go_through_all_data_one_class_after_the_other(bundled) -> None:
    seen = []
    for start in range(0, 200, AT_ONCE):
        part = bundled.get("/api/data/0", params={"victim": 0, "start": start}).json()
        assert part["total"] == 200 and len(part["images"]) <= AT_ONCE
        seen += part["images"]
    assert sorted(image["row"] for image in seen) == list(range(200))
    assert len({image["label"] for image in seen[:10]}) == 10
    sample, first = brusle.data.load("sample"), seen[5]
    drawn = base64.b64decode(first["picture"].partition(",")[2])
    pair = (drawn, png(sample.images[first["row"]]))
    assert np.array_equal(*(np.asarray(Image.open(io.BytesIO(one))) for one in pair))
    assert bundled.get("/api/data/0", params={"start": 10**6}).json()["images"] == []


@pytest.mark.parametrize(("kind", "size"), [("PNG", (8, 8)), ("JPEG", (31, 20)), ("WEBP", (9, 50))])
def test_a_file_is_framed_as_the_command_frames_it(asker, tmp_path, kind, size) -> None:
    content = picture(size, kind)
    found = send(asker, content, f"cat.{kind.lower()}", size=8).json()
    path = tmp_path / "cat"
    path.write_bytes(content)
    photo = Photo.read(path, toy(), 8)
    assert np.array_equal(pixels(found), (photo.pixels * 255).round().numpy())
    assert found["label"] is None and found["shape"] == list(SHAPE)
    told = "" if size == (8, 8) else f"from {size[1]} x {size[0]} to 8 x 8 pixels"
    assert told in found["remark"] and bool(told) == bool(found["remark"])


def test_what_does_not_fit_is_refused_in_a_line(asker) -> None:
    assert "is 20 x 31 pixels, the victim takes 8 x 8" in refused(send(asker, picture((31, 20))))
    sample = [{"victim": victim, "data": 1, "row": 0} for victim in (0, 2)]
    lines = [refused(asker.post("/api/images/data", json=asked)) for asked in sample]
    assert "they are not made for each other" in lines[0]  # ten classes, and five
    assert "3 x 32 x 32, large takes 3 x 16 x 16" in lines[1]


def bomb(side: int) -> bytes:
    """A PNG of some bytes that says it has many pixels."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b""))
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


TRANSPARENT = picture((8, 8), "PNG", "RGBA")
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"hello", "is no image that can be read"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no image that can be read"),
        (POSTSCRIPT, "is no image that can be read"),
        (picture((64, 64))[:200], "is no image that can be read"),
        (bomb(6000), "above the limit of"),
        (bomb(60_000), "is no image that can be read"),
        (TRANSPARENT, "transparent pixels"),
        (picture((1, 1)), "a single pixel"),
        ("!!!", "did not come whole"),
        ("QUJD\n", "did not come whole"),
        ("ä", "did not come whole"),
    ],
    ids=range(12),
)
def test_a_hostile_file_is_refused_in_a_line(asker, content, message) -> None:
    assert message in refused(send(asker, content, size=8))
    assert send(asker, picture((8, 8))).status_code == 200  # and the studio goes on


def test_a_file_that_is_too_large_is_not_even_read(asker) -> None:
    assert "at most 16777216" in refused(send(asker, bytes(16 * 2**20 + 1), size=8))
    line = refused(send(asker, bytes(18 * 2**20), size=8))
    assert "above 16 MB" in line

    def endless():
        for _ in range(30):
            yield b"x" * 2**20

    kind = {"Content-Type": "application/json"}
    assert "above 16 MB" in refused(asker.post("/api/images/file", content=endless(), headers=kind))


def test_an_image_that_no_page_can_follow_is_refused(asker) -> None:
    line = refused(send(asker, picture((1100, 1000)), victim=1))
    assert "1000 x 1100 pixels" in line and "give a size" in line
    assert send(asker, picture((1100, 1000)), victim=1, size=64).json()["shape"] == [3, 64, 64]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\photos\\cat.png", "cat.png"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("a\u202egnp.exe\x1b[31m\n", "a\\u202egnp.exe\\x1b[31m\\n"),
        ("/", "image"),
    ],
)
def test_a_name_is_text_and_leads_nowhere(asker, somewhere, name, shown) -> None:
    answer = send(asker, picture((8, 8)), name)
    assert answer.json()["name"] == shown
    over = asker.run(answer.json()["image"], queries=3)
    assert over["how"] == "finished", over
    assert "/" not in over["file"] and over["file"].endswith(".png")
    assert not any(somewhere.iterdir()) and not Path("/etc/passwd.png").exists()


@pytest.mark.parametrize(
    "asked",
    [
        {"victim": 99, "data": 0, "row": 0},
        {"victim": -1, "data": 0, "row": 0},
        {"victim": "0", "data": 0, "row": 0},
        {"victim": "python:os:system", "data": 0, "row": 0},
        {"victim": 0, "data": 99, "row": 0},
        {"victim": 0, "data": "folder:/", "row": 0},
        {"victim": 0, "data": 0, "row": 12},
        {"victim": 0, "data": 0, "row": 10**30},
        {"victim": 0, "data": 0, "row": 0, "path": "/etc"},
        {},
        [],
        None,
    ],
)
def test_what_is_not_offered_cannot_be_chosen(asker, asked) -> None:
    refused(asker.post("/api/images/data", json=asked))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"victim": NaN}'])
def test_what_is_no_json_is_refused_in_a_line(asker, body) -> None:
    kind = {"Content-Type": "application/json"}
    refused(asker.post("/api/images/data", content=body, headers=kind))


def test_a_few_images_are_kept(asker) -> None:
    first = asker.choose()
    for _ in range(KEPT):
        last = asker.choose()
    with asker.attack(first, queries=1) as heard:
        assert "choose it again" in refused(heard.answer)
    assert asker.run(last, queries=1)["how"] == "finished"
