"""Models of JAX and TensorFlow: the examples convert them, and brusle runs the ONNX files.

Both need an environment of their own, which BRUSLE_TEST_CONVERTERS names (`make test-interop`):
TensorFlow beside them would change how other packages of the tests behave.
"""

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brusle

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("BRUSLE_TEST_CONVERTERS", ""), "bin", "python").absolute()
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
X = torch.randint(0, 256, (6, 3, 32, 32), generator=torch.Generator().manual_seed(2)).float() / 255

JAX = """
import numpy as np, jax_to_onnx as example
example.convert("model.onnx")
np.save("scores.npy", example.logits(np.load("images.npy")))
"""
TENSORFLOW = """
import numpy as np, tensorflow_to_onnx as example
net = example.model()
example.convert(net, "model.onnx")
np.save("scores.npy", net(np.load("images.npy").transpose(0, 2, 3, 1), training=False))
"""
# what docs/victims.md says: the function itself, without ONNX
FUNCTION = """
import jax, numpy as np, torch, brusle, jax_to_onnx as example
logits = jax.jit(example.logits)
victim = brusle.victims.wrap(
    lambda x: np.asarray(logits(x)), output="logits", arrays="numpy", shape=(3, 32, 32)
)
images = torch.from_numpy(np.load("images.npy"))
result = brusle.attacks.BruSLe(10, 40)(victim, images, victim(images).argmax(1))
np.savez("result.npz", queries=result.queries, images=result.images)
"""


def run_there(folder: Path, program: str, *paths: str) -> None:
    """Run ``program`` in the environment of the converters, beside the examples."""
    if "BRUSLE_TEST_CONVERTERS" not in os.environ:
        pytest.skip("needs an environment with jax2onnx, tf2onnx: BRUSLE_TEST_CONVERTERS")
    np.save(folder / "images.npy", X.numpy())
    path = os.pathsep.join([str(ROOT / "examples"), *paths])
    done = subprocess.run(
        [PYTHON, "-c", program],
        cwd=folder,
        env=os.environ | QUIET | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def attacked(victim: Any, count: int = 6) -> Any:
    return brusle.attacks.BruSLe(10, 40)(victim, X[:count], victim(X[:count]).argmax(1))


@pytest.mark.parametrize(("program", "layout"), [(JAX, "nchw"), (TENSORFLOW, "nhwc")])
def test_the_same_scores_as_in_the_other_library(program, layout, tmp_path) -> None:
    run_there(tmp_path, program)
    victim = brusle.load_victim(f"onnx:{tmp_path / 'model.onnx'}", "cpu")
    scores = np.load(tmp_path / "scores.npy")
    assert scores.std() > 0.01
    assert np.allclose(victim(X).numpy(), scores, atol=1e-5)
    assert victim.shape == (3, 32, 32) and victim.layout == layout
    result = attacked(victim)
    again = attacked(victim, 4)
    assert torch.equal(result.queries[:4], again.queries) and int(result.queries.max()) > 0


def test_a_jitted_function_without_onnx(tmp_path) -> None:
    run_there(tmp_path, FUNCTION, str(ROOT / "src"), sysconfig.get_paths()["purelib"])
    run_there(tmp_path, JAX)
    theirs = np.load(tmp_path / "result.npz")
    ours = attacked(brusle.load_victim(f"onnx:{tmp_path / 'model.onnx'}", "cpu"))
    assert np.array_equal(ours.queries.numpy(), theirs["queries"])
    assert np.array_equal(ours.images.numpy(), theirs["images"])
