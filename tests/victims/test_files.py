"""Checkpoints, TorchScript archives and exported programs."""

import argparse
import io
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from random_weights import randomise
from safetensors.torch import save_file
from torch import Tensor, nn

import brusle
from brusle import zoo
from brusle.errors import BrusleError, InputError, VictimError
from brusle.victims.architectures import ARCHITECTURES, CifarResNet18
from brusle.victims.batches import in_fixed_batches
from brusle.victims.weights import load_weights, match_names, read_weights

ran: list[str] = []


@pytest.fixture
def resnet20() -> nn.Module:
    return randomise(zoo.build("resnet20", 10))


@pytest.fixture
def sample() -> Tensor:
    return brusle.data.load("sample").images[::20]


def load(path: Path, options: str = "arch=resnet20", kind: str = "checkpoint") -> Any:
    return brusle.load_victim(f"{kind}:{path}?{options}", device="cpu")


def nested(state: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


WRITERS = {
    "plain": lambda state, path: torch.save(state, path),
    "old format": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False),
    "safetensors": lambda state, path: save_file(state, path),
    "net": lambda state, path: torch.save({"net": state, "acc": 95.2, "epoch": 199}, path),
    "twice": lambda state, path: torch.save({"model": {"state_dict": state, "x": 1}}, path),
    "parallel": lambda state, path: torch.save(nested(state, "module."), path),
    "compiled": lambda state, path: torch.save(nested(state, "_orig_mod.module.model."), path),
}


@pytest.mark.parametrize("form", WRITERS)
def test_every_form_of_checkpoint_gives_the_same_net(form, resnet20, sample, tmp_path) -> None:
    WRITERS[form](resnet20.state_dict(), tmp_path / "net.pth")
    victim = load(tmp_path / "net.pth")
    assert torch.allclose(victim(sample), resnet20(sample), rtol=1e-4, atol=1e-4)
    assert victim.shape == (3, 32, 32)
    assert victim.classes[3] == "cat"


def test_key_and_prefix_find_a_net_among_others(resnet20, sample, tmp_path) -> None:
    state = nested(resnet20.state_dict(), "module.model.")
    state |= nested(resnet20.state_dict(), "module.attacker.model.")
    torch.save({"best": {"ema": state}}, tmp_path / "net.pt")
    with pytest.raises(VictimError, match="no state dict at a usual place: it has 'best'.*key="):
        load(tmp_path / "net.pt")
    with pytest.raises(VictimError, match="has no key 'last': it has 'ema'"):
        load(tmp_path / "net.pt", "arch=resnet20&key=best.last")
    victim = load(tmp_path / "net.pt", "arch=resnet20&key=best.ema&prefix=module.model.")
    assert torch.allclose(victim(sample), resnet20(sample), rtol=1e-4, atol=1e-4)


def test_the_number_of_classes_comes_from_the_file(tmp_path) -> None:
    net = randomise(CifarResNet18(4))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    victim = load(tmp_path / "net.pth", "arch=resnet18-cifar")
    assert victim(torch.rand(2, 3, 32, 32)).shape == (2, 4)
    assert victim.classes is None  # four are not CIFAR-10's ten
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n")
    named = load(tmp_path / "net.pth", f"arch=resnet18-cifar&classes={tmp_path}/names.txt")
    assert named.classes == ("a", "b", "c", "d")
    with pytest.raises(VictimError, match=r"linear.weight is \(4, 512\) .* and \(10, 512\)"):
        load(tmp_path / "net.pth", "arch=resnet18-cifar&classes=10")


def test_normalisation_can_be_told(tmp_path) -> None:
    net = randomise(CifarResNet18(10))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    x = torch.rand(2, 3, 32, 32)
    mean = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
    std = torch.tensor([0.2023, 0.1994, 0.2010])[:, None, None]
    expected = {
        "": (x - mean) / std,
        "&mean=none": x,
        "&mean=0.5,0.5,0.5&std=0.25,0.25,0.25": (x - 0.5) * 4,
        "&mean=0.5,0.5,0.5": (x - 0.5) / std,
    }
    for options, prepared in expected.items():
        victim = load(tmp_path / "net.pth", f"arch=resnet18-cifar{options}")
        assert torch.allclose(victim(x), net(prepared), rtol=1e-3, atol=1e-3), options


def test_the_first_layer_that_does_not_fit_is_named_in_the_nets_order(resnet20, tmp_path) -> None:
    path = tmp_path / "net.pth"
    state = resnet20.state_dict()
    wrong = dict(reversed(state.items()))  # the order in the file is of no interest
    wrong["stem.weight"] = torch.zeros(8, 3, 3, 3)
    wrong["head.bias"] = torch.zeros(3)
    torch.save(wrong, path)
    with pytest.raises(VictimError, match=r"^stem.weight is \(8, 3, 3, 3\) .* \(16, 3, 3, 3\)"):
        load(path)
    del wrong["bn.weight"]
    wrong["stem.weight"] = state["stem.weight"]
    wrong["batch.weight"] = state["bn.weight"]
    torch.save(wrong, path)
    with pytest.raises(VictimError, match=r"has no bn.weight, but batch.weight"):
        load(path)
    torch.save(state | {"extra.bias": torch.zeros(1)}, path)
    with pytest.raises(VictimError, match="has extra.bias, which the architecture does not"):
        load(path)


