"""Modules whose state is not all float32 tensors: they are evaluated, and told apart."""

import hashlib
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brusle
from brusle.attacks import BruSLe
from brusle.errors import VictimError
from brusle.victims.fingerprints import digest, fingerprint

pytestmark = pytest.mark.slow

SHAPE, CLASSES = (3, 8, 8), 4
IMAGES = torch.randint(0, 256, (10, *SHAPE), generator=torch.Generator().manual_seed(1)) / 255


def net(change: float = 0) -> nn.Sequential:
    """A small net; ``change`` is added to one weight of its last layer."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES))
    with torch.no_grad():
        made[3].weight[0, 0] += change
    return made


class Casting(nn.Module):
    """Brings images to its own type, as nets of mixed types do."""

    def __init__(self, body: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.body, self.dtype = body.to(dtype), dtype

    def forward(self, x):
        return self.body(x.to(self.dtype))


class Holding(nn.Module):
    """The small net, and something beside it in its state."""

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.body = net()
        self.register_buffer("held", buffer)

    def forward(self, x):
        return self.body(x)


class Extra(nn.Module):
    """The small net, with extra state."""

    def __init__(self, extra: object) -> None:
        super().__init__()
        self.body, self.extra = net(), extra

    def forward(self, x):
        return self.body(x)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


class Point:
    def __init__(self, x: float) -> None:
        self.x = x


def dynamic(dtype: torch.dtype, change: float) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(net(change), {nn.Linear}, dtype=dtype)


def packed(change: float) -> torch.ScriptObject:
    weight = torch.quantize_per_tensor(torch.eye(4) * (1 + change), 0.1, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(weight, None)


def ring(value: float) -> list:
    circle: list = [value]
    circle.append(circle)
    return circle


def levels(change: float) -> torch.Tensor:
    return torch.arange(16, dtype=torch.uint8) + (change > 0)


# makers by name; each is called with 0 and with another number
STATES = {
    "float32": net,
    "float64": lambda c: net(c).double(),
    "bfloat16": lambda c: net(c).bfloat16(),
    "float16": lambda c: net(c).half(),
    "casts to bfloat16": lambda c: Casting(net(c), torch.bfloat16),
    "casts to float16": lambda c: Casting(net(c), torch.float16),
    "casts to float64": lambda c: Casting(net(c), torch.float64),
    "dynamic qint8": lambda c: dynamic(torch.qint8, c),
    "dynamic float16": lambda c: dynamic(torch.float16, c),
    "float8": lambda c: Holding(torch.full((4,), 1 + c).to(torch.float8_e4m3fn)),
    "complex": lambda c: Holding(torch.full((4,), 1 + c * 1j)),
    "conjugate": lambda c: Holding(torch.full((4,), 1 + 1j + c).conj()),
    "negated": lambda c: Holding(torch.full((4,), 1j + c * 1j).conj().imag),
    "sparse": lambda c: Holding(torch.eye(4).mul(1 + c).to_sparse()),
    "sparse, moved": lambda c: Holding(torch.eye(4).roll(int(c > 0), 1).to_sparse()),
    "sparse csr": lambda c: Holding(torch.eye(4).mul(1 + c).to_sparse_csr()),
    "sparse csc": lambda c: Holding(torch.eye(4).mul(1 + c).to_sparse_csc()),
    "sparse bsr": lambda c: Holding(torch.eye(4).mul(1 + c).to_sparse_bsr((2, 2))),
    "quantised": lambda c: Holding(
        torch.quantize_per_tensor(torch.full((4,), c), 0.1, 0, torch.quint8)
    ),
    "quantised, scale": lambda c: Holding(
        torch.quantize_per_tensor(torch.zeros(4), 0.1 + c, 0, torch.quint8)
    ),
    "quantised, channels": lambda c: Holding(
        torch.quantize_per_channel(
            torch.zeros(2, 2), torch.tensor([1, 1 + c]), torch.zeros(2), 0, torch.qint8
        )
    ),
    "uint4": lambda c: Holding(levels(c).view(torch.uint4)),
    "bits8": lambda c: Holding(levels(c).view(torch.bits8)),
    "uint16": lambda c: Holding(torch.full((4,), int(c > 0), dtype=torch.uint16)),
    "bool": lambda c: Holding(torch.tensor(c > 0)),
    "empty": lambda c: Holding(torch.ones(int(c > 0))),
    "strides": lambda c: Holding(torch.arange(6.0).add(c).view(2, 3).t()),
    "jagged": lambda c: Holding(
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3) + c], layout=torch.jagged)
    ),
    "nested": lambda c: Holding(torch.nested.nested_tensor([torch.ones(2), torch.ones(3) + c])),
    "mkldnn": lambda c: Holding(torch.full((4,), 1 + c).to_mkldnn()),
    "extra number": lambda c: Extra(1 + c),
    "extra text": lambda c: Extra(f"\udcff {c}"),
    "extra bytes": lambda c: Extra(b"a" if c else b"b"),
    "extra tensor": lambda c: Extra(torch.full((3,), c)),
    "extra array": lambda c: Extra(np.full(3, c)),
    "extra objects": lambda c: Extra(np.array([{"a": c}, None], dtype=object)),
    "extra dict": lambda c: Extra({"a": [1, (2.5, None)], 3: {"b": c}}),
    "extra set": lambda c: Extra({"a", "b", "c", c}),
    "extra kind": lambda c: Extra([1, 2] if c else (1, 2)),
    "extra object": lambda c: Extra(Point(c)),
    "extra ring": lambda c: Extra(ring(c)),
    "extra packed": lambda c: Extra(packed(c)),
    "extra dtype": lambda c: Extra(torch.float32 if c else torch.float64),
    "extra class": lambda c: Extra(Point if c else dict),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_evaluate_runs_to_the_end(make) -> None:
    victim = brusle.victims.as_victim(make(0.0))
    labels = victim(IMAGES).argmax(1)
    run = brusle.evaluate(victim, (IMAGES, labels), [BruSLe(3, 20)], "untargeted")
    assert {status for result in run.results for status in result.status} <= {"success", "failed"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_changed_state_has_another_fingerprint(make) -> None:
    same, again, other = digest(make(0.0)), digest(make(0.0)), digest(make(0.5))
    assert same == again != other
    assert len(same) == 16, "it is known exactly"


def test_fingerprints_of_plain_tensors_are_those_of_old() -> None:
    for module in (net(), net().bfloat16(), nn.Sequential(net(), nn.BatchNorm1d(4))):
        by_hand = hashlib.sha256()
        for name, value in sorted(module.state_dict().items()):
            raw = value.contiguous().reshape(-1).view(torch.uint8)
            by_hand.update(name.encode() + raw.numpy().tobytes())
        assert digest(module) == by_hand.hexdigest()[:16]


PROCESS = """
import sys; sys.path.insert(0, {folder!r})
from test_fingerprints import *
print([digest(Extra(extra)) for extra in (
    {{"b": 1, "a": {{"x", "y", "z"}}}}, Point(2.0), torch.zeros(2), ring(1.0), packed(0.0))])
