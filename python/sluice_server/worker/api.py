"""What a model imports as ``triton_python_backend_utils``: tensors, requests, responses, errors, the log and the
helpers, with the names and the meaning that Triton's Python backend has documented."""
import enum
import json
import math
import struct
import threading

import numpy as np

from . import tensors, wire

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

TRITON_STRING_TO_NUMPY = {name: tensors.NUMPY[number] for name, number in tensors.CONFIG_NAMES.items()
                          if number in tensors.NUMPY}

# The responses of a result up to so many bytes of tensors are in the message itself.
INLINE_BYTES = 16384
ALIGNMENT = 64

worker = None  # set by serve: the channel, the names of outputs and what else the model's process has


class TritonModelException(Exception):
    """An error of this interface."""


class TritonError:
    """An error that a response carries. `code` decides the status that the client sees."""
    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message, code=INTERNAL):
        if code not in _STATUSES:
            raise TritonModelException(f"TritonError: {code!r} is no code")
        self._message = str(message)
        self._code = code

    def message(self):
        return self._message

    def code(self):
        return self._code

    def __str__(self):
        return self._message


# sluice_status of each code
_STATUSES = {TritonError.UNKNOWN: 7, TritonError.INTERNAL: 7, TritonError.NOT_FOUND: 2, TritonError.INVALID_ARG: 1,
             TritonError.UNAVAILABLE: 3, TritonError.UNSUPPORTED: 4, TritonError.ALREADY_EXISTS: 9,
             TritonError.CANCELLED: 5}


def as_text(value):
    """A text that is given as bytes, too: elements of BYTES are names as they are."""
    return bytes(value).decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else value


class Tensor:
    """A named array. Of BF16 numpy has no dtype: such a tensor has one where the package ml_dtypes is installed."""

    def __init__(self, name, array):
        name = as_text(name)
        if not isinstance(name, str) or not name:
            raise TritonModelException(f"Tensor: expected a name, got {name!r}")
        if not isinstance(array, np.ndarray):
            array = np.asarray(array)
        datatype = tensors.number_of(array.dtype)
        if datatype is None:
            raise TritonModelException(f"tensor {name!r}: no datatype corresponds to numpy's {array.dtype}")
        self._name = name
        self._array = array
        self._datatype = datatype

    @classmethod
    def _of(cls, name, datatype, array):
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._array = array
        tensor._datatype = datatype
        return tensor

    def name(self):
        return self._name

    def as_numpy(self):
        if self._datatype == tensors.BF16 and self._array.dtype.name != "bfloat16":
            raise TritonModelException(f"tensor {self._name!r} is BF16, for which numpy has no dtype: install the "
                                       "package ml_dtypes, or convert it with to_dlpack")
        return self._array

    def triton_dtype(self):
        return self._datatype

    def shape(self):
        return list(self._array.shape)

    def is_cpu(self):
        return True

    def to_dlpack(self):
        return self.__dlpack__()

    def __dlpack__(self, *, stream=None, **_):
        if self._datatype in (tensors.BYTES, tensors.BF16):
            raise TritonModelException(f"tensor {self._name!r}: {tensors.NAMES[self._datatype]} cannot go by DLPack")
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)

    @staticmethod
    def from_dlpack(name, source):
        if not hasattr(source, "__dlpack__"):
            source = _Capsule(source)
        return Tensor(name, np.from_dlpack(source))

    def __repr__(self):
        return f"Tensor({self._name!r}, {tensors.NAMES[self._datatype]}, {self.shape()})"


class _Capsule:
    """A bare DLPack capsule, as numpy takes it."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


class MemoryType(enum.IntEnum):
    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU, TRITONSERVER_MEMORY_CPU = MemoryType


class PreferredMemory:
    """Where a model that is called should put its outputs: a wish, without effect, as all memory is the CPU's."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        try:
            self._type = MemoryType(preferred_memory_type)
        except ValueError:
            raise TritonModelException(f"PreferredMemory: {preferred_memory_type!r} is no memory") from None
        self._device = int(preferred_device_id)


