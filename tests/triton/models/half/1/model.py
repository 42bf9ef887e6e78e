"""The input comes back as it went; of `slow` after 200 ms."""
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.delay_s = 0.2 if args["model_name"] == "slow" else 0

    def execute(self, requests):
        time.sleep(self.delay_s)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests]
