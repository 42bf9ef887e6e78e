"""What a client can make the server hold by opening calls: metadata of streams that never send a message,
windows of streams, messages that grow when they are decompressed. After each attack a good request is
answered and nothing is held. The counting is shown in src/net/server/grpc/session_attack_test.c."""
import gzip
import time

import pytest

from lib import h2, http1, server
from lib.grpc_live import (DEADLINE, EXHAUSTED, GOOD, INFER, OK, SERVICE, STREAM, UNAVAILABLE, Live, request,
                           tensor)

pytestmark = pytest.mark.plain

VALUE = b"v" * 4000
N_REFERENCES = 14  # 56 KB of metadata
MAX_STREAMS = 1000


@pytest.fixture
def start(tmp_path, repositories):
    """Starts a server with these flags. At the end it is at rest."""
    started = []

    def one(*flags):
        live = Live(tmp_path, repositories("default"), *flags)
        live.server.__enter__()
        started.append(live)
        return live
    yield one
    for live in started:
        try:
            if live.server.process.poll() is None:
                live.check_unharmed()
        finally:
            live.server.__exit__(None, None, None)


def open_streams(connection, n, name=b"a", path=STREAM):
    """Calls without a message. Their metadata costs a byte for each 4,000: an entry of HPACK's table."""
    streams = []
    head = h2.block(h2.call_fields(path))
    for at in range(n):
        fields = head + (h2.field(name, VALUE, first=0x40) if at == 0 else b"\xbe" * N_REFERENCES)
        stream, frames = connection.open(fields)
        streams.append(stream)
        connection.send(frames)
    connection.ping()
    return streams


def over(connection, streams):
    return [stream for stream in streams if connection.streams[stream].is_over]


def test_unused_metadata_of_streams_is_not_kept(start):
    """4 connections of 999 streams with 56 KB each; 220 MB, if it was kept."""
    live = start("--body-memory", "4GiB")  # enough for the windows of so many streams
    live.check_good()
    before = live.server.rss_bytes()
    connections = [live.connect() for _ in range(4)]
    for connection in connections:
        streams = open_streams(connection, MAX_STREAMS - 1)
        assert not over(connection, streams)
    grown = live.server.rss_bytes() - before
    print(f"{grown / 1e6:.1f} MB")
    if not server.is_sanitized():
        assert grown < 60e6
    live.check_good()
    for connection in connections:
        connection.close()


def test_open_calls_count_against_client_memory(start):
    """Each takes some kilobytes for as long as the client likes."""
    live = start("--client-memory", "32MiB", "--body-memory", "4GiB")
    connections = [live.connect() for _ in range(10)]
    refused = 0
    for connection in connections:
        streams = [connection.begin(b"/grpc.health.v1.Health/Watch") for _ in range(MAX_STREAMS - 1)]
        for stream in streams:
            connection.send_data(stream, h2.message(b""), end=True)
        connection.ping()
        ended = over(connection, streams)
        refused += len(ended)
        assert all(connection.streams[stream].status == EXHAUSTED
                   and "--client-memory" in connection.streams[stream].text for stream in ended)
    assert refused > 4000
    live.check_good()
    for connection in connections:
        connection.close()


def test_open_calls_are_bounded_for_all_connections(start):
    """G5: 16 calls of each of many connections were in no budget. A connection always gets its first one."""
    live = start("--client-memory", "32MiB")
    connections = [live.connect() for _ in range(150)]
    opened = [(connection, open_streams(connection, 16)) for connection in connections]
    numbers = live.numbers()
    of_grpc = {kind: numbers[f'sluice_client_memory_bytes{{kind="{kind}",protocol="grpc"}}']
               for kind in ("open_calls", "connections", "responses")}
    assert 7 << 20 < of_grpc["open_calls"] <= 8 << 20  # a quarter
    assert 150 * 20480 <= of_grpc["connections"] <= 150 * (20480 + 21504)  # with their tables of header fields
    assert of_grpc["responses"] == 0
    refused = [connection.streams[stream] for connection, streams in opened for stream in over(connection, streams)]
    assert len(refused) > 500
    assert all(one.status == EXHAUSTED and "--client-memory" in one.text for one in refused)
    with live.connect() as other:
        assert not over(other, open_streams(other, 1))
        live.check_good()
    for connection in connections:
        connection.close()


def flood_streams(connection, path, message, n_streams, n_messages):
    """Streams of a client that sends as much as it may, and lets nothing come back. Returns: the streams."""
    streams = [connection.begin(path) for _ in range(n_streams)]
    for stream in streams:
        connection.send_data(stream, h2.message(message) * n_messages)
    connection.ping()
    return streams


