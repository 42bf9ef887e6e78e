"""Thousands of requests at once, over HTTP, gRPC and MIP, of random sizes and shapes, to models that batch
them: some fail, some are wrong, some wait no longer than a moment, and some clients go away, at any
point. Each answer must be the one to its own request, whoever shared its batch. Afterwards the server's
own numbers are back to nothing, and its statistics are what was answered. MIXTURE_SEED repeats a run.
(src/serve/scheduler/mixed_load_test.c does the same below the protocols.)"""
import collections
import json
import os
import random
import struct
import threading

import pytest

from lib import h2, http1, mip, mixture
from lib.grpc_live import DEADLINE, INFER, OK, STREAM, Live
from lib.mixture import Ask

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

AT_ONCE = 16  # of each caller
ROUNDS = 250
PER_CALLER = 10000  # serials; ROUNDS * AT_ONCE is far less, and 64 numbers of each are exact in FP32
GIVES_UP = 0.1
BY_MIP = ("rows", "lookup")


class Caller(threading.Thread):
    """Asks `ROUNDS` times `AT_ONCE` requests at once. `ends` counts what became of them by model; "unsure"
    is what the caller did not wait for."""

    def __init__(self, live, number, seed):
        super().__init__(daemon=True)
        self.live, self.ends, self.failed = live, collections.Counter(), None
        self.rng = random.Random(f"{seed}/{number}")
        self.serial = number * PER_CALLER

    def ask(self, model=None):
        self.serial += 1
        return Ask(self.rng, self.serial, model)

    def asks(self):
        return [self.ask() for _ in range(AT_ONCE)]

    def gives_up(self, chance=GIVES_UP):
        return self.rng.random() < chance

    def part_of(self, data):
        """All of it, or what gets out before somebody goes away."""
        return data if self.rng.random() < 0.7 else data[:self.rng.randrange(len(data))]

    def count(self, ask, end):
        self.ends[ask.model, end] += 1

    def run(self):
        try:
            for _ in range(ROUNDS):
                self.round()
        except BaseException as why:
            self.failed = why

    def result(self):
        self.join()
        if self.failed:
            raise self.failed
        return self.ends


class OneEach(Caller):
    """A connection for each of the requests, used again until it is left with an answer still to come."""

    def __init__(self, *args):
        super().__init__(*args)
        self.connections = [self.connect() for _ in range(AT_ONCE)]

    def round(self):
        sent = []
        for place, ask in enumerate(self.asks()):
            data, leaves = self.encode(ask), self.gives_up()
            self.connections[place].send(self.part_of(data) if leaves else data)
            sent.append((place, ask, leaves))
        self.rng.shuffle(sent)
        for place, ask, leaves in sent:
            if leaves:
                self.leave(place)
                self.count(ask, "unsure")
            else:
                self.count(ask, self.read(self.connections[place], ask))

    def leave(self, place):
        if self.rng.random() < 0.5:
            self.connections[place].reset()
        else:
            self.connections[place].close()
        self.connections[place] = self.connect()

    def run(self):
        super().run()
        for connection in self.connections:
            connection.close()


class Http(OneEach):
    def connect(self):
        return http1.Connection(self.live.server.address)

    def encode(self, ask):
        return mixture.to_http(ask, self.rng)

    def read(self, connection, ask):
        return mixture.from_http(ask, connection.read_answer("POST"))


class Mip(OneEach):
    """A listener is a model's: each connection stays with one."""

    def connect(self):
        return mip.Connection(self.live.server.mip_urls[self.rng.randrange(len(BY_MIP))])

    def asks(self):
        urls = self.live.server.mip_urls
        return [self.ask(BY_MIP[urls.index(connection.url)]) for connection in self.connections]

    def ask(self, model=None):
        made = super().ask(model)
        made.parameters.clear()  # it has none
        return made

    def encode(self, ask):
        return mixture.to_mip(ask)

    def read(self, connection, ask):
        return mixture.from_mip(ask, connection.read_packet())


class Grpc(Caller):
    def __init__(self, *args):
        super().__init__(*args)
        self.connection = self.live.connect()

    def run(self):
        super().run()
        self.connection.close()

    def deadline(self, asks):
        """A head's field, for some."""
        if self.rng.random() >= 0.1:
            return []
        for ask in asks:
            ask.hurried = True
        return [(b"grpc-timeout", b"%du" % self.rng.randrange(1, 5000))]

    def leave(self):
        """The whole connection, now and then. Returns: is it left?"""
        if not self.gives_up(0.05):
            return False
        if self.rng.random() < 0.5:
            self.connection.abort()
        else:
            self.connection.close()
        self.connection = self.live.connect()
        return True


