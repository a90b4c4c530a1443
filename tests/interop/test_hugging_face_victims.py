"""`hf:`, with models and processors that transformers' own classes have written to the disk."""

import json
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from entry import run
from offline import offline  # noqa: F401 - for every test in here
from PIL import Image
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.data.images import Framing, read_image
from brusle.errors import InputError, VictimError
from brusle.victims import OnnxVictim, normalised, wrap
from brusle.victims.fingerprints import fingerprint

pytestmark = pytest.mark.interop

NAMES = ("ant", "bee", "cat", "dog", "elk")
X = torch.randint(0, 256, (6, 3, 32, 32), generator=torch.Generator().manual_seed(3)).float() / 255


@pytest.fixture(scope="module")
def hf(torchvision: ModuleType) -> ModuleType:
    """Its processors use torchvision where there is one."""
    return pytest.importorskip("transformers")


def vit(hf: Any, **options: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "image_size": 32, "patch_size": 8}
    return hf.ViTForImageClassification(hf.ViTConfig(**sizes | named() | options))


def resnet(hf: Any, **options: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    sizes["layer_type"] = "basic"
    return hf.ResNetForImageClassification(hf.ResNetConfig(**sizes | named() | options))


def convnext(hf: Any) -> Any:
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    return hf.ConvNextForImageClassification(hf.ConvNextConfig(**sizes | named()))


def swin(hf: Any) -> Any:
    sizes = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "image_size": 32}
    sizes |= {"window_size": 4, "patch_size": 2}
    return hf.SwinForImageClassification(hf.SwinConfig(**sizes | named()))


def mobilenet(hf: Any) -> Any:
    options = {"image_size": 32, "depth_multiplier": 0.35}
    return hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(**options | named()))


def deit(hf: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "image_size": 32, "patch_size": 8}
    return hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**sizes | named()))


def named() -> dict[str, Any]:
    return {"id2label": dict(enumerate(NAMES)), "label2id": {n: i for i, n in enumerate(NAMES)}}


SQUARE = {"height": 32, "width": 32}
MODELS = {
    # name: the model, its processor's class and settings, and what that is here
    "vit": (vit, "ViTImageProcessor", {"size": SQUARE}, ((32, 32), "bilinear")),
    "resnet": (
        resnet,
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_pct": 0.875},
        (36, "bicubic"),
    ),
    "convnext": (
        convnext,
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_pct": 0.8, "image_mean": [0.4, 0.5, 0.6]},
        (40, "bicubic"),
    ),
    "swin": (swin, "ViTImageProcessor", {"size": SQUARE, "resample": 3}, ((32, 32), "bicubic")),
    "mobilenet": (
        mobilenet,
        "MobileNetV2ImageProcessor",
        {"size": {"shortest_edge": 37}, "crop_size": SQUARE},
        (37, "bilinear"),
    ),
    "deit": (
        deit,
        "DeiTImageProcessor",
        {"size": {"height": 39, "width": 35}, "crop_size": SQUARE, "image_std": [0.2, 0.3, 0.4]},
        ((39, 35), "bicubic"),
    ),
}


def stored(hf: Any, which: str, folder: Path) -> Any:
    """The model ``which``, saved with its processor."""
    make, processor, settings, _ = MODELS[which]
    net = randomise(make(hf))
    net.save_pretrained(folder)
    getattr(hf, processor)(**settings).save_pretrained(folder)
    return net


def load(name: str) -> Any:
    return brusle.load_victim(name, device="cpu")