class InferenceTrace:
    """The trace of a request, to be given to a request that is made of it."""

    def __init__(self, token=None):
        self._token = token

    def get_context(self):
        """The context of OpenTelemetry as JSON; None: the server does not give it to models."""
        return None


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None, parameters=None):
        output_tensors = list(output_tensors)
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"InferenceResponse: expected Tensor, got {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TritonModelException(f"InferenceResponse: expected a TritonError, got {type(error).__name__}")
        self._tensors = output_tensors
        self._error = error
        self.set_parameters(parameters)

    def output_tensors(self):
        return self._tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        """As a text of JSON, as Triton gives them."""
        return json.dumps(self._parameters)

    def set_parameters(self, parameters):
        if parameters is not None and not isinstance(parameters, dict):
            raise TritonModelException(f"InferenceResponse: parameters must be a dict, got {type(parameters).__name__}")
        self._parameters = dict(parameters or {})


class InferenceRequest:
    """A request of a client, or one that the model makes of another model."""

    def __init__(self, request_id="", correlation_id=0, inputs=(), requested_output_names=(), model_name="",
                 model_version=-1, flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None, priority=0):
        del preferred_memory  # all memory is the CPU's
        self._inputs = list(inputs or ())
        self._outputs = [as_text(name) for name in requested_output_names or ()]
        correlation_id = as_text(correlation_id)
        for tensor in self._inputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"InferenceRequest: inputs: expected Tensor, got {type(tensor).__name__}")
        for name in self._outputs:
            if not isinstance(name, str):
                raise TritonModelException("InferenceRequest: requested_output_names: expected names, got "
                                           f"{type(name).__name__}")
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("InferenceRequest: correlation_id: expected a number or a text, got "
                                       f"{type(correlation_id).__name__}")
        for name, value in (("correlation_id", correlation_id), ("flags", flags), ("timeout", timeout),
                            ("priority", priority)):
            if isinstance(value, int) and not 0 <= value < 1 << (32 if name == "flags" else 64):
                raise TritonModelException(f"InferenceRequest: {name}: {value} is out of range")
        self._token = 0
        self._parent = getattr(trace, "_token", None)
        self._id = str(as_text(request_id))
        self._correlation = correlation_id
        self._model = as_text(model_name)
        self._version = int(model_version)
        self._flags = int(flags)
        self._timeout = int(timeout)
        self._priority = int(priority)
        self._sender = None
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        if parameters is not None and not isinstance(parameters, dict):
            raise TritonModelException(f"InferenceRequest: parameters must be a dict, got {type(parameters).__name__}")
        self._parameters = dict(parameters or {})

    def exec(self, decoupled=False):
        """Has the server run the model. Returns: its response, which may be an error; `decoupled`: an iterator of
        responses."""
        return worker.call(self, decoupled)

    async def async_exec(self, decoupled=False):
        """As exec. Others run meanwhile."""
        return await worker.call_async(self, decoupled)

    @classmethod
    def _of(cls, token, sequence, flags, priority, timeout, request_id, sequence_text, inputs, outputs, parameters):
        request = cls.__new__(cls)
        request._token = token
        request._parent = token
        request._model = worker.arguments["model_name"]
        request._version = int(worker.arguments["model_version"])
        request._correlation = sequence_text or sequence
        request._flags = flags
        request._priority = priority
        request._timeout = timeout
        request._id = request_id
        request._inputs = inputs
        request._outputs = outputs
        request._parameters = parameters
        request._sender = None
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        return request

    def trace(self):
        return InferenceTrace(self._token)

    def set_release_flags(self, flags):
        """TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: the request is executed again in a later batch."""
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException("set_release_flags: expected TRITONSERVER_REQUEST_RELEASE_ALL or "
                                       f"TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, got {flags!r}")
        self._release_flags = flags

    def _is_rescheduled(self):
        return self._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE

    def inputs(self):
        return self._inputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        """A number or a text, as the client gave it; 0: none."""
        return self._correlation

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = int(flags)

    def priority(self):
        return self._priority

    def timeout(self):
        """In microseconds; 0: none."""
        return self._timeout

    def parameters(self):
        """As a text of JSON, as Triton gives them."""
        return json.dumps(self._parameters)

    def requested_output_names(self):
        return list(self._outputs)

    def model_name(self):
        return self._model

    def model_version(self):
        return self._version

    def is_cancelled(self):
        return worker.is_cancelled(self._token)

    def get_response_sender(self):
        if self._sender is None:
            self._sender = InferenceResponseSender(self)
        return self._sender


