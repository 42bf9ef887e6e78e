"""The demonstration behind `make demo`: serves the digits model and classifies pictures it has never
seen, through JSON, binary tensor data and raw binary requests. Ends by itself.

    demo.py SLUICE MODEL.onnx HELDOUT.npz"""

import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

from ask import Client
from draw import bad, bold, dim, good, png, rows

PICTURE_COLUMNS = 16
PER_ROW = 4


class Server:
    """`sluice serve` on a port of the system's choosing, ended by its own process id."""

    def __init__(self, program, model):
        self.folder = tempfile.TemporaryDirectory()
        ready = pathlib.Path(self.folder.name, "ready")
        self.child = subprocess.Popen(
            [program, "serve", f"digits={model}", "--http", "127.0.0.1:0", "--grpc", "none",
             "--metrics", "none", "--ready-file", ready, "--log-level", "warning"])
        end = time.monotonic() + 60
        while not ready.exists():
            if self.child.poll() is not None or time.monotonic() > end:
                raise SystemExit("demo: the server did not come up")
            time.sleep(0.02)
        self.port = int(ready.read_text().split("127.0.0.1:")[1].split()[0])

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        code = self.child.wait(30)
        self.folder.cleanup()
        if code != 0:
            raise SystemExit(f"demo: the server ended with {code}")


def best(outputs):
    """The most probable digit, and how probable."""
    probabilities = outputs["probabilities"]
    digit = max(range(len(probabilities)), key=probabilities.__getitem__)
    return digit, probabilities[digit]


def verdict(truth, digit, milliseconds):
    """Padded before it is coloured: escape codes have no width."""
    word, colour = ("right", good) if truth == digit else (f"but a {truth}", bad)
    time_text = f", {milliseconds:.2f} ms"
    return colour(word) + f"{time_text:<{PICTURE_COLUMNS - len(word)}}"


def show(title, sentence, answers):
    """A row of pictures, with what the model said under each."""
    print(f"\n{bold(title)}  {dim(sentence)}\n")
    for start in range(0, len(answers), PER_ROW):
        group = answers[start:start + PER_ROW]
        for line in zip(*(rows(picture) for picture, *_ in group)):
            print("   " + "    ".join(line))
        print("   " + "    ".join(f"{f'it is {digit} ({share:.0%})':<{PICTURE_COLUMNS}}"
                                  for _, _, digit, share, _ in group).rstrip())
        print("   " + "    ".join(verdict(truth, digit, milliseconds)
                                  for _, truth, digit, _, milliseconds in group).rstrip())


def classify(client, ask, pictures, labels):
    answers = []
    for picture, label in zip(pictures, labels):
        digit, share = best(ask([float(value) for value in picture.reshape(-1)]))
        shown = picture.reshape(8, 8) / max(1e-9, float(picture.max()))
        answers.append((shown.tolist(), int(label), digit, share, client.seconds * 1e3))
    return answers


def accuracy(client, name, shape, pictures, labels):
    """The whole held-out set, one picture a request, in binary. Prints accuracy, times, and the first
    of the mistakes."""
    answers = classify(client, lambda values: client.binary(name, shape, values), pictures, labels)
    wrong = [answer for answer in answers if answer[1] != answer[2]]
    times = sorted(milliseconds for *_, milliseconds in answers)
    right = len(answers) - len(wrong)
    if wrong:
        show("Mistakes", f"the first of {len(wrong)} in {len(answers)} digits it had not seen",
             wrong[:PER_ROW])
    print(f"\n{bold('The whole held-out set')}  {right} of {len(answers)} right "
          f"({right / len(answers):.1%})\n{dim('a request')}  median {statistics.median(times):.2f} ms, "
          f"99 % below {times[int(len(times) * 0.99)]:.2f} ms, Python's share included")


def main(program, model, heldout):
    data = numpy.load(heldout)
    pictures, labels = data["images"].astype(numpy.float32), data["labels"]
    digit = pathlib.Path(model).with_name("digit.npy")
    numpy.save(digit, pictures[:1])
    digit.with_suffix(".png").write_bytes(png((pictures[0].reshape(8, 8) / 16).tolist(), 20))
    server = Server(program, model)
    try:
        client = Client("127.0.0.1", server.port, "digits")
        first = client.metadata()["inputs"][0]
        name, shape = first["name"], [1] + first["shape"][1:]
        forms = [("JSON", "numbers as text, what curl sends",
                  lambda values: client.json(name, shape, values)),
                 ("Binary tensor data", "JSON, then the bytes of the tensor",
                  lambda values: client.binary(name, shape, values)),
                 ("Raw binary", "the bytes of the tensor and nothing else", client.raw)]
        for i, (title, sentence, ask) in enumerate(forms):
            part = slice(i * PER_ROW, (i + 1) * PER_ROW)
            show(title, sentence, classify(client, ask, pictures[part], labels[part]))
        accuracy(client, name, shape, pictures, labels)
    finally:
        server.stop()
    print(f"\nTo keep a server running:\n\n    {program} serve digits={model}\n\nand, in another "
          f"terminal:\n\n    curl -s http://127.0.0.1:8000/v2/models/digits\n"
          f"    {program} infer http://127.0.0.1:8000 digits --input image=@{digit}\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
