"""Each case of each NNN-topic.txt as a test: pytest -k 'NNN-topic' runs one script. The language is
README.md's; nothing of what is asked or expected is here."""
import glob
import os
import re
import shlex

import pytest

import language
import pieces
import runner

from lib.server import Server

HERE = os.path.dirname(os.path.abspath(__file__))


def scripts():
    for path in sorted(glob.glob(os.path.join(HERE, "[0-9][0-9][0-9]-*.txt"))):
        name = os.path.basename(path).removesuffix(".txt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        script = language.read_script(text, os.path.basename(path))
        named = re.search(r"^# marks: (.+)$", text, re.MULTILINE)
        marks = [getattr(pytest.mark, mark) for mark in named[1].split()] if named else []
        for case in script.cases:
            yield pytest.param(name, script, case, id=f"{name}: {case.title}",
                               marks=[pytest.mark.xdist_group(name), *marks])


class ScriptServers:
    """The server of the script that runs now, where it has a `server` line; ended when another
    script's turn comes."""

    def __init__(self, tmp_path_factory, repositories):
        self.tmp_path_factory = tmp_path_factory
        self.repositories = repositories
        self.script = None
        self.server = None

    def find(self, script):
        if self.script is not script or self.server.process.poll() is not None:
            self.stop()
            self.start(script)
        return self.server

    def start(self, script):
        kind, errors = "default", []
        for line in script.server.block:
            if line.word() == "repository":
                kind = line.rest()
            elif line.word() == "error":
                errors += [text.decode() for text in pieces.quoted(line.rest(), line)]
            else:
                raise language.ScriptError(f"line {line.number}: expected `repository KIND` or"
                                           ' `error "text"`')
        args = shlex.split(script.server.rest())
        self.script = script
        self.server = Server(self.tmp_path_factory.mktemp("script"),
                             ["--model-repository", self.repositories(kind), *args],
                             wait="loaded" if errors else "ready")
        self.server.expected_errors += errors

    def stop(self):
        server, self.server, self.script = self.server, None, None
        if server:
            try:
                if server.process.returncode is None:
                    server.stop()
            finally:
                server.kill()


@pytest.fixture(scope="session")
def script_servers(tmp_path_factory, repositories):
    servers = ScriptServers(tmp_path_factory, repositories)
    yield servers
    servers.stop()


@pytest.mark.parametrize("name, script, case", list(scripts()))
def test_case(name, script, case, script_servers, request):
    if script.server:
        server = script_servers.find(script)
    else:
        server = request.getfixturevalue("default_server")
        assert server.process.poll() is None, server.log_text()
    runner.Run(case, server).run()
