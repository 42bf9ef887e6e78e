#!/usr/bin/env python3
"""Checks each configuration of an endpoint picker in checkouts of llm-d and llm-d-router with `sluice pick --check`.

  tests/llm_d/check_guides.py CHECKOUT...

A configuration is a mapping of kind EndpointPickerConfig in a YAML or JSON file, or a text with one in it: of a ConfigMap,
of `pluginsCustomConfig` in a values file, of an argument `--config-text`. Its flags are those that the same file has for
the picker: `flags` of a values file, arguments of a container. What is not YAML by itself, as the templates of charts, is
counted; `testdata` is left out, with plugins that exist in unit tests only. SLUICE_BUILD is the build that checks.

Prints a row for each, accepted or refused with the sentence. Ends with 1 where a sentence is none of those that
tests/interop/pick/test_pick_guides.py expects for its plugins, or where one that is expected is missing."""
import argparse
import pathlib
import re
import sys
import tempfile

import yaml

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "interop" / "pick")]
from lib.server import run  # noqa: E402
import test_pick_guides as guides  # noqa: E402

KIND = "EndpointPickerConfig"
SUFFIXES = (".yaml", ".yml", ".json")
# Of the deployment: a cluster, files of it, and the configuration itself.
NOT_PASSED = ("pool-name", "pool-namespace", "pool-group", "endpoint-selector", "endpoint-target-ports", "config-file",
              "config-text", "cert-path", "ha-enable-leader-election", "kubeconfig", "metrics-cert-dir",
              "metrics-client-ca-file")
# Fields that llm-d-router does not know either: of a draft, and of a sample that was not renamed.
UNKNOWN_TO_BOTH = re.compile(r'unknown field ".*\.(maxTokensInFlightPenalty|cacheSizeInMB)"')
# What follows from a source that is refused: its extractors are no extractors of another one.
OF_REFUSED_SOURCE = re.compile(r'^dataLayer\.sources\[\d+\]\.extractors\[\d+\]\.pluginRef: ".*" is not one of: ')


class Loader(yaml.SafeLoader):
    """Tags of tools (CloudFormation, Helm plugins) are not followed."""


Loader.add_multi_constructor("", lambda loader, _, node: None)


def documents(text):
    """Those of a file; None where it is not YAML."""
    try:
        return [one for one in yaml.load_all(text, Loader) if one is not None]
    except (yaml.YAMLError, ValueError):
        return None


def walk(node, path=""):
    """Each (path, mapping or text) in a document."""
    yield path, node
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, part in parts:
        yield from walk(part, f"{path}.{name}" if path else str(name))


def configurations(node):
    """Each (path, configuration) in a document, also in its texts."""
    for path, part in walk(node):
        if isinstance(part, dict) and part.get("kind") == KIND:
            yield path, part
        elif isinstance(part, str) and f"kind: {KIND}" in part:
            for inner in documents(part) or [None]:
                yield from ((f"{path}{'.' if more else ''}{more}", one) for more, one in configurations(inner))


def flags_in(node):
    """The picker's, in a document."""
    found = []
    for path, part in walk(node):
        name = path.rpartition(".")[2]
        if name == "flags" and isinstance(part, dict):
            found += [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in part.items()]
        elif name in ("args", "command") and isinstance(part, list) and any(
                str(one).startswith(("--config-file", "--config-text", "--pool-name")) for one in part):
            found += joined([str(one) for one in part])
    return [one for one in found if one.lstrip("-").partition("=")[0] not in NOT_PASSED]


def joined(words):
    """`--name value` as one word."""
    found = []
    for word in words:
        if word.startswith("-"):
            found.append(word)
        elif found and "=" not in found[-1]:
            found[-1] += "=" + word
    return found


def check(config, flags, folder):
    """Returns: the refusing sentences, and whether they are what is expected."""
    plugins = config.get("plugins")
    is_usual = isinstance(plugins, list) and plugins and all(isinstance(one, dict) and "type" in one for one in plugins)
    why = guides.reasons(config) if is_usual else set()
    text = guides.text_of(config, folder) if is_usual else yaml.safe_dump(config)
    done = run("pick", "--config-text", text, *flags, *([] if is_usual else ["--endpoint", "10.0.0.1:8000"]), "--check")
    lines = [line for line in done.stderr.splitlines() if "pick:" in line] if done.returncode else []
    said = [re.sub(r"^.*?pick: (?:--config-text:)?(?:\d+: )?", "", line) for line in lines]
    has_refused_source = guides.NO_EVENTS in why
    is_expected = bool(said) == (done.returncode != 0) and all(
        any(one in line for one in why) or UNKNOWN_TO_BOTH.search(line)
        or (has_refused_source and OF_REFUSED_SOURCE.search(line)) for line in said)
    missing = [one for one in why if not any(one in line for line in said) and not one.startswith("unknown field")]
    return said, is_expected and not missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=pathlib.Path)
    rows, unread, failed = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for checkout in parser.parse_args().checkouts:
            files = sorted(path for path in checkout.rglob("*") if path.suffix in SUFFIXES and path.is_file()
                           and not {".git", "testdata"} & set(path.relative_to(checkout).parts))
            for path in files:
                text = path.read_text(encoding="utf-8", errors="replace")
                if KIND not in text:
                    continue
                found = documents(text)
                if found is None:
                    unread += 1
                    print(f"{path.relative_to(checkout)}: a template, not checked")
                    continue
                flags = flags_in(found)
                for where, config in configurations(found):
                    said, is_expected = check(config, flags, pathlib.Path(folder))
                    result = "accepted" if not said else "refused" if is_expected else "REFUSED"
                    result = result if said or is_expected else "ACCEPTED, but a refusal is expected"
                    rows.append(is_expected)
                    failed += not is_expected
                    print(f"{path.relative_to(checkout)} [{where}]: {result}", *said, sep="\n    ", flush=True)
    print(f"{len(rows)} configurations, {failed} unexpected results, {unread} templates")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