class InferenceResponseSender:
    """Sends the responses of one request, from any thread."""

    def __init__(self, request):
        self._token = request._token
        self._outputs = request._outputs
        self._lock = threading.Lock()
        self._closed = False

    def send(self, response=None, flags=0):
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(f"send: expected an InferenceResponse, got {type(response).__name__}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(f"send: expected 0 or TRITONSERVER_RESPONSE_COMPLETE_FINAL, got {flags!r}")
        if response is None and flags == 0:
            raise TritonModelException("send: without a response it needs TRITONSERVER_RESPONSE_COMPLETE_FINAL")
        with self._lock:
            if self._closed:
                raise TritonModelException("send: the request has got its final response")
            self._closed = flags != 0
            worker.send_responses([(self._token, self._outputs, flags != 0, response)])

    def is_cancelled(self):
        return worker.is_cancelled(self._token)

    def _close(self):
        """Returns: whether it was still open."""
        with self._lock:
            was_open = not self._closed
            self._closed = True
        return was_open


# ---- responses as bytes ----------------------------------------------------------------------------


class Encoded:
    """Responses as a part of a message. Their tensors are in the message's tail, or together in one block."""

    def __init__(self):
        self.heads = []
        self.data = []  # (offset, bytes or array)
        self.n_bytes = 0

    def add(self, token, outputs, final, response):
        """One response; what is wrong with it is an error in its place."""
        if response is None:
            self.heads.append(wire.RESPONSE.pack(token, final, 0) + wire.U32.pack(0) + wire.U32.pack(0))
            return
        if response._error is not None:
            error = response._error
            self.add_error(token, final, _STATUSES[error._code], error._message)
            return
        at = len(self.heads), len(self.data), self.n_bytes
        try:
            self._add_outputs(token, outputs, final, response)
        except (TypeError, ValueError, OverflowError, struct.error, TritonModelException) as error:
            del self.heads[at[0]:], self.data[at[1]:]
            self.n_bytes = at[2]
            self.add_error(token, final, 7, f"model {worker.arguments['model_name']} returned a response that cannot "
                                            f"be sent: {error}")

    def add_error(self, token, final, status, text):
        self.heads.append(wire.RESPONSE.pack(token, final, status) + wire.text(text or "failed without a reason"))

    def _add_outputs(self, token, outputs, final, response):
        by_name = {tensor._name: tensor for tensor in response._tensors}
        worker.check_output_names(by_name)
        given = [name for name in outputs if name in by_name]  # the others are left out of the client's response, too
        head = [wire.RESPONSE.pack(token, final, 0), wire.U32.pack(len(given))]
        head.extend(self._add_tensor(worker.output_numbers[name], by_name[name]) for name in given)
        head.append(wire.U32.pack(len(response._parameters)))
        head.extend(wire.param(name, value) for name, value in response._parameters.items())
        self.heads.append(b"".join(head))

    def _add_tensor(self, number, tensor):
        expected = worker.output_datatypes.get(tensor._name)
        if expected is not None and tensor._datatype != expected:
            array = tensors.convert(tensor._array, tensor._datatype, expected)
            text = (f"output {tensor._name!r} is {tensors.NAMES[tensor._datatype]}, the configuration says "
                    f"{tensors.NAMES[expected]}")
            if array is None:
                raise TritonModelException(text)
            worker.log_conversion(tensor._name, text)
            tensor = Tensor._of(tensor._name, expected, array)
        return self.place(number, tensor)

    def place(self, number, tensor):
        """Gives the tensor a place. Returns: its description."""
        array, datatype = tensor._array, tensor._datatype
        if datatype == tensors.BYTES:
            data = tensors.elements_to_bytes(array)
            n_bytes = len(data)
        else:
            data = array
            n_bytes = array.nbytes
            if array.dtype.byteorder == ">":
                data = array.astype(array.dtype.newbyteorder("<"))
        offset = -(-self.n_bytes // ALIGNMENT) * ALIGNMENT
        self.n_bytes = offset + n_bytes
        self.data.append((offset, data))
        return (wire.OUTPUT.pack(number, datatype, array.ndim, offset, n_bytes)
                + struct.pack(f"<{array.ndim}q", *array.shape))

    def write(self, channel):
        """Returns: the number of the block, or 0, and the tail of the message. Raises MemoryError."""
        if self.n_bytes > INLINE_BYTES:
            block = channel.block_for(self.n_bytes)
            self._write(np.frombuffer(block.memory, dtype=np.uint8))
            return block.number, b""
        tail = bytearray(self.n_bytes)
        if self.n_bytes > 0:
            self._write(np.frombuffer(tail, dtype=np.uint8))
        return 0, tail

    def _write(self, memory):
        for offset, data in self.data:
            if isinstance(data, bytes):
                if data:
                    memory[offset:offset + len(data)] = np.frombuffer(data, dtype=np.uint8)
            elif data.nbytes > 0:
                place = memory[offset:offset + data.nbytes].view(data.dtype).reshape(data.shape)
                np.copyto(place, data)


# ---- the configuration -----------------------------------------------------------------------------


class ModelConfig:
    """What auto_complete_config gets and returns."""

    def __init__(self, model_config):
        self._model_config = model_config

    def as_dict(self):
        return self._model_config

    def _fail(self, text):
        raise ValueError(f"auto_complete_config of model {self._model_config['name']!r}: {text}")

    def set_max_batch_size(self, max_batch_size):
        given = self._model_config["max_batch_size"]
        if given > max_batch_size:
            self._fail(f"max_batch_size {max_batch_size} is below that of config.pbtxt, {given}")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                self._fail(f"dynamic_batching cannot be set, as config.pbtxt has {other}")
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        unknown = [key for key in transaction_policy_dict if key != "decoupled"]
        if unknown:
            self._fail(f"model_transaction_policy has no {unknown[0]!r}, but 'decoupled'")
        policy = self._model_config.setdefault("model_transaction_policy", {})
        decoupled = transaction_policy_dict.get("decoupled", False)
        if policy.get("decoupled", False) and not decoupled:
            self._fail("decoupled is false, and true in config.pbtxt")
        policy["decoupled"] = decoupled

    def add_input(self, input):
        self._add("input", input, ("name", "data_type", "dims", "optional"))

    def add_output(self, output):
        self._add("output", output, ("name", "data_type", "dims"))

    def _add(self, side, properties, known):
        for key in properties:
            if key not in known:
                self._fail(f"{side} has an unknown property {key!r}: {', '.join(known)} are known")
        for key in ("name", "data_type", "dims"):
            if key not in properties:
                self._fail(f"{side} {properties.get('name', '')!r} has no {key!r}")
        given = _config_by_name(self._model_config, side, properties["name"])
        if given is None:
            self._model_config.setdefault(side, []).append(dict(properties))
            return
        for key in ("data_type", "dims"):
            if given[key] != properties[key]:
                self._fail(f"{side} {properties['name']!r}: {key} is {properties[key]}, and {given[key]} in config.pbtxt")


# ---- the log ---------------------------------------------------------------------------------------


class LogLevel:
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """Lines of the server's log, with the model's name. Their number in a second is limited."""
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    # sluice_log_level
    _LEVELS = {LogLevel.INFO: 2, LogLevel.WARNING: 1, LogLevel.ERROR: 0, LogLevel.VERBOSE: 3}

    @staticmethod
    def log(message, level=LogLevel.INFO):
        worker.log(Logger._LEVELS.get(level, 2), message)

    @staticmethod
    def log_info(message):
        worker.log(2, message)

    @staticmethod
    def log_warn(message):
        worker.log(1, message)

    @staticmethod
    def log_error(message):
        worker.log(0, message)

    @staticmethod
    def log_verbose(message):
        worker.log(3, message)


# ---- metrics ---------------------------------------------------------------------------------------


class MetricKind(enum.IntEnum):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


COUNTER, GAUGE, HISTOGRAM = MetricKind


class MetricFamily:
    """Metrics of the model's own on the server's page /metrics. Families of one name and kind are the same one, and metrics
    of it with the same labels, too, in all instances."""
    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name, description, kind):
        try:
            self._kind = MetricKind(kind)
        except ValueError:
            raise TritonModelException(f"MetricFamily {name!r}: {kind!r} is no kind") from None
        self._name = _metric_text("a name", name)
        self._number = worker.tell(wire.FAMILY, wire.U8.pack(self._kind), wire.text(self._name),
                                   wire.text(_metric_text("a description", description))).number(wire.U64)

    def Metric(self, labels=None, buckets=None):
        return Metric(self, labels, buckets)


class Metric:
    """Made by MetricFamily.Metric. Any thread may change it."""

    def __init__(self, family, labels=None, buckets=None):
        labels = labels or {}
        if not isinstance(labels, dict):
            raise TritonModelException(f"metric {family._name!r}: labels must be a dict, got {type(labels).__name__}")
        bounds = [float(bound) for bound in (() if buckets is None else buckets)]
        self._name = family._name
        self._kind = family._kind
        parts = [wire.U32.pack(len(labels))]
        for name, value in labels.items():
            parts += [wire.text(_metric_text("a label", name)), wire.text(_metric_text("a label", str(value)))]
        parts += [wire.U32.pack(len(bounds)), *map(wire.F64.pack, bounds)]
        self._number = worker.tell(wire.SERIES, wire.U32.pack(family._number), *parts).number(wire.U64)

    def increment(self, value):
        value = float(value)
        if self._kind == MetricKind.HISTOGRAM:
            self._refuse("a histogram has observe in place of increment")
        if self._kind == MetricKind.COUNTER and not 0 <= value < math.inf:
            self._refuse(f"a counter is incremented by values that are finite and not negative, got {value}")
        worker.change_metric(self._number, 0, value)

    def set(self, value):
        if self._kind != MetricKind.GAUGE:
            self._refuse(f"only a gauge can be set, it is a {self._kind.name.lower()}")
        worker.change_metric(self._number, 1, float(value))

    def observe(self, value):
        value = float(value)
        if self._kind != MetricKind.HISTOGRAM:
            self._refuse(f"only a histogram observes values, it is a {self._kind.name.lower()}")
        if not math.isfinite(value):
            self._refuse(f"a histogram observes finite values, got {value}")
        worker.change_metric(self._number, 2, value)

    def value(self):
        return worker.tell(wire.VALUE, wire.U32.pack(self._number)).number(wire.F64)

    def _refuse(self, text):
        raise TritonModelException(f"metric {self._name}: {text}")


def _metric_text(what, text):
    if not isinstance(text, str) or "\0" in text:
        raise TritonModelException(f"MetricFamily: {what} must be a text without NUL, got {text!r}")
    return text


# ---- models ----------------------------------------------------------------------------------------


def load_model(model_name, config=None, files=None):
    """Loads a model, or loads it again. `config`: JSON in place of config.pbtxt; `files`: {"file:1/model.onnx": bytes}
    in place of its directory."""
    if files and config is None:
        raise TritonModelException("load_model: files need a config")
    worker.manage(wire.LOAD, config is not None, model_name, config=config, files=files)


def unload_model(model_name, unload_dependents=False):
    worker.manage(wire.UNLOAD, bool(unload_dependents), model_name)


def is_model_ready(model_name, model_version=""):
    """Whether the model, or that version of it, answers requests."""
    return worker.is_model_ready(model_name, str(model_version))


# ---- helpers ---------------------------------------------------------------------------------------


def get_model_dir():
    """The directory of the model's version."""
    return worker.version_directory


def get_input_tensor_by_name(inference_request, name):
    return _by_name(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response, name):
    return _by_name(inference_response.output_tensors(), name)


def _by_name(items, name):
    name = as_text(name)
    for tensor in items:
        if tensor.name() == name:
            return tensor
    return None


def _config_by_name(model_config, key, name):
    for properties in model_config.get(key, ()):
        if properties["name"] == name:
            return properties
    return None


def get_input_config_by_name(model_config, name):
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    return _config_by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type):
    return tensors.NUMPY[data_type]


def numpy_to_triton_type(data_type):
    return tensors.number_of(np.dtype(data_type))


def triton_string_to_numpy(triton_type_string):
    return tensors.NUMPY[tensors.CONFIG_NAMES[triton_type_string]]


def serialize_byte_tensor(input_tensor):
    """An array of texts as an array of one element: the bytes of a BYTES tensor."""
    if input_tensor.size == 0:
        return np.empty([0], dtype=np.object_)
    if input_tensor.dtype.kind not in "OSU":
        raise TritonModelException(f"cannot serialize a tensor of {input_tensor.dtype}")
    return np.asarray(tensors.elements_to_bytes(input_tensor), dtype=np.object_)


def deserialize_bytes_tensor(encoded_tensor):
    """The elements in the bytes of a BYTES tensor."""
    data = bytes(encoded_tensor)
    n = at = 0
    while at + 4 <= len(data):
        at += 4 + struct.unpack_from("<I", data, at)[0]
        n += 1
    if at != len(data):
        raise TritonModelException("the bytes of a BYTES tensor end within an element")
    return tensors.bytes_to_elements(data, n)