"""


def test_fingerprints_do_not_depend_on_the_process() -> None:
    code = PROCESS.format(folder=str(Path(__file__).parent))
    told = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "ignore", "-c", code]
        told.add(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert len(told) == 1 and b"?" not in told.pop()


class Silent(nn.Sequential):
    """Does not tell its state."""

    def state_dict(self, *_, **__):
        raise RuntimeError("it is secret")


class Odd(nn.Sequential):
    """Tells something else than its state."""

    def state_dict(self, *_, **__):
        return ["it", "is", "odd"]


UNKNOWN = {
    "lock": lambda c: Extra((threading.Lock(), c)),
    "closure": lambda c: Extra(lambda: c),
    "silent": lambda c: Silent(net(c)),
    "odd": lambda c: Odd(net(c)),
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_compared_is_said(make, tmp_path) -> None:
    victim = brusle.victims.as_victim(make(0.0))
    assert fingerprint(victim).endswith("?")
    labels = victim(IMAGES).argmax(1)
    arguments = ((IMAGES, labels), [BruSLe(3, 20)], "untargeted", tmp_path)
    run = brusle.evaluate(victim, *arguments)
    assert any("cannot be compared" in note for note in run.notes)
    assert brusle.evaluate(victim, *arguments).resumed == len(IMAGES)


def test_the_weights_of_a_silent_module_are_told_apart() -> None:
    assert digest(Silent(net(0.0))) != digest(Silent(net(0.5)))


def test_a_module_without_values_is_refused() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES))
    arguments = ((IMAGES, torch.zeros(10, dtype=torch.int64)), [BruSLe(3, 20)], "untargeted")
    with pytest.raises(VictimError, match="1.bias has no values yet: call the module once"):
        brusle.evaluate(lazy, *arguments)
    with pytest.raises(VictimError, match="0.bias has no values"):
        brusle.evaluate(net().to("meta"), *arguments, device="cpu")


def test_packed_parameters_in_torchscript() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prints = [digest(torch.jit.script(dynamic(torch.qint8, c))) for c in (0.0, 0.0, 0.5)]
    assert prints[0] == prints[1] != prints[2]


def test_shared_memory_counts_under_each_name() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    alone = digest(module)
    module[1].weight = nn.Parameter(module[0].weight.detach().clone())
    assert digest(module) == alone


def test_a_module_that_casts_its_images_runs_as_it_is() -> None:
    module = Casting(net(), torch.bfloat16)
    victim = brusle.victims.as_victim(module)
    with torch.no_grad():
        assert victim(IMAGES).equal(module(IMAGES))
    images = IMAGES.clone().requires_grad_()
    victim.graph(images).sum().backward()
    assert images.grad.isfinite().all()


def test_sharded_parameters() -> None:
    distributed = pytest.importorskip("torch.distributed")
    from torch.distributed.fsdp import fully_shard

    if distributed.is_initialized():
        pytest.skip("somebody else's process group")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        prints = [digest(fully_shard(net(change), mesh=mesh)) for change in (0.0, 0.0, 0.5)]
    finally:
        distributed.destroy_process_group()
    assert prints[0] == prints[1] != prints[2] and "?" not in prints[0]
