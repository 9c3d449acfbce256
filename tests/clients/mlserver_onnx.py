# SPDX-License-Identifier: Apache-2.0
"""What MLServer is told to run: an ONNX file, by ONNX Runtime's Python package on one thread."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Onnx(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        self.output_names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload):
        given = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        answers = self.session.run(self.output_names, given)
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output(name, values) for name, values in zip(self.output_names, answers)],
        )
