"""The page at the root of --http, with which people try a model: in a real browser, with keys and without."""
import json
import os

import pytest

from lib import browser, http1
from lib.pages import assert_one_file
from lib.repository import Identity

AWKWARD = "<b onclick=x>&amp;\"'/%"
KEY = "a-key-for-inference"
MODELS = [
    Identity("digits", [("INT64", [-1]), ("BYTES", [1])]),
    Identity("failing", [("FP32", [-1])], parameters={"fail": "out of ink"}),
    Identity("picture", [("FP32", [3, 32, 32])]),
    Identity("steps", [("FP32", [1])], max_batch_size=1, more="sequence_batching { }"),
]


@pytest.fixture
def serve(start_server, tmp_path):
    def start(*flags, **options):
        for model in MODELS:
            model.write(str(tmp_path / "models"))
        (tmp_path / "models" / "torn").mkdir()
        server = start_server("--model-repository", tmp_path / "models", "--strict-readiness", "false",
                              *flags, **options)
        server.expect_error("model failed to load")
        return server
    return start


@pytest.fixture
def page(tmp_path):
    with browser.Browser(str(tmp_path / "profile")) as opened:
        yield opened


class Try:
    """The form of one model."""

    def __init__(self, page, name):
        self.page = page
        self.row = f"[...document.querySelectorAll('details')].find(one => one.querySelector('b').textContent === {json.dumps(name)})"
        page.wait(f"!!{self.row}")
        page.run(f"{self.row}.open = true")

    def wait_for_form(self):
        self.page.wait(f"!!{self.row}.querySelector('textarea')")
        return self

    def text(self):
        return self.page.run(f"{self.row}.querySelector('textarea').value")

    def send(self, text=None):
        """Returns: what the page says, and the answer that it shows."""
        if text is not None:
            self.page.run(f"{self.row}.querySelector('textarea').value = {json.dumps(text)}")
        self.page.run(f"{self.row}.querySelector('button').click()")
        said = f"{self.row}.querySelector('[role=status]').textContent"
        self.page.wait(f"!{said}.startsWith('waiting')")
        return self.page.run(said), self.page.run(f"{self.row}.querySelector('pre').hidden ? null : "
                                                  f"{self.row}.querySelector('pre').textContent")


def test_try_page_sends_requests(serve, page):
    server = serve()
    page.open(f"http://{server.address}/#digits/1")
    digits = Try(page, "digits").wait_for_form()
    assert page.run(f"{digits.row}.open") and "INPUT0 INT64 [-1]" in page.run(f"{digits.row}.textContent")
    said, answer = digits.send()
    assert said.startswith("answered in ") and json.loads(answer)["outputs"][1]["data"] == ["hello"]
    # Numbers that a browser would round arrive and return as they were typed.
    big = digits.text().replace('"data": [0]', '"data": [9007199254740993]')
    assert "9007199254740993" in digits.send(big)[1]
    assert '"data": [9007199254740993]' in digits.send(big.replace('["hello"]', '"zeros"'))[1]
    assert digits.send("{")[0].startswith("The request is not JSON: ")
    said, answer = digits.send(big.replace('"INPUT0"', '"INPUT9"'))
    assert said.startswith("The request does not fit the model (HTTP 400): ") and "INPUT9" in said and answer is None
    assert Try(page, "failing").wait_for_form().send() == ("The model failed (HTTP 500): out of ink", None)
    picture = Try(page, "picture").wait_for_form()
    assert '"data": "zeros"' in picture.text()
    assert "0.0 … and 2,872 more]" in picture.send()[1]
    assert picture.send(picture.text().replace('"zeros"', '"random"'))[1].count("0.") > 10  # a few are 0 or 1
    assert Try(page, "steps").wait_for_form().send()[0].startswith("answered in ")
    Try(page, "torn")
    assert "has no version" in page.run(f"{Try(page, 'torn').row}.textContent")
    page.size(390, 844)  # a phone
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.body.dataset.error") is None
    assert {event["params"]["entry"]["text"].split("status of ")[1][:3] for event in page.complaints()} == {"400", "500"}
    assert all(url.startswith(f"http://{server.address}/") for url in page.asked_for())
    server.stop()
    assert digits.send(big)[0].startswith("The server did not answer.")


def test_try_page_with_keys(serve, page, tmp_path):
    file = tmp_path / "keys.yaml"
    file.write_text(f"infer: [{KEY}]\nmetadata: [metadata-key]\nheader: x-api-key\n")
    server = serve("--keys", file, metrics_at="127.0.0.1:0", wait="listening")
    server.wait_for(lambda: os.path.exists(server.ready_file), "a ready file")
    page.open(f"http://{server.address}/")

    def use(key):
        page.wait("document.readyState === 'complete' && !document.getElementById('key').hidden")
        page.run(f"document.getElementById('key-value').value = {json.dumps(key)}")
        page.run("document.querySelector('#key button').click()")
    page.wait("document.getElementById('about').textContent === 'needs an API key'")
    assert page.run("document.querySelectorAll('body > footer').length") == 0  # where the status page is
    use("metadata-key")
    digits = Try(page, "digits").wait_for_form()
    assert digits.send()[0].startswith("The server needs an API key for this")
    assert "does not accept this key" in page.run("document.getElementById('key-why').textContent")
    use(KEY)
    assert digits.send()[0].startswith("answered in ")


def test_try_page_shows_names_as_text(start_server, tmp_path, page):
    (tmp_path / "models").mkdir()
    model = Identity("awkward", [("FP32", [1])])
    model.write(str(tmp_path / "models"))
    (tmp_path / "models" / "awkward").rename(tmp_path / "models" / AWKWARD.replace("/", ""))
    server = start_server("--model-repository", tmp_path / "models", metrics_at="127.0.0.1:0")
    page.open(f"http://{server.address}/")
    assert Try(page, AWKWARD.replace("/", "")).wait_for_form().send()[0].startswith("answered in ")
    assert page.run("document.querySelectorAll('[onclick]').length") == 0 and page.complaints() == []


def test_try_page_is_one_file(serve):
    server = serve()
    assert_one_file(server.address)
    assert http1.request(server.address, "GET", "/").status == 404  # for programs
    assert http1.request(server.address, "POST", "/", b"", fields=[("Accept", "text/html")]).status == 405
