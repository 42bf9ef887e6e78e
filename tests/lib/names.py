"""A small DNS server, over UDP and TCP at one address, whose records and manners change at any time. dnslib
puts the messages together; how it answers a name, or all of them:

    answer     the records that `set` was given        drop       nothing
    servfail   SERVFAIL                                refused    REFUSED
    garbage    an answer's head, and bytes behind it   noise      bytes that are no message at all
    cut        an answer that breaks off               wrong_id   an answer to another question
    loop       a record whose name leads to itself     hang       over TCP: half of the answer, and no more
    lame       answers without what was asked for
    odd        before the records such as are none: data that is too short or too long, another class
"""
import collections
import contextlib
import socket
import socketserver
import struct
import threading
import time

import dnslib

MOST_UDP = 512


class Names:
    def __init__(self):
        self.lock = threading.RLock()
        self.ended = threading.Event()
        self.records = collections.defaultdict(list)  # (name, type) → [(rdata, ttl)]
        self.manners = {None: "answer"}  # name → how; None: the others
        self.asked = collections.Counter()  # (name, type)
        self.half = collections.defaultdict(set)  # name → of A and AAAA the one that was asked for, and not yet both
        self.n_udp = self.n_tcp = 0
        while True:
            self.udp = Udp(("127.0.0.1", 0), Datagram)
            try:
                self.tcp = Tcp(self.udp.server_address, Segment)
                break
            except OSError:  # somebody has the port for TCP
                self.udp.server_close()
        self.address = f"127.0.0.1:{self.udp.server_address[1]}"
        self.threads = []
        for server in (self.udp, self.tcp):
            server.names = self
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def close(self):
        """Nothing listens there from here on."""
        self.ended.set()
        for server in (self.udp, self.tcp):
            server.shutdown()
            server.server_close()
        for thread in self.threads:
            thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what it knows ---------------------------------------------------------------------------

    def set(self, name, kind, *values, ttl=1):
        """In place of the records of that kind. SRV: (priority, weight, port, target)."""
        made = {"A": dnslib.A, "AAAA": dnslib.AAAA, "CNAME": dnslib.CNAME,
                "SRV": lambda value: dnslib.SRV(*value)}[kind]
        with self.lock:
            self.records[(name, kind)] = [(made(value), ttl) for value in values]

    def forget(self, name):
        """There is no such name."""
        with self.lock:
            for key in [key for key in self.records if key[0] == name]:
                del self.records[key]

    def behave(self, how, name=None):
        with self.lock:
            self.manners[name] = how

    @contextlib.contextmanager
    def between_lookups(self, name):
        """No lookup gets its A before what is changed here, and its AAAA after it."""
        while True:
            with self.lock:
                if not self.half[name]:
                    yield
                    return
            time.sleep(0.001)

    def n_asked(self, name, kind=None):
        with self.lock:
            return sum(n for (asked, of), n in self.asked.items() if asked == name and kind in (None, of))

    # ---- what it says ----------------------------------------------------------------------------

    def look_up(self, reply, name, kind):
        """Puts in what there is, and what the aliases lead to."""
        if not any(known == name and values for (known, _), values in self.records.items()):
            reply.header.rcode = dnslib.RCODE.NXDOMAIN
            return
        for _ in range(20):
            aliases = self.records.get((name, "CNAME"))
            if not aliases or kind == "CNAME":
                break
            alias, ttl = aliases[0]
            reply.add_answer(dnslib.RR(name, dnslib.QTYPE.CNAME, rdata=alias, ttl=ttl))
            name = str(alias.label).rstrip(".")
        for rdata, ttl in self.records.get((name, kind), ()):
            reply.add_answer(dnslib.RR(name, getattr(dnslib.QTYPE, kind), rdata=rdata, ttl=ttl))

    def answer(self, data, most):
        """Returns: the bytes that are said; None: nothing."""
        question = dnslib.DNSRecord.parse(data)
        name = str(question.q.qname).rstrip(".").lower()
        kind = dnslib.QTYPE[question.q.qtype]
        reply = question.reply()
        with self.lock:
            self.asked[(name, kind)] += 1
            if kind in ("A", "AAAA"):
                self.half[name].add(kind)
                if len(self.half[name]) == 2:
                    self.half[name].clear()
            how = self.manners.get(name, self.manners[None])
            if how != "lame":
                self.look_up(reply, name, kind)
        return getattr(self, "answer_" + how)(data, reply, most)

    def answer_answer(self, _, reply, most):
        packed = reply.pack()
        if len(packed) > most:
            reply.rr = []
            reply.header.tc = 1
            packed = reply.pack()
        return packed

    answer_lame = answer_hang = answer_answer

    def answer_odd(self, _, reply, most):
        name, good = reply.q.qname, reply.rr
        whole = {1: b"\x0a\x09\x09\x09", 28: bytes.fromhex("20010db8000000000000000000000999")}
        reply.rr = []
        for kind, data in whole.items():
            for length in (0, 1, len(data) - 1, len(data) + 1, 2 * len(data)):
                reply.add_answer(dnslib.RR(name, kind, rdata=dnslib.RD((data * 2)[:length]), ttl=0))
            reply.add_answer(dnslib.RR(name, kind, rclass=3, rdata=dnslib.RD(data), ttl=0))
        reply.add_answer(*good)
        return self.answer_answer(None, reply, most)

    def answer_drop(self, *_):
        return None

    def answer_servfail(self, _, reply, __):
        reply.rr = []
        reply.header.rcode = dnslib.RCODE.SERVFAIL
        return reply.pack()

    def answer_refused(self, _, reply, __):
        reply.rr = []
        reply.header.rcode = dnslib.RCODE.REFUSED
        return reply.pack()

    def answer_garbage(self, _, reply, __):
        reply.rr = []
        packed = bytearray(reply.pack())
        packed[7] = 3  # answers
        return bytes(packed) + b"\xff\xc0\x01\x00\x21" * 20

    def answer_noise(self, *_):
        return b"\x17\x03\x03" * 30

    def answer_cut(self, _, reply, most):
        packed = self.answer_answer(None, reply, most)
        return packed[:-3]

    def answer_wrong_id(self, _, reply, most):
        reply.header.id ^= 0x5555
        return self.answer_answer(None, reply, most)

    def answer_loop(self, _, reply, __):
        reply.rr = []
        packed = bytearray(reply.pack())
        packed[7] = 1
        return bytes(packed) + struct.pack(">HHHIH", 0xc000 | len(packed), 33, 1, 60, 0)


# ---- sockets -------------------------------------------------------------------------------------

class Udp(socketserver.ThreadingUDPServer):
    daemon_threads = True
    block_on_close = False
    max_packet_size = 4096

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        super().server_bind()


class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 4096  # one that overflows loses connections where accepting is late

    def handle_error(self, request, client_address):
        """Who asked has gone: that is part of some tests."""


class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        names = self.server.names
        data, sock = self.request
        with names.lock:
            names.n_udp += 1
        said = names.answer(data, MOST_UDP)
        if said is not None:
            sock.sendto(said, self.client_address)


class Segment(socketserver.StreamRequestHandler):
    def handle(self):
        names = self.server.names
        while not names.ended.is_set():
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            data = self.rfile.read(struct.unpack(">H", head)[0])
            with names.lock:
                names.n_tcp += 1
                hangs = "hang" in names.manners.values()
            said = names.answer(data, 65535)
            if said is None or hangs:
                self.wfile.write(struct.pack(">H", 1000) + b"half")
                names.ended.wait()
                return
            self.wfile.write(struct.pack(">H", len(said)) + said)
