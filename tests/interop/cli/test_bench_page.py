"""The page that `sluice bench --html` writes, as a browser shows it: well-formed, alone, and with the parts that it should
have; its axes end at round numbers."""
import re
import xml.etree.ElementTree as ElementTree

import pytest

from lib import browser
from lib.server import run
from test_cli_bench import SHORT, ModelServer, url_of

NAME = "{http://www.w3.org/1999/xhtml}"
SHAPE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile"), size=(1320, 1800)) as one:
        yield one


def open_page(shown, path):
    """Returns: the root of what the page shows, which is well-formed, and asks for nothing."""
    n_asked = len(shown.asked_for())
    shown.open(f"file://{path}")
    shown.wait("document.readyState === 'complete'")
    assert shown.complaints() == []
    assert [url for url in shown.asked_for()[n_asked:] if not url.startswith("data:")] == [f"file://{path}"]
    text = shown.run("new XMLSerializer().serializeToString(document.getElementById('report'))")
    for number in re.findall(r' (?:x|y|x1|y1|x2|y2|cx|cy)="([^"]*)"', text):
        assert re.fullmatch(r"-?\d+(\.\d+)?", number), number
    assert "NaN" not in text and "Infinity" not in text and "undefined" not in text
    root = ElementTree.fromstring(text)
    assert len(root.findall(f".//{NAME}table")) == 1
    return root


def words(element):
    return "".join(element.itertext())


def n_of(root, kind):
    return sum(element.get("class") == kind for element in root.iter())


def test_bench_page_has_its_parts(client_server, shown, tmp_path):
    page = tmp_path / "page.html"
    for args, figures, rows in ((("-c", "1,2,4", "-b", "2"), 4, 3), (("-c", "2"), 2, 1), (("--rate", "50,100"), 4, 2)):
        done = run("bench", url_of(client_server), "id_fp32", *args, *SHORT, "--html", page, "--title", "a <title> & more")
        assert done.returncode == 0 and "requests/s" in done.stdout and done.stderr == ""
        root = open_page(shown, page)
        assert words(root.find(f".//{NAME}h1")) == shown.run("document.title") == "a <title> & more"
        assert len(root.findall(f".//{NAME}figure")) == figures
        assert len(root.findall(f".//{NAME}tbody/{NAME}tr")) == rows
        assert n_of(root, "best") == 1 and n_of(root, "area") == rows
        assert f"sluice bench {url_of(client_server)} id_fp32 {args[0]}" in words(root.find(f".//{NAME}code"))
        assert ("over the rate wanted" in words(root)) == (args[0] == "--rate")
        assert ("inferences/s" in words(root)) == ("-b" in args)
        assert shown.run("document.documentElement.scrollWidth <= innerWidth")


def test_bench_page_shows_errors_as_text(shown, tmp_path):
    page = tmp_path / "page.html"
    with ModelServer(lambda number: 503 if number % 5 == 4 else 200) as server:
        run("bench", server.url, "m", "-n", "100", "-w", "0", "-c", "3", "--html", page)
    root = open_page(shown, page)
    assert "HTTP 503: no <number> " in words(root) and "20 errors" in words(root)
    assert words(root.find(f".//{NAME}h1")) == "m under load"


def test_bench_page_of_pings_has_no_bytes(client_server, shown, tmp_path):
    page = tmp_path / "page.html"
    assert run("bench", url_of(client_server), "--ping", "-c", "1,2", *SHORT, "--html", page).returncode == 0
    root = open_page(shown, page)
    assert "MB/s" not in [words(cell) for cell in root.iter(f"{NAME}th")]


def test_bench_page_without_answers_has_no_charts(shown, tmp_path):
    page = tmp_path / "page.html"
    with ModelServer(lambda number: 503 if number else 200) as server:
        run("bench", server.url, "m", "-n", "5", "-w", "0", "-c", "1", "--html", page)
    root = open_page(shown, page)
    assert root.findall(f".//{NAME}figure") == [] and "no step qualifies" in words(root)


def test_bench_page_axes_are_round(client_server, shown, tmp_path):
    page = tmp_path / "page.html"
    assert run("bench", url_of(client_server), "id_fp32", "-n", "5", "-w", "0", "-c", "1", "--html", page).returncode == 0
    open_page(shown, page)
    for scale, ticks in {
            "linearScale(0)": [0, 0.2, 0.4, 0.6, 0.8, 1], "linearScale(1)": [0, 0.2, 0.4, 0.6, 0.8, 1],
            "linearScale(41203)": [0, 10000, 20000, 30000, 40000, 50000], "linearScale(0.0123)": [0, 0.005, 0.01, 0.015],
            "linearScale(7)": [0, 2, 4, 6, 8], "logScale(1, 16)": [1, 2, 5, 10, 20],
            "logScale(0.045, 3.2)": [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5], "logScale(0.03, 400)": [0.1, 1, 10, 100],
            "logScale(5, 5)": [5, 10]}.items():
        assert shown.run(f"{scale}.ticks") == pytest.approx(ticks), scale


def test_bench_page_values_have_places(client_server, shown, tmp_path):
    page = tmp_path / "page.html"
    assert run("bench", url_of(client_server), "id_fp32", "-n", "5", "-w", "0", "-c", "1", "--html", page).returncode == 0
    open_page(shown, page)
    assert shown.run("[[1, 10], [1, 100], [0, 100]].map(([min, max]) => fitScale(min, max).log)") == [False, True, False]
    assert shown.run("[-1, 5, 11].map(value => place(fitScale(1, 10), value))") == [0, 0.5, 1]
    assert shown.run("[0.5, 1, 10, 100].map(value => place(logScale(1, 100), value))") == pytest.approx([0, 0, 0.5, 1])
    numbers = "[0.1234, 12.345, 99.96, 1234567].map(number)"
    assert shown.run(numbers) == ["0.123", "12.3", "100", "1,234,567"]
    assert shown.run("[0.00025, 0.5, 12, 2500000].map(spanText)") == ["250 ns", "500 µs", "12 ms", "2500 s"]
