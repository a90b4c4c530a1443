"""A Keras model as an ONNX file, which brusle runs without TensorFlow.

    pip install tensorflow tf2onnx
    python tensorflow_to_onnx.py keras.onnx
    brusle evaluate --victim "onnx:keras.onnx" --data sample

Channels come last in TensorFlow; brusle sees that from the file's input.
"""

import sys
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]
import tf2onnx  # type: ignore[import-not-found]

SHAPE = (32, 32, 3)  # height, width, channels


def model(seed: int = 0) -> Any:
    """A small net that takes images in [0, 1]. Yours is ``tf.keras.models.load_model(FILE)``."""
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input(SHAPE),
            layers.Rescaling(2.0, offset=-1.0),  # normalisation is part of the model
            layers.Conv2D(8, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )


def convert(net: Any, path: str) -> None:
    """Write the model to a file that takes any number of images."""
    images = tf.TensorSpec((None, *SHAPE), tf.float32, name="images")
    # from_keras, which is shorter, stumbles over models of Keras 3
    logits = tf.function(lambda x: net(x, training=False), input_signature=[images])
    tf2onnx.convert.from_function(logits, [images], opset=17, output_path=path)


if __name__ == "__main__":
    convert(model(), sys.argv[1])
