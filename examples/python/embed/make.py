#!/usr/bin/env python3
"""Makes a repository of models that turn a text into an embedding: examples/python/embed/make.py FOLDER

`tokenizer` is the program tokenizer.py, beside this one; the ONNX file of `encoder` and the ensemble `embed` are those of
examples/text/make.py, whose tokenizer is an operator of ONNX Runtime instead."""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "text"))
import make as text  # noqa: E402


def main(folder):
    version = os.path.join(folder, "tokenizer", "1")
    os.makedirs(version)
    shutil.copy(os.path.join(HERE, "tokenizer.py"), os.path.join(version, "model.py"))
    with open(os.path.join(version, "vocabulary.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(text.WORDS))
    text.write(folder, "encoder", text.make_encoder())
    text.write_embed(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
