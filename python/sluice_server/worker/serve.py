"""The life of a model in its worker: load model.py, initialize, execute batches, finalize."""
import asyncio
import gc
import importlib
import importlib.util
import inspect
import json
import os
import resource
import sys
import threading
import time
import traceback

import numpy as np

from . import api, calls, tensors, wire
from .channel import Channel, Closed

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def end_with_server():
    """A model that blocks does not notice that the socket is closed."""
    try:
        import ctypes
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


async def _await(awaitable):
    return await awaitable


class ModelError(Exception):
    """What makes the model fail to load."""


def place_of(error):
    """Where in the model an exception was raised: " (model.py:12)"; "": elsewhere."""
    own = os.path.dirname(os.path.abspath(__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if os.path.dirname(os.path.abspath(frame.filename)) != own and not frame.filename.startswith("<frozen")]
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def describe(error):
    try:
        text = str(error).strip()
    except Exception:  # of the exception's own __str__
        text = "its text cannot be made"
    return type(error).__name__ + (f": {text}" if text else "") + place_of(error)


class Worker:
    """What the interface needs of this process (api.worker), and the loop."""

    def __init__(self, fd):
        self.channel = Channel(fd)
        self.arguments = {}
        self.is_decoupled = False
        self.output_numbers = {}
        self.output_names = []
        self.output_datatypes = {}
        self.version_directory = ""
        self.model = None
        self._loop = None
        self._unknown_outputs = set()
        self._converted = set()

    # ---- what api calls

    def log(self, level, message):
        self.channel.send(wire.LOG, wire.U8.pack(level), wire.text(message))

    def is_cancelled(self, token):
        return self.channel.ask(wire.ASK, wire.U64.pack(token)).number(wire.U8) != 0

    def call(self, request, decoupled):
        return calls.Responses(self.channel, request) if decoupled else calls.call(self.channel, request)

    async def call_async(self, request, decoupled):
        if decoupled:
            return calls.responses_async(self.channel, request)
        return await calls.call_async(self.channel, request)

    def manage(self, *args, **kwargs):
        failed = calls.manage(self.channel, *args, **kwargs)
        if failed is not None:
            raise api.TritonModelException(failed)

    def is_model_ready(self, model, version):
        return calls.manage(self.channel, wire.IS_READY, False, model, version) is None

    def send_responses(self, items, batch=0, done=False, began=0, ended=0):
        """items: (token, names of outputs, final, response)."""
        encoded = api.Encoded()
        for token, outputs, final, response in items:
            encoded.add(token, outputs, final, response)
        try:
            block, tail = encoded.write(self.channel)
        except MemoryError as error:
            encoded = api.Encoded()
            for token, _, final, _ in items:
                encoded.add_error(token, final, 6, str(error) or "out of memory for the outputs")
            block, tail = 0, b""
        n_items = len(items)
        items.clear()
        encoded.data.clear()
        heads = b"".join(encoded.heads)
        freed = self.channel.take_freed()
        at = wire.HEAD.size + wire.RESULT_HEAD.size + len(heads) + len(freed)
        padding = -at % 16
        self.channel.send(wire.RESULT,
                          wire.RESULT_HEAD.pack(batch, done, began, ended, n_items, at + padding, block),
                          heads, freed, bytes(padding), tail)

    def tell(self, kind, *parts):
        """Asks for a metric. Returns: the reader of its number or value; raises TritonModelException."""
        reader = self.channel.ask(kind, *parts)
        if not reader.number(wire.U8):
            raise api.TritonModelException(reader.text())
        return reader

    def change_metric(self, number, change, value):
        self.channel.send(wire.CHANGE, wire.U32.pack(number), wire.U8.pack(change), wire.F64.pack(value))

    def check_output_names(self, names):
        """Logs outputs that the configuration does not have, which no client gets: once each."""
        for name in names:
            if name not in self.output_numbers and name not in self._unknown_outputs and len(self._unknown_outputs) < 16:
                self._unknown_outputs.add(name)
                self.log(1, f"the model returns an output {name!r}, which its configuration does not have: it is left out"
                            " (logged once)")

    def log_conversion(self, name, text):
        """An output that is converted to the datatype of the configuration: once for each."""
        if name not in self._converted:
            self._converted.add(name)
            self.log(1, f"{text}: it is converted (logged once)")

    # ---- loading

    def load(self):
        kind, reader = self.channel.next_message()
        if kind != wire.INIT:
            raise ModelError(f"the worker expected INIT, got message {kind}")
        version = reader.number(wire.U32)
        if version != wire.VERSION:
            raise ModelError(f"the worker speaks version {wire.VERSION} of the protocol and the server version "
                             f"{version}: they are of different releases")
        for _ in range(reader.number(wire.U32)):
            name = reader.text()
            self.arguments[name] = reader.text()
        arguments = self.arguments
        limit = int(arguments.get("memory_limit", "0"))
        if limit > 0:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self._describes = arguments.get("describe") == "1"
        path = os.path.abspath(arguments["model_file"])
        self.version_directory = os.path.dirname(path)
        repository = os.path.abspath(arguments["model_repository"])
        # The program of a backend in Python is not the model's own.
        is_of_backend = os.path.commonpath([repository, path]) != repository
        if is_of_backend:
            self.version_directory = os.path.join(repository, arguments["model_version"])
        self._read_config(arguments["model_config"])
        model_class = self._import(path, is_of_backend)
        if self._describes:
            self._describe(model_class, json.loads(arguments["model_config"]))
            return
        self.model = model_class()
        if not hasattr(self.model, "execute"):
            raise ModelError(f"{path}: class TritonPythonModel has no method execute")
        if hasattr(self.model, "initialize"):
            self._call("initialize", lambda: self.model.initialize(self._initialize_arguments()))
        if inspect.iscoroutinefunction(self.model.execute):
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="asyncio", daemon=True).start()

    def _describe(self, model_class, config):
        """Tells the server what auto_complete_config makes of the configuration."""
        model_config = api.ModelConfig(config)
        if hasattr(model_class, "auto_complete_config"):
            made = self._call("auto_complete_config", lambda: model_class.auto_complete_config(model_config))
            if not isinstance(made, api.ModelConfig):
                raise ModelError("auto_complete_config must return the ModelConfig that it is given, it returned "
                                 f"{type(made).__name__}")
            config = made.as_dict()
        parts = [wire.U64.pack(config.get("max_batch_size", 0)),
                 wire.U8.pack(api.using_decoupled_model_transaction_policy(config)),
                 wire.U8.pack("dynamic_batching" in config)]
        for side in ("input", "output"):
            parts.append(wire.U32.pack(len(config.get(side, ()))))
            parts.extend(self._tensor(side, properties) for properties in config.get(side, ()))
        self.channel.send(wire.DESCRIBED, *parts)

    @staticmethod
    def _tensor(side, properties):
        dims = [int(size) for size in properties["dims"]]
        try:
            datatype = tensors.CONFIG_NAMES[properties["data_type"]]
        except KeyError:
            raise ModelError(f"auto_complete_config: {side} {properties['name']!r}: "
                             f"{properties['data_type']!r} is no data_type") from None
        return (wire.text(properties["name"]) + wire.U8.pack(datatype)
                + wire.U8.pack(bool(properties.get("optional", False))) + wire.U8.pack(len(dims))
                + b"".join(map(wire.I64.pack, dims)))

    def _initialize_arguments(self):
        names = ("model_config", "model_instance_kind", "model_instance_device_id", "model_repository", "model_version",
                 "model_name")
        return {**{name: self.arguments[name] for name in names}, "model_instance_name": self._instance_name()}

    def _instance_name(self):
        """As Triton names it: MODEL_GROUP, and MODEL_GROUP_NUMBER in a group of several."""
        number = int(self.arguments["instance"])
        for i, group in enumerate(json.loads(self.arguments["model_config"]).get("instance_group", ())):
            name, count = group.get("name") or f"{self.arguments['model_name']}_{i}", group.get("count") or 1
            if number < count:
                return f"{name}_{number}" if count > 1 else name
            number -= count
        return f"{self.arguments['model_name']}_0"

    def _read_config(self, text):
        config = json.loads(text)
        self.is_decoupled = api.using_decoupled_model_transaction_policy(config)
        for output in config.get("output", ()):
            self._add_output(output["name"], output["data_type"])
        for state in config.get("sequence_batching", {}).get("state", ()):
            if state["output_name"] not in self.output_numbers:
                self._add_output(state["output_name"], state["data_type"])

    def _add_output(self, name, data_type):
        self.output_numbers[name] = len(self.output_names)
        self.output_names.append(name)
        self.output_datatypes[name] = tensors.CONFIG_NAMES.get(data_type)

    def _import(self, path, is_of_backend):
        """Returns: the model's class. The file is module VERSION.model where it is in a version's directory, so that it
        may import files beside it in both ways."""
        folder = os.path.dirname(path)
        stem = os.path.splitext(os.path.basename(path))[0]
        version = os.path.basename(folder)
        sys.modules["triton_python_backend_utils"] = api
        sys.path[:0] = [folder] if is_of_backend else [folder, os.path.dirname(folder)]
        name = f"{version}.{stem}" if version.isdigit() else stem
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ModelError(f"{path}: expected a file of Python")
        module = importlib.util.module_from_spec(spec)
        if version.isdigit():
            parent = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(version, None, is_package=True))
            parent.__path__ = [folder]
            sys.modules[version] = parent
        sys.modules[name] = module
        self._call("import", lambda: spec.loader.exec_module(module))
        if not hasattr(module, "TritonPythonModel"):
            raise ModelError(f"{path}: expected a class TritonPythonModel")
        return module.TritonPythonModel

    @staticmethod
    def _call(what, function):
        try:
            return function()
        except ModuleNotFoundError as error:
            traceback.print_exc()
            root = (error.name or "").split(".")[0]
            raise ModelError(f"{what} failed: {describe(error)}; to install a package for this interpreter: "
                             f"{sys.executable} -m pip install {root}") from None
        except Exception as error:
            traceback.print_exc()
            raise ModelError(f"{what} failed: {describe(error)}") from None

    # ---- readiness

    def answer_checks(self):
        """The thread that calls is_ready."""
        try:
            while True:
                self.channel.wait_for_check()
                ready, why = self._check()
                self.channel.send(wire.CHECKED, wire.U8.pack(ready), wire.text(why))
        except Closed:
            pass

    def _check(self):
        try:
            ready = self.model.is_ready()
            if inspect.isawaitable(ready):
                if self._loop is None:
                    ready = asyncio.run(_await(ready))
                else:
                    ready = asyncio.run_coroutine_threadsafe(_await(ready), self._loop).result()
        except Exception as error:
            return False, f"is_ready failed: {describe(error)}"
        if not isinstance(ready, (bool, np.bool_)):
            return False, f"is_ready must return True or False, it returned {type(ready).__name__}"
        return bool(ready), "" if ready else "is_ready returned False"

    # ---- executing

    def run(self):
        while True:
            kind, reader = self.channel.next_message()
            if kind == wire.FINALIZE:
                return
            if kind == wire.EXECUTE:
                self.execute(reader)
                del reader

    def _read_requests(self, reader):
        batch, n_requests, tail, block, granted = reader.take(wire.EXECUTE_HEAD)
        if granted:
            self.channel.grant(granted)
        memory, base = (self.channel.inputs_of(block), 0) if block else (reader.message, tail)
        requests = []
        for _ in range(n_requests):
            (token, sequence, flags, priority, timeout, n_params, n_wanted, n_inputs) = reader.take(wire.REQUEST)
            request_id = reader.text()
            sequence_text = reader.text()
            parameters = dict(reader.param() for _ in range(n_params))
            outputs = [self.output_names[number] for number in reader.numbers(n_wanted)]
            inputs = []
            for _ in range(n_inputs):
                name = reader.text()
                datatype, rank, offset, n_bytes = reader.take(wire.INPUT)
                dims = reader.dims(rank)
                array = tensors.from_memory(datatype, dims, memory, base + offset, n_bytes)
                inputs.append(api.Tensor._of(name, datatype, array))
            requests.append(api.InferenceRequest._of(token, sequence, flags, priority, timeout, request_id,
                                                     sequence_text, inputs, outputs, parameters))
        return batch, requests

    def execute(self, reader):
        batch, requests = self._read_requests(reader)
        del reader
        calls.parent.set(requests[0]._token if len(requests) == 1 else 0)
        began = time.monotonic_ns()
        try:
            responses = self._run_model(requests)
            items = self._pair(requests, responses)
        except Closed:
            raise
        except Exception as error:
            traceback.print_exc()
            items = self._failed(requests, f"model {self.arguments['model_name']}: execute failed: {describe(error)}")
        ended = time.monotonic_ns()
        # Arrays of inputs that the model does not keep are dropped here, so that the server may use their block again.
        requests = responses = None
        self.send_responses(items, batch, True, began, ended)

    def _run_model(self, requests):
        if self._loop is None:
            return self.model.execute(requests)
        future = asyncio.run_coroutine_threadsafe(self.model.execute(requests), self._loop)
        if self.is_decoupled:
            future.add_done_callback(lambda done: self._on_coroutine_done(done, requests))
            return None
        return future.result()

    def _on_coroutine_done(self, future, requests):
        error = future.exception()
        try:
            if error is not None:
                traceback.print_exception(type(error), error, error.__traceback__)
                self.send_responses(self._failed(
                    requests, f"model {self.arguments['model_name']}: execute failed: {describe(error)}"))
            else:
                items = self._rescheduled(requests)
                if items:
                    self.send_responses(items)
        except Closed:
            pass

    def _failed(self, requests, text):
        error = api.InferenceResponse(error=api.TritonError(text))
        items = []
        for request in requests:
            if request._sender is None or request._sender._close():
                items.append((request._token, request._outputs, True, error))
        return items

    @staticmethod
    def _rescheduled(requests):
        """Those that are executed again. Their senders cannot send any more: the next execution has its own."""
        return [(request._token, request._outputs, wire.RUN_AGAIN, None) for request in requests
                if request._is_rescheduled() and (request._sender is None or request._sender._close())]

    def _pair(self, requests, responses):
        """Pairs what execute returned with the requests."""
        if self.is_decoupled:
            if responses is not None:
                raise api.TritonModelException("a decoupled model sends its responses by get_response_sender, and its "
                                               f"execute returns None; it returned {type(responses).__name__}")
            return self._rescheduled(requests)
        if responses is None and all(request._sender is not None for request in requests):
            responses = [None] * len(requests)
        if not isinstance(responses, (list, tuple)):
            raise api.TritonModelException("execute must return a list of InferenceResponse, it returned "
                                           f"{type(responses).__name__}")
        if len(responses) != len(requests):
            raise api.TritonModelException(f"execute returned {len(responses)} responses to {len(requests)} requests")
        items = []
        for request, response in zip(requests, responses):
            if request._is_rescheduled():
                if response is not None:
                    raise api.TritonModelException("a request that is rescheduled has no response yet: execute must return "
                                                   f"None for it, it returned {type(response).__name__}")
                items += self._rescheduled([request])
                continue
            if response is None and request._sender is not None:
                continue
            if not isinstance(response, api.InferenceResponse):
                raise api.TritonModelException("execute must return a list of InferenceResponse, it contains "
                                               f"{type(response).__name__}")
            items.append((request._token, request._outputs, True, response))
        return items

    def finalize(self):
        if hasattr(self.model, "finalize"):
            try:
                self.model.finalize()
            except Exception:
                traceback.print_exc()


def main(fd):
    parent = os.getppid()
    end_with_server()
    if os.getppid() != parent:
        sys.exit(1)
    code = 0
    worker = Worker(fd)
    api.worker = worker
    api.__name__ = "triton_python_backend_utils"
    try:
        try:
            worker.load()
        except ModelError as error:
            worker.channel.send(wire.FAILED, wire.text(str(error)))
            return
        except Exception as error:
            traceback.print_exc()
            worker.channel.send(wire.FAILED, wire.text(describe(error)))
            return
        if worker.model is None:
            return
        gc.freeze()
        checks = hasattr(worker.model, "is_ready")
        worker.channel.send(wire.READY, wire.U8.pack(checks))
        if checks:
            threading.Thread(target=worker.answer_checks, name="is_ready", daemon=True).start()
        worker.run()
        worker.finalize()
    except Closed:
        pass
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else error.code is not None
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of the model, and handlers of the interpreter's end, must not keep the process.
        os._exit(code)
