"""ONNX Runtime gives the answers of torch, whatever a file's input looks like."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brusle
from brusle.attacks import BruSLe
from brusle.errors import InputError, VictimError
from brusle.victims import OnnxVictim, TorchVictim, export_onnx, normalised
from brusle.victims.onnx import in_onnx_runtime

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")


def load(path: Path, options: str = "output=logits") -> Any:
    return brusle.load_victim(f"onnx:{path}?{options}", device="cpu")


def test_the_bundled_net_answers_and_falls_in_onnx_as_in_torch() -> None:
    name = "zoo:cifar10-resnet20"
    ours, theirs = (brusle.load_victim(n, "cpu") for n in (name, f"{name}?runtime=onnx"))
    assert isinstance(theirs, OnnxVictim)
    assert theirs.name == f"{name}?runtime=onnx"
    assert (theirs.classes, theirs.shape) == (ours.classes, ours.shape)
    sample = brusle.data.load("sample")
    expected, got = ours(sample.images), theirs(sample.images)
    assert float((got - expected).abs().max()) < 1e-4
    assert torch.equal(got.argmax(1), expected.argmax(1))

    some = sample.balanced(20)
    attack = BruSLe(pixels=10, queries=60)
    a, b = (attack(victim, some.images, some.labels) for victim in (ours, theirs))
    assert [str(s) for s in a.status] == [str(s) for s in b.status]
    assert a.queries.tolist() == b.queries.tolist()
    assert torch.equal(a.images, b.images)
    assert 0 < int(a.success.sum()) < 20  # neither trivial nor hopeless


@pytest.mark.parametrize("batch", [None, 1, 3, 7, 16])
def test_fixed_and_free_batch_sizes_answer_alike(net, images, tmp_path, batch) -> None:
    torch_victim = TorchVictim(normalised(net, (0.4,) * 3, (0.3,) * 3), shape=(3, 12, 10))
    victim = load(export_onnx(torch_victim, tmp_path / "net.onnx", batch=batch))
    assert victim.shape == (3, 12, 10)
    assert victim.framing.crop == (12, 10)
    expected = net((images - 0.4) / 0.3)
    for count in (1, 5, 7):
        assert torch.allclose(victim(images[:count]), expected[:count], atol=1e-4)


def test_a_file_without_a_victims_shape_needs_one(net, tmp_path) -> None:
    with pytest.raises(InputError, match="give shape="):
        export_onnx(TorchVictim(net), tmp_path / "net.onnx")
    path = export_onnx(TorchVictim(net), tmp_path / "net.onnx", shape=(3, 12, 10))
    assert load(path).shape == (3, 12, 10)


def test_what_cannot_be_exported_is_said_in_one_line(tmp_path) -> None:
    class Strange(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("not today\nnor tomorrow")

    with pytest.raises(VictimError, match="strange cannot be exported.*not today") as caught:
        export_onnx(TorchVictim(Strange(), name="strange", shape=(3, 4, 4)), tmp_path / "x.onnx")
    assert "\n" not in str(caught.value)


def graph(path: Path, kind: int, sides: list[int | str], last: bool = False) -> None:
    """A file of two outputs: channel means as float32, and twice them as "doubled".

    Args:
        path: where it goes.
        kind: number type of its input.
        sides: its input's shape.
        last: whether the channels are the last dimension.
    """
    make = onnx.helper
    axes = [1, 2] if last else [2, 3]
    info, types = make.make_tensor_value_info, onnx.TensorProto
    nodes = [
        make.make_node("Cast", ["x"], ["f"], to=types.FLOAT),
        make.make_node("ReduceMean", ["f", "axes"], ["means"], keepdims=0),
        make.make_node("Add", ["means", "means"], ["doubled"]),
    ]
    outputs = [info(name, types.FLOAT, [sides[0], "classes"]) for name in ("means", "doubled")]
    constants = [make.make_tensor("axes", types.INT64, [2], axes)]
    made = make.make_graph(nodes, "g", [info("x", kind, sides)], outputs, constants)
    model = make.make_model(made, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)


TYPES = {"FLOAT": 1e-6, "FLOAT16": 1e-3, "DOUBLE": 1e-6}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("sides", [["n", 3, 12, 10], [4, 3, 12, 10], ["n", "c", "h", "w"]])
def test_number_types_and_open_sides(tmp_path, images, kind, sides) -> None:
    graph(tmp_path / "g.onnx", getattr(onnx.TensorProto, kind), sides)
    victim = load(tmp_path / "g.onnx")
    assert victim.shape == (None if sides[1] == "c" else (3, 12, 10))
    expected = images.mean(dim=(2, 3))
    assert torch.allclose(victim(images), expected, atol=TYPES[kind])
    assert victim(images).dtype == torch.float32


def test_levels_for_files_of_bytes_and_scales_for_floats(tmp_path, images) -> None:
    expected = 255 * images.mean(dim=(2, 3))
    graph(tmp_path / "bytes.onnx", onnx.TensorProto.UINT8, ["n", 3, 12, 10])
    assert torch.allclose(load(tmp_path / "bytes.onnx")(images), expected, rtol=1e-5)
    graph(tmp_path / "float.onnx", onnx.TensorProto.FLOAT, ["n", 3, 12, 10])
    scaled = load(tmp_path / "float.onnx", "scale=255&mean=10,20,30&std=2,4,8")
    normal = (expected - torch.tensor([10, 20, 30])) / torch.tensor([2, 4, 8])
    assert torch.allclose(scaled(images), normal, rtol=1e-4)
    graph(tmp_path / "open.onnx", onnx.TensorProto.FLOAT, ["n", "c", "h", "w"])
    with pytest.raises(InputError, match="have 1 channel.* normalises 3"):  # not stretched
        load(tmp_path / "open.onnx", "mean=10,20,30")(images[:, :1])
    with pytest.raises(InputError, match="takes 8-bit levels: leave mean, std and scale out"):
        load(tmp_path / "bytes.onnx", "scale=255")


def test_channels_last_is_seen_or_told(tmp_path, images) -> None:
    expected = images.mean(dim=(2, 3))
    graph(tmp_path / "last.onnx", onnx.TensorProto.FLOAT, ["n", 12, 10, 3], last=True)
    victim = load(tmp_path / "last.onnx")
    assert (victim.layout, victim.shape) == ("nhwc", (3, 12, 10))
    assert torch.allclose(victim(images), expected, atol=1e-6)
    graph(tmp_path / "open.onnx", onnx.TensorProto.FLOAT, ["n", "h", "w", "c"], last=True)
    told = load(tmp_path / "open.onnx", "layout=nhwc&size=12,10")
    assert told.shape == (3, 12, 10)
    assert torch.allclose(told(images), expected, atol=1e-6)


def test_an_output_can_be_chosen_and_declared(tmp_path, images) -> None:
    graph(tmp_path / "g.onnx", onnx.TensorProto.FLOAT, ["n", 3, 12, 10])
    doubled = load(tmp_path / "g.onnx", "scores=doubled")(images)
    assert torch.allclose(doubled, 2 * images.mean(dim=(2, 3)), atol=1e-5)
    with pytest.raises(InputError, match="no output 'double': did you mean 'doubled'"):
        load(tmp_path / "g.onnx", "scores=double")
    with pytest.raises(VictimError, match="declared to give probabilities"):
        load(tmp_path / "g.onnx", "output=probabilities")(images)


def test_class_names_from_lines_and_json(tmp_path) -> None:
    graph(tmp_path / "g.onnx", onnx.TensorProto.FLOAT, ["n", 3, 12, 10])
    (tmp_path / "a.txt").write_text("red\n green \n\nblue\n")
    (tmp_path / "a.json").write_text('["red", "green", "blue"]')
    for file in ("a.txt", "a.json"):
        victim = load(tmp_path / "g.onnx", f"classes={tmp_path / file}")
        assert victim.classes == ("red", "green", "blue")


def test_files_that_do_not_take_images_are_refused_in_one_line(tmp_path, net, images) -> None:
    graph(tmp_path / "good.onnx", onnx.TensorProto.FLOAT, ["n", 3, 12, 10])
    graph(tmp_path / "ints.onnx", onnx.TensorProto.INT64, ["n", 3, 12, 10])
    (tmp_path / "cut.onnx").write_bytes((tmp_path / "good.onnx").read_bytes()[:60])
    (tmp_path / "text.onnx").write_text("hello")
    torch.save(net.state_dict(), tmp_path / "weights.onnx")
    for file, pattern in (
        ("ints.onnx", r"does not take one batch of images.*but x tensor\(int64\)"),
        ("cut.onnx", "cannot be loaded as ONNX"),
        ("text.onnx", "is a text file"),
        ("weights.onnx", "is no ONNX file"),
        ("nowhere.onnx", "cannot open"),
    ):
        with pytest.raises(VictimError, match=pattern) as caught:
            load(tmp_path / file)
        assert "\n" not in str(caught.value)
    victim = load(tmp_path / "good.onnx")
    with pytest.raises(InputError, match="takes images of 3 x 12 x 10, not 3 x 10 x 12"):
        victim(images.transpose(2, 3))
    with pytest.raises(InputError, match=r"takes images of \[3, 12, 10\], not of \[3, 8, 8\]"):
        load(tmp_path / "good.onnx", "size=8")
    with pytest.raises(InputError, match="threads in .* whole number above 0"):
        load(tmp_path / "good.onnx", "threads=0")


def test_three_dimensional_input_is_no_image(tmp_path) -> None:
    make, types = onnx.helper, onnx.TensorProto
    sides = ["n", 3, 12]
    info = make.make_tensor_value_info
    nodes = [make.make_node("Identity", ["x"], ["y"])]
    made = make.make_graph(
        nodes, "g", [info("x", types.FLOAT, sides)], [info("y", types.FLOAT, sides)]
    )
    model = make.make_model(made, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "g.onnx")
    with pytest.raises(VictimError, match=r"\(n, c, h, w\), but x tensor\(float\) \['n', 3, 12\]"):
        load(tmp_path / "g.onnx")


def test_without_onnxruntime(monkeypatch, tmp_path) -> None:
    graph(tmp_path / "g.onnx", onnx.TensorProto.FLOAT, ["n", 3, 12, 10])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VictimError, match=r'package onnxruntime: pip install "brusle\[onnx\]"'):
        load(tmp_path / "g.onnx")
    with pytest.raises(VictimError, match="runtime=onnx needs the package onnxruntime"):
        brusle.load_victim("zoo:cifar10-resnet20?runtime=onnx")


class Counting(nn.Module):
    """Adds the number of images, which the older exporter takes for a constant."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4] + torch.arange(4) * torch.ones(len(x), 1)


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4] + torch.rand(len(x), 4)


def test_the_newer_exporter_takes_over_where_the_older_is_wrong(images, tmp_path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    counting = TorchVictim(Counting(), shape=(3, 12, 10))
    victim = load(export_onnx(counting, tmp_path / "net.onnx"))
    for count in (1, 7):
        assert torch.allclose(victim(images[:count]), counting(images[:count]), atol=1e-6)


def test_a_transformer_needs_no_further_package(small_vit, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    ours = TorchVictim(small_vit, shape=(3, 32, 32))
    victim = load(export_onnx(ours, tmp_path / "net.onnx"))
    images = torch.rand(5, 3, 32, 32)
    assert torch.allclose(victim(images), ours(images), atol=1e-4)


def test_an_export_that_answers_otherwise_is_refused() -> None:
    victim = TorchVictim(Random(), name="random", shape=(3, 4, 4))
    with pytest.raises(VictimError, match="random cannot be exported .*scores differ"):
        in_onnx_runtime(victim, torch.device("cpu"))
