"""The server's own numbers, read over HTTP: what must be back to nothing when nothing is asked."""
import re
import time

from lib import http1

LABELS = r'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}'
LINE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)({LABELS})? (-?[0-9.eE+-]+|NaN|[+-]Inf)")

# Gauge → what the request that asks adds to it.
AT_REST = {
    "sluice_requests_in_flight": 1,
    "sluice_body_bytes_in_flight": 0,
    "sluice_outputs_held": 0,
    "sluice_connections": 1,
}
# What clients hold, by kind and protocol: nothing at rest, but for the connection and the request that ask.
OF_CLIENTS = ("sluice_client_memory_bytes{", "sluice_requests_waiting_for_memory{")
OF_ASKER = {'sluice_client_memory_bytes{kind="connections",protocol="http"}': 6144,
            'sluice_client_memory_bytes{kind="requests"}': 1 << 20}  # the page, while it is printed


def read(address):
    """Returns: a dict of name → number; a line that is not Prometheus text is an error."""
    answer = http1.request(address, "GET", "/metrics")
    assert answer.status == 200, str(answer)
    numbers = {}
    for line in answer.body.decode("utf-8").splitlines():
        if line and not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, f"not a line of metrics: {line!r}"
            numbers[match[1] + (match[2] or "")] = float(match[3])
    return numbers


def others_in_flight(numbers):
    """Requests in flight besides the one that asks."""
    return numbers["sluice_requests_in_flight"] - AT_REST["sluice_requests_in_flight"]


def wait_until(address, fits, what, patience=http1.PATIENCE):
    """Asks until `fits(numbers)`; a gauge may move a moment after the answer that it belongs to. `what`: a text, or a
    function that makes one of the numbers."""
    end = time.monotonic() + patience
    while True:
        began = time.monotonic()
        numbers = read(address)
        if fits(numbers):
            return numbers
        if time.monotonic() > end:
            raise AssertionError(what(numbers) if callable(what) else
                                 f"expected {what}, got {({k: v for k, v in numbers.items() if v})}")
        # A long page is asked for more seldom: asking is not to be what keeps the server busy.
        time.sleep(max(0.005, 4 * (time.monotonic() - began)))


def wait_at_rest(address, arenas=None):
    """Nothing in flight, nothing held, and (where given) as many arenas as there were."""
    def too_large(numbers):
        limits = {name: OF_ASKER.get(name, 0) for name in numbers if name.startswith(OF_CLIENTS)} | AT_REST
        if arenas is not None:
            limits["sluice_arenas"] = arenas
        return {name: (numbers[name], limit) for name, limit in limits.items() if numbers[name] > limit}
    return wait_until(address, lambda numbers: not too_large(numbers),
                      lambda numbers: f"not at rest, (value, at most): {too_large(numbers)}")
