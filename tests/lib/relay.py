"""Something between a client and a server that can break: it passes bytes both ways on loopback, until it is
told to cut what there is, or to keep whoever comes waiting."""
import contextlib
import ctypes
import fcntl
import socket
import struct
import threading
import time

PIECE = 64 << 10
SO_ATTACH_FILTER = 26
INPUT, OUTPUT = 0x541B, 0x5411  # ioctls: bytes that wait to be read, and to be acknowledged


class Filter(ctypes.Structure):
    """Of the kernel: which packets a socket gets."""
    _fields_ = [("n", ctypes.c_ushort), ("program", ctypes.c_char_p)]


# One instruction: return 0, which is none of the packet.
NOTHING = Filter(1, b"\x06\0\0\0\0\0\0\0")


def count(one, which):
    return struct.unpack("i", fcntl.ioctl(one, which, bytes(4)))[0]


class Relay:
    """Listens on a port of its own, and connects whoever comes to `port` once `open` is set, as it is at first."""

    def __init__(self, port):
        self.target = port
        self.open = threading.Event()
        self.open.set()
        self.lock = threading.Lock()
        self.sockets, self.threads, self.lost = [], [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server = threading.Thread(target=self.serve)
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.server.join()
        self.listener.close()
        self.open.set()
        self.sockets += self.lost
        self.cut()
        for thread in self.threads:
            thread.join()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            self.start(self.connect, near)

    def start(self, run, *args):
        thread = threading.Thread(target=run, args=args)
        self.threads.append(thread)
        thread.start()

    def connect(self, near):
        self.open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            near.close()
            return
        with self.lock:
            self.sockets += [near, far]
        other = threading.Thread(target=self.pump, args=(far, near))
        other.start()
        self.pump(near, far)
        other.join()
        near.close()
        far.close()

    @staticmethod
    def pump(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def lose(self):
        """Both ends hear nothing any more, not even that what they send arrives: as if the machine were gone."""
        with self.lock:
            sockets, self.sockets = self.sockets, []
        near, far = sockets[::2], sockets[1::2]
        for one in far:
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(NOTHING))
        # What is under way arrives first: sent again and again it would be a sign of life.
        for _ in range(3):
            while any(count(one, INPUT) for one in far) or any(count(one, OUTPUT) for one in near):
                time.sleep(0.01)
            time.sleep(0.05)
        for one in near:
            one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(NOTHING))
        self.lost += sockets

    def cut(self):
        """Ends all connections that there are."""
        with self.lock:
            sockets, self.sockets = self.sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
