"""Calls of other models of the server: what InferenceRequest.exec and its kin, load_model, unload_model and
is_model_ready do."""
import asyncio
import contextvars
import threading
import time

from . import api, tensors, wire

# The token of the request for which the model runs; 0: none, as in initialize, or in a thread of the model.
parent = contextvars.ContextVar("parent", default=0)

# TritonError.code of each sluice_status
CODES = {1: api.TritonError.INVALID_ARG, 2: api.TritonError.NOT_FOUND, 3: api.TritonError.UNAVAILABLE,
         4: api.TritonError.UNSUPPORTED, 5: api.TritonError.CANCELLED, 6: api.TritonError.UNAVAILABLE,
         7: api.TritonError.INTERNAL, 8: api.TritonError.INVALID_ARG, 9: api.TritonError.ALREADY_EXISTS}


def _name(kind, value):
    value = api.as_text(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise api.TritonModelException(f"{kind}: expected a name, got {value!r}")
    return wire.text(value)


def encode(channel, tag, request, decoupled, waits):
    """Returns: the parts of CALL. Raises MemoryError, TritonModelException."""
    tensors_of = api.Encoded()
    inputs = b"".join(_name("input", tensor.name()) + tensors_of.place(0, tensor) for tensor in request.inputs())
    outputs = b"".join(_name("output", name) for name in request.requested_output_names())
    parameters = b"".join(wire.param(name, value) for name, value in request._parameters.items())
    correlation = request.correlation_id()
    is_text = isinstance(correlation, str)
    version = "" if request._version < 0 else str(request._version)
    texts = (_name("model", request.model_name()) + wire.text(version) + wire.text(request.request_id())
             + wire.text(correlation if is_text else ""))
    body = texts + inputs + outputs + parameters
    at = wire.HEAD.size + wire.CALL_HEAD.size + len(body)
    padding = -at % 16
    if at + padding + api.INLINE_BYTES > wire.MAX_CALL_BYTES:
        raise api.TritonModelException("InferenceRequest: names and parameters are over 1 MiB together")
    block, tail = tensors_of.write(channel)
    head = wire.CALL_HEAD.pack(tag, request._parent if request._parent is not None else parent.get(), decoupled | waits << 1,
                               0 if is_text else correlation, request.flags(), request.priority(), request.timeout(),
                               len(request.inputs()), len(request.requested_output_names()), len(request._parameters),
                               at + padding, block)
    return head, body, bytes(padding), tail


class Call:
    """A call that was made."""

    def __init__(self, channel, request, decoupled, on_response=None, waits=False):
        self._channel = channel
        self._model = request.model_name()
        self._timeout = request.timeout()
        self._until = time.monotonic() + self._timeout / 1e6 if self._timeout else None
        self._is_open = True
        self._tag = channel.open_call(on_response)
        try:
            channel.send(wire.CALL, *encode(channel, self._tag, request, decoupled, waits))
        except BaseException:
            self._is_open = False
            channel.close_call(self._tag)
            raise

    def seconds_left(self):
        """Until its timeout; None: it has none."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def next(self):
        """The next response; waits for it."""
        try:
            return self.read(self._channel.next_response(self._tag, self._until))
        except TimeoutError:
            return self.timed_out()
        except BaseException:
            self.close()
            raise

    def timed_out(self):
        self.close()
        return api.InferenceResponse(error=api.TritonError(
            f"the call of model {self._model!r} has not ended within its timeout of {self._timeout} microseconds",
            api.TritonError.UNAVAILABLE))

    def ask_for_more(self):
        self._channel.send(wire.NEXT, wire.U32.pack(self._tag))

    def is_open(self):
        """Whether more responses come."""
        return self._is_open

    def read(self, reader):
        final, status = reader.take(wire.FINAL_STATUS)
        if final:
            self._is_open = False
            self._channel.close_call(self._tag)
        if status != 0:
            return api.InferenceResponse(error=api.TritonError(reader.text(), CODES[status]))
        block, tail, n_outputs, n_parameters = reader.take(wire.CALLED_HEAD)
        memory, base = (self._channel.inputs_of(block), 0) if block else (reader.message, tail)
        outputs = []
        for _ in range(n_outputs):
            name = reader.text()
            datatype, rank, offset, n_bytes = reader.take(wire.INPUT)
            dims = reader.dims(rank)
            array = tensors.from_memory(datatype, dims, memory, base + offset, n_bytes)
            outputs.append(api.Tensor._of(name, datatype, array))
        return api.InferenceResponse(outputs, parameters=dict(reader.param() for _ in range(n_parameters)))

    def close(self):
        """Cancels it, unless it has ended."""
        if self._is_open:
            self._is_open = False
            self._channel.drop_call(self._tag)


def call(channel, request):
    """The response of a model that is not decoupled. The main thread executes nothing else until it is there."""
    return Call(channel, request, False, waits=threading.current_thread() is threading.main_thread()).next()


class Responses:
    """The responses of a call of a decoupled model, each as soon as it comes: `for` and `async for`, once. The call is
    cancelled when nothing refers to this any more."""

    def __init__(self, channel, request, loop=None):
        self._loop = loop
        self._arrived = None if loop is None else asyncio.Event()
        self._lock = threading.Lock()
        self._is_first = True
        self._call = Call(channel, request, True, None if loop is None else self._on_response)

    def _on_response(self):
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop is closed
            pass

    def _ask(self):
        if not self._is_first:
            if self._arrived is not None:
                self._arrived.clear()
            self._call.ask_for_more()
        self._is_first = False

    def __iter__(self):
        return self

    def __next__(self):
        with self._lock:
            if not self._call.is_open():
                raise StopIteration
            self._ask()
            return self._call.next()

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self._call.is_open():
            raise StopAsyncIteration
        if self._loop is None:
            raise api.TritonModelException("exec(decoupled=True) is for `for`, async_exec for `async for`")
        self._ask()
        return await _next_of(self._call, self._arrived)

    def cancel(self):
        """Ends the call: no further responses."""
        self._call.close()

    def __del__(self):
        if hasattr(self, "_call"):
            self._call.close()


async def _next_of(made, arrived):
    """The response that has arrived, or arrives within the timeout."""
    try:
        await asyncio.wait_for(arrived.wait(), made.seconds_left())
    except asyncio.TimeoutError:
        return made.timed_out()
    except BaseException:
        made.close()
        raise
    return made.next()


async def call_async(channel, request):
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    def on_response():
        try:
            loop.call_soon_threadsafe(arrived.set)
        except RuntimeError:  # the loop is closed
            pass

    channel.read_always()
    return await _next_of(Call(channel, request, False, on_response), arrived)


def responses_async(channel, request):
    channel.read_always()
    return Responses(channel, request, asyncio.get_running_loop())


# ---- models ----------------------------------------------------------------------------------------


def manage(channel, action, flag, model, version="", config=None, files=None):
    """Returns: None, or why it failed."""
    parts = [wire.U8.pack(action), wire.U8.pack(flag), _name("model", model), wire.text(version),
             wire.text(config or ""), wire.U32.pack(len(files or {}))]
    for path, content in (files or {}).items():
        if not isinstance(path, str) or not path.startswith("file:"):
            raise api.TritonModelException(f"load_model: files: expected a key \"file:VERSION/NAME\", got {path!r}")
        if not isinstance(content, (bytes, bytearray)):
            raise api.TritonModelException(f"load_model: files: {path!r}: expected bytes, got {type(content).__name__}")
        parts += [wire.text(path[len("file:"):]), wire.text(bytes(content))]
    if sum(map(len, parts)) > wire.MAX_BYTES - 64:
        raise api.TritonModelException("load_model: files are over 64 MiB together: put them into the repository")
    tag = channel.open_call()
    try:
        channel.send(wire.MANAGE, wire.U32.pack(tag), *parts)
        reader = channel.next_response(tag)
    finally:
        channel.close_call(tag)
    _, status = reader.take(wire.FINAL_STATUS)
    text = reader.text()
    return (text or "failed without a reason") if status != 0 else None
