"""Returns those outputs that its input WANT lists: A and B are what came in as IN, twice and three times."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    @staticmethod
    def response(request):
        want = pb_utils.get_input_tensor_by_name(request, "WANT").as_numpy().ravel()[0].decode()
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        made = {"A": value * np.float32(2), "B": value * np.float32(3), "ELSE": value}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, made[name]) for name in want.split()])

    def execute(self, requests):
        if not self.decoupled:
            return [self.response(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            sender.send(self.response(request))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