class Unary(Grpc):
    """All calls on one connection; some are reset, some have a deadline."""

    def round(self):
        begun = [self.begin(ask) for ask in self.asks()]
        if self.leave():
            for ask, _, _ in begun:
                self.count(ask, "unsure")
            return
        for ask, stream, gives_up in begun:
            self.count(ask, self.end(ask, stream, gives_up))

    def begin(self, ask):
        stream = self.connection.begin(INFER, *self.deadline([ask]))
        data = h2.message(mixture.to_grpc(ask, self.rng))
        part = self.part_of(data) if self.gives_up() else data
        self.connection.send_data(stream, part, end=part == data)
        return ask, stream, part != data or self.gives_up()

    def end(self, ask, stream, gives_up):
        if gives_up:
            self.connection.send(h2.reset(stream))
            return "unsure"
        return mixture.from_unary(ask, self.connection.answer(stream))


class Stream(Grpc):
    """All requests of a round on one stream, which answers in their order."""

    def round(self):
        asks = self.asks()
        stream = self.connection.begin(STREAM, *self.deadline(asks))
        for ask in asks:
            self.connection.send_data(stream, h2.message(mixture.to_grpc(ask, self.rng)))
        if self.gives_up():
            if not self.leave():
                self.connection.send(h2.reset(stream))
            answered = []
        else:
            self.connection.send_data(stream, b"", end=True)
            ended = self.connection.answer(stream)
            answered = ended.messages()
            if not asks[0].hurried or ended.status != DEADLINE:
                assert (ended.status, len(answered)) == (OK, len(asks)), str(ended)
        for ask, data in zip(asks, answered):
            self.count(ask, mixture.from_stream(ask, data))
        for ask in asks[len(answered):]:
            self.count(ask, "unsure")


# ---- all together --------------------------------------------------------------------------------

CALLERS = (Http, Http, Http, Unary, Unary, Stream, Stream, Mip, Mip)


@pytest.fixture
def live(tmp_path, repositories):
    models = mixture.write_models(tmp_path / "mixture", repositories("onnx-only"))
    flags = [word for name in BY_MIP for word in ("--mip", f"tcp://127.0.0.1:0={name}")]
    made = Live(tmp_path, repositories("default"), "--model-repository", models, *flags)
    with made.server:
        yield made


def statistics(live, model):
    answer = http1.request(live.server.address, "GET", f"/v2/models/{model}/stats")
    return json.loads(answer.body)["model_stats"][0]


ENDS = ("ok", "failed", "late", "full", "wrong", "unsure")


def check_statistics(live, model, ends):
    """What was answered is counted so; what nobody waited for, as whatever became of it, or not at all
    where it was not even queued."""
    numbers, labels = live.numbers(), f'model="{model}",version="1"'
    unsure = ends[model, "unsure"]
    counted = {"ok": numbers[f"nv_inference_request_success{{{labels}}}"]}
    for end, reason in (("failed", "BACKEND"), ("late", "REJECTED"), ("unsure", "CANCELED"),
                        ("none", "OTHER")):
        counted[end] = numbers[f'nv_inference_request_failure{{model="{model}",reason="{reason}",version="1"}}']
    print(model, {end: ends[model, end] for end in ENDS}, counted)
    answered = sum(ends[model, end] for end in ("ok", "failed", "late"))
    for end in ("ok", "failed", "late"):
        assert ends[model, end] <= counted[end] <= ends[model, end] + unsure
    assert answered <= sum(counted.values()) <= answered + unsure and counted["none"] == 0
    told = statistics(live, model)["inference_stats"]
    assert told["success"]["count"] == counted["ok"]
    assert told["fail"]["count"] == sum(counted.values()) - counted["ok"]


def check_batches(live, model):
    """Of a model that waits for company, they were not executed one by one."""
    told = statistics(live, model)
    sizes = {one["batch_size"]: one["compute_infer"]["count"] for one in told["batch_stats"]}
    print(model, sizes)
    if model in ("rows", "text", "lookup"):
        assert max(sizes) > mixture.ROWS, sizes  # more rows than any request has


def check_each_model(live):
    """One more request of each model, on one connection."""
    rng = random.Random(0)
    with http1.Connection(live.server.address) as connection:
        for model in mixture.NAMES:
            ask = Ask(rng, 1, model, good=True)
            connection.send(mixture.to_http(ask, rng))
            assert mixture.from_http(ask, connection.read_answer("POST")) == (
                "failed" if model == "failing" else "ok")


def test_mixed_load_each_answer_is_its_own(live):
    seed = os.environ.get("MIXTURE_SEED") or struct.unpack("<I", os.urandom(4))[0]
    print(f"MIXTURE_SEED={seed}")
    callers = [kind(live, number, seed) for number, kind in enumerate(CALLERS)]
    for caller in callers:
        caller.start()
    ends = sum((caller.result() for caller in callers), collections.Counter())
    live.check_at_rest()
    assert sum(ends.values()) == len(CALLERS) * ROUNDS * AT_ONCE
    for model in mixture.NAMES:
        assert ends[model, "failed" if model == "failing" else "ok"] > 0
        check_statistics(live, model, ends)
        check_batches(live, model)
    check_each_model(live)
    live.check_unharmed()
