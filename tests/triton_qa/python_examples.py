"""The examples of Triton's python_backend repository, as they are: python_examples.py CHECKOUT. Each has its models
in a repository as its README says, `sluice tritonserver` serves it at Triton's ports, and its clients must end with
their own word PASS."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLUICE = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build"), "sluice")
READY_S = 120
CLIENT_S = 300

# name: (models: {name: (model file, configuration or None)}, clients)
ADD_SUB = {"add_sub": ("add_sub/model.py", "add_sub/config.pbtxt")}
# The clients of bls ask for a model `pytorch`, which needs that package: it is another add_sub here.
BOTH = {**ADD_SUB, "pytorch": ("add_sub/model.py", "add_sub/config.pbtxt")}
SQUARE = {"square_int32": ("decoupled/square_model.py", "decoupled/square_config.pbtxt")}
EXAMPLES = {
    "add_sub": (ADD_SUB, ["add_sub/client.py"]),
    "auto_complete": ({f"{kind}_auto_complete": (f"auto_complete/{kind}_model.py", None) for kind in ("nobatch", "batch")},
                      ["auto_complete/client.py"]),
    "bls": ({**BOTH, **{f"bls_{kind}": (f"bls/{kind}_model.py", f"bls/{kind}_config.pbtxt") for kind in ("sync", "async")}},
            ["bls/sync_client.py", "bls/async_client.py"]),
    "bls_decoupled": ({**SQUARE, **{f"bls_decoupled_{kind}": (f"bls_decoupled/{kind}_model.py",
                                                             f"bls_decoupled/{kind}_config.pbtxt")
                                    for kind in ("sync", "async")}},
                      ["bls_decoupled/sync_client.py", "bls_decoupled/async_client.py"]),
    "custom_metrics": ({"custom_metrics": ("custom_metrics/model.py", "custom_metrics/config.pbtxt")},
                       ["custom_metrics/client.py"]),
    "decoupled": ({**SQUARE, "repeat_int32": ("decoupled/repeat_model.py", "decoupled/repeat_config.pbtxt")},
                  ["decoupled/repeat_client.py", "decoupled/square_client.py"]),
}
NOT_RUN = {
    "instance_kind": "needs torch and torchvision, and downloads a model",
    "jax": "needs jax",
    "preprocessing": "needs a TensorRT engine",
    "pytorch": "needs torch",
}


def write_models(examples, models, folder):
    for name, (source, config) in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        shutil.copy(examples / source, version / "model.py")
        if config:
            text = (examples / config).read_text()
            if name == "pytorch":
                text = text.replace('name: "add_sub"', 'name: "pytorch"')
            (folder / name / "config.pbtxt").write_text(text)


def is_ready():
    try:
        with urllib.request.urlopen("http://localhost:8000/v2/health/ready", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def run(examples, name):
    """Returns: what failed, as text; None: nothing."""
    models, clients = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "w+b") as log:
        write_models(examples, models, pathlib.Path(folder, "models"))
        server = subprocess.Popen([SLUICE, "tritonserver", f"--model-repository={folder}/models"], stdout=log, stderr=log,
                                  env=os.environ | {"VIRTUAL_ENV": sys.prefix})
        try:
            end = time.monotonic() + READY_S
            while not is_ready():
                if server.poll() is not None or time.monotonic() > end:
                    return "the server is not ready:\n" + pathlib.Path(folder, "log").read_text()[-3000:]
                time.sleep(0.1)
            for client in clients:
                done = subprocess.run([sys.executable, examples / client], capture_output=True, text=True, timeout=CLIENT_S,
                                      check=False, cwd=examples.parent)
                if done.returncode or "PASS" not in done.stdout:
                    return f"{client}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        finally:
            server.terminate()
            code = server.wait(READY_S)
        return None if code == 0 else f"the server ended with {code}:\n" + pathlib.Path(folder, "log").read_text()[-3000:]


def main():
    examples = pathlib.Path(sys.argv[1]).resolve() / "examples"
    unknown = {path.name for path in examples.iterdir() if path.is_dir()} - set(EXAMPLES) - set(NOT_RUN)
    failed = [f"{name}: no row here" for name in sorted(unknown)]
    for name in EXAMPLES:
        problem = run(examples, name)
        print(f"{name}: {'passed' if problem is None else 'FAILED'}", flush=True)
        if problem is not None:
            print(problem)
            failed.append(name)
    for name, reason in NOT_RUN.items():
        print(f"{name}: not run, {reason}")
    print(f"{len(EXAMPLES) - len(failed)} passed, {len(failed)} failed, {len(NOT_RUN)} not run")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
