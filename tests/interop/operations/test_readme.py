"""What README.md tells a newcomer to type: `make demo` without the make, then its commands and its
Python, against the model and the picture that the demo leaves behind."""
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from lib import http1, server

with open(os.path.join(server.ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def commands(word):
    """The command lines of README that run `build/sluice WORD`, as arguments."""
    lines = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]
    return [shlex.split(line, comments=True)[2:] for line in lines
            if line.startswith(f"build/sluice {word}")]


def here(text):
    """The same with the build under test in place of build/."""
    return text.replace("build/demo/", os.path.join(server.build(), "demo/"))


@pytest.fixture(scope="module")
def demo():
    done = subprocess.run([os.path.join(server.ROOT, "tools", "demo")], text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"SLUICE_BUILD": server.build()},
                          timeout=10 * http1.PATIENCE)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def digits(demo, start_server):
    """The server of README's first command."""
    assert demo
    arguments = [here(argument) for argument in commands("serve")[0]]
    return start_server(*arguments)


def test_demo_prints_forms_and_accuracy(demo):
    for title in ("JSON", "Binary tensor data", "Raw binary"):
        assert re.search(rf"^{title}  ", demo, re.MULTILINE), demo
    assert float(re.search(r"of 450 right \(([0-9.]+)%\)", demo)[1]) >= 95, demo
    assert "\x1b" not in demo  # not a terminal
    # lines with a path are as long as the path
    assert max(len(line) for line in demo.splitlines() if server.build() not in line) <= 80


def test_readme_commands_work(digits):
    url = f"http://{digits.address}"
    answers = []
    for arguments in commands("infer http:"):
        arguments = [here(argument).replace("http://127.0.0.1:8000", url) for argument in arguments]
        done = server.run("infer", *arguments)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    outputs = json.loads(answers[0])["outputs"]
    assert {output["name"] for output in outputs} == {"probabilities", "label"}
    assert "curl -sS" in answers[1]


def test_readme_picture_example_works(demo, start_server, tmp_path):
    """Its configuration, but for a port that may be taken."""
    assert demo
    flag, config = commands("serve --config")[0]
    with open(os.path.join(server.ROOT, config), encoding="utf-8") as file:
        text = here(file.read())
    [url] = re.findall(r"tcp://\S+(?==digits)", text)
    (tmp_path / "mip.yaml").write_text(text.replace(url, "tcp://127.0.0.1:0"))
    running = start_server(flag, tmp_path / "mip.yaml")
    [arguments] = commands("infer tcp:")
    done = server.run("infer", *(here(argument).replace(url, running.mip_urls[0])
                                 for argument in arguments))
    assert done.returncode == 0, done.stderr
    [probabilities, label] = json.loads(done.stdout)
    assert list(probabilities)[0] == str(label) and len(probabilities) == 3


def test_readme_python_works(digits):
    [program] = [text for kind, text in BLOCKS if kind == "python"]
    program = here(program).replace("127.0.0.1:8000", digits.address)
    done = subprocess.run([sys.executable, "-c", program], text=True, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=http1.PATIENCE)
    assert done.returncode == 0, done.stderr
    probabilities = [float(number) for number in re.findall(r"[0-9.e+-]+", done.stdout)]
    assert len(probabilities) == 10 and abs(sum(probabilities) - 1) < 1e-3
