"""Metrics of a model's own: DO is what to do, by name. Also as a decoupled model, which does it on a thread."""
import json
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

Family = pb_utils.MetricFamily


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.counters = Family("words_total", "words that came in", Family.COUNTER)
        self.counter = self.counters.Metric(labels={"model": self.name, "odd": 'a "b"\n'})
        self.gauge = Family(name="level", description="a level", kind=Family.GAUGE).Metric()
        self.sizes = Family("sizes", "sizes of words", pb_utils.MetricFamily.HISTOGRAM)
        self.size = self.sizes.Metric(labels={"model": self.name}, buckets=[1, 2.5, 10])

    def execute(self, requests):
        if not self.decoupled:
            return [self.respond(request) for request in requests]
        for request in requests:
            threading.Thread(target=self.send, args=(request,)).start()
        return None

    def send(self, request):
        request.get_response_sender().send(self.respond(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def respond(self, request):
        word, _, rest = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode().partition(":")
        try:
            text = getattr(self, "do_" + word)(rest)
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[str(text)]], dtype=object))])

    def do_count(self, value):
        self.counter.increment(float(value))
        return self.counter.value()

    def do_level(self, value):
        self.gauge.set(float(value))
        self.gauge.increment(0.5)
        return self.gauge.value()

    def do_observe(self, value):
        self.size.observe(float(value))
        return "observed"

    def do_end(self, _):
        os._exit(7)

    def do_many(self, n):
        family = Family("many", "many", Family.GAUGE)
        self.kept = [family.Metric({"n": str(i)}) for i in range(int(n))]
        return "made"

    def do_call(self, code):
        return eval(code, {"Family": Family, "self": self})
