"""Configurations of a picker in upstream's language, with the endpoints that ours adds."""
import yaml


def upstream_config(plugins, endpoints, **more):
    """`endpoints`: addresses, or objects with labels; `more`: further members of upstream's object."""
    upstream = {"apiVersion": "llm-d.ai/v1", "kind": "EndpointPickerConfig", "plugins": plugins, **more}
    return with_endpoints(upstream, endpoints)


def with_endpoints(upstream, endpoints, **ours):
    """`ours`: further members of our own document."""
    return "---\n".join(yaml.safe_dump(one, sort_keys=False) for one in (upstream, {"endpoints": endpoints, **ours}))
