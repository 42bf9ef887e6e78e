"""bug-N12: large bodies are searched for the model in slices, and other requests have their turns in between."""
import json

import pytest

from lib import h2, metrics, pick_client
from lib.pick_client import body, headers

MB = 1 << 20
# A slice takes a fraction of a millisecond, and a turn two: these are hundreds of turns.
LARGE = 32 * MB
A = "10.0.0.1:8000"
POOL = f"""
endpoints: [{A}]
models: [digits]
profile:
  plugins: [{{type: prefix-cache-scorer}}]
  schedulingProfiles: [{{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}]}}]
"""
PATH = pick_client.PROCESS.encode()
MODEL = b'"model":"digits"'


def filled(begin, filling, end=b""):
    return begin + filling * ((LARGE - len(begin) - len(end)) // len(filling)) + end


# Name of the case: (body, status; None: picked)
BODIES = {
    "brackets": (lambda: filled(b'{"a":', b"["), 400),
    "members": (lambda: filled(b"{", b'"a":1,', MODEL + b"}"), None),
    "name first": (lambda: filled(b"{" + MODEL + b",", b'"a":1,', b'"a":1}'), None),
    "named twice": (lambda: filled(b"{" + MODEL + b",", b'"a":1,', MODEL + b"}"), 400),
    "blanks": (lambda: filled(b"{", b" "), 400),
    "token ids": (lambda: filled(b'{"prompt":[1', b",1", b"]," + MODEL + b"}"), None),
    "messages": (lambda: filled(b'{"messages":[', b'{"role":"user","content":"a"},',
                                b'{"role":"user","content":"a"}],' + MODEL + b"}"), None),
}


class Connection(h2.Connection):
    """Knows in which order answers came: `order` has the stream of each piece."""

    def __init__(self, address):
        self.order = []
        super().__init__(address)

    def on_frame(self, kind, flags, stream, payload):
        if kind == h2.DATA and payload:
            self.order.append(stream)
        super().on_frame(kind, flags, stream, payload)


def answer_in(connection, stream, number=0):
    """One of the messages on the stream, the last of which may be incomplete."""
    data = connection.streams[stream].data
    for _ in range(number):
        data = data[5 + int.from_bytes(data[1:5], "big"):]
    return pick_client.classes()["ProcessingResponse"].FromString(data[5:5 + int.from_bytes(data[1:5], "big")])


def data_frame(connection, stream, message):
    data = h2.message(message.SerializeToString())
    connection.window -= len(data)
    return h2.frame(h2.DATA, 0, stream, data)


@pytest.fixture
def picker(start_picker):
    started = start_picker(POOL, "--workers", 1)
    yield started
    started.wait_at_rest()


@pytest.fixture
def connection(picker):
    with Connection(picker.grpc_addresses[0]) as opened:
        yield opened


@pytest.mark.parametrize("case, mode", [*((case, "BUFFERED") for case in BODIES),
                                        *((case, "FULL_DUPLEX_STREAMED") for case in ("brackets", "name first"))])
def test_small_requests_pass_a_large_body(connection, case, mode):
    """The last byte of the body and the small requests arrive together, on one connection: without slices the
    body's answer comes first."""
    make, status = BODIES[case]
    large = connection.begin(PATH)
    n_before = 0
    connection.send(data_frame(connection, large, headers("/v1/completions", config=f"{mode} NONE")))
    if mode == "BUFFERED":
        connection.run_until(lambda: connection.order)
        n_before = 1
    data = h2.message(body(make(), end=True).SerializeToString())
    connection.send_data(large, data[:-1])
    connection.run_until(lambda: connection.window > MB)
    small, frames = [], h2.frame(h2.DATA, 0, large, data[-1:])
    connection.window -= 1
    for _ in range(10):
        stream, head = connection.open(h2.call_fields(PATH))
        frames += head + data_frame(connection, stream, headers("/v2/models/digits/infer", end=True))
        small.append(stream)
    connection.send(frames)
    connection.run_until(lambda: set(connection.order[n_before:]) == {large, *small})
    answers = connection.order[n_before:]
    assert answers.index(large) == len(small), answers
    for stream in small:
        assert pick_client.endpoint_of(answer_in(connection, stream)) == A
    said = answer_in(connection, large, n_before)
    if status:
        assert pick_client.refusal_of(said)[0] == status
    else:
        assert pick_client.endpoint_of(said) == A


def test_large_bodies_are_dropped_with_their_streams(picker, connection):
    """Their clients are gone while they are searched: memory and turns are given back."""
    data = h2.message(headers("/v1/completions", config="BUFFERED NONE").SerializeToString()) + h2.message(
        body(filled(b"{", b" ")).SerializeToString())
    for _ in range(3):
        stream = connection.begin(PATH)
        connection.send_data(stream, data)
        connection.send(h2.reset(stream))
    picker.wait_at_rest()
    with pick_client.Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.pick("/v2/models/digits/infer", end=True) == A
        said = proxy.stream(headers("/v1/completions", config="BUFFERED NONE"),
                            body(json.dumps({"model": "digits"}).encode(), end=True))
        said.next()
        assert pick_client.endpoint_of(said.next()) == A
        said.reset()


# ---- what a pick waits for -----------------------------------------------------------------------

KB = 1 << 10
# The plugins of a profile: the bytes of a prompt that a pick waits for (docs/picker/profiles.md, "What a pick
# waits for"); 0: only the model's name, None: all of it.
WAITS = {
    "{type: active-request-scorer}": 0,
    "{type: lora-affinity-scorer}": 0,
    "{type: token-load-scorer}": 16 * KB,
    "{type: context-length-aware}": 16 * KB,
    "{type: prefix-cache-scorer}": 512 * KB,
    "{type: no-hit-lru-scorer}": 512 * KB,
    "{type: prefix-cache-affinity-filter}": 512 * KB,
    "{type: prefix-cache-scorer, parameters: {maxPrefixBlocksToMatch: 1024}}": 256 * KB,
    "{type: prefix-cache-scorer, parameters: {maxPrefixBlocksToMatch: 1024}}, {type: token-load-scorer}": 256 * KB,
    "{type: mm-embeddings-cache-scorer}": None,
}
PROMPT = 2 * MB


@pytest.mark.parametrize("plugins", WAITS)
def test_pieces_leave_when_nothing_more_is_needed(start_picker, plugins):
    """Pieces of the body are held until as much is known as the profile needs, and no longer."""
    picker = start_picker(f"""
endpoints: [{A}]
models: [digits]
profile:
  plugins: [{plugins}]
""")
    text = b'{"model":"digits","prompt":"' + b"The quick brown fox " * (PROMPT // 20) + b'"}'
    waits = len(text) if WAITS[plugins] is None else WAITS[plugins]
    piece = max(waits // 8, 4 * KB)
    pieces = [text[at:at + piece] for at in range(0, len(text), piece)]
    n_held = waits // piece  # the one after them has what is still needed: the text begins later than the body
    with pick_client.Proxy(picker.grpc_addresses[0]) as proxy:
        stream = proxy.stream(headers("/v1/completions", config="FULL_DUPLEX_STREAMED NONE"),
                              *map(body, pieces[:n_held]))
        metrics.wait_until(picker.metrics_address, lambda now: now["sluice_pick_held_bytes"] == n_held * piece,
                           "the pieces, held")
        stream.send(body(pieces[n_held], end=n_held + 1 == len(pieces)))
        assert pick_client.endpoint_of(stream.next()) == A
        returned = b""
        for at in range(n_held + 1, len(pieces)):  # each returns before the next is sent
            while len(returned) < at * piece:
                returned += stream.next().request_body.response.body_mutation.streamed_response.body
            stream.send(body(pieces[at], end=at + 1 == len(pieces)))
        while len(returned) < len(text):
            returned += stream.next().request_body.response.body_mutation.streamed_response.body
        assert returned == text
        stream.reset()
    picker.wait_at_rest()