def test_counters_may_be_missing_and_prefixes_stay_where_they_belong(resnet20, sample) -> None:
    state = {n: t for n, t in resnet20.state_dict().items() if "num_batches" not in n}
    other = zoo.build("resnet20", 10).eval()
    load_weights(other, match_names(other, state), "file")
    assert torch.equal(other(sample), resnet20(sample))
    inner = nn.Sequential(OrderedDict(model=nn.Linear(2, 2)))  # "model." is the net's own name
    assert set(match_names(inner, inner.state_dict())) == {"model.weight", "model.bias"}


def test_older_names_of_the_transformers_layers(small_vit) -> None:
    net = small_vit
    old = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): tensor
        for name, tensor in net.state_dict().items()
    }
    assert old.keys() != net.state_dict().keys()
    found = match_names(net, nested(old, "module."), ARCHITECTURES["vit-b-16"].rename)
    assert found.keys() == net.state_dict().keys()


def note(text: str) -> None:
    ran.append(text)


class Trap:
    """Tells when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return note, ("code ran",)


def test_checkpoints_run_no_code(resnet20, tmp_path) -> None:
    ran.clear()
    path = tmp_path / "net.pth"
    for content in ({"state_dict": resnet20.state_dict(), "trap": Trap()}, Trap()):
        torch.save(content, path)
        with pytest.raises(VictimError, match="checkpoints load as weights only.*state_dict()"):
            load(path)
    with path.open("wb") as file:
        pickle.dump(Trap(), file)
    with pytest.raises(VictimError, match="checkpoints load as weights only"):
        load(path)
    assert ran == []
    pickle.loads(path.read_bytes())
    assert ran == ["code ran"]  # the trap is one


def refusals(folder: Path, net: nn.Module) -> dict[str, str]:
    """Files that are no checkpoint, and what is said about each."""
    torch.save(net, folder / "module.pth")
    torch.save({"state_dict": net.state_dict(), "args": argparse.Namespace()}, folder / "args.pth")
    torch.save(torch.zeros(3), folder / "tensor.pth")
    good = io.BytesIO()
    torch.save(net.state_dict(), good)
    (folder / "cut.pth").write_bytes(good.getvalue()[:-2000])
    with zipfile.ZipFile(folder / "hollow.pth", "w") as archive:
        archive.writestr("net/data.pkl", b"\x80\x02}q\x00")
    (folder / "page.pth").write_text("<!DOCTYPE html><html>Not found</html>")
    (folder / "text.pth").write_text("weights\n")
    (folder / "lfs.pth").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0")
    (folder / "empty.pth").write_bytes(b"")
    (folder / "bytes.pth").write_bytes(bytes(range(1, 200)))
    (folder / "cut.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{" + b"x" * 10)
    with zipfile.ZipFile(folder / "photos.pth", "w") as archive:
        archive.writestr("a.txt", "a")
    script(nn.Linear(2, 2), folder / "script.pth")
    return {
        "module.pth": "holds a .*CifarResNet, which would run code",
        "args.pth": "holds a argparse.Namespace, which would run code",
        "tensor.pth": "holds a Tensor, not a state dict",
        "cut.pth": "is a damaged archive",
        "hollow.pth": "is a damaged checkpoint",
        "page.pth": "is a web page",
        "text.pth": "is a text file",
        "lfs.pth": "git lfs pull",
        "empty.pth": "is empty",
        "bytes.pth": "is no checkpoint",
        "cut.safetensors": "is a damaged safetensors file",
        "photos.pth": "is no checkpoint",
        "script.pth": "load it as torchscript:",
        "nowhere.pth": "cannot open .*: No such file or directory",
    }


def test_what_is_no_checkpoint_is_refused_in_one_line(resnet20, tmp_path) -> None:
    for file, pattern in refusals(tmp_path, resnet20).items():
        with pytest.raises(BrusleError) as caught:
            load(tmp_path / file)
        assert re.search(pattern, str(caught.value)), f"{file}: {caught.value}"
        assert "\n" not in str(caught.value)


def test_what_a_checkpoint_is_for_must_be_said(tmp_path) -> None:
    with pytest.raises(InputError, match="add \\?arch= and one of resnet18-cifar"):
        brusle.load_victim(f"checkpoint:{tmp_path}/net.pth")
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        load(tmp_path / "net.pth", "arch=resnet-50")
    with pytest.raises(InputError, match="no option 'clases': did you mean 'classes'"):
        load(tmp_path / "net.pth", "arch=resnet50&clases=10")
    with pytest.raises(InputError, match="neither a number above 1 nor a file"):
        load(tmp_path / "net.pth", "arch=resnet50&classes=one")
    with pytest.raises(InputError, match="give numbers with commas"):
        load(tmp_path / "net.pth", "arch=resnet50&mean=a")


def script(net: nn.Module, path: Path) -> None:
    with warnings.catch_warnings():  # torch prefers torch.export by now
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(net), path)


def test_torchscript_answers_as_the_module(net, images, tmp_path) -> None:
    script(net, tmp_path / "net.pt")
    victim = load(tmp_path / "net.pt", "size=12,10&mean=0.5,0.5,0.5", kind="torchscript")
    assert victim.shape == (3, 12, 10)
    assert torch.allclose(victim(images), net(images - 0.5), atol=1e-5)
    script(nn.Sequential(net, nn.Softmax(1)), tmp_path / "soft.pt")
    victim = load(tmp_path / "soft.pt", "output=probabilities", kind="torchscript")
    assert torch.allclose(victim(images), net(images).softmax(1), atol=1e-5)
    with pytest.raises(VictimError, match="declared to give logits"):
        load(tmp_path / "soft.pt", "output=logits", kind="torchscript")(images)
    with pytest.raises(InputError, match="which the model knows itself: give a file of names"):
        load(tmp_path / "net.pt", "classes=5", kind="torchscript")


def test_names_of_classes_come_from_a_file(net, images, tmp_path) -> None:
    script(net, tmp_path / "net.pt")
    names = tmp_path / "names"

    def named() -> brusle.oracle.Victim:
        return load(tmp_path / "net.pt", f"classes={names}", kind="torchscript")

    for text in ("a\nb\nc\n\nd\ne\n", '["a", "b", "c", "d", "e"]'):
        names.write_text(text)
        assert named().classes == ("a", "b", "c", "d", "e")  # type: ignore[attr-defined]
    for text in ("", "a", "[", '["a"]'):
        names.write_text(text)
        with pytest.raises(InputError, match="has no two class names: give one a line, or a JSON"):
            named()
    names.write_text("a\nb\nc\nd\n")
    with pytest.raises(VictimError, match="answers with 5 scores, but 4 class names were given"):
        brusle.attacks.BruSLe(2, 10)(named(), images, [0] * len(images))


def exported(net: nn.Module, images: Tensor, path: Path, most: int | None = None) -> None:
    dims = None if most is None else ({0: torch.export.Dim("batch", max=most)},)
    torch.export.save(torch.export.export(net, (images,), dynamic_shapes=dims), path)


@pytest.mark.parametrize(("batch", "most"), [(4, None), (1, None), (7, None), (2, 3), (2, 1024)])
def test_exported_programs_take_any_number_of_images(net, images, tmp_path, batch, most) -> None:
    exported(net, images[:batch], tmp_path / "net.pt2", most)
    victim = load(tmp_path / "net.pt2", "output=logits", kind="export")
    assert victim.shape == (3, 12, 10)
    for count in (1, 3, 7):
        assert torch.allclose(victim(images[:count]), net(images[:count]), atol=1e-5)


def test_exported_programs_run_no_code(net, images, tmp_path) -> None:
    path = tmp_path / "net.pt2"
    exported(net, images, path)
    trap = io.BytesIO()
    torch.save({"trap": Trap()}, trap)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    inputs = next(name for name in content if "sample_inputs" in name)
    ran.clear()
    for changed in (
        content | {inputs: trap.getvalue()},
        content | {f"{inputs.partition('/')[0]}/data/constants/opaque_obj_0": b"x"},
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        with pytest.raises(VictimError, match="net.pt2"):
            load(path, "output=logits", kind="export")
    assert ran == []


def test_archives_of_another_kind_are_told_apart(net, images, resnet20, tmp_path) -> None:
    script(net, tmp_path / "script.pt")
    exported(net, images, tmp_path / "export.pt2")
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    (tmp_path / "bytes.pt").write_bytes(bytes(range(1, 99)))
    for kind, file, pattern in (
        ("export", "script.pt", "load it as torchscript:"),
        ("torchscript", "export.pt2", "load it as export:"),
        ("torchscript", "weights.pt", "load it as checkpoint:.*arch="),
        ("export", "bytes.pt", "torch.export.save"),
        ("torchscript", "nowhere.pt", "cannot open"),
    ):
        with pytest.raises(VictimError, match=pattern):
            load(tmp_path / file, "output=logits", kind=kind)


def test_fixed_batches_cut_what_they_filled_up() -> None:
    seen: list[Tensor] = []

    def double(images: Tensor) -> Tensor:
        seen.append(images)
        return images.flatten(1)[:, :2] * 2

    images = torch.arange(5.0).view(5, 1, 1, 1).repeat(1, 1, 1, 2)
    for size, calls in ((1, 5), (2, 3), (3, 2), (5, 1), (8, 1)):
        seen.clear()
        answers = in_fixed_batches(double, images, size)
        assert torch.equal(answers, torch.arange(5.0)[:, None].repeat(1, 2) * 2)
        assert [len(batch) for batch in seen] == [size] * calls
        assert float(seen[-1][-1].max()) == 4  # filled up with the last image


def test_weights_of_a_nested_file_are_read_as_they_are(resnet20, tmp_path) -> None:
    torch.save({"net": resnet20.state_dict()}, tmp_path / "net.pth")
    weights = read_weights(str(tmp_path / "net.pth"))
    assert all(torch.equal(weights[n], t) for n, t in resnet20.state_dict().items())
