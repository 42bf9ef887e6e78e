"""A repository of models in Python, for a comparison of servers: each is a configuration (None: the program completes it),
a program, and the requests that it is sent."""
import os
import textwrap

import numpy as np

from lib.python_models import parameter, tensor

PRELUDE = """
import asyncio
import json
import os
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

def array(request, name="IN"):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()

def response(**outputs):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])

def text(value):
    return np.array([value.encode()], dtype=object)
"""


def program(body, before=""):
    """A class with these methods."""
    return (PRELUDE + textwrap.dedent(before) + "\n\nclass TritonPythonModel:\n"
            + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n")


def each(expression, before=""):
    """A model whose response to each request is this expression."""
    return program(f"""
        def execute(self, requests):
            return [{expression} for request in requests]
        """, before)


def io(datatype, dims=(-1,), names=("IN", "OUT")):
    """One input and one output."""
    return tensor("input", names[0], datatype, dims) + tensor("output", names[1], datatype, dims)


def floats(*values, shape=None):
    return np.array(values, dtype=np.float32).reshape(shape or (len(values),))


def texts(*values, shape=None):
    return np.array([value.encode() for value in values], dtype=object).reshape(shape or (len(values),))


NUMPY = {"BOOL": bool, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
         "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32,
         "FP64": np.float64}
TEXT_IN = tensor("input", "IN", "BYTES", [1])
TEXT_OUT = tensor("output", "OUT", "BYTES", [1])
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
ECHO = "response(OUT=array(request))"
FLOATS = {"inputs": {"IN": floats(1, 2.5, -3)}}

# name: (configuration, program, requests)
MODELS = {
    **{f"echo_{kind.lower()}": (io(kind), each(ECHO), [{"inputs": {"IN": np.arange(n).astype(NUMPY[kind])}}
                                                       for n in (0, 1, 5, 5000)]) for kind in NUMPY},
    "echo_bytes": (io("BYTES"), each(ECHO), [{"inputs": {"IN": texts("", "a", "zwölf", "x" * 70000)}},
                                             {"inputs": {"IN": texts()}}]),
    "high_rank": (io("INT32", (-1, 2, -1, 1)), each(ECHO), [
        {"inputs": {"IN": np.arange(12, dtype=np.int32).reshape(2, 2, 3, 1)}},
        {"inputs": {"IN": np.zeros((0, 2, 3, 1), np.int32)}},
        {"inputs": {"IN": np.zeros((1, 3, 3, 1), np.int32)}}]),
    "add_sub": ("".join(tensor("input", f"INPUT{i}", "FP32", [4]) + tensor("output", f"OUTPUT{i}", "FP32", [4])
                        for i in range(2)),
                each('response(OUTPUT0=array(request, "INPUT0") + array(request, "INPUT1"), '
                     'OUTPUT1=array(request, "INPUT0") - array(request, "INPUT1"))'), [
        {"inputs": {"INPUT0": floats(1, 2, 3, 4), "INPUT1": floats(4, 3, 2, 1)}},
        {"inputs": {"INPUT0": floats(1, 2, 3, 4), "INPUT1": floats(4, 3, 2, 1)}, "outputs": ["OUTPUT1"]},
        {"inputs": {"INPUT0": floats(1, 2, 3, 4), "INPUT1": floats(4, 3, 2, 1)}, "outputs": ["OUTPUT1", "OUTPUT0"]},
        {"inputs": {"INPUT0": floats(1, 2, 3, 4), "INPUT1": floats(4, 3, 2, 1)}, "outputs": ["OUTPUT2"]},
        {"inputs": {"INPUT0": floats(1, 2, 3, 4)}},
        {"inputs": {"INPUT0": floats(1, 2, 3), "INPUT1": floats(4, 3, 2)}}]),
    "upper": (TEXT_IN + TEXT_OUT + "max_batch_size: 8\n",
              each("response(OUT=np.array([t.decode().upper() for t in array(request).ravel()], dtype=object)"
                   ".reshape(array(request).shape))"),
              [{"inputs": {"IN": texts("a", shape=(1, 1))}}, {"inputs": {"IN": texts("a", "ö", "", shape=(3, 1))}},
               {"inputs": {"IN": texts(*"123456789", shape=(9, 1))}}, {"inputs": {"IN": texts("a")}}]),
    "batched": (io("FP32", (2,)) + "max_batch_size: 4\ndynamic_batching { }\n", each("response(OUT=array(request) * 2)"),
                [{"inputs": {"IN": floats(1, 2, shape=(1, 2))}}, {"inputs": {"IN": floats(1, 2, 3, 4, shape=(2, 2))}},
                 {"inputs": {"IN": floats(1, 2, 3, shape=(1, 3))}}]),
    "reshaped": ('input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }\n'
                 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 2 ] } }\n',
                 each("response(OUT=array(request).T.copy())"), [{"inputs": {"IN": floats(1, 2, 3, 4)}}]),
    "optional": (io("FP32") + 'input { name: "ELSE" data_type: TYPE_FP32 dims: [ -1 ] optional: true }\n',
                 each('response(OUT=array(request) + (100 if array(request, "ELSE") is None else array(request, "ELSE")))'),
                 [FLOATS, {"inputs": {"IN": floats(1), "ELSE": floats(5)}}]),
    "left_out": ("".join(tensor("output", name, "FP32", [-1]) for name in ("OUT", "MORE")) + tensor("input", "IN", "FP32", [-1]),
                 each(ECHO), [FLOATS, {**FLOATS, "outputs": ["OUT"]}, {**FLOATS, "outputs": ["MORE"]}]),
    "two_versions": (io("INT32", (1,)) + "version_policy { all { } }\n",
                     each("response(OUT=np.array([int(self.version)], np.int32))").replace(
                         "    def execute", "    def initialize(self, args):\n"
                         "        self.version = args['model_version']\n\n    def execute"),
                     [{"inputs": {"IN": np.zeros(1, np.int32)}},
                      {"inputs": {"IN": np.zeros(1, np.int32)}, "model_version": "1"},
                      {"inputs": {"IN": np.zeros(1, np.int32)}, "model_version": "3"}]),
    "arguments": (TEXT_IN + TEXT_OUT + parameter("own", "value"), program("""
        def initialize(self, args):
            config = json.loads(args["model_config"])
            self.told = {key: args[key] for key in ("model_name", "model_version", "model_instance_kind",
                                                   "model_instance_device_id", "model_instance_name")}
            self.told["keys"] = sorted(args)
            self.told["parameter"] = config["parameters"]["own"]["string_value"]
            self.told["input"] = pb_utils.get_input_config_by_name(config, "IN")["data_type"]
            self.told["output"] = pb_utils.get_output_config_by_name(config, "OUT")["dims"]
            self.told["absent"] = pb_utils.get_output_config_by_name(config, "ELSE")
            self.told["type"] = str(pb_utils.triton_string_to_numpy("TYPE_FP16"))
            self.told["decoupled"] = pb_utils.using_decoupled_model_transaction_policy(config)
            self.told["here"] = pb_utils.get_model_dir().split("/")[-2:]

        def execute(self, requests):
            return [response(OUT=text(json.dumps(self.told, sort_keys=True))) for request in requests]
        """), [{"inputs": {"IN": texts("x")}}]),
    "request": (TEXT_IN + TEXT_OUT + "dynamic_batching { priority_levels: 5 default_priority_level: 3 }\nmax_batch_size: 1\n",
                program("""
        def execute(self, requests):
            return [response(OUT=text(json.dumps({
                "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "parameters": json.loads(request.parameters()),
                "names": list(request.requested_output_names()), "cancelled": request.is_cancelled(),
                "inputs": [(t.name(), list(t.shape()), t.is_cpu()) for t in request.inputs()]},
                sort_keys=True)).reshape(1, 1)) for request in requests]
        """), [{"inputs": {"IN": texts("x", shape=(1, 1))}},
               {"inputs": {"IN": texts("x", shape=(1, 1))}, "request_id": "seven", "priority": 2, "timeout": 30_000_000,
                "parameters": {"a": "b", "n": 5, "yes": True}}]),
    "sequence": (TEXT_IN + TEXT_OUT + 'max_batch_size: 1\nsequence_batching { control_input [ { name: "START" control [ '
                 '{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] }, { name: "ID" control [ '
                 '{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }\n', program("""
        def execute(self, requests):
            return [response(OUT=text(json.dumps([int(array(request, "START").ravel()[0]), int(array(request, "ID").ravel()[0]),
                             request.correlation_id(), request.flags()])).reshape(1, 1)) for request in requests]
        """), [{"inputs": {"IN": texts("x", shape=(1, 1))}, "sequence_id": 12, "sequence_start": True},
               {"inputs": {"IN": texts("x", shape=(1, 1))}, "sequence_id": 12},
               {"inputs": {"IN": texts("x", shape=(1, 1))}, "sequence_id": 12, "sequence_end": True},
               {"inputs": {"IN": texts("x", shape=(1, 1))}}]),
    "response_parameters": (io("FP32"), each(
        'pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array(request))], '
        'parameters={"text": "a", "number": 7, "true": True})'), [FLOATS]),
    "errors": (TEXT_IN + TEXT_OUT, program("""
        def execute(self, requests):
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked", getattr(
                pb_utils.TritonError, array(request)[0].decode()))) for request in requests]
        """), [{"inputs": {"IN": texts(code)}} for code in
               ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
                "CANCELLED")]),
    "raises": (TEXT_IN + TEXT_OUT, program("""
        def execute(self, requests):
            for request in requests:
                word = array(request)[0].decode()
                if word == "exception":
                    raise pb_utils.TritonModelException("as asked")
                if word == "value":
                    raise ValueError("as asked")
                if word == "too few":
                    return []
                if word == "no list":
                    return 7
            return [response(OUT=array(request)) for request in requests]
        """), [{"inputs": {"IN": texts(word)}} for word in ("exception", "value", "too few", "no list", "good")]),
    "wrong": (TEXT_IN + TEXT_OUT, program("""
        def execute(self, requests):
            answers = []
            for request in requests:
                word = array(request)[0].decode()
                answers.append({"name": lambda: response(ELSE=text("x")),
                                "datatype": lambda: response(OUT=np.zeros(1, np.int32)),
                                "shape": lambda: response(OUT=np.array([b"a", b"b"], dtype=object)),
                                "nothing": lambda: response(),
                                "good": lambda: response(OUT=text("x"))}[word]())
            return answers
        """), [{"inputs": {"IN": texts(word)}} for word in ("name", "datatype", "shape", "nothing", "good")]),
    "completed": (None, program("""
        @staticmethod
        def auto_complete_config(config):
            config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [2]})
            config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]})
            config.set_max_batch_size(4)
            config.set_dynamic_batching()
            return config

        def execute(self, requests):
            return [response(OUT=array(request)) for request in requests]
        """), [{"inputs": {"IN": floats(1, 2, shape=(1, 2))}}]),
    "completed_partly": (tensor("input", "IN", "FP32", [-1]), program("""
        @staticmethod
        def auto_complete_config(config):
            config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
            config.set_max_batch_size(0)
            return config

        def execute(self, requests):
            return [response(OUT=array(request)) for request in requests]
        """), [FLOATS]),
    "helped": (io("FP32"), each("response(OUT=helper.twice(array(request)))", "import helper\n"), [FLOATS]),
    "asynchronous": (io("FP32"), program("""
        async def execute(self, requests):
            await asyncio.sleep(0.001)
            return [response(OUT=array(request)) for request in requests]
        """), [FLOATS]),
    "senders": (io("FP32"), program("""
        def execute(self, requests):
            for request in requests:
                request.get_response_sender().send(response(OUT=array(request)),
                                                   flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """), [FLOATS]),
    "decoupled": (TEXT_IN + TEXT_OUT + DECOUPLED, program("""
        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.run, args=(request.get_response_sender(), array(request)[0].decode())).start()

        def run(self, sender, word):
            for i in range(int(word.split()[0])):
                sender.send(response(OUT=text(f"{word} {i}")))
            if word.endswith("error"):
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("as asked")))
            if word.endswith("last"):
                sender.send(response(OUT=text("the last")), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """), [{"inputs": {"IN": texts(word)}} for word in ("0", "1", "20", "2 last", "0 last", "0 error", "3 error")]),
    "member_tokens": (TEXT_IN + tensor("output", "IDS", "INT32", [-1]), each(
        "response(IDS=np.array([len(w) for w in array(request)[0].decode().split()], np.int32))"),
        [{"inputs": {"IN": texts("to be or not")}}]),
    "member_sum": (tensor("input", "IDS", "INT32", [-1]) + tensor("output", "SUM", "INT64", [1]), each(
        'response(SUM=np.array([array(request, "IDS").sum()], np.int64))'),
        [{"inputs": {"IDS": np.arange(5, dtype=np.int32)}}]),
    "together": ('platform: "ensemble"\n' + TEXT_IN + tensor("output", "SUM", "INT64", [1]) + """
        ensemble_scheduling { step [
            { model_name: "member_tokens" model_version: -1 input_map { key: "IN" value: "IN" }
              output_map { key: "IDS" value: "ids" } },
            { model_name: "member_sum" model_version: -1 input_map { key: "IDS" value: "ids" }
              output_map { key: "SUM" value: "SUM" } } ] }
        """, None, [{"inputs": {"IN": texts("to be or not to be")}}]),
    "instances": (io("FP32") + "instance_group { count: 3 kind: KIND_CPU }\n", each(ECHO), [FLOATS, FLOATS, FLOATS]),
    "strange_types": (TEXT_IN + tensor("output", "OUT", "FP32", [-1, -1]), program("""
        def execute(self, requests):
            given = {"strided": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
                     "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
                     "empty": np.zeros((0, 3), np.float32)}
            return [response(OUT=given[array(request)[0].decode()]) for request in requests]
        """), [{"inputs": {"IN": texts(word)}} for word in ("strided", "transposed", "empty")]),
    "dlpack": (io("FP32"), each(
        'pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", '
        'np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "IN")) + 1)])'), [FLOATS]),
    "unicode_texts": (TEXT_IN + TEXT_OUT, each('response(OUT=np.array(["zwölf"], dtype=object))'),
                      [{"inputs": {"IN": texts("x")}}]),
    "calls": (TEXT_IN + tensor("output", "OUT", "FP32", [-1]), program("""
        def execute(self, requests):
            responses = []
            for request in requests:
                name = array(request)[0].decode()
                answer = pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUT"], inputs=[
                    pb_utils.Tensor("IN", np.array([1, 2], np.float32))]).exec()
                if answer.has_error():
                    responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("the call failed")))
                else:
                    out = pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
                    responses.append(response(OUT=out + len(answer.output_tensors())))
            return responses
        """), [{"inputs": {"IN": texts(name)}} for name in ("echo_fp32", "helped", "senders", "asynchronous", "no such model",
                                                            "echo_int8", "bad_import")]),
    "awaits_calls": (io("FP32"), program("""
        async def execute(self, requests):
            responses = []
            for request in requests:
                answers = await asyncio.gather(*(pb_utils.InferenceRequest(
                    model_name=name, requested_output_names=["OUT"],
                    inputs=[pb_utils.Tensor("IN", array(request) + i)]).async_exec()
                    for i, name in enumerate(("echo_fp32", "helped", "echo_fp32"))))
                responses.append(response(OUT=sum(pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
                                                  for answer in answers)))
            return responses
        """), [FLOATS]),
    "calls_decoupled": (TEXT_IN + tensor("output", "OUT", "BYTES", [-1]), program("""
        def execute(self, requests):
            responses = []
            for request in requests:
                told = []
                for answer in pb_utils.InferenceRequest(model_name="decoupled", requested_output_names=["OUT"], inputs=[
                        pb_utils.Tensor("IN", array(request))]).exec(decoupled=True):
                    if answer.has_error():
                        told.append("an error")
                    elif len(answer.output_tensors()) > 0:
                        told.append(pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()[0].decode())
                responses.append(response(OUT=np.array([t.encode() for t in told], dtype=object)))
            return responses
        """), [{"inputs": {"IN": texts(word)}} for word in ("0", "1", "5", "2 last", "3 error")]),
    "asks_for_readiness": (TEXT_IN + TEXT_OUT, each(
        "response(OUT=text(str([pb_utils.is_model_ready(model_name=name) for name in array(request)[0].decode().split()])))"),
        [{"inputs": {"IN": texts("echo_fp32 absent bad_import calls")}}]),
    "no_execute": (io("FP32"), program("def initialize(self, args):\n    pass\n"), [FLOATS]),
    "no_class": (io("FP32"), "x = 1\n", [FLOATS]),
    "bad_syntax": (io("FP32"), "def (\n", [FLOATS]),
    "bad_import": (io("FP32"), "import a_module_that_is_not_installed\n", [FLOATS]),
    "bad_initialize": (io("FP32"), program("""
        def initialize(self, args):
            raise pb_utils.TritonModelException("not today")

        def execute(self, requests):
            return []
        """), [FLOATS]),
}
FILES = {"helped": {"helper.py": "def twice(array):\n    return array * 2\n"}}


def write(models):
    """Writes the repository."""
    for name, (config, source, _) in MODELS.items():
        for version in ("1", "3") if name == "two_versions" else ("1",):
            folder = os.path.join(models, name, version)
            os.makedirs(folder)
            for file, text in {**({"model.py": source} if source else {}), **FILES.get(name, {})}.items():
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(text)
        if config is not None:
            backend = "" if source is None else 'backend: "python"\n'
            with open(os.path.join(models, name, "config.pbtxt"), "w", encoding="utf-8") as out:
                out.write(backend + config)
