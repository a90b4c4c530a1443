"""A classifier in JAX as an ONNX file, which brusle runs without JAX.

    pip install jax jax2onnx
    python jax_to_onnx.py jax.onnx
    brusle evaluate --victim "onnx:jax.onnx" --data sample

Flax and Equinox are converted in the same way: what counts is a function from images to logits.
"""

import sys

import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
from jax2onnx import to_onnx  # type: ignore[import-not-found]

SHAPE = (3, 32, 32)  # channels, height, width; torch's order, which JAX takes as well


def parameters(seed: int = 0) -> dict[str, jax.Array]:
    """Of a small net. Yours are trained, and read from a file here."""
    first, second = jax.random.split(jax.random.PRNGKey(seed))
    return {
        "conv": 0.3 * jax.random.normal(first, (8, 3, 3, 3)),
        "head": jax.random.normal(second, (8, 10)),
    }


PARAMETERS = parameters()


def logits(images: jax.Array) -> jax.Array:
    """Scores of images in [0, 1]: normalisation is part of the function."""
    x = (images - 0.5) / 0.25
    x = jax.lax.conv_general_dilated(x, PARAMETERS["conv"], (2, 2), "SAME")
    return jax.nn.relu(x).mean(axis=(2, 3)) @ PARAMETERS["head"]


def convert(path: str) -> None:
    """Write the function to a file that takes any number of images ("B")."""
    to_onnx(logits, [("B", *SHAPE)], return_mode="file", output_path=path)


if __name__ == "__main__":
    convert(sys.argv[1])
    print(jax.jit(logits)(jnp.zeros((1, *SHAPE))))
