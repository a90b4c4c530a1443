"""Attention against the nets' own weights, and rollout against a product in NumPy."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from enlarging import bilinear
from models import random_images
from random_weights import randomise
from torch import Tensor, nn

import brusle
from brusle.errors import InputError, VictimError
from brusle.looking import hows, look
from brusle.looking.nets import Net
from brusle.looking.transformers import layer_weights
from brusle.victims import TorchVictim, normalised
from brusle.victims.architectures import ARCHITECTURES
from brusle.victims.options import IMAGENET


def weights_of(net: nn.Module, images: Tensor) -> list[Tensor]:
    """What is read of ``net``: ``(n, tokens, tokens)`` for each layer."""
    with Net.of(TorchVictim(net), images[0]) as copied:
        return layer_weights(copied, images)


def timms_own(net: nn.Module, images: Tensor) -> list[np.ndarray]:
    """What timm's softmax gives when it is not fused, which is handed to a dropout."""
    seen: list[np.ndarray] = []
    handles = []
    for block in net.blocks:
        block.attn.fused_attn = False
        keep = lambda _layer, given: seen.append(given[0].detach().mean(1).numpy())  # noqa: E731
        handles.append(block.attn.attn_drop.register_forward_pre_hook(keep))
    with torch.no_grad():
        net(images)
    for block, handle in zip(net.blocks, handles, strict=True):
        block.attn.fused_attn = True
        handle.remove()
    return seen


def torchvisions_own(net: nn.Module, images: Tensor) -> list[np.ndarray]:
    """The encoder of torchvision's transformer, step by step from its weights."""
    with torch.no_grad():
        patches = net.conv_proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([net.class_token.expand(len(images), -1, -1), patches], 1)
        x, found = x + net.encoder.pos_embedding, []
        for block in net.encoder.layers:
            inside, attention = block.ln_1(x), block.self_attention
            qkv = inside @ attention.in_proj_weight.T + attention.in_proj_bias
            heads = attention.num_heads
            q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, 2))
            weights = (q @ k.mT / np.sqrt(q.shape[3])).softmax(3)
            x = x + attention.out_proj((weights @ v).transpose(1, 2).flatten(2))
            x = x + block.mlp(block.ln_2(x))
            found.append(weights.mean(1).numpy())
    return found


def rolled_out(layers: list[np.ndarray]) -> np.ndarray:
    """Abnar and Zuidema's product, an image at a time."""
    flows = []
    for at in range(len(layers[0])):
        flow = np.eye(layers[0].shape[1])
        for layer in layers:
            mixed = 0.5 * layer[at].astype(float) + 0.5 * np.eye(len(flow))
            flow = (mixed / mixed.sum(1, keepdims=True)) @ flow
        flows.append(flow)
    return np.stack(flows)


def assert_maps(
    net: nn.Module, own: list[np.ndarray], images: Tensor, read, before: int, grid=(4, 4)
) -> None:
    """That both maps are those of the net's ``own`` weights, at the centres of the patches."""
    victim = TorchVictim(net, shape=tuple(images.shape[1:]))  # type: ignore[arg-type]
    assert hows(victim)[:2] == ("attention", "attention-last")
    for how, rows in (("attention", rolled_out(own)), ("attention-last", own[-1])):
        shares = rows[:, read].mean(1) if isinstance(read, slice) else rows[:, read]
        cells = shares[:, before:].reshape(-1, *grid)
        found = look(victim, images, 1, how=how)
        assert found.how == how and found.queries == 0
        assert found.maps.shape == (len(images), *images.shape[2:])
        assert np.allclose(found.maps, bilinear(cells, tuple(images.shape[2:])), atol=1e-5)
        assert found.maps.min() >= 0 and found.maps.max() <= 1
        # most of a map is not the same everywhere, or nothing would be shown here
        assert found.maps.std() > 1e-6


@pytest.fixture(scope="module")
def timm_net(timm):
    """Random weights with a spread that makes attention uneven."""
    make = partial(timm.models.VisionTransformer, img_size=32, patch_size=8, embed_dim=24, depth=3)

    def build(**options) -> nn.Module:
        return randomise(make(num_heads=3, num_classes=5, **options), 1)

    return build


IMAGES = random_images(3, (3, 32, 32))


