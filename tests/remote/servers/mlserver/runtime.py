"""A runtime of MLServer for the net; what it takes and gives is in ``model-settings.json``."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from net import Net


class Runtime(MLModel):
    async def load(self) -> bool:
        self._net = Net()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        logits = self._net(NumpyCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("logits", logits)]
        )
