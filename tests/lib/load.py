"""Requests from many clients at once, over and over, while a test does something to the servers. It counts
what came of them; it measures no time."""
import collections
import http.client
import threading

from lib.http1 import PATIENCE


class Load:
    """Use it with `with`: the clients start, and have all ended at the end. `outcomes` counts each
    status, and "broken" for answers that did not come whole."""

    def __init__(self, address, n_clients=8, method="GET", path="/", body=None, headers=None):
        self.address = address
        self.request = (method, path, body, headers or {})
        self.outcomes = collections.Counter()
        self.changed = threading.Condition()
        self.ending = False
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(n_clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        for thread in self.threads:
            thread.join()

    def run(self):
        connection = None
        while not self.ending:
            outcomes = self.outcomes  # of the time when it begins: see `clear`
            try:
                if not connection:
                    connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
                connection.request(*self.request)
                answer = connection.getresponse()
                answer.read()
                outcome = answer.status
            except (OSError, http.client.HTTPException):
                outcome, connection = "broken", None
            with self.changed:
                outcomes[outcome] += 1
                self.changed.notify_all()

    def wait_more(self, n, outcome=None):
        """Until there are `n` more, of any outcome or of that one."""
        with self.changed:
            wanted = self.n(outcome) + n
            assert self.changed.wait_for(lambda: self.n(outcome) >= wanted, PATIENCE), self.outcomes

    def n(self, outcome=None):
        return self.outcomes[outcome] if outcome is not None else self.outcomes.total()

    def clear(self):
        """Counts anew, from those who begin from now on."""
        with self.changed:
            self.outcomes = collections.Counter()
