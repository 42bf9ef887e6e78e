"""The socket to the server, and the blocks of shared memory that the server has made and passed over it.

Any thread may send, and may wait for an answer: of the threads that wait one reads for all."""
import array
import collections
import ctypes
import errno
import mmap
import os
import queue
import select
import socket
import threading
import time
import weakref

from . import wire

RECEIVE_BYTES = 1 << 16
MAX_FDS = 64
BUSY_S = 0.5  # the main thread does not read for so long while the model runs, before others read for it


class Closed(Exception):
    """The server has closed the socket."""


def lost(error):
    """Returns: the exception for an error of the socket: where its descriptor is none any more, the model has closed it."""
    if error.errno in (errno.EBADF, errno.ENOTSOCK):
        return RuntimeError("the socket to the server, a descriptor that the worker has had from its start, is closed: "
                            "something in this process closes descriptors that are not its own")
    return Closed(str(error))


class Block:
    """Shared memory of a fixed size. What the server has written for a batch is in use as long as an array refers to
    it; then the server may write the next batch there."""

    def __init__(self, number, fd, n_bytes):
        self.number = number
        self.n_bytes = n_bytes
        try:
            self.memory = mmap.mmap(fd, n_bytes)
        finally:
            os.close(fd)
        self.kind = ctypes.c_char * n_bytes


