"""Many requests at once: servers that hold every answer until all requests have come, and clients that send
them. So it is certain that all were in flight together, however slow the machine is."""
import asyncio
import collections
import re
import socket
import threading

from lib.gateway import Gateway
from lib.http1 import PATIENCE

BODY = b'{"model": "digits"}'
REQUEST = (b"POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
           b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))


def patient_gateway(folder, config, gate):
    """A gateway in front of the gate, with time limits that a slow machine keeps."""
    return Gateway(folder, config, gate.addresses, more=lambda text: re.sub(
        r"(message|connect)_timeout: \d+s", r"\1_timeout: 60s", text))


class Gate:
    """Three HTTP/1.1 servers, on loopback addresses of their own. They answer once `n` requests have
    arrived at them together; `open` lets all answers go at once."""

    def __init__(self, n):
        self.n = n
        self.n_requests = 0
        self.loop = asyncio.new_event_loop()
        self.opened = asyncio.Event()
        self.socks = [listening() for _ in range(3)]
        self.addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in self.socks]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.servers = [asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self.serve, sock=sock), self.loop).result() for sock in self.socks]

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(length_of(head))
                self.n_requests += 1
                if self.n_requests >= self.n:
                    self.opened.set()
                await self.opened.wait()
                writer.write(b"HTTP/1.1 200 Said\r\ncontent-length: 2\r\n\r\nok")
        except (OSError, asyncio.IncompleteReadError):
            pass  # the proxy closed the connection
        finally:
            writer.close()

    def open(self):
        self.loop.call_soon_threadsafe(self.opened.set)

    def refuse(self, number):
        """This server refuses connections from here on."""
        async def end():
            self.servers[number].close()
        asyncio.run_coroutine_threadsafe(end(), self.loop).result()

    def close(self):
        async def end():
            for server in self.servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        asyncio.run_coroutine_threadsafe(end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def listening():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(4096)
    return sock


def length_of(head):
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def ask_all(address, n, on_failure):
    """Sends a request on each of `n` connections at once. `on_failure` is called when an answer is not 200, so that a
    gate that waits for all requests does not wait for ever. Returns: how often each status came."""
    async def one():
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
        except (OSError, asyncio.IncompleteReadError):
            status = "broken"
        finally:
            writer.close()
        if status != 200:
            on_failure()
        return status

    async def everything():
        async with asyncio.timeout(2 * PATIENCE):
            return await asyncio.gather(*(one() for _ in range(n)))
    return collections.Counter(asyncio.run(everything()))