@pytest.mark.parametrize(
    ("options", "read", "before"),
    [
        ({}, 0, 1),  # a class token
        ({"reg_tokens": 4}, 0, 5),  # and registers behind it
        ({"global_pool": "avg", "class_token": False}, slice(None), 0),
        ({"global_pool": "avg"}, slice(1, None), 1),  # a class token that is not read
        ({"qk_norm": True, "init_values": 0.5}, 0, 1),
    ],
)
def test_attention_is_timms_own(timm_net, options, read, before) -> None:
    net = timm_net(**options)
    own = timms_own(net, IMAGES)
    ours = weights_of(net, IMAGES)
    assert len(ours) == len(own) == 3
    for mine, theirs in zip(ours, own, strict=True):
        assert np.allclose(mine, theirs, atol=1e-5)
        assert np.allclose(mine.sum(2), 1, atol=1e-5)
        assert mine.std() > 1e-3  # not uniform
    assert_maps(net, own, IMAGES, read, before)


def test_distilled_transformers_are_read_at_both_tokens(timm) -> None:
    net = timm.models.deit.VisionTransformerDistilled(
        img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5
    )
    randomise(net, 1)
    assert_maps(net, timms_own(net, IMAGES), IMAGES, slice(0, 2), 2)


def test_the_bundled_transformer_gives_its_weights_itself() -> None:
    victim = brusle.load_victim("zoo:cifar10-vit", "cpu")
    images = brusle.data.load("sample").images[:3]
    with torch.no_grad():
        own = [part.mean(1).numpy() for part in victim.module.attention_maps(images).unbind(1)]
    for mine, theirs in zip(weights_of(victim.module, images), own, strict=True):
        assert np.allclose(mine, theirs, atol=1e-5)
    assert_maps(victim.module, own, images, slice(None), 0, (8, 8))
    assert look(victim, images, 0).note == (
        "attention rollout, 4 layers (8 x 8 patches), the same for all classes"
    )
    last = look(victim, images, 0, how="attention-last")
    assert last.layer == "blocks.3.attention"
    assert last.note == (
        "attention at blocks.3.attention (8 x 8 patches), the same for all classes"
    )


def test_attention_is_the_same_for_all_classes_and_gradcam_is_not() -> None:
    images = brusle.data.load("sample").images[:2]
    for how, same in (("attention", True), ("gradcam", False)):
        maps = [look("zoo:cifar10-vit", images, label, how=how).maps for label in (0, 7)]
        assert np.array_equal(*maps) == same


def test_torchvisions_vit_b_16(torchvision) -> None:
    net = ARCHITECTURES["vit-b-16"].build(3).eval()
    assert type(net) is torchvision.models.VisionTransformer
    assert len(net.encoder.layers) == 12
    net.encoder.layers = net.encoder.layers[:3]  # the others are the same, and take time
    nn.init.normal_(net.heads.head.weight)  # as it is made, it says 0 to everything
    image = random_images(1, (3, 224, 224))
    own = torchvisions_own(net, image)
    assert own[0].shape == (1, 197, 197)
    found = look(TorchVictim(net, fuse=False), image, 1)
    cells = rolled_out(own)[:, 0, 1:].reshape(1, 14, 14)
    assert found.how == "attention" and "3 layers" in found.note
    assert np.abs(found.maps - bilinear(cells, (224, 224))).max() < 1e-4 * cells.max()


def test_a_checkpoint_of_our_architecture(torchvision, tmp_path, monkeypatch) -> None:
    """``vit-b-16`` with weights from a file, normalisation in front; smaller, to be quick."""
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2}
    build = partial(torchvision.models.VisionTransformer, **sizes, hidden_dim=16, mlp_dim=32)
    net = randomise(build(num_classes=5), 2)
    torch.save(net.state_dict(), tmp_path / "vit.pt")
    arch = replace(ARCHITECTURES["vit-b-16"], build=lambda classes: build(num_classes=classes))
    monkeypatch.setitem(ARCHITECTURES, "vit-b-16", arch)
    name = f"checkpoint:{tmp_path}/vit.pt?arch=vit-b-16&size=32"
    victim = brusle.load_victim(name, "cpu")
    inside = normalised(nn.Identity(), IMAGENET.mean, IMAGENET.std)(IMAGES)
    assert_maps(victim.module, torchvisions_own(net, inside), IMAGES, 0, 1)
    assert look(name, IMAGES, 0, device="cpu").how == "attention"


def test_a_victim_of_timms_by_name(timm) -> None:
    name = "timm:vit_tiny_patch16_224?pretrained=false"
    victim = brusle.load_victim(name, "cpu")
    image = random_images(1, (3, 224, 224))
    inside = normalised(nn.Identity(), *_normalisation(victim))(image)
    own = timms_own(victim.module[1], inside)
    assert_maps(victim.module, own, image, 0, 1, (14, 14))


def _normalisation(victim: TorchVictim) -> tuple[list[float], list[float]]:
    front = victim.module[0]
    return front.mean.flatten().tolist(), front.std.flatten().tolist()


