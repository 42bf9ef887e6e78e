"""Does what its input DO says, to each request of a batch. OUT is a text."""
import json
import os
import resource
import signal
import sys
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("an exception without a text")


class TritonPythonModel:
    @staticmethod
    def initialize(args):
        TritonPythonModel.args = args
        TritonPythonModel.kept = []
        print("initialized", args["model_instance_name"], flush=True)

    def execute(self, requests):
        if any(self.word(request) == "execute raises" for request in requests):
            raise ValueError("as asked")
        if any(self.word(request) == "no text" for request in requests):
            raise NoText
        if any(self.word(request) == "too few" for request in requests):
            return []
        if any(self.word(request) == "not a list" for request in requests):
            return 7
        return [self.answer(request, len(requests)) for request in requests]

    @staticmethod
    def word(request):
        return pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode()

    def answer(self, request, n_requests):
        word, _, rest = self.word(request).partition(":")
        method = getattr(self, word.replace(" ", "_"), None)
        if method is None:
            return self.text(word)
        return method(request, rest) if rest else method(request)

    @staticmethod
    def text(text, **options):
        array = np.array([[text.encode()]], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)], **options)

    def describe(self, request):
        return self.text(json.dumps({
            "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
            "priority": request.priority(), "timeout": request.timeout(), "parameters": json.loads(request.parameters()),
            "outputs": request.requested_output_names(), "model": request.model_name(),
            "version": request.model_version(), "cancelled": request.is_cancelled()}))

    def arguments(self, request):
        return self.text(json.dumps({**self.args, "model_config": json.loads(self.args["model_config"]),
                                     "directory": pb_utils.get_model_dir(), "executable": sys.executable}))

    def parameters(self, request):
        return self.text("ok", parameters={"text": "a", "number": 7, "large": 1 << 63, "half": 0.5, "true": True})

    def strange_parameter(self, request):
        return self.text("ok", parameters={"list": [1]})

    def error(self, request, code):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked", int(code)))

    def no_output(self, request):
        return pb_utils.InferenceResponse([])

    def other_name(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("ELSE", np.zeros(1, np.int32))])

    def other_datatype(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros([1, 1], np.int32))])

    def other_kind(self, request):
        return "a text"

    def exit(self, request):
        sys.exit(3)

    def end(self, request):
        os._exit(4)

    def kill(self, request):
        os.kill(os.getpid(), signal.SIGKILL)

    def close_files(self, request):
        os.closerange(3, 4096)

    def few_files(self, request):
        """The next block of shared memory has no place."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        return self.text("x" * 1_000_000)

    def sleep(self, request, seconds):
        time.sleep(float(seconds))
        return self.text("slept")

    def memory(self, request, n_bytes):
        return self.text(str(len(bytearray(int(n_bytes)))))

    def large(self, request, n_bytes):
        return self.text("x" * int(n_bytes))

    def keep(self, request):
        """Keeps the input's array, and says what all of them contain."""
        self.kept.append(pb_utils.get_input_tensor_by_name(request, "DATA").as_numpy())
        return self.text(json.dumps([[float(array.min()), float(array.max())] for array in self.kept]))

    def forget(self, request):
        self.kept.clear()
        return self.text("forgotten")

    def show(self, request, n_lines):
        for i in range(int(n_lines)):
            print("line", i)
        return self.text("shown")

    def log(self, request):
        pb_utils.Logger.log_info("an info")
        pb_utils.Logger.log_warn("a warning")
        pb_utils.Logger.log("an error", pb_utils.Logger.ERROR)
        return self.text("logged")

    def child(self, request):
        """A process of the model's own, which the model does not end."""
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
            os._exit(0)
        return self.text(str(pid))

    def end_before_child(self, request):
        """Ends, and leaves a process that has the socket and writes lines."""
        if os.fork() == 0:
            while True:
                print("the child runs")
                time.sleep(0.05)
        os._exit(4)

    def pid(self, request):
        return self.text(str(os.getpid()))

    def threads(self, request):
        return self.text(str(threading.active_count()))

    def finalize(self):
        print("finalized", flush=True)
        if self.args["model_name"].startswith("endless"):
            time.sleep(1000)
