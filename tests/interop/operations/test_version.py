"""sluice --version: what a bug report needs to say."""
import re
import subprocess

from lib import server


def test_version_names_commit_build_and_libraries():
    with open(server.ROOT + "/VERSION", encoding="utf-8") as file:
        version = file.read().strip()
    done = subprocess.run([server.binary(), "--version"], check=True, text=True, stdout=subprocess.PIPE)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert list(told) == ["sluice", "commit", "build", "libraries"]
    assert told["sluice"] == version
    assert re.fullmatch(r"unknown|[0-9a-f]{12}(-dirty)?", told["commit"])
    assert re.search(r"(GNU|Clang) \d+\.\d+", told["build"])
    for library in ("libuv", "llhttp", "nghttp2", "OpenSSL", "libcurl", "c-ares", "yyjson", "libyaml", "xxHash", "zlib", "libarchive"):
        assert re.search(rf"\b{library} \d+\.\d+(\.\d+)?\b", told["libraries"]), library
