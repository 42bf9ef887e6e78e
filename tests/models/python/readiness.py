"""A model whose is_ready answers what the last request said: true, false, raise, a text, or nothing at all."""
import asyncio
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.word = args["model_name"].partition("_")[2] or "true"
        self.held = None  # a path: while a request is held, there is a file that says not ready

    def is_ready(self):
        if self.word == "raise":
            raise RuntimeError("no connection")
        if self.held is not None and os.path.exists(self.held + ".not_ready"):
            return False
        if self.word == "exit":
            os._exit(6)
        while self.word == "hang":
            time.sleep(0.01)
        if self.word == "async":
            return self.wait()
        return {"true": True, "false": False, "numpy": np.True_}.get(self.word, self.word)

    async def wait(self):
        await asyncio.sleep(0.01)
        return True

    def execute(self, requests):
        responses = []
        for request in requests:
            word, _, rest = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode().partition(":")
            if word == "hold":
                self.held = rest
                open(rest + ".begun", "w").close()
                while not os.path.exists(rest):
                    time.sleep(0.01)
            else:
                self.word = word
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[word]], dtype=object))]))
        return responses
