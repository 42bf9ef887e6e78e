"""A thorough classifier of the same messages: each word counts for the labels whose examples have it."""
import numpy as np
import triton_python_backend_utils as pb_utils

EXAMPLES = {
    "billing": "charged twice for one month the amount on my card is wrong send the money back price of the plan",
    "account": "cannot sign in my name has changed delete my profile the mail address of the user is old",
    "technical": "the page does not open it is slow an error appears after the update the file is empty",
}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "LABEL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SCORE", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def initialize(self, args):
        self.labels = list(EXAMPLES)
        self.words = sorted({word for text in EXAMPLES.values() for word in text.split()})
        counts = np.array([[text.split().count(word) for word in self.words] for text in EXAMPLES.values()], np.float32)
        self.weights = np.log((counts + 0.5) / (counts + 0.5).sum(axis=0))

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode().lower().split()
            sums = self.weights @ np.array([text.count(word) for word in self.words], np.float32)
            scores = np.exp(sums - sums.max())
            scores /= scores.sum()
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("LABEL", np.array([self.labels[int(scores.argmax())]], dtype=object)),
                pb_utils.Tensor("SCORE", np.array([scores.max()], np.float32))]))
        return responses
