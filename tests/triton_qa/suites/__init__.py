"""The suites: which models, arguments and environment each of Triton's tests is run with, as its test.sh has them, as far as
they can be run against a server from outside, with models in ONNX on a CPU."""
from suites import examples, http, infer, lifecycle, operations, scheduling

ALL = [*http.SUITES, *infer.SUITES, *scheduling.SUITES, *operations.SUITES, *lifecycle.SUITES, *examples.SUITES]
