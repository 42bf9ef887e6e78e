"""A decoupled model: N responses, each with its number; from a thread where the request asks for it. There is no
configuration: auto_complete_config is all of it."""
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        auto_complete_model_config.add_input({"name": "HOW", "data_type": "TYPE_STRING", "dims": [1], "optional": True})
        auto_complete_model_config.add_output({"name": "I", "data_type": "TYPE_INT32", "dims": [1]})
        auto_complete_model_config.set_max_batch_size(0)
        auto_complete_model_config.set_model_transaction_policy({"decoupled": True})
        return auto_complete_model_config

    def execute(self, requests):
        for request in requests:
            n = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            how = pb_utils.get_input_tensor_by_name(request, "HOW")
            how = how.as_numpy()[0].decode() if how else ""
            if how == "raises":
                raise ValueError("as asked")
            if how == "returns":
                return [pb_utils.InferenceResponse([])]
            sender = request.get_response_sender()
            if how == "thread":
                threading.Thread(target=self.send, args=(sender, n, how)).start()
            else:
                self.send(sender, n, how)

    @staticmethod
    def send(sender, n, how):
        for i in range(n):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([i], np.int32))]))
        if how == "cancel":
            while not sender.is_cancelled():
                time.sleep(0.01)
            print("was cancelled", flush=True)
        if how == "error":
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("in the middle")))
        sender.send(flags=FINAL)
        try:
            sender.send(flags=FINAL)
        except pb_utils.TritonModelException as error:
            print(error, flush=True)
