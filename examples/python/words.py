"""A decoupled model: it continues a text word by word, and sends each word when it is there: sluice serve words.py

A table of which words follow which stands for a language model. Generation runs in a thread for each request, so that
requests do not wait for each other, and ends when the client has gone."""
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

TEXT = ("the water comes in at the gate and the gate is opened when the water is high and closed when it is low "
        "so that the boats which wait before the gate can pass to the river").split()
PAUSE_S = 0.02  # in place of a model's work for a word


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "max_words", "data_type": "TYPE_INT32", "dims": [1], "optional": True})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        self.followers = {}
        for word, follower in zip(TEXT, TEXT[1:]):
            self.followers.setdefault(word, []).append(follower)
        self.threads = set()

    def execute(self, requests):
        for request in requests:
            # Inputs are read here: a thread may outlive the call.
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            most = pb_utils.get_input_tensor_by_name(request, "max_words")
            most = 10 if most is None else int(most.as_numpy()[0])
            thread = threading.Thread(target=self.generate, args=(request.get_response_sender(), text.split(), most))
            self.threads.add(thread)
            thread.start()

    def generate(self, sender, words, most):
        try:
            word = words[-1] if words else TEXT[0]
            for i in range(most):
                if sender.is_cancelled() or word not in self.followers:
                    break
                time.sleep(PAUSE_S)
                word = self.followers[word][i % len(self.followers[word])]
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([word], dtype=object))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        finally:
            self.threads.discard(threading.current_thread())

    def finalize(self):
        for thread in list(self.threads):
            thread.join()
