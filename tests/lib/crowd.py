"""Many requests at once: servers that hold every answer until all requests have come, and clients that send
them. So it is certain that all were in flight together, however slow the machine is."""
import asyncio
import collections
import functools
import socket
import threading

from lib.http1 import PATIENCE

BACKLOG = 4096  # connections that wait to be accepted; asyncio's 100 lose some where it is late
BODY = b'{"model": "digits"}'
REQUEST = (b"POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"
           b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))


class Gate:
    """Three HTTP/1.1 servers, on loopback addresses of their own. They answer once `n` requests have
    arrived at them together; `open` lets all answers go at once. One that `dies` does so at that moment: it answers
    none of its `n_cut` requests."""

    def __init__(self, n, dies=None):
        self.n, self.dies = n, dies
        self.n_cut = 0
        self.n_requests = 0
        self.held = [set(), set(), set()]  # connections whose request waits for its answer, by server
        self.loop = asyncio.new_event_loop()
        self.opened = asyncio.Event()
        self.socks = [listening() for _ in range(3)]
        self.addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in self.socks]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.servers = [asyncio.run_coroutine_threadsafe(
            asyncio.start_server(functools.partial(self.serve, number), sock=sock, backlog=BACKLOG),
            self.loop).result()
            for number, sock in enumerate(self.socks)]

    async def serve(self, number, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(length_of(head))
                self.n_requests += 1
                self.held[number].add(writer)
                if self.n_requests >= self.n and not self.opened.is_set():
                    self.drop(self.dies)
                    self.opened.set()
                await self.opened.wait()
                self.held[number].discard(writer)
                writer.write(b"HTTP/1.1 200 Said\r\ncontent-length: 2\r\n\r\nok")
        except (OSError, asyncio.IncompleteReadError):
            pass  # the proxy closed the connection
        finally:
            writer.close()

    def open(self):
        self.loop.call_soon_threadsafe(self.opened.set)

    def drop(self, number):
        """On the loop's thread."""
        if number is not None:
            self.servers[number].close()
            self.n_cut = len(self.held[number])
            for writer in self.held[number]:
                writer.transport.abort()

    def refuse(self, number):
        """This server refuses connections from here on."""
        async def end():
            self.drop(number)
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
    sock.listen(BACKLOG)
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