class Channel:
    def __init__(self, fd):
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._send_lock = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._reading = False
        self._closed = False
        self._buffer = bytearray()
        self._fds = collections.deque()
        self._messages = collections.deque()  # for the main thread
        self._answers = {}  # by tag
        self._dropped = collections.deque()  # tags of calls
        self._called = {}  # by tag: responses to a call of a model, which nothing has taken
        self._n_tags = 0
        self._blocks = {}
        self._granted = []  # blocks that outputs may be written to
        self._views = {}  # of blocks of inputs that are in use
        self._freed = collections.deque()
        self._idle = False
        self._idle_since = time.monotonic()
        self._checks = queue.SimpleQueue()
        self._reader = None

    # ---- sending

    def send(self, kind, *parts):
        data = wire.message(kind, *parts)
        try:
            with self._send_lock:
                self._socket.sendall(data)
        except OSError as error:
            raise lost(error) from None

    # ---- receiving

    def next_message(self):
        """The next message for the main thread. Raises Closed."""
        self._idle = True
        try:
            self.send_freed()
            return self._wait(lambda: self._messages.popleft() if self._messages else None)
        finally:
            self._idle = False
            self._idle_since = time.monotonic()

    def wait_for_check(self):
        """Waits until the server asks whether the model is ready. Where the main thread is in the model for long, and reads
        nothing, this thread does so now and then. Raises Closed."""
        while True:
            try:
                return self._checks.get(timeout=BUSY_S)
            except queue.Empty:
                pass
            with self._changed:
                if self._closed:
                    raise Closed("the server has closed the socket")
                if self._reading or self._idle or time.monotonic() - self._idle_since < BUSY_S:
                    continue
                self._reading = True
            self._read(BUSY_S)

    def ask(self, kind, *parts):
        """Sends a message that begins with a tag. Returns: the reader of its answer, after the tag."""
        with self._changed:
            self._n_tags += 1
            tag = self._n_tags
        self.send(kind, wire.U32.pack(tag & 0xFFFFFFFF), *parts)
        return self._wait(lambda: self._answers.pop(tag & 0xFFFFFFFF, None))

    def _wait(self, take, until=None):
        """Waits until `take` returns something. Raises TimeoutError at `until`, a time of time.monotonic."""
        while True:
            with self._changed:
                while True:
                    value = take()
                    if value is not None:
                        return value
                    if self._closed:
                        raise Closed("the server has closed the socket")
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError
                    if not self._reading:
                        self._reading = True
                        break
                    self._changed.wait(left)
            self._read(left)

    def _read(self, timeout=None):
        """Reads for all threads; self._reading is this one's."""
        try:
            readable = timeout is None or select.select([self._socket], [], [], timeout)[0]
            messages = self._receive() if readable else []
        except BaseException:
            with self._changed:
                self._closed = True
                self._reading = False
                self._changed.notify_all()
            raise
        with self._changed:
            self._reading = False
            for message in messages:
                self._sort(message)
            self._changed.notify_all()

    def _receive(self):
        """Returns: the messages that are complete now."""
        try:
            data, extra, _, _ = self._socket.recvmsg(RECEIVE_BYTES, socket.CMSG_SPACE(MAX_FDS * 4),
                                                     socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise lost(error) from None
        if not data:
            raise Closed("the server has closed the socket")
        for level, kind, payload in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[:len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        self._buffer += data
        messages = []
        at = 0
        while len(self._buffer) - at >= wire.HEAD.size:
            n_bytes, _ = wire.HEAD.unpack_from(self._buffer, at)
            if len(self._buffer) - at < n_bytes:
                break
            messages.append(self._buffer if at == 0 and n_bytes == len(self._buffer)
                            else self._buffer[at:at + n_bytes])
            at += n_bytes
        if at == len(self._buffer):
            self._buffer = bytearray()  # the messages refer to the old one
        elif at > 0:
            self._buffer = self._buffer[at:]
        return messages

    def _sort(self, message):
        kind = wire.HEAD.unpack_from(message)[1]
        if kind == wire.CALLED:
            self._sort_called(wire.Reader(message))
        elif kind == wire.GRANT:
            reader = wire.Reader(message)
            tag = reader.number(wire.U32)
            self.map_blocks(reader)
            self._answers[tag] = reader
        elif kind in (wire.STATE, wire.TOLD):
            reader = wire.Reader(message)
            self._answers[reader.number(wire.U32)] = reader
        elif kind == wire.CHECK:
            self._checks.put(True)
        else:
            if kind == wire.EXECUTE:
                # Here and not when it is executed: the descriptors come in the order of the messages.
                reader = wire.Reader(message)
                self.map_blocks(reader)
                self._messages.append((kind, reader))
            else:
                self._messages.append((kind, wire.Reader(message)))

    # ---- calls of models

    def open_call(self, on_response=None):
        """Returns: the tag of a call, whose responses are kept until close_call. `on_response` is called for each, on
        any thread, which must not take long: it does not have the response."""
        self._send_dropped()
        with self._changed:
            self._n_tags += 1
            tag = self._n_tags & 0xFFFFFFFF
            self._called[tag] = (collections.deque(), on_response)
        return tag

    def close_call(self, tag):
        """What has come for the call is not used."""
        with self._changed:
            responses, _ = self._called.pop(tag, ((), None))
            for reader in responses:
                self._skip_called(reader)
        self._send_freed_if_idle()

    def drop_call(self, tag):
        """As close_call, and ends the call. Runs wherever the last reference to it is dropped, possibly while locks are
        held: then the server is told later."""
        responses, _ = self._called.pop(tag, ((), None))
        for reader in responses:
            self._skip_called(reader)
        self._dropped.append(tag)
        if not self._send_lock.locked():
            try:
                self._send_dropped()
            except Closed:
                pass

    def _send_dropped(self):
        while self._dropped:
            try:
                tag = self._dropped.popleft()
            except IndexError:
                break
            self.send(wire.DROP, wire.U32.pack(tag))

    def next_response(self, tag, until=None):
        """Returns: the reader of the next response, after the blocks. Raises TimeoutError."""
        responses, _ = self._called[tag]
        return self._wait(lambda: responses.popleft() if responses else None, until)

    def read_always(self):
        """From now on a thread of its own reads, so that responses come also where no other one waits."""
        with self._changed:
            if self._reader is not None:
                return
            self._reader = threading.Thread(target=self._read_always, name="sluice", daemon=True)
        self._reader.start()

    def _read_always(self):
        try:
            self._wait(lambda: None)
        except Closed:
            pass

    def _sort_called(self, reader):
        tag = reader.number(wire.U32)
        self.map_blocks(reader)
        responses, on_response = self._called.get(tag, (None, None))
        if responses is None:
            self._skip_called(reader)
            return
        responses.append(reader)
        if tag not in self._called and responses:  # it was dropped meanwhile
            responses.clear()
            self._skip_called(reader)
        elif on_response is not None:
            on_response()

    def _skip_called(self, reader):
        _, status = reader.take(wire.FINAL_STATUS)
        block = reader.number(wire.U32) if status == 0 and reader.at < len(reader.message) else 0
        if block:
            self._freed.append(block)

    # ---- blocks

    def map_blocks(self, reader):
        """The part of a message that makes blocks known, and has others dropped."""
        for _ in range(reader.number(wire.U32)):
            number, n_bytes = reader.take(wire.BLOCK)
            if not self._fds:  # the kernel drops what a process has no place for
                raise RuntimeError("no descriptor for shared memory: this process has all files open that it may (RLIMIT_NOFILE)")
            self._blocks[number] = Block(number, self._fds.popleft(), n_bytes)
        for number in reader.numbers(reader.number(wire.U32)):
            self._blocks.pop(number, None)

    def inputs_of(self, number):
        """The memory of a block of inputs. It is in use until nothing refers to what is returned."""
        block = self._blocks[number]
        # An object of ctypes, as arrays refer to what has the memory and not to a memoryview of it.
        owner = block.kind.from_buffer(block.memory)
        self._views[number] = weakref.ref(owner, lambda _: self._on_unused(number))
        return owner

    def _on_unused(self, number):
        """Runs wherever the last array is dropped, possibly while locks are held."""
        self._views.pop(number, None)
        self._freed.append(number)
        self._send_freed_if_idle()

    def _send_freed_if_idle(self):
        if self._freed and self._idle and not self._send_lock.locked():
            # The main thread waits for a message and would tell the server only with the next result.
            try:
                self.send_freed()
            except Closed:
                pass

    def take_freed(self):
        """What is told to the server of blocks of inputs that are not in use any more."""
        numbers = []
        while self._freed:
            try:
                numbers.append(self._freed.popleft())
            except IndexError:
                break
        return wire.U32.pack(len(numbers)) + b"".join(map(wire.U32.pack, numbers))

    def send_freed(self):
        self._send_dropped()
        if self._freed:
            self.send(wire.FREED, self.take_freed())

    def block_for(self, n_bytes):
        """A block for outputs of that many bytes, until they are sent. Returns: the block; raises MemoryError."""
        with self._changed:
            for i, block in enumerate(self._granted):
                if block.n_bytes >= n_bytes:
                    return self._granted.pop(i)
        reader = self.ask(wire.NEED, wire.U64.pack(n_bytes))
        number = reader.number(wire.U32)
        if number == 0:
            raise MemoryError(reader.text())
        return self._blocks[number]

    def grant(self, number):
        """The server has given a block before it was asked for one."""
        with self._changed:
            self._granted.append(self._blocks[number])
