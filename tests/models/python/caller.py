"""Calls other models as its input DO says: "METHOD:ARGUMENTS", which are JSON. OUT is a text of JSON."""
import asyncio
import json
import os
import signal
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def tensor(name, values, dtype):
    if dtype == "zeros":
        return pb_utils.Tensor(name, np.zeros(values, np.float32))
    return pb_utils.Tensor(name, np.array(values, dtype=object if dtype == "object" else np.dtype(dtype)))


def told(response):
    """What a response has, as JSON can say it."""
    if response.has_error():
        return {"error": response.error().message(), "code": response.error().code()}
    outputs = {}
    for output in response.output_tensors():
        array = output.as_numpy()
        outputs[output.name()] = [str(array.dtype), list(array.shape),
                                  [item.decode() if isinstance(item, bytes) else float(item) for item in array.ravel()[:8]]]
    return {"outputs": outputs, "parameters": json.loads(response.parameters())}


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.parameters = {key: value["string_value"] for key, value in
                           json.loads(args["model_config"])["parameters"].items()}
        self.initial = self.answer(self.parameters["initially"]) if "initially" in self.parameters else None
        self.kept = []

    def execute(self, requests):
        responses = []
        for request in requests:
            word = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode()
            text = json.dumps(self.answer(word)).encode()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[text]], dtype=object))]))
        return responses

    def answer(self, word):
        method, _, arguments = word.partition(":")
        return getattr(self, method)(**json.loads(arguments or "{}"))

    @staticmethod
    def request(model, inputs=(), outputs=(), **options):
        return pb_utils.InferenceRequest(model_name=model, requested_output_names=list(outputs),
                                         inputs=[tensor(*given) for given in inputs], **options)

    def initially(self):
        return self.initial

    def pid(self):
        return os.getpid()

    def call(self, **options):
        return told(self.request(**options).exec())

    def echo(self, model, dtype, n):
        """Whether a model returns n elements as they are."""
        array = np.arange(n) % 100
        array = np.array([b"x" * int(i % 7) for i in array], dtype=object) if dtype == "object" else array.astype(dtype)
        response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)]).exec()
        if response.has_error():
            return response.error().message()
        back = pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
        return bool(back.dtype == array.dtype and back.shape == array.shape and (back == array).all())

    def keep(self, model, value):
        """Keeps the arrays of responses, and says what all of them contain."""
        array = np.full(50_000, value, np.float32)
        response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)]).exec()
        self.kept.append(response.output_tensors()[0].as_numpy())
        return [[float(kept.min()), float(kept.max())] for kept in self.kept]

    def times(self, n, **options):
        """The same call n times, one after the other: what the last one says."""
        for _ in range(n):
            last = self.call(**options)
        return last

    def threads(self, n, **options):
        """n calls at the same time."""
        answers = [None] * n

        def run(i):
            answers[i] = self.call(**options)
        threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def gather(self, n, **options):
        async def run():
            return await asyncio.gather(*(self.request(**options).async_exec() for _ in range(n)))
        return [told(response) for response in asyncio.run(run())]

    def give_up(self, seconds, **options):
        """Cancels the task that waits for a call."""
        async def run():
            task = asyncio.ensure_future(self.request(**options).async_exec())
            await asyncio.sleep(seconds)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
            return "not cancelled"
        return asyncio.run(run())

    def many(self, stop_after=None, pause=0, **options):
        """The responses of a decoupled model."""
        answers = []
        responses = self.request(**options).exec(decoupled=True)
        for response in responses:
            answers.append(told(response))
            time.sleep(pause)
            if len(answers) == stop_after:
                break
        return answers

    def many_async(self, stop_after=None, sync=False, **options):
        async def run():
            answers = []
            responses = await self.request(**options).async_exec(decoupled=True)
            if sync:
                return [told(response) for response in responses]
            async for response in responses:
                answers.append(told(response))
                if len(answers) == stop_after:
                    responses.cancel()
                    break
            return answers
        return asyncio.run(run())

    def raises(self, kind, **options):
        """The error of a request that cannot be made."""
        try:
            self.request(**options).exec()
        except Exception as error:
            return [type(error).__name__ == kind, str(error)]
        return [False, "no error"]

    def load(self, **options):
        return self.manage(pb_utils.load_model, **options)

    def unload(self, **options):
        return self.manage(pb_utils.unload_model, **options)

    @staticmethod
    def manage(change, files=None, **options):
        if files is not None:
            options["files"] = {path: content.encode() for path, content in files.items()}
        try:
            change(**options)
        except pb_utils.TritonModelException as error:
            return str(error)
        return "done"

    def ready(self, **options):
        return pb_utils.is_model_ready(**options)

    def in_background(self, **options):
        """A call that goes on after the response of this request."""
        threading.Thread(target=lambda: self.kept.append(self.call(**options)), daemon=True).start()
        return "started"

    def background(self):
        return self.kept

    def die_after(self, **options):
        """Ends this process after the first response of a decoupled model."""
        next(self.request(**options).exec(decoupled=True))
        os.kill(os.getpid(), signal.SIGKILL)

    def die_while(self, seconds, **options):
        """Ends this process in the middle of a call."""
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return self.call(**options)
