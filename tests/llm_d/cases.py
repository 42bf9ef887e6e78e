"""What is compared: a configuration of each plugin, those of the guides and samples, and for each pool the requests."""
import json
import os

import yaml

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interop", "pick", "llm_d")
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


NO_STEPS = ("-producer", "-handler", "-decider", "-extractor")


def profile(*plugins, weights=None):
    """A configuration of one profile with these plugins, in their order. A plugin is a type, or one with parameters."""
    listed = [plugin if isinstance(plugin, dict) else {"type": plugin} for plugin in plugins]
    steps = [{"pluginRef": plugin.get("name", plugin["type"])} for plugin in listed
             if not plugin["type"].endswith(NO_STEPS)]
    for step, weight in zip(steps, weights or ()):
        step["weight"] = weight
    return {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": listed,
            "schedulingProfiles": [{"name": "default", "plugins": steps}]}


def plugin(kind, **parameters):
    return {"type": kind, "parameters": parameters}


def disagg(decider, decode, prefill, **more):
    """Two profiles and the handler."""
    config = profile("decode-filter", "prefill-filter", decider, *{**dict.fromkeys([*decode, *prefill])},
                     plugin("disagg-profile-handler", deciders={"prefill": decider if isinstance(decider, str)
                                                                else decider["type"]}, **more))
    config["schedulingProfiles"] = [
        {"name": name, "plugins": [{"pluginRef": one} for one in (f"{name}-filter", *steps) if not one.endswith(NO_STEPS)]}
        for name, steps in (("decode", decode), ("prefill", prefill))]
    return config


