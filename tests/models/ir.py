#!/usr/bin/env python3
"""Makes models in OpenVINO's own format (IR: an XML file with the weights beside it) of ONNX models that
make.py has made, and files that only look like some.

usage: ir.py MODELS [--refused DIR]

MODELS/ir_NAME/1/model.xml and model.bin are MODELS/NAME. With --refused, DIR gets those that must not
load."""

import argparse
import pathlib

import openvino

NEWER = '<?xml version="1.0"?>\n<net name="x" version="99"><layers></layers><edges></edges></net>\n'


def convert(models, name):
    """Returns: the XML file. Weights keep their 32 bits."""
    source = pathlib.Path(models, name, "1", "model.onnx")
    target = pathlib.Path(models, f"ir_{name}", "1", "model.xml")
    target.parent.mkdir(parents=True, exist_ok=True)
    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(target), compress_to_fp16=False)
    return target


def refuse(folder, source):
    """A file that ends early, one of a version to come, and one whose weights do."""
    text, weights = source.read_text(encoding="utf-8"), source.with_suffix(".bin").read_bytes()
    for name, xml, binary in (("cut", text[:len(text) // 2], weights), ("newer", NEWER, b""),
                              ("weights", text, weights[:1000])):
        path = pathlib.Path(folder, f"refused_ir_{name}", "1", "model.xml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(xml, encoding="utf-8")
        path.with_suffix(".bin").write_bytes(binary)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models")
    parser.add_argument("--refused", metavar="DIR")
    options = parser.parse_args()
    source = convert(options.models, "mlp")
    for name in ("onnx_scalar_fixed", "onnx_loop", "onnx_fill", "follows_pairs", "values_expand", "values_steps"):
        convert(options.models, name)
    if options.refused:
        refuse(options.refused, source)


if __name__ == "__main__":
    main()
