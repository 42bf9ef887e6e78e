"""A router: it asks the small model first, and the large one where the small one is not sure. A client names the router
alone; each of the two may be of any backend, has its own queue, batches and statistics, and is replaced by itself."""
import numpy as np
import triton_python_backend_utils as pb_utils

SURE = 0.8


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "LABEL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "BY", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    async def execute(self, requests):
        return [await self.route(request) for request in requests]

    async def route(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT")
        for model in ("small", "large"):
            response = await pb_utils.InferenceRequest(
                model_name=model, requested_output_names=["LABEL", "SCORE"], inputs=[text],
                trace=request.trace()).async_exec()  # cancelled when the client leaves
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
            if pb_utils.get_output_tensor_by_name(response, "SCORE").as_numpy()[0] >= SURE:
                break
        label = pb_utils.get_output_tensor_by_name(response, "LABEL").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", label),
                                           pb_utils.Tensor("BY", np.array([model], dtype=object))])
