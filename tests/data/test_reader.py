"""What image files mean: bit depths, orientation, transparency, and files that are none.

The files are made here, most of them byte by byte, and compared with numbers that are known without
Pillow's help.
"""

import struct
import zlib

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, features

from brusle.data import Framing, load, read_image
from brusle.errors import DataError, InputError

RAMP = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)  # 0, 257, ... 65535


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png16(path, values: NDArray[np.uint16], colour: int, key: bytes = b"") -> None:
    """A 16-bit PNG as the standard has it; Pillow writes grey ones only."""
    height, width = values.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")]
    if key:
        parts.insert(1, chunk(b"tRNS", key))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def levels(image: torch.Tensor) -> NDArray[np.int64]:
    return (image.numpy() * 255).round().astype(np.int64)


# 16 bits


@pytest.mark.parametrize("name", ["grey.png", "grey.pgm", "grey.tif", "big-endian.tif", "grey.jp2"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_16_bit_greys_are_scaled_and_not_cut_off(tmp_path, name, channels) -> None:
    path = tmp_path / name
    if path.suffix == ".png":
        write_png16(path, RAMP, 0)
    elif path.suffix == ".pgm":
        path.write_bytes(b"P5\n16 16\n65535\n" + RAMP.astype(">u2").tobytes())
    elif path.suffix == ".jp2":
        if not features.check("jpg_2000"):
            pytest.skip("this Pillow has no JPEG 2000")
        Image.fromarray(RAMP).save(path, irreversible=False)
    else:
        Image.fromarray(RAMP.astype(">u2" if name == "big-endian.tif" else "<u2")).save(path)
    image = read_image(path, (channels, 16, 16))
    expected = np.arange(256).reshape(16, 16)
    for channel in levels(image)[:3]:
        np.testing.assert_array_equal(channel, expected)


def test_16_bit_levels_between_two_go_to_the_nearer(tmp_path) -> None:
    write_png16(tmp_path / "x.png", np.array([[0, 128, 129, 385, 386, 65534]], np.uint16), 0)
    assert levels(read_image(tmp_path / "x.png"))[0].tolist() == [[0, 0, 1, 1, 2, 255]]


def test_48_bit_colours_and_64_bit_opaque_ones(tmp_path) -> None:
    colours = np.stack([RAMP, RAMP[::-1], RAMP.T], 2)
    write_png16(tmp_path / "rgb.png", colours, 2)
    opaque = np.concatenate([colours, np.full((16, 16, 1), 65535, np.uint16)], 2)
    write_png16(tmp_path / "rgba.png", opaque, 6)
    expected = colours.transpose(2, 0, 1) / 65535
    for name in ("rgb.png", "rgba.png"):
        image = read_image(tmp_path / name).numpy()
        assert np.abs(image - expected).max() <= 1 / 255  # Pillow keeps the upper byte


def test_numbers_without_a_known_range_are_refused(tmp_path) -> None:
    Image.fromarray(RAMP.astype(np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(RAMP.astype(np.int32)).save(tmp_path / "long.tif")
    Image.fromarray(RAMP).save(tmp_path / "inverse.tif")
    meaning = struct.pack("<HHIHH", 262, 3, 1, 1, 0)  # tag, type, count, black is zero
    content = (tmp_path / "inverse.tif").read_bytes()
    assert content.count(meaning) == 1
    inverse = struct.pack("<HHIHH", 262, 3, 1, 0, 0)
    (tmp_path / "inverse.tif").write_bytes(content.replace(meaning, inverse))
    for name, mode in (("float.tif", "F"), ("long.tif", "I"), ("inverse.tif", "I;16")):
        with pytest.raises(DataError, match=f"{name} has pixels of mode {mode}.* 16-bit PNG$"):
            read_image(tmp_path / name)


# other modes


def test_modes_that_mean_the_same_picture(tmp_path) -> None:
    black_and_white = np.indices((6, 8)).sum(0) % 2 == 0
    plain = Image.fromarray(np.where(black_and_white, 255, 0).astype(np.uint8))
    plain.convert("1").save(tmp_path / "bits.png")
    plain.convert("P").save(tmp_path / "palette.gif")
    plain.convert("RGB").convert("CMYK").save(tmp_path / "print.tif")
    plain.convert("LA").save(tmp_path / "alpha.png")
    for path in sorted(tmp_path.iterdir()):
        for channels in (1, 3):
            image = read_image(path, (channels, 6, 8))
            for channel in levels(image):
                np.testing.assert_array_equal(channel == 255, black_and_white, str(path))
                np.testing.assert_array_equal(channel == 0, ~black_and_white, str(path))


def test_the_first_frame_of_an_animation(tmp_path) -> None:
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "lime", "blue")]
    for name in ("x.gif", "x.png", "x.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert levels(read_image(tmp_path / name))[:, 0, 0].tolist() == [255, 0, 0]


# orientation

TURNS = {  # EXIF: what must be done to the stored pixels to see the picture
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", TURNS)
def test_pictures_are_turned_as_exif_says(tmp_path, orientation) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(stored).save(tmp_path / "x.png", exif=exif)
    expected = TURNS[orientation](stored).transpose(2, 0, 1)
    np.testing.assert_array_equal(levels(read_image(tmp_path / "x.png")), expected)
    # the victim's size is that of the upright picture
    assert read_image(tmp_path / "x.png", expected.shape).shape == expected.shape


def test_16_bit_pictures_are_turned_as_well(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RAMP[:4]).save(tmp_path / "x.png", exif=exif)
    expected = np.rot90(np.arange(64).reshape(4, 16), -1)
    np.testing.assert_array_equal(levels(read_image(tmp_path / "x.png"))[0], expected)


# transparency


def test_transparent_pixels_are_refused(tmp_path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    alpha = np.full((4, 5, 1), 255, np.uint8)
    alpha[2, 3] = 254
    picture = Image.fromarray(np.concatenate([colours, alpha], 2))
    picture.save(tmp_path / "rgba.png")
    picture.convert("LA").save(tmp_path / "la.png")
    picture.save(tmp_path / "x.webp", lossless=True)
    grey = Image.new("P", (5, 4), 1)
    grey.putpalette([0, 0, 0, 9, 9, 9])
    grey.putpixel((0, 0), 0)
    grey.save(tmp_path / "index.gif", transparency=0)
    grey.save(tmp_path / "table.png", transparency=bytes([128, 255]))
    Image.fromarray(colours).save(tmp_path / "key.png", transparency=tuple(colours[1, 1].tolist()))
    write_png16(tmp_path / "grey16.png", RAMP, 0, struct.pack(">H", int(RAMP[3, 3])))
    write_png16(tmp_path / "rgb16.png", np.stack([RAMP] * 3, 2), 2, struct.pack(">HHH", 1, 2, 3000))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 8
    for path in paths:
        with pytest.raises(DataError, match=f"{path.name} has transparent pixels.* background"):
            read_image(path)


def test_an_alpha_channel_that_hides_nothing_is_fine(tmp_path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    opaque = np.concatenate([colours, np.full((4, 5, 1), 255, np.uint8)], 2)
    Image.fromarray(opaque).save(tmp_path / "opaque.png")
    Image.fromarray(colours).save(tmp_path / "unused-key.png", transparency=(1, 2, 3))
    write_png16(tmp_path / "grey16.png", RAMP, 0, struct.pack(">H", 5))
    for name in ("opaque.png", "unused-key.png"):
        image = read_image(tmp_path / name)
        np.testing.assert_array_equal(levels(image), colours.transpose(2, 0, 1))
    assert levels(read_image(tmp_path / "grey16.png")).max() == 255


def test_a_victim_of_four_channels_gets_the_transparency(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    image = read_image(tmp_path / "x.png", (4, 4, 5))
    np.testing.assert_array_equal(levels(image), pixels.transpose(2, 0, 1))
    write_png16(tmp_path / "key.png", RAMP, 0, struct.pack(">H", int(RAMP[3, 3])))
    with pytest.raises(DataError, match="transparent"):  # 16 bits and a key: it would be lost
        read_image(tmp_path / "key.png", (4, 16, 16))


# files that are none, and sizes that are none


@pytest.mark.filterwarnings("error")
def test_damaged_files_are_one_line_each(tmp_path) -> None:
    (tmp_path / "empty.png").touch()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for name in ("x.png", "x.jpg", "x.gif", "x.tif", "x.webp", "x.bmp"):
        Image.fromarray(noise).save(tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        for part in (0.02, 0.5):
            (tmp_path / f"{part}-{name}").write_bytes(whole[: int(len(whole) * part)])
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(DataError, match="empty.png is empty: copy or fetch it again"):
        read_image(tmp_path / "empty.png")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError) as caught:
            read_image(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_pictures_that_are_too_large_are_refused_before_they_are_decoded(
    tmp_path, monkeypatch
) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "large.png")
    for most in (4000, 1000):  # Pillow warns above this number and raises above twice that
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        with pytest.raises(DataError, match="large.png is no image that can be read.*bomb"):
            read_image(tmp_path / "large.png")


def test_a_single_pixel_is_no_image(tmp_path) -> None:
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    for framing in (None, Framing(8, (8, 8))):
        with pytest.raises(DataError, match="dot.png is a single pixel"):
            read_image(tmp_path / "dot.png", None, framing)


def test_absurd_enlargements_are_refused(tmp_path) -> None:
    Image.new("RGB", (7, 9)).save(tmp_path / "small.png")
    Image.new("RGB", (8, 9)).save(tmp_path / "enough.png")
    framing = Framing(256, (224, 224))
    with pytest.raises(InputError, match="small.png: 9 x 7 pixels would be enlarged more than 32"):
        read_image(tmp_path / "small.png", None, framing)
    assert read_image(tmp_path / "enough.png", None, framing).shape == (3, 224, 224)
    # a narrow strip would need gigabytes before its middle is cut out
    Image.new("RGB", (20_000, 8)).save(tmp_path / "strip.png")
    with pytest.raises(InputError, match="strip.png: 8 x 20000 pixels would become 256 x 640000"):
        read_image(tmp_path / "strip.png", None, framing)


def test_folders_use_the_same_reader(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    write_png16(tmp_path / "a" / "x.png", RAMP, 0)
    assert (
        levels(load(f"folder:{tmp_path}").images[0])[0].tolist()
        == levels(torch.arange(256).view(16, 16) / 255).tolist()
    )
    Image.new("RGBA", (16, 16), (1, 2, 3, 0)).save(tmp_path / "a" / "y.png")
    for kind in ("folder", "imagenet"):
        with pytest.raises(DataError, match="y.png has transparent pixels"):
            load(f"{kind}:{tmp_path}")