PLUGINS = {
    "queue-scorer": profile("queue-scorer"),
    "kv-cache-utilization-scorer": profile("kv-cache-utilization-scorer"),
    "running-requests-size-scorer": profile("running-requests-size-scorer"),
    "load-aware-scorer": profile("load-aware-scorer"),
    "load-aware-scorer-threshold": profile(plugin("load-aware-scorer", threshold=3)),
    "active-request-scorer": profile("active-request-scorer"),
    "active-request-scorer-idle": profile(plugin("active-request-scorer", idleThreshold=1, maxBusyScore=0.5)),
    "token-load-scorer": profile("inflight-load-producer", "token-load-scorer"),
    "token-load-scorer-threshold": profile("inflight-load-producer", plugin("token-load-scorer", queueThresholdTokens=6000)),
    "token-load-scorer-cached": profile("approx-prefix-cache-producer", "inflight-load-producer",
                                        plugin("token-load-scorer", queueThresholdTokens=6000)),
    "token-load-scorer-output": profile(plugin("inflight-load-producer", addEstimatedOutputTokens=True),
                                        plugin("token-load-scorer", queueThresholdTokens=60000)),
    "prefix-cache-scorer": profile("prefix-cache-scorer"),
    "prefix-cache-scorer-length": profile(plugin("prefix-cache-scorer", matchLengthWeight=0.5, matchLengthScaleTokens=600)),
    "prefix-cache-scorer-blocks": profile(plugin("approx-prefix-cache-producer", blockSizeTokens=128, autoTune=False,
                                                 maxPrefixTokensToMatch=1024), "prefix-cache-scorer"),
    "prefix-cache-scorer-capacity": profile(plugin("approx-prefix-cache-producer", autoTune=False, lruCapacityPerServer=45),
                                            "prefix-cache-scorer"),
    "prefix-cache-affinity-filter": profile("prefix-cache-affinity-filter", "queue-scorer"),
    "prefix-cache-affinity-filter-half": profile(plugin("prefix-cache-affinity-filter", affinityThreshold=0.4,
                                                        maxTTFTPenaltyMs=0), "queue-scorer"),
    "prefix-cache-affinity-filter-slow": profile(
        "inflight-load-producer", plugin("prefix-cache-affinity-filter", affinityThreshold=0.4, maxTTFTPenaltyMs=300,
                                         peakPrefillThroughput=1000), "queue-scorer"),
    "prefix-cache-affinity-filter-tokens": profile(
        "approx-prefix-cache-producer", "inflight-load-producer", "prefix-cache-affinity-filter", "token-load-scorer"),
    "lora-affinity-scorer": profile("lora-affinity-scorer"),
    "lora-affinity-scorer-queue": profile("lora-affinity-scorer", "queue-scorer", weights=(1, 2)),
    "session-affinity-scorer": profile("session-affinity-scorer", "queue-scorer", weights=(2, 1)),
    "session-affinity-filter": profile("session-affinity-filter", "queue-scorer"),
    "session-affinity-filter-id": profile(plugin("session-affinity-filter", strategy="session_id"), "queue-scorer"),
    "session-affinity-scorer-id": profile(
        plugin("session-id-producer", headerName="X-Session-Id"),
        {**plugin("session-id-producer", cookieName="llm-d-session"), "name": "cookies"},
        plugin("session-affinity-scorer", strategy="session_id", sessionIdConfig={"sources": [
            {"attribute": "SessionIDDataKey", "producer": "cookies"},
            {"attribute": "SessionIDDataKey", "producer": "session-id-producer"}]}), "queue-scorer", weights=(2, 1)),
    "utilization-detector": profile(plugin("utilization-detector", queueDepthThreshold=3, kvCacheUtilThreshold=0.5, headroom=0.4,
                                           metricsStalenessThreshold="10s"), "running-requests-size-scorer"),
    "utilization-detector-default": profile(plugin("utilization-detector", metricsStalenessThreshold="10s"),
                                            "kv-cache-utilization-scorer"),
    "concurrency-detector": profile(plugin("concurrency-detector", maxConcurrency=1, headroom=1.1), "queue-scorer"),
    "concurrency-detector-tokens": profile(
        "inflight-load-producer", plugin("concurrency-detector", concurrencyMode="tokens", maxTokenConcurrency=400,
                                         headroom=0.5), "queue-scorer"),
    "concurrency-detector-hybrid": profile(
        "inflight-load-producer", plugin("concurrency-detector", concurrencyMode="hybrid", maxTokenConcurrency=2000,
                                         maxConcurrency=2), "running-requests-size-scorer"),
    "no-hit-lru-scorer": profile("no-hit-lru-scorer", "prefix-cache-scorer"),
    "context-length-aware": profile("context-length-aware", "queue-scorer", weights=(3, 1)),
    "context-length-aware-filter": profile(plugin("context-length-aware", enableFiltering=True), "queue-scorer"),
    "header-label-affinity-scorer": profile(plugin("header-label-affinity-scorer", headerName="x-zone", labelKey="zone"), "queue-scorer", weights=(2, 1)),
    "label-selector-filter": profile(plugin("label-selector-filter", matchLabels={"zone": "z1"}), "queue-scorer"),
    "label-selector-filter-expressions": profile(plugin("label-selector-filter", matchExpressions=[
        {"key": "gpu", "operator": "NotIn", "values": ["b"]},
        {"key": "llm-d.ai/context-length-range", "operator": "Exists"}]), "queue-scorer"),
    "decode-filter": profile("decode-filter", "queue-scorer"),
    "prefill-filter": profile("prefill-filter", "queue-scorer"),
    "encode-filter": profile("encode-filter", "queue-scorer"),
    "utilization-filter": profile(plugin("utilization-filter", fallbackOnEmpty=True, conditions=[
        {"metric": "waiting-queue", "maxValue": 2}, {"metric": "kv-cache-utilization", "maxValue": 0.6}]), "queue-scorer"),
    "utilization-filter-empty": profile(plugin("utilization-filter", conditions=[
        {"metric": "running-requests", "maxValue": 6}, {"metric": "active-requests", "maxValue": 1}]),
        "running-requests-size-scorer"),
    "default-scorers": profile("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", weights=(2, 2, 3)),
    "random-picker": profile(plugin("label-selector-filter", matchLabels={"zone": "z1"}), "random-picker"),
    "weighted-random-picker": profile("decode-filter", "queue-scorer", "weighted-random-picker"),
    "disagg-always": disagg("always-disagg-pd-decider", ("queue-scorer",), ("kv-cache-utilization-scorer",)),
    "disagg-prefix": disagg(plugin("prefix-based-pd-decider", nonCachedTokens=100),
                            ("prefix-cache-scorer", "queue-scorer"), ("kv-cache-utilization-scorer",)),
    "disagg-prefix-long": disagg(plugin("prefix-based-pd-decider", nonCachedTokens=64, promptTokens=300),
                                 ("prefix-cache-scorer", "queue-scorer"), ("prefix-cache-scorer", "queue-scorer")),
    "disagg-topology": disagg("always-disagg-pd-decider", ("queue-scorer",),
                              ("topology-extractor", "topology-affinity-filter", "topology-affinity-scorer",
                               "kv-cache-utilization-scorer")),
}


