"""The command line itself: help, versions, exit codes, and what is said of settings in flags and files
that can't be understood. Nothing is served here."""
import os
import pty
import re
import subprocess

import pytest

from lib.server import binary, run

COMMANDS = ("serve", "pick", "infer", "ping", "bench")


def test_help_lists_each_command():
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.stdout, re.M)
    assert run("-h").stdout == run("help").stdout == done.stdout


def test_sluice_without_command_is_usage_error():
    done = run()
    assert done.returncode == 2 and done.stdout == "" and "usage: sluice" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_command(command):
    done = run(command, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"usage: sluice {command} ")
    assert "Examples" in done.stdout and "Exit codes" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert run("help", command).stdout == run(command, "x", "-h").stdout == done.stdout


@pytest.mark.parametrize("command, name", [("serve", "limits"), ("pick", "limits"), ("infer", "tensors"),
                                           ("bench", "load")])
def test_help_of_topic(command, name):
    """The first page names each flag and explains the most used; a topic, or all, explains the others."""
    short, whole = run(command, "--help").stdout, run(command, "--help", "all").stdout
    assert len(short.splitlines()) <= 90 < len(whole.splitlines())
    topic = run(command, "--help", name)
    assert topic.returncode == 0 and topic.stdout.lower().startswith(f"\n{name}") and topic.stdout in whole
    assert run("help", command, name).stdout == topic.stdout
    assert run(command, "-h", "--check").stdout == short
    for flag in re.findall(r"^  (?:-., )?(--[a-z0-9-]+)", whole, re.M):
        assert re.search(rf"{flag}\b", short), flag
    topics = re.findall(r"^  ([a-z]+) +--", short, re.M)
    assert name in topics and len(topics) == len(set(topics))
    wrong = run(command, "--help", name + "2")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert f'no help on "{name}2"; the topics are {", ".join(topics)}, all' in wrong.stderr


def test_help_colour_only_on_terminal():
    for colour in (True, False):
        ours, theirs = pty.openpty()
        environment = dict(os.environ, TERM="xterm", **({} if colour else {"NO_COLOR": "1"}))
        if colour:
            environment.pop("NO_COLOR", None)
        process = subprocess.Popen([binary(), "infer", "--help"], stdout=theirs, env=environment)
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError: # the other side was closed
                piece = b""
            if not piece:
                break
            text += piece
        os.close(ours)
        assert process.wait() == 0
        assert (b"\x1b[1m" in text) == colour and b"--dry-run" in text


def test_version_is_printed():
    done = run("--version")
    assert done.returncode == 0 and re.match(r"sluice \d+\.\d+\.\d+\ncommit ", done.stdout)


def test_help_to_full_disk_fails():
    with open("/dev/full", "wb") as full:
        for args in (["--help"], ["--version"], ["infer", "--help"]):
            done = subprocess.run([binary(), *args], stdout=full, stderr=subprocess.PIPE, check=False)
            assert done.returncode == 1, args


@pytest.mark.parametrize("args, says", [
    (["serv"], "did you mean serve?"),
    (["zzz"], "unknown command zzz"),
    (["help", "infre"], "did you mean infer?"),
    (["serve"], "nothing to serve"),
    (["serve", "--htpp", "x", "m"], "unknown flag --htpp; did you mean --http?"),
    (["serve", "--port", "80", "m"], "write --http HOST:PORT"),
    (["serve", "--http"], "--http needs a value: --http ADDR"),
    (["serve", "--workers", "-1", "m"], "expected a whole number from 0 to"),
    (["serve", "--max-body-size", "12Q", "m"], '"12Q"'),
    (["serve", "--idle-timeout", "0", "m"], "out of range: from 1ms to 24h"),
    (["serve", "--log-level", "loud", "m"], "error|warning|info|debug"),
    (["serve", "--check=yes", "m"], "--check takes no value"),
    (["serve", "--id", "a", "--id", "b", "m"], "--id is given twice"),
    (["infer"], "URL is missing"),
    (["infer", "http://h", "--input", "x=1"], "MODEL is missing"),
    (["infer", "http://h", "m", "more"], 'one argument too many: "more"'),
])
def test_usage_errors(args, says):
    done = run(*args)
    assert done.returncode == 2 and done.stdout == "" and says in done.stderr, done.stderr
    assert "--help" in done.stderr


@pytest.mark.parametrize("text, says", [
    ("workers: 2\nhtpp: x\n", r":2: .*htpp.*\"http\""),
    ("workers: many\n", r":1: .*workers"),
    ("workers: 5000\n", r":1: .*workers.*from 0 to 1024, got 5000"),
    ("\nmax-body-size: 3XB\n", r":2: .*max-body-size.*\"3XB\""),
    ("idle-timeout: soon\n", r":1: .*idle-timeout.*expected a time"),
    ("log-format: xml\n", r":1: .*log-format.*text\|json"),
    ("models:\n  - name: a\n", r":2: .*models\[0\].*path"),
    ("models: [\n", r":\d+: "),
    ("http: {a: b}\n", r":1: .*http"),
    ("check: true\n", r":1: .*check"),
])
def test_yaml_errors_name_file_and_line(tmp_path, text, says):
    path = tmp_path / "sluice.yaml"
    path.write_text(text)
    done = run("serve", "--config", path, "model.onnx")
    assert done.returncode == 2 and done.stdout == ""
    assert re.search(re.escape(str(path)) + says, done.stderr), done.stderr


def test_yaml_setting_is_overridden_by_flag(start_server, repositories, tmp_path):
    """The file's settings hold; a flag wins over them."""
    path = tmp_path / "sluice.yaml"
    path.write_text(f"models:\n  - {repositories('default')}\nid: from-file\nhttp: [127.0.0.1:1]\n"
                    "max-json-depth: 5\nworkers: 1\n")
    server = start_server("--config", path, "--workers", "2")
    url = f"http://{server.address}"
    done = run("infer", url, "id_fp32", "--input", "INPUT0=[[[[1]]]]", "--shape", "INPUT0=1",
               "--datatype", "INPUT0=FP32")
    assert done.returncode == 0, done.stderr
    curl = subprocess.run(["curl", "-sS", f"{url}/v2"], stdout=subprocess.PIPE, check=True)
    assert b'"from-file"' in curl.stdout
    deep = subprocess.run(["curl", "-sS", "-d", "[[[[[[1]]]]]]", f"{url}/v2/models/id_fp32/infer"],
                          stdout=subprocess.PIPE, check=True)
    assert b"--max-json-depth" in deep.stdout
