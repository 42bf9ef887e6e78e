"""Requests that are executed N times, by set_release_flags; OUT is how often. A decoupled model sends each number."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.mistake = args["model_name"].partition("_")[2]
        self.times = {}

    def execute(self, requests):
        responses = [self.run(request) for request in requests]
        return None if self.decoupled else responses

    def run(self, request):
        n = pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0]
        times = self.times[request.request_id()] = self.times.get(request.request_id(), 0) + 1
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([times], np.int32))])
        if self.mistake == "flags":
            request.set_release_flags(7)
        ends = times >= n
        if ends:
            del self.times[request.request_id()]
        else:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        if self.decoupled:
            request.get_response_sender().send(
                response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if ends else 0)
        return response if ends or self.mistake == "response" else None
