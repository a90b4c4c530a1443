"""Triton's Python backend with the net; each ``config.pbtxt`` says what the images are."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from net import Net


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self._levels = config["input"][0]["data_type"] == "TYPE_UINT8"
        self._net = Net()

    def execute(self, requests: list) -> list:
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "images").as_numpy()
        if self._levels:  # (n, h, w, c), 0 to 255
            images = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        return pb_utils.InferenceResponse([pb_utils.Tensor("logits", self._net(images))])
