"""A service manager as a server sees it: a socket that its messages come to. And a way to hang one thread
of a process, which signals can't."""
import contextlib
import ctypes
import os
import queue
import socket
import threading
import time

from lib.http1 import PATIENCE

PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000


class Manager:
    """Listens at a path, or at @NAME of the abstract name space. `environment` is for what it starts. One that is
    `busy` takes no message, not even a first one, until start_receiving()."""

    def __init__(self, address, watchdog_us=None, busy=False):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.messages = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.receive)
        if busy:
            self.fill()
        else:
            self.thread.start()
        self.environment = {**os.environ, "NOTIFY_SOCKET": address}
        if watchdog_us:
            self.environment["WATCHDOG_USEC"] = str(watchdog_us)

    def fill(self):
        """The kernel keeps a few messages: no more come in."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(BlockingIOError):
            other.setblocking(False)
            while True:
                other.sendto(b"FILLER=1", self.socket.getsockname())

    def start_receiving(self):
        self.thread.start()

    def receive(self):
        """Takes each message as it comes: the kernel keeps ten, and a server drops one after a second."""
        while message := self.socket.recv(4096):
            self.messages.put(dict(line.split("=", 1) for line in message.decode().split("\n")))

    def hear(self, patience=PATIENCE):
        """The next message, as a dict; None: none has come."""
        try:
            return self.messages.get(timeout=patience)
        except queue.Empty:
            return None

    def wait_for(self, **wanted):
        """Passes over what is something else."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            message = self.hear()
            if message and wanted.items() <= message.items():
                return message
        raise AssertionError(f"expected {wanted}")

    def wait_silent(self, seconds):
        """Passes over what still comes, until nothing has come for that long."""
        end = time.monotonic() + PATIENCE
        while self.hear(seconds):
            assert time.monotonic() < end, "signs go on"

    def drain(self):
        """Drops what has come."""
        while self.hear(0.001):
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RD)  # receive gets nothing, and ends
        self.thread.join()
        self.socket.close()


def threads_of(pid):
    """thread → its name."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            found[int(thread)] = file.read().strip()
    return found


@contextlib.contextmanager
def hung(thread):
    """The thread alone stands still, as a debugger would stop it."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.argtypes = arguments
    assert libc.ptrace(PTRACE_ATTACH, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    stopped, status = os.waitpid(thread, WALL)
    assert stopped == thread and os.WIFSTOPPED(status)
    try:
        yield
    finally:
        assert libc.ptrace(PTRACE_DETACH, thread, None, None) == 0
