"""A real Triton: TRITON is the folder of its server (tools/test-triton)."""
import contextlib
import os
import subprocess
import time
import urllib.request

TRITON = os.environ.get("TRITON", "")
START_S = 120


@contextlib.contextmanager
def triton(http, grpc, log, *options, models, key="", at="ready"):
    """A server that is ready, or `at` "live": its ports are given, as it can't choose them itself. `key`: what it wants
    for its health. Yields: its process."""
    with open(log, "ab") as out:
        started = subprocess.Popen(
            [f"{TRITON}/bin/tritonserver", f"--model-repository={models}", f"--backend-directory={TRITON}/backends",
             "--http-address=127.0.0.1", f"--http-port={http}", "--grpc-address=127.0.0.1", f"--grpc-port={grpc}",
             "--allow-metrics=false", *options], stdout=out, stderr=out,
            env=os.environ | {"LD_LIBRARY_PATH": os.path.join(TRITON, "..", "..", "nvidia_pytriton.libs")})
    health = urllib.request.Request(f"http://127.0.0.1:{http}/v2/health/{at}", headers={"Authorization": key})
    try:
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(health):
                break
            with open(log, encoding="utf-8", errors="replace") as text:
                assert started.poll() is None and time.monotonic() < end, text.read()[-3000:]
            time.sleep(0.1)
        yield started
    finally:
        started.terminate()
        started.wait(START_S)
