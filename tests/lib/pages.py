"""What a status page promises besides what is on it."""
import html.parser
import re

from lib import http1


class Outside(html.parser.HTMLParser):
    """What a page would load from elsewhere."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "srcset", "action", "data", "poster") or (
                    name == "href" and tag != "a" and not value.startswith("data:")):
                self.found.append((tag, name, value))
            elif name == "href" and tag == "a" and re.match(r"//|\w+:", value):
                self.found.append((tag, name, value))


def assert_one_file(address):
    """The page at `/` has all that it needs, and tells the browser to load nothing."""
    fields = [("Accept", "text/html")]
    answer = http1.request(address, "GET", "/", fields=fields)
    assert answer.status == 200 and answer.get("Content-Type") == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.get("Content-Security-Policy")
    text = answer.body.decode()
    outside = Outside()
    outside.feed(text)
    assert outside.found == []
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)|innerHTML|eval\(|/\* here:", text)
    assert http1.request(address, "HEAD", "/", fields=fields).get("Content-Length") == str(len(answer.body))
