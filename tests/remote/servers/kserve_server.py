"""KServe with the net, which answers by the Open Inference Protocol (V2) and by V1 as well."""

import sys
from typing import Any

import numpy as np
from kserve import InferRequest, InferResponse, Model, ModelServer
from kserve.constants.constants import FASTAPI_APP_IMPORT_STRING
from kserve.protocol.rest.server import RESTServer
from kserve.utils.utils import get_predict_input, get_predict_response
from net import Net


class Resnet(Model):
    def load(self) -> bool:
        self._net = Net()
        self.ready = True
        return True

    def predict(
        self, payload: dict[str, Any] | InferRequest, *_: Any, **__: Any
    ) -> dict[str, Any] | InferResponse:
        images = get_predict_input(payload)
        return get_predict_response(payload, self._net(images.astype(np.float32)), self.name)


def serve(port: int) -> None:
    model = Resnet("resnet")
    model.load()
    server = ModelServer(enable_grpc=False)
    server.register_model(model)
    rest = RESTServer(
        FASTAPI_APP_IMPORT_STRING, server.dataplane, server.model_repository_extension, port
    )
    rest.config.host = "127.0.0.1"  # KServe has no option for it
    rest.run()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