def test_photographs_that_are_not_square(timm) -> None:
    net = randomise(
        timm.models.VisionTransformer(
            img_size=(32, 48), patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5
        ),
        3,
    )
    images = random_images(2, (3, 32, 48))
    assert_maps(net, timms_own(net, images), images, 0, 1, (4, 6))
    assert "4 x 6 patches" in look(net, images, 0).note


class Attention(nn.Module):
    """Attention of timm's make, with one thing changed."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change, self.num_heads = change, 2
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * 8**-0.5
        if self.change == "bias":
            scores = scores + torch.linspace(0, 0.5, scores.shape[3])
        weights = scores.sigmoid() if self.change == "sigmoid" else scores.softmax(3)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """One block behind a convolution, with ``classifier`` behind it."""

    def __init__(self, attention: nn.Module, pool: str = "mean", token: str = "") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.attention, self.pool, self.where = attention, pool, token
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        token = self.token.expand(len(x), -1, -1)
        x = {"": [x], "first": [token, x], "last": [x, token]}[self.where]  # type: ignore[assignment]
        x = torch.cat(x, 1)  # type: ignore[arg-type]
        x = x + self.attention(x)
        pooled = {"mean": x.mean(1), "first": x[:, 0], "last": x[:, -1], "max": x.amax(1)}
        return self.head(pooled[self.pool])


def plain(**options: str) -> nn.Module:
    return randomise(Transformer(Attention(""), **options), 1)


@pytest.mark.parametrize("change", ["bias", "sigmoid"])
def test_attention_that_does_more_is_refused(change) -> None:
    net = randomise(Transformer(Attention(change)), 1)
    with pytest.raises(InputError, match="attention: Attention does more than plain attention"):
        look(net, IMAGES, 0, how="attention")
    assert look(net, IMAGES, 0).how == "gradcam"  # at the convolution that makes the patches
    assert look(plain(), IMAGES, 0).how == "attention"  # and nothing else is wrong with it


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pool": "last", "token": "last"}, "its classifier reads some of the patches only"),
        ({"pool": "first"}, "its classifier reads some of the patches only"),
        ({"pool": "max"}, "its classifier reads some of the patches only"),
    ],
)
def test_tokens_whose_places_are_not_known(options, reason) -> None:
    assert look(plain(pool="first", token="first"), IMAGES, 0).how == "attention"
    with pytest.raises(InputError, match=reason):
        look(plain(**options), IMAGES, 0, how="attention")


def test_pooling_by_attention_is_not_overlooked(timm_net, timm) -> None:
    net = timm_net(global_pool="map", class_token=False)
    with pytest.raises(InputError, match="AttentionPoolLatent pools tokens by weights of its own"):
        look(net, IMAGES, 0, how="attention")


def test_windows_are_refused(timm) -> None:
    net = timm.models.swin_transformer.SwinTransformer(
        img_size=32, patch_size=4, window_size=4, embed_dim=12, depths=(1,), num_heads=(2,)
    )
    with pytest.raises(InputError, match="cannot be read") as error:
        look(randomise(net), IMAGES, 0, how="attention")
    assert "use how='gradcam'" in str(error.value) and "\n" not in str(error.value)


class Masked(nn.MultiheadAttention):
    """Torch's own attention in a form that it has not."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x * 2


@pytest.mark.parametrize("attention", [Masked(16, 2), Attention("")], ids=["masked", "by keyword"])
def test_attention_of_an_unknown_form_is_no_end(attention) -> None:
    class Calling(Transformer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).mT
            return self.head((x + self.attention(x=x)).mean(1))

    net = randomise(Calling(attention), 1)
    found = look(net, IMAGES, 0)
    assert found.how == ("attention" if isinstance(attention, Attention) else "gradcam")


def test_a_net_without_attention_says_so() -> None:
    with pytest.raises(InputError, match="no attention layers that are known here.*'gradcam'"):
        look("zoo:cifar10-resnet20", IMAGES, 0, how="attention")


def test_half_precision() -> None:
    net = plain(pool="first", token="first")
    exact = look(net, IMAGES, 0).maps
    found = look(TorchVictim(net, dtype=torch.bfloat16), IMAGES, 0)
    assert found.how == "attention" and np.allclose(found.maps, exact, rtol=0.05)


def test_an_answer_without_a_gradient_leaves_occlusion() -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                return self.net(x)

    net = Detached()
    assert look(net, IMAGES, 0, patches=2).how == "occlusion"
    with pytest.raises((InputError, VictimError), match="no gradient"):
        look(net, IMAGES, 0, how="attention")
    with pytest.raises((InputError, VictimError), match="no gradient"):
        look(net, IMAGES, 0, how="gradcam")
