"""A quick classifier of messages to a support desk: a few words decide. It is sure of what it knows, and says so."""
import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = {"invoice": "billing", "refund": "billing", "password": "account", "login": "account", "crash": "technical"}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "LABEL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SCORE", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode().lower()
            labels = {label for word, label in WORDS.items() if word in text}
            label, score = (labels.pop(), 0.9) if len(labels) == 1 else ("", 0.0)
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("LABEL", np.array([label], dtype=object)),
                pb_utils.Tensor("SCORE", np.array([score], np.float32))]))
        return responses
