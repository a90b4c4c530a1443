"""The net that all servers serve: an ONNX file, without torch."""

import os

import numpy as np
import onnxruntime


class Net:
    """Logits of ``(n, c, h, w)`` float32 images in [0, 1]; the file is in ``BRUSLE_TEST_NET``."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            os.environ["BRUSLE_TEST_NET"], options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def __call__(self, images: np.ndarray) -> np.ndarray:
        return self._session.run(None, {self._input: images})[0]
