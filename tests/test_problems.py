import numpy as np
import pytest
import torch

from brusle.errors import InputError
from brusle.problems import Edits, Problems, changed_pixels

X = torch.rand(3, 3, 4, 5)
Y = torch.tensor([0, 1, 2])


def with_value(value: float) -> torch.Tensor:
    """The images with one wrong value in the second."""
    images = X.clone()
    images[1, 2, 3, 4] = value
    return images


def test_ids_follow_the_content_and_not_the_position() -> None:
    whole = Problems.make(X, Y, [1, 2, 0])
    turned = Problems.make(X.flip(0), Y.flip(0), [0, 2, 1])
    assert whole.ids.tolist() == turned.ids.flip(0).tolist()
    assert Problems.make(X, Y).ids.tolist() != whole.ids.tolist()
    assert len(set(whole.ids.tolist())) == 3


def test_numpy_and_lists_are_welcome() -> None:
    from_numpy = Problems.make(X.numpy().astype(np.float64), Y.numpy().astype(np.int32))
    assert from_numpy.images.dtype == torch.float32
    assert torch.allclose(from_numpy.images, X)
    assert Problems.make(X, 1).labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0], Y), "x\\[None\\]"),
        (((X * 255).byte(), Y), "x / 255"),
        ((X * 2, Y), "must lie in \\[0, 1\\] but reach"),
        ((X - 0.5, Y), "must lie in"),
        ((with_value(torch.nan), Y), "images have NaN \\(1 of 3, the first is number 1\\): give"),
        (
            (with_value(torch.inf), Y),
            "images have infinite values \\(1 of 3, the first is number 1",
        ),
        ((with_value(-torch.inf), Y), "images have infinite values"),
        ((X, Y, None, None, with_value(torch.nan)), "starts have NaN"),
        ((X[:, :, :1, :1], Y), "images are single pixels"),
        ((torch.zeros(3, 32, 32, 3), Y), "channels at the end: .* x.permute\\(0, 3, 1, 2\\)"),
        ((np.zeros((3, 3, 4, 5), np.uint16), Y), "x / 65535"),
        ((X, Y[:2]), "one integer for each of 3 images"),
        ((X, Y.float()), "give integers"),
        ((X, -Y), "must not be negative"),
        ((X, Y, Y), "target of image 0 equals its label \\(0\\)"),
        ((X, Y, None, None, X[:1]), "one starting image"),
        ((X[:0], Y[:0]), "have shape"),
    ],
)
def test_bad_input_is_named(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        Problems.make(*arguments)


@pytest.mark.parametrize(("labels", "targets"), [([0, 1, 5], None), ([0, 1, 2], [1, 2, 7])])
def test_labels_out_of_range(labels, targets) -> None:
    with pytest.raises(InputError, match="of image 2 is out of range: the victim has 5 classes"):
        Problems.make(X, labels, targets).check_classes(5)


def test_edits_render_exactly_their_pixels() -> None:
    problems = Problems.make(X, Y)
    index = torch.tensor([[0, 7], [19, 3], [5, 6]])
    colour = torch.rand(3, 2, 3) + 2
    images = Edits(index, colour).render(problems.flat_images, problems.shape)
    expected = X.clone()
    for n in range(3):
        for k in range(2):
            row, column = divmod(int(index[n, k]), 5)
            expected[n, :, row, column] = colour[n, k]
    assert torch.equal(images, expected)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert changed_pixels(images, X).tolist() == [2, 2, 2]