def check_all_answered(connection, streams, n_messages):
    """The client reads after all: nothing is missing. Its windows are large enough for all, as an update for each frame, sent
    late by a busy machine, would be a flood of them."""
    connection.send(h2.window_update(0, 1 << 24) + h2.settings((h2.INITIAL_WINDOW, 1 << 24)))
    for stream in streams:
        connection.send(h2.frame(h2.DATA, h2.END_STREAM, stream))
        ended = connection.answer(stream)
        assert ended.status == OK, str(ended)
        assert len(ended.messages()) == n_messages


@pytest.mark.parametrize("path, message", [
    pytest.param(STREAM, request("absent"), id="absent_model"),
    pytest.param(STREAM, b"\xff\xff", id="malformed"),
    pytest.param(b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", b"\x3a\x00", id="reflection")])
def test_small_answers_of_streams_that_are_not_read_are_bounded(start, path, message):
    """An error of a stream, and an answer of the reflection, took 4 KiB that nothing counted: 200 MB here."""
    live = start("--client-memory", "64MiB")
    live.check_good()
    before = live.server.rss_bytes()
    with live.connect(own=((h2.INITIAL_WINDOW, 0),), opens=False) as connection:
        streams = flood_streams(connection, path, message, 20, 2500)
        end = time.monotonic() + 1.5
        while not server.is_sanitized() and time.monotonic() < end:
            assert live.server.rss_bytes() - before < 20e6
            time.sleep(0.05)
        live.check_good()
        check_all_answered(connection, streams, 2500)


def test_error_of_stream_that_is_not_read_counts(start):
    live = start()
    with live.connect(own=((h2.INITIAL_WINDOW, 0),), opens=False) as connection:
        streams = flood_streams(connection, STREAM, request("absent"), 50, 100)
        name = 'sluice_client_memory_bytes{kind="responses",protocol="grpc"}'
        live.server.wait_for(lambda: live.numbers()[name] >= 50 * 4096, "an error of each stream")
        assert live.numbers()[name] <= 50 * 8192
        check_all_answered(connection, streams, 100)


def test_compressed_answers_of_stream_that_are_not_read_count(start):
    """Their requests gave back what they had reserved when the compressed copy was made, and went on."""
    live = start("--client-memory", "64MiB", "--max-unsent-size", "1MiB",
                 "--grpc-infer-response-compression-level", "high")
    zeros = request(inputs=[tensor(shape=(2500,))], raw=(bytes(10000),))
    with live.connect(own=((h2.INITIAL_WINDOW, 0),), opens=False) as connection:
        streams = [connection.begin(STREAM, (b"grpc-accept-encoding", b"gzip")) for _ in range(2)]
        for stream in streams:
            connection.send_data(stream, h2.message(zeros) * 60)
        name = 'sluice_client_memory_bytes{kind="responses",protocol="grpc"}'
        live.server.wait_for(lambda: live.numbers()[name] > 900e3, "requests that wait for --max-unsent-size")
        live.check_good()
        check_all_answered(connection, streams, 60)


def test_states_that_watch_does_not_read_are_left_out(start):
    """20 connections with 100 calls each held 400 MB after 8,000 changes."""
    live = start("--model-control-mode", "explicit", "--load-model", "id_fp32")
    with live.connect(own=((h2.INITIAL_WINDOW, 0),), opens=False) as connection:
        stream = connection.begin(b"/grpc.health.v1.Health/Watch")
        connection.send_data(stream, h2.message(b"\x0a\x07id_fp32"), end=True)
        connection.ping()
        for operation in ["unload", "load"] * 20 + ["unload"]:
            answer = http1.request(live.server.address, "POST", f"/v2/repository/models/id_fp32/{operation}")
            assert answer.status == 200, str(answer)
            connection.ping()
        connection.opens = True
        connection.send(h2.settings((h2.INITIAL_WINDOW, 65535)))
        connection.run_until(lambda: len(connection.streams[stream].messages()) == 2)
        assert connection.streams[stream].messages() == [b"\x08\x01", b"\x08\x03"]  # the first one and the last
        assert http1.request(live.server.address, "POST", "/v2/repository/models/id_fp32/load").status == 200
        connection.run_until(lambda: len(connection.streams[stream].messages()) == 3)
        assert connection.streams[stream].messages()[2] == b"\x08\x01"


def test_forwarded_metadata_counts_against_body_memory(start):
    """What models get of it is kept, and refused when the memory for bodies is used up."""
    live = start("--body-memory", "8MiB", "--grpc-header-forward-pattern", "^a$")
    before = live.server.rss_bytes()
    with live.connect() as connection:
        streams = open_streams(connection, 99)
        assert not over(connection, streams)
        live.check_good()
        with live.connect() as other:
            more = open_streams(other, 99)
            refused = over(other, more)
            assert 20 < len(refused) < 99
            for stream in refused:
                ended = other.streams[stream]
                assert ended.status == EXHAUSTED and "--body-memory" in ended.text, str(ended)
            live.check_good(other)  # little metadata is free
        if not server.is_sanitized():
            assert live.server.rss_bytes() - before < 60e6
    live.check_at_rest()
    with live.connect() as connection:  # all of it is free again
        assert not over(connection, open_streams(connection, 99))


def test_stream_without_message_times_out(start):
    live = start("--body-timeout", "3s")
    with live.connect() as connection:
        begun = connection.begin(STREAM)
        connection.send_data(begun, h2.message(GOOD))
        connection.run_until(lambda: connection.streams[begun].data)
        for stream in open_streams(connection, 50):
            ended = connection.answer(stream)
            assert ended.status == DEADLINE and "--body-timeout" in ended.text, str(ended)
        assert not connection.streams[begun].is_over  # it may be idle between messages
        connection.send_data(begun, h2.message(GOOD), end=True)
        ended = connection.answer(begun)
        assert ended.status == OK and len(ended.messages()) == 2


def begin_refused(connection):
    """Returns: a stream that the server has ended, whose DATA it drops."""
    stream = connection.begin(b"/no.Such/Method")
    connection.run_until(lambda: connection.streams[stream].is_over)
    return stream


def flood_until_over(connection, stream, dropped, seconds):
    """Sends DATA of the stream `dropped`, as fast as the server takes it. Returns: whether `stream` ended meanwhile."""
    flood = h2.frame(h2.DATA, 0, dropped, bytes(h2.DEFAULT_FRAME))
    end = time.monotonic() + seconds
    connection.sock.setblocking(False)
    while not connection.streams[stream].is_over and time.monotonic() < end:
        while len(connection.unsent) < 1 << 20 and connection.window >= h2.DEFAULT_FRAME:
            connection.unsent += flood
            connection.window -= h2.DEFAULT_FRAME
        connection.turn(0.1)
    return connection.streams[stream].is_over


def test_message_times_out_while_its_connection_is_busy(start):
    """The server always has something of that connection to read, but nothing of the message."""
    live = start("--body-timeout", "1s")
    for path in (INFER, STREAM):
        with live.connect() as connection:
            dropped = begin_refused(connection)
            stream = connection.begin(path)
            connection.send_data(stream, h2.message(GOOD)[:20])
            assert flood_until_over(connection, stream, dropped, 10), path
            ended = connection.streams[stream]
            assert ended.status == DEADLINE and "--body-timeout" in ended.text, str(ended)


def test_message_that_trickles_times_out_while_its_connection_is_busy(start):
    live = start("--body-timeout", "1s", "--min-body-rate", "1000")
    large = h2.message(bytes(100_000))
    with live.connect() as connection:
        dropped = begin_refused(connection)
        stream = connection.begin(INFER)
        connection.send_data(stream, large[:20])
        for at in range(20, 120):
            connection.unsent += h2.frame(h2.DATA, 0, stream, large[at:at + 1])
            if flood_until_over(connection, stream, dropped, 0.1):
                break
        ended = connection.streams[stream]
        assert ended.status == DEADLINE and "--min-body-rate" in ended.text, str(ended)


def test_shutdown_ends_streams_without_message(start):
    live = start("--body-timeout", "1h", "--drain-timeout", "1h")
    with live.connect() as connection:
        streams = open_streams(connection, 50)
        time.sleep(1.5)  # they had the time to send one
        live.server.signal()
        for stream in streams:
            assert connection.answer(stream).status == UNAVAILABLE
        connection.read_end()
    assert live.server.wait_exit() == 0


def test_stream_limit_fits_body_memory(start):
    """The streams of a connection can hold a window each: there are fewer, with smaller ones."""
    live = start("--body-memory", "256MiB")
    with live.connect(acks=False) as connection:
        streams = [connection.begin(STREAM) for _ in range(110)]
        connection.ping()
        assert connection.stream_window == (256 << 20) // 100
        refused = [stream for stream in streams if connection.streams[stream].reset]
        assert len(refused) == 10
        live.check_good(live.connect())


@pytest.mark.parametrize("method", ["RepositoryIndex", "ServerLive", "ModelMetadata", "ModelStatistics",
                                    "LogSettings", "RepositoryModelUnload"])
def test_small_message_stops_growing(start, method):
    """256 MB in 256 kB, for a method that takes a name or nothing."""
    live = start("--max-body-size", "512MiB")
    live.check_good()
    before = live.server.peak_rss_bytes()
    data = gzip.compress(bytes(1 << 28), 9)
    with live.connect() as connection:
        stream = connection.begin(SERVICE + method.encode(), (b"grpc-encoding", b"gzip"))
        connection.send_data(stream, h2.message(data, flag=1), end=True)
        ended = connection.answer(stream)
        assert ended.status == EXHAUSTED and "1048576" in ended.text, str(ended)
        live.check_good(connection)
        stream = connection.begin(INFER, (b"grpc-encoding", b"gzip"))
        connection.send_data(stream, h2.message(gzip.compress(GOOD), flag=1), end=True)
        assert connection.answer(stream).status == OK
    if not server.is_sanitized():
        assert live.server.peak_rss_bytes() - before < 32e6
