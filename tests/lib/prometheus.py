"""A strict reader of what /metrics says, in either format: what a careless reader would let pass is an
error. It knows no metric."""
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?|NaN|[+-]Inf")
KINDS = ("counter", "gauge", "histogram", "summary", "unknown")
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


class BadText(AssertionError):
    """The page is not in the format that it says."""


class Family:
    def __init__(self, name, text):
        self.name = name
        self.help = text
        self.kind = None
        self.samples = {}  # (name, labels as a sorted tuple of pairs) → value


def unescape(text):
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def read_labels(text, line):
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match or (match[3] == "," and match.end() == len(text)):
            raise BadText(f"not labels: {line!r}")
        if match[1] in labels:
            raise BadText(f"a label twice: {line!r}")
        labels[match[1]] = unescape(match[2])
        at = match.end()
    return tuple(sorted(labels.items()))


def read_sample(line):
    """name, labels, value."""
    name = NAME.match(line)
    if not name:
        raise BadText(f"not a sample: {line!r}")
    rest, labels = line[name.end():], ()
    if rest.startswith("{"):
        end = rest.rindex("}")
        labels, rest = read_labels(rest[1:end], line), rest[end + 1:]
    if not rest.startswith(" ") or not NUMBER.fullmatch(rest[1:]):
        raise BadText(f"not a value: {line!r}")
    return name[0], labels, float(rest[1:])


def check_name(family, name, openmetrics):
    if family.kind in PARTS:
        fits = name in [family.name + part for part in PARTS[family.kind]]
    elif family.kind == "counter" and openmetrics:
        fits = name == family.name + "_total"
    else:
        fits = name == family.name
    if not fits:
        raise BadText(f"{name} within the {family.kind} {family.name}")


def without_bound(labels):
    return tuple(pair for pair in labels if pair[0] not in ("le", "quantile"))


def check_summaries(family):
    """Each value has a quantile, and values that are there rise with it; a sum and a count are there."""
    quantiles = {}
    for (name, labels), value in family.samples.items():
        if family.kind == "summary" and name == family.name:
            quantiles.setdefault(without_bound(labels), []).append((float(dict(labels)["quantile"]), value))
    for labels, pairs in quantiles.items():
        known = [value for _, value in sorted(pairs) if value == value]
        if known != sorted(known) or len(known) not in (0, len(pairs)):
            raise BadText(f"quantiles of {family.name} {labels}: {pairs}")
        for part in PARTS["summary"][1:]:
            if (family.name + part, labels) not in family.samples:
                raise BadText(f"no {part} of {family.name} {labels}")


def check_histograms(family):
    """Bounds rise, counts never fall, and the last one is the count."""
    buckets = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            buckets.setdefault(without_bound(labels), []).append((float(dict(labels)["le"]), value))
    for labels, pairs in buckets.items():
        if pairs != sorted(pairs) or [count for _, count in pairs] != sorted(
                count for _, count in pairs) or pairs[-1][0] != float("inf"):
            raise BadText(f"buckets of {family.name} {labels}: {pairs}")
        if pairs[-1][1] != family.samples[family.name + "_count", labels]:
            raise BadText(f"the last bucket of {family.name} {labels} is not its count")
        if (family.name + "_sum", labels) not in family.samples:
            raise BadText(f"no sum of {family.name} {labels}")


def parse(text, openmetrics=False):
    """Returns: a dict of name → Family."""
    families, family = {}, None
    if not text.endswith("# EOF\n" if openmetrics else "\n"):
        raise BadText(f"a page that ends with {text[-20:]!r}")
    lines = text.splitlines()
    for line in lines[:-1] if openmetrics else lines:
        word, _, rest = line.partition(" ") if line.startswith("# ") else ("", "", line)
        if word == "#":
            what, name, value = rest.split(" ", 2)
            if what == "HELP" and name not in families:
                family = families[name] = Family(name, value)
            elif what == "TYPE" and family and family.name == name and not family.kind:
                family.kind = value
            else:
                raise BadText(f"out of place: {line!r}")
            if family.kind not in (None, *KINDS):
                raise BadText(f"no type: {line!r}")
            continue
        name, labels, value = read_sample(rest)
        if not family or not family.kind or (name, labels) in family.samples:
            raise BadText(f"out of place: {line!r}")
        check_name(family, name, openmetrics)
        if family.kind == "counter" and value < 0:
            raise BadText(f"a counter below 0: {line!r}")
        family.samples[name, labels] = value
    for family in families.values():
        if not family.kind:
            raise BadText(f"{family.name} has no type")
        check_histograms(family)
        check_summaries(family)
    return families


def value(families, sample, **labels):
    """The value of one sample; None when it is not there."""
    for family in families.values():
        found = family.samples.get((sample, tuple(sorted(labels.items()))))
        if found is not None:
            return found
    return None