def logits(net: nn.Module, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return net.eval()(pixels).logits


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    """A part of the bundled sheet of photographs: neither square nor of a round size."""
    sheet = Path(brusle.__file__).parent / "data" / "sample" / "cifar10.png"
    path = tmp_path / "photograph.png"
    Image.open(sheet).convert("RGB").crop((64, 32, 64 + 151, 32 + 107)).save(path)
    return path


@pytest.mark.parametrize("which", MODELS)
def test_the_same_pixels_and_the_same_logits(hf, which, tmp_path, photograph) -> None:
    """From the file of a photograph on, as with transformers' own processor."""
    net = stored(hf, which, tmp_path / "model")
    victim = load(f"hf:{tmp_path / 'model'}")
    resize, how = MODELS[which][3]
    assert victim.framing == Framing(resize, (32, 32), how, "floor")
    assert victim.shape == (3, 32, 32) and victim.classes == NAMES
    ours = read_image(photograph, victim.shape, victim.framing)
    normalise = victim.module[0]
    for backend, levels in (("pil", 1e-4), ("torchvision", 2.01)):
        processor = hf.AutoImageProcessor.from_pretrained(tmp_path / "model", backend=backend)
        assert type(processor).__name__.endswith("Pil") == (backend == "pil")
        theirs = processor(images=Image.open(photograph), return_tensors="pt")["pixel_values"]
        difference = (theirs - normalise(ours[None])) * normalise.std
        assert float(difference.abs().max()) * 255 < levels, backend
        if backend == "pil":
            assert torch.allclose(victim(ours[None]), logits(net, theirs), atol=1e-5)
    assert logits(net, normalise(X)).std() > 1e-3
    assert torch.allclose(victim(X), logits(net, normalise(X)), atol=1e-5)


@pytest.mark.parametrize("which", ["vit", "resnet"])
def test_the_same_attack(hf, which, tmp_path) -> None:
    """As on the model itself, behind its normalisation, and as by hand on its logits."""
    net = stored(hf, which, tmp_path)
    victim = load(f"hf:{tmp_path}")
    labels = victim(X).argmax(1)
    attack = brusle.attacks.BruSLe(pixels=60, queries=80)
    half = ([0.5] * 3, [0.5] * 3)
    byhand = wrap(lambda x: logits(net, (x - 0.5) / 0.5), output="logits")
    results = [attack(v, X, labels) for v in (victim, normalised(net, *half), byhand)]
    for other in results[1:]:
        assert torch.equal(results[0].queries, other.queries)
        assert torch.equal(results[0].images, other.images)
    assert results[0].queries.min() > 0


def test_a_model_handed_over_as_it_is(hf) -> None:
    """`logits` of transformers' objects are known; white-box gradients go through."""
    net = randomise(vit(hf))
    victim = brusle.victims.as_victim(net, "cpu")
    assert torch.allclose(victim(X), logits(net, X), atol=1e-6)
    leaf = X.clone().requires_grad_()
    victim.graph(leaf)[:, 2].sum().backward()
    other = X.clone().requires_grad_()
    net(other).logits[:, 2].sum().backward()
    assert torch.allclose(leaf.grad, other.grad, atol=1e-6) and float(leaf.grad.abs().max()) > 0
    assert brusle.check(net, (X, victim(X).argmax(1))).findings is not None


def test_in_onnx_runtime(hf, tmp_path) -> None:
    for which in ("vit", "resnet"):
        net = stored(hf, which, tmp_path / which)
        victim = load(f"hf:{tmp_path / which}?runtime=onnx")
        assert isinstance(victim, OnnxVictim)
        plain = load(f"hf:{tmp_path / which}")
        assert victim.framing == plain.framing and fingerprint(victim) == fingerprint(plain)
        assert torch.allclose(victim(X), logits(net, plain.module[0](X)), atol=1e-3)


def test_where_it_looks(hf, tmp_path) -> None:
    """GradCAM on the convolutions; attention is not that of the nets which brusle knows."""
    stored(hf, "resnet", tmp_path / "resnet")
    victim = load(f"hf:{tmp_path / 'resnet'}")
    look = brusle.looking.look(victim, X, victim(X).argmax(1), how="gradcam")
    assert look.maps.shape == (6, 32, 32) and look.maps.std() > 0
    stored(hf, "vit", tmp_path / "vit")
    assert "attention" not in brusle.looking.hows(load(f"hf:{tmp_path / 'vit'}"))


def test_weights_of_half_precision_count_in_whole(hf, tmp_path) -> None:
    net = stored(hf, "vit", tmp_path)
    net.half().save_pretrained(tmp_path)
    victim = load(f"hf:{tmp_path}")
    assert {part.dtype for part in victim.module.parameters()} == {torch.float32}
    assert torch.allclose(victim(X), logits(net.float(), (X - 0.5) / 0.5), atol=1e-5)


def test_grey_models_and_names_that_are_none(hf, tmp_path) -> None:
    net = randomise(vit(hf, num_channels=1, id2label={i: f"LABEL_{i}" for i in range(5)}))
    net.save_pretrained(tmp_path)
    one = {"image_mean": [0.3], "image_std": [0.4]}
    hf.ViTImageProcessor(size=SQUARE, **one).save_pretrained(tmp_path)
    victim = load(f"hf:{tmp_path}")
    assert victim.shape == (1, 32, 32) and victim.classes is None
    grey = X[:, :1]
    assert torch.allclose(victim(grey), logits(net, (grey - 0.3) / 0.4), atol=1e-5)
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    assert load(f"hf:{tmp_path}?classes={tmp_path}/names.txt").classes == NAMES
    hf.ViTImageProcessor(size=SQUARE).save_pretrained(tmp_path)
    with pytest.raises(VictimError, match="normalises 3 channels and not 1; say size= and mean="):
        load(f"hf:{tmp_path}")


def test_class_names_are_sorted_by_number(hf, tmp_path) -> None:
    labels = {i: f"class-{i}" for i in range(12)}
    vit(hf, id2label=labels).save_pretrained(tmp_path)
    hf.ViTImageProcessor(size=SQUARE).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"] = dict(sorted(config["id2label"].items()))  # "0", "1", "10", "11", "2"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load(f"hf:{tmp_path}").classes == tuple(labels.values())


PROCESSORS = (
    ("EfficientNetImageProcessor", {"size": SQUARE, "image_std": [0.3, 0.4, 0.5]}, (32, 32)),
    ("LevitImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}, 36),
    (
        "PoolFormerImageProcessor",
        {"size": {"shortest_edge": 32}, "crop_size": SQUARE, "crop_pct": 0.8},
        40,
    ),
    ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}, 32),
    ("ViTImageProcessor", {"size": SQUARE, "do_normalize": False}, (32, 32)),
    ("ViTImageProcessor", {"size": SQUARE, "rescale_factor": 1 / 127.5}, (32, 32)),
    ("ViTImageProcessor", {"size": SQUARE, "do_rescale": False, "resample": 1}, (32, 32)),
)