def published():
    """The configurations of guides and samples, by name."""
    found = {}
    for kind in ("guides", "router"):
        with open(os.path.join(DATA, f"{kind}.yaml"), encoding="utf-8") as file:
            found |= {f"{kind}/{name}": config for name, config in yaml.safe_load(file).items()}
    return found


def alone(config):
    """By name, each profile of several as the only one: there the router says the scores, which it does not say of the
    stages before or after the destination's."""
    profiles = config.get("schedulingProfiles") or []
    kept = [plugin for plugin in config["plugins"] if not plugin["type"].endswith(("-handler", "-decider", "-screener"))]
    return {profile["name"]: {**config, "plugins": kept, "schedulingProfiles": [profile]} for profile in profiles
            if len(profiles) > 1}


def all_cases():
    found = {**PLUGINS, **published()}
    return {name + (f"#{profile}" if profile else ""): each for name, config in found.items()
            for profile, each in {"": config, **alone(config)}.items()}


def has_roles(config):
    return any(plugin["type"] in ("decode-filter", "prefill-filter", "encode-filter") for plugin in config["plugins"])


def detectors(config, kind):
    return [plugin.get("parameters") or {} for plugin in config["plugins"] if plugin["type"] == kind]


def may_hold_requests(config):
    """Not where a pool as a whole would be saturated by those that stay in flight: others would wait for their end."""
    gated = "flowControl" in (config.get("featureGates") or [])
    return not gated or all(one.get("maxConcurrency", 100) > 5 for one in detectors(config, "concurrency-detector"))


def with_patience(config):
    """With flow control llm-d's own detector holds requests back where loads are older than 200 ms, as they are on a busy
    machine."""
    refers = (config.get("flowControl") or {}).get("saturationDetector") or config.get("saturationDetector")
    if "flowControl" in (config.get("featureGates") or []) and not refers and config.get("schedulingProfiles") and not detectors(
            config, "utilization-detector"):
        config["plugins"].append({"type": "utilization-detector", "parameters": {"metricsStalenessThreshold": "10s"}})
    return config


# ---- requests -----------------------------------------------------------------------------------------

def text(random, n):
    """About n characters that no other prompt begins with."""
    found = f"{random.getrandbits(48):012x} "
    while len(found) < n:
        found += random.choice(WORDS) + " "
    return found[:n]


CHAT = "/v1/chat/completions"


def body(prompt, model="m", chat=False, most_tokens=None, picture=False):
    more = {} if most_tokens is None else {"max_tokens": most_tokens}
    if not chat:
        return "/v1/completions", json.dumps({"model": model, "prompt": prompt, **more}).encode()
    content = prompt if not picture else [
        {"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}]
    messages = [{"role": "system", "content": prompt[:len(prompt) // 2]}, {"role": "user", "content": content}]
    return CHAT, json.dumps({"model": model, "messages": messages, **more}).encode()
