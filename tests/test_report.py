import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images
from PIL import Image

from brusle.attacks import BruSLe
from brusle.errors import InputError
from brusle.evaluation.statistics import success_steps
from brusle.evaluation.storing.rows import rows_of
from brusle.report.gallery import PICTURES, Example, panels, write_gallery
from brusle.report.wording import count


def test_perturbation_shows_the_new_colours_where_they_are() -> None:
    before = torch.full((3, 32, 32), 0.5)
    after = before.clone()
    after[:, 10, 20] = torch.tensor([1.0, 0.0, 0.0])
    panel = np.asarray(panels(Example(before, after, "", "", ""))[2])
    scale = panel.shape[0] // 32
    middle = panel[10 * scale + scale // 2, 20 * scale + scale // 2]
    assert middle.tolist() == [255, 0, 0]
    strong = (panel.max(2).astype(int) - panel.min(2)) > 100
    assert 0 < strong.sum() <= scale * scale  # nothing else is coloured


def test_a_pixel_of_a_large_image_is_enlarged() -> None:
    before = torch.zeros(3, 400, 200)
    after = before.clone()
    after[1, 399, 199] = 1
    panel = np.asarray(panels(Example(before, after, "", "", ""))[2])
    assert panel.shape == (192, 96, 3)  # not stretched
    assert (panel[:, :, 1] == 255).sum() >= 1


def test_gallery_has_a_place_for_every_example(tmp_path) -> None:
    image = torch.rand(1, 9, 9)
    examples = [Example(image, 1 - image, "one", "seven", "a note")] * 5
    write_gallery(examples, tmp_path / "two.png", "title")
    write_gallery(examples, tmp_path / "one.png", "title", columns=1)
    two, one = (Image.open(tmp_path / f"{n}.png").size for n in ("two", "one"))
    assert two[0] > one[0]
    assert one[1] - 56 - 12 == 5 * (two[1] - 56 - 12) // 3


@pytest.mark.parametrize("ending", PICTURES)
def test_a_gallery_has_the_format_of_its_name(tmp_path, ending) -> None:
    image = torch.rand(1, 9, 9)
    write_gallery([Example(image, 1 - image, "one", "seven", "")], tmp_path / f"a{ending}", "title")
    begins = (tmp_path / f"a{ending}").read_bytes()[:12]
    signs = {".png": b"PNG", ".pdf": b"%PDF", ".webp": b"WEBP"}
    assert signs.get(ending, b"JFIF") in begins


def test_a_gallery_in_an_unknown_format_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"a.svg in the format of its name: name it .png, .jpg"):
        write_gallery([], tmp_path / "a.svg", "title")


def test_count() -> None:
    assert [count(n, "query") for n in (0, 1, 2)] == ["0 queries", "1 query", "2 queries"]
    assert count(2, "pixel") == "2 pixels"


def test_the_curve_is_the_success_rate_at_every_number_of_queries() -> None:
    model = integer_model((3, 8, 8), 5)
    images = random_images(30, (3, 8, 8))
    result = BruSLe(3, 25)(model.victim(), images, own_labels(model, images))
    marks = success_steps(rows_of(result, range(30), result.names), 25)
    assert (min(marks), max(marks)) == (0, 25)
    rate = 0.0
    for queries in range(26):
        rate = marks[queries].value if queries in marks else rate
        assert rate == result.asr(at=[queries])[queries]
    assert 0 < rate < 1