@pytest.mark.parametrize(("kind", "settings", "resize"), PROCESSORS)
def test_processors_of_other_models(hf, kind, settings, resize, tmp_path, photograph) -> None:
    net = randomise(vit(hf))
    net.save_pretrained(tmp_path)
    processor = getattr(hf, f"{kind}Pil")(**settings)
    processor.save_pretrained(tmp_path)
    victim = load(f"hf:{tmp_path}")
    assert victim.framing.resize == resize
    theirs = processor(images=Image.open(photograph), return_tensors="pt")["pixel_values"]
    ours = victim.module[0](read_image(photograph, victim.shape, victim.framing)[None])
    assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("MobileViTImageProcessor", {"size": {"shortest_edge": 36}, "crop_size": SQUARE}, "only"),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 30}, "crop_size": SQUARE}, "and pads"),
        ("ViTImageProcessor", {"size": SQUARE, "rescale_factor": 0}, "unusual .ZeroDivision"),
        ("PerceiverImageProcessor", {"size": SQUARE, "crop_size": SQUARE}, "only"),
        ("EfficientNetImageProcessor", {"size": SQUARE, "rescale_offset": True}, "only"),
        ("ViTImageProcessor", {"size": SQUARE, "do_resize": False}, "leaves images in the size"),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "do_center_crop": False}, "differ"),
    ],
)
def test_what_is_no_framing_and_normalisation_is_refused(hf, kind, settings, why, tmp_path) -> None:
    net = randomise(vit(hf))
    net.save_pretrained(tmp_path)
    getattr(hf, kind)(**settings).save_pretrained(tmp_path)
    with pytest.raises(VictimError, match=rf"(?s){why}.* say size=") as said:
        load(f"hf:{tmp_path}")
    assert "\n" not in str(said.value)
    victim = load(f"hf:{tmp_path}?size=32&mean=0.1,0.2,0.3&std=0.5,0.5,0.5")
    mean = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    assert torch.allclose(victim(X), logits(net, (X - mean) / 0.5), atol=1e-5)
    assert victim.framing == Framing(32, (32, 32))


def test_what_the_user_says_comes_first(hf, tmp_path) -> None:
    net = stored(hf, "resnet", tmp_path)
    victim = load(f"hf:{tmp_path}?size=40")
    assert victim.shape == (3, 40, 40) and victim.framing == Framing(40, (40, 40))
    big = torch.rand(2, 3, 40, 40)
    assert torch.allclose(victim(big), logits(net, (big - 0.5) / 0.5), atol=1e-5)
    assert torch.allclose(load(f"hf:{tmp_path}?mean=none")(X), logits(net, X), atol=1e-5)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(VictimError, match="no processor that can be read .say size= and mean="):
        load(f"hf:{tmp_path}")
    assert torch.allclose(load(f"hf:{tmp_path}?size=32&mean=none")(X), logits(net, X), atol=1e-5)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_pickles_are_weights_or_nothing(hf, tmp_path) -> None:
    net = stored(hf, "vit", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    assert torch.allclose(load(f"hf:{tmp_path}")(X), logits(net, (X - 0.5) / 0.5), atol=1e-5)
    mark = tmp_path / "it-ran"
    for trap in (
        lambda path: torch.save({**net.state_dict(), "x": Trap(mark)}, path),
        lambda path: path.write_bytes(pickle.dumps(Trap(mark))),
    ):
        trap(tmp_path / "pytorch_model.bin")
        with pytest.raises(VictimError, match="cannot be opened"):
            load(f"hf:{tmp_path}")
    assert not mark.exists()


def test_code_in_the_folder_is_not_run(hf, tmp_path) -> None:
    stored(hf, "vit", tmp_path)
    mark = tmp_path / "it-ran"
    (tmp_path / "own.py").write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((tmp_path / "config.json").read_text())
    for wrong, pattern in (
        (
            {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}},
            "cannot be opened",
        ),
        (
            {"auto_map": {"AutoModelForImageClassification": "own.Net"}},
            "",  # a class of transformers' own is taken instead
        ),
        ({"attn_implementation": "somebody/kernel"}, "asks for a program from the hub"),
        ({"attn_implementation": {"": "somebody/kernel"}}, "asks for a program from the hub"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | wrong))
        if pattern:
            with pytest.raises(VictimError, match=pattern):
                load(f"hf:{tmp_path}")
        else:
            load(f"hf:{tmp_path}")
        assert not mark.exists(), wrong


