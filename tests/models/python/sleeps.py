"""async def execute: the requests of a batch sleep at the same time."""
import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        async def answer(request):
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            await asyncio.sleep(float(tensor.as_numpy().ravel()[0]))
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
        return await asyncio.gather(*map(answer, requests))