def test_what_is_no_classifier_is_refused(hf, tmp_path) -> None:
    net = stored(hf, "vit", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for wrong, pattern in (
        ({"problem_type": "multi_label_classification"}, "yes or no to each label"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantised"),
        ({"model_type": "bert"}, "cannot be opened"),
        ({"id2label": {"0": "all"}, "label2id": {"all": 0}}, "fewer than two classes"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | wrong))
        with pytest.raises(VictimError, match=pattern) as said:
            load(f"hf:{tmp_path}")
        assert "\n" not in str(said.value)
    (tmp_path / "config.json").write_text(json.dumps(config))
    net.vit.save_pretrained(tmp_path)  # the body alone; its head would be drawn at random
    with pytest.raises(VictimError, match=r"has no classifier\.(bias|weight), so that its answers"):
        load(f"hf:{tmp_path}")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(VictimError, match="holds an adapter"):
        load(f"hf:{tmp_path}")


def test_names_that_lead_nowhere(hf, tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, error, pattern in (
        (f"hf:{tmp_path}/file", VictimError, "is no folder: give one that save_pretrained"),
        ("hf:/no/such/place", VictimError, "is no folder"),
        (f"hf:{tmp_path}/empty", VictimError, "cannot be opened"),
        ("hf:somebody/something", VictimError, "cannot be opened"),  # and nobody was asked
        (f"hf:{tmp_path}/empty?crop=3", InputError, "no option 'crop'"),
        (f"hf:{tmp_path}/empty?mean=0.5,0.5,0.5", InputError, "has one of mean= and std=: give"),
        ("hf:", InputError, "is not complete: write hf:DIR"),
    ):
        with pytest.raises(error, match=pattern) as said:
            load(name)
        assert "\n" not in str(said.value)


def test_nothing_is_printed_or_drawn(hf, tmp_path, capfd) -> None:
    stored(hf, "vit", tmp_path)
    capfd.readouterr()
    state = torch.random.get_rng_state()
    load(f"hf:{tmp_path}")
    assert capfd.readouterr() == ("", "")
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_run_by_name(hf, tmp_path, photograph) -> None:
    """evaluate, verify and check, on photographs that are framed as the processor says."""
    stored(hf, "vit", tmp_path / "model")
    name = f"hf:{tmp_path / 'model'}"
    victim = load(name)
    sheet = Image.open(photograph)
    (tmp_path / "data").mkdir()
    lines = ["file,class_index"]
    for i in range(5):
        path = tmp_path / "data" / f"{i}.png"
        sheet.crop((8 * i, 3 * i, 90 + 8 * i, 70 + 3 * i)).save(path)
        label = victim(read_image(path, victim.shape, victim.framing)[None]).argmax()
        lines.append(f"{i}.png,{int(label)}")
    (tmp_path / "data" / "labels.csv").write_text("\n".join(lines))
    data, folder = f"folder:{tmp_path / 'data'}", tmp_path / "run"
    evaluate = ["evaluate", "--victim", name, "--data", data, "--out", folder]
    evaluate += ["--attack", "brusle", "--goal", "untargeted", "--pixels", 80, "--queries", 60]
    assert run(*evaluate).returncode == 0
    (result,) = brusle.Run.open(folder).results
    assert len(result.success) == 5 and result.success.any()
    refused = run("verify", folder)
    assert refused.returncode == 2  # somebody's folder makes nobody fetch a model
    assert "may fetch a model from anybody's repository" in refused.stderr
    again = run("verify", folder, "--victim", name)
    assert again.returncode == 0, again.stderr
    checked = run("check", "--victim", name, "--data", data)
    assert checked.returncode == 0, checked.stdout
    stored(hf, "resnet", tmp_path / "model")  # other weights under the same name
    other = run(*evaluate, "--seed", 1)
    assert other.returncode == 2 and "weights" in other.stderr
