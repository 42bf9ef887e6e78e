#!/usr/bin/env python3
"""The same requests to llm-d-router's endpoint picker and to ours, with the same configuration and the same endpoints: is
the same endpoint picked?

  tests/llm_d/compare_picks.py ROUTER [--pools N] [--seed N] [--only TEXT] [--jobs N]

ROUTER is a built llm-d-router (its cmd/epp). SLUICE_BUILD is the build that is compared. For each configuration (one for each plugin, and those of llm-d's guides and
of the router's samples, tests/interop/pick/llm_d) N pools are drawn (20), with labels, loads, adapters, prompts that
were sent before and requests in flight. llm-d-router says the score of each endpoint: ours must pick one of the best, and its list of the
next best must have the same endpoints in an order that these scores allow. Where pickers draw, only the sets are
compared.

Prints a row for each configuration, each difference with its pool, request and scores, and the totals. Ends with 1 where
there is a difference that EXPECTED does not explain."""
import argparse
import collections
import concurrent.futures
import contextlib
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time

import both
import cases
import fleet

BATCH = 40      # pools that are served at the same time
SCRAPES_PER_SECOND = 1000  # of all endpoints by both: decides the interval
# Where endpoints of other pools would count, each pool has pickers of its own, and this part of the pools is drawn, or so many.
FRESH_PART, FEWEST = 10, 20
CLOSE = 1e-5    # scores that differ by less are equal: ours are floats of 32 bits
DRAWN = ("random-picker", "weighted-random-picker")
# Scorers and filters by what an endpoint reports or is: among the pools of a profile of these nothing is tied.
REPORTED = ("queue-scorer", "kv-cache-utilization-scorer", "running-requests-size-scorer", "decode-filter",
            "prefill-filter", "encode-filter", "topology-affinity-filter", "topology-affinity-scorer", "max-score-picker")


def plugins_of(config, profiles):
    kinds = {plugin.get("name", plugin["type"]): plugin["type"] for plugin in config["plugins"]}
    return {kinds[step["pluginRef"]] for profile in profiles for step in profile["plugins"]}


def filters_left_none(config, kind, answers, _):
    return kind == "answer" and answers[0].status == 429 and answers[1].status == 503


def is_discounted(config, kind, answers, _):
    kinds = {plugin["type"] for plugin in config["plugins"]}
    return (kind in ("pick", "order", "score", "endpoint of a stage") and "token-load-scorer" in kinds
            and kinds & {"approx-prefix-cache-producer", "prefix-cache-affinity-filter", "prefix-cache-scorer"})


def is_capacity(config, kind, answers, request):
    return kind in ("pick", "order", "score") and any(
        (plugin.get("parameters") or {}).get("lruCapacityPerServer", 1000) < 100 for plugin in config["plugins"])


def is_at_threshold(config, kind, answers, request):
    return kind in ("pick", "order", "score") and any(
        0 < (plugin.get("parameters") or {}).get("queueThresholdTokens", 0) < 20000 for plugin in config["plugins"])


def is_of_roles(config, kind, answers, request):
    """A block of 64 tokens or more of a chat more or less is equal."""
    if kind not in ("pick", "order", "score") or request["path"] != cases.CHAT or not any(
            "prefix" in plugin["type"] for plugin in config["plugins"]):
        return False
    upstream, own = answers
    most = max((step.get("weight") or 1 for profile in config.get("schedulingProfiles") or [] for step in profile["plugins"]), default=1)
    blocks = max(len(request["data"]) // (4 * 128), 1)
    return all(abs(own.scores[one] - score) <= most / blocks + CLOSE for one, score in upstream.scores.items())


# Differences on purpose; docs/how-to/from-llm-d.md says why.
EXPECTED = {
    "503 where filters leave no endpoint, the router 429": filters_left_none,
    "token-load-scorer: what the endpoint was sent of the request's own prompt is taken off; the router runs the producers "
    "in another order": is_discounted,
    "token-load-scorer: at the threshold the request's own tokens make no difference": is_at_threshold,
    "chats: a message's role follows its content, so that the order of members makes no difference; the router's precedes it, "
    "and its blocks end at other characters": is_of_roles,
    "a capacity counts blocks as they were sent, repeated ones as well": is_capacity,
}


class Pool:
    """A pool and what was sent to it so far."""

    def __init__(self, seed, number, port, config, most_waiting, most_kv):
        self.random = random.Random(f"{seed}/{number}")
        self.number, self.roles = number, cases.has_roles(config)
        self.endpoints = fleet.draw_pool(self.random, number, port, self.roles, most_waiting, most_kv)
        self.held, self.tokens, self.n_held = [], {}, collections.Counter()
        self.holds = cases.may_hold_requests(config)
        # Which endpoint was sent a request first matters: after different picks that can't be made the same again.
        self.is_ordered = any(plugin["type"] == "no-hit-lru-scorer" or (plugin.get("parameters") or {}).get("strategy") == "session_id"
                              for plugin in config["plugins"])
        if self.roles:
            assert len({one.values["waiting"] for one in self.endpoints}) == len(self.endpoints)
        loras = any(plugin["type"] == "lora-affinity-scorer" for plugin in config["plugins"])
        self.sessions = [f"{number}-{i}" for i in range(3)] if any(
            plugin["type"].startswith("session-affinity") for plugin in config["plugins"]) else []
        self.models = ("m", *fleet.LORAS) if loras else ("m",) * 9 + fleet.LORAS[:1]
        self.stems = [cases.text(self.random, self.random.choice((300, 900, 2600, 9000))) for _ in range(3)]

    def may_hold(self, answer):
        """Whether another request may stay in flight at its endpoints: from the fourth on affinities have a bound here."""
        used = [answer.endpoints[0], *(one for value in answer.stages.values() for one in value.split(","))]
        if not self.holds or any(self.n_held[one] >= 3 for one in used):
            return False
        self.n_held.update(used)
        return True

    def draw_request(self, prompt):
        chat = self.random.random() < 0.3
        path, data = cases.body(prompt, self.random.choice(self.models), chat,
                                self.random.choice((None, None, 10, 500)), self.random.random() < 0.3)
        fields = {"x-zone": self.random.choice(fleet.ZONES)} if self.random.random() < 0.7 else {}
        if self.sessions and self.random.random() < 0.7:
            session = self.random.choice(self.sessions)
            fields |= self.random.choice(({"x-session-id": session}, {"cookie": f"a=b; llm-d-session={session}"}))
        return {"path": path, "data": data, "fields": fields}

    def stem(self):
        """The beginning of a prompt that others have, too, and a part of their own."""
        stem = self.random.choice(self.stems)
        return stem[:int(len(stem) * self.random.choice((0.5, 0.8, 1)))] + cases.text(
            self.random, self.random.choice((40, 300, 1500)))


def steer(pickers, pool, endpoint, request):
    """To one endpoint, and with roles to one more of each role that it lacks: there is no choice."""
    hint, own = [endpoint.at], fleet.roles_of(endpoint)
    for role in ("decode", "prefill", "encode") if pool.roles else ():
        some = [one.at for one in pool.endpoints if fleet.roles_of(one) == {role}]
        hint += [pool.random.choice(some)] if some and role not in own else []
    requests, answers = both.ask_both(pickers, hint=hint, **request)
    return requests, answers, hint


def prepare(pickers, pool, report):
    """Prompts that endpoints were sent, and requests that stay in flight."""
    for endpoint in pool.random.sample(pool.endpoints, len(pool.endpoints)):
        for kind in ("cold", "stem", "held")[:pool.random.choice((1, 2, 2, 3, 3))]:
            prompt = cases.text(pool.random, 200) if kind == "cold" else pool.stem()
            request = pool.draw_request(prompt)
            for _ in range(pool.random.randint(1, 2) if kind == "held" else 1):
                requests, answers, hint = steer(pickers, pool, endpoint, request)
                report.judge(pool, f"{kind}, only {','.join(hint)}", request, answers, False)
                if any(answer.status or not answer.endpoints for answer in answers):
                    for one in requests:
                        one.reset()
                elif kind == "held" and pool.may_hold(answers[0]):
                    pool.held += requests
                else:
                    headers = [one.respond() for one in requests]
                    tokens = [one.get("x-session-token") for one in headers]
                    if tokens[0]:
                        pool.tokens[endpoint.at] = tokens[0]
                        report.judge_token(pool, endpoint, tokens)


def meet_again(pickers, pool, request, answers, requests):
    """Both have picked one of several best endpoints, not the same: each is sent the request at the other one's, so that
    endpoints were sent the same. Returns: whether that could be done."""
    hints = [answers[1].endpoints[:1], answers[0].endpoints[:1]]
    if pool.is_ordered or any(answer.stages for answer in answers) or not all(hints):
        return False
    for one in requests:
        one.respond()
    for picker, hint in zip(pickers, hints):
        again = both.Request(picker, hint=hint, **request)
        if not again.answer().endpoints:
            again.reset()
            return False
        again.respond()
    return True


def end(pickers, pool, request, answers, requests):
    """Returns: whether all endpoints have been sent the same then by both."""
    upstream, own = answers
    if upstream.endpoints[:1] == own.endpoints[:1] and upstream.stages == own.stages:
        for one, answer in zip(requests, answers):
            one.respond() if answer.endpoints else one.reset()
        return True
    if meet_again(pickers, pool, request, answers, requests):
        return True
    for one in requests:
        one.reset()
    return False


def draw_free(pool, number):
    """One of the requests of which the pickers have the choice."""
    request = pool.draw_request(pool.stem() if number % 2 else cases.text(pool.random, pool.random.choice(
        (20, 200, 1200, 8000))))
    if pool.tokens and pool.random.random() < 0.5:
        request["fields"]["x-session-token"] = pool.random.choice(list(pool.tokens.values()))
    return {**request, "hint": [one.at for one in pool.endpoints]}


def choose(pickers, pools, report, settle):
    """Requests of which the pickers have the choice, a round for all pools at a time. `settle` waits until all loads are
    reported again: ours counts a request at once, and one that ends between a report and the next is taken off although
    no report has it here. So what differs is asked again then, for all pools of the round together. Where a different pick
    can't be made good it waits before each round."""
    for number in range(6):
        differing, equal = [], []
        if any(pool.is_ordered for pool in pools):
            settle()
        for pool in pools:
            request = draw_free(pool, number)
            requests, answers = both.ask_both(pickers, **request)
            differs = report.reason_of_scores(answers)
            sent = {name: value for name, value in request.items() if name != "hint"}
            if not differs:
                report.judge(pool, f"free {number}", request, answers, True)
            if end(pickers, pool, sent, answers, requests):
                (differing if differs else equal).append((pool, request))
            elif differs:
                report.judge(pool, f"free {number}", request, answers, True)
        if differing:
            settle()
        for pool, request in differing:
            requests, answers = both.ask_both(pickers, **request)
            report.judge(pool, f"free {number}", request, answers, True)
            sent = {name: value for name, value in request.items() if name != "hint"}
            if end(pickers, pool, sent, answers, requests):
                equal.append((pool, request))
        pools = [pool for pool, _ in equal]


class Report:
    """Of one configuration."""

    def __init__(self, config):
        self.config, self.drawn = config, any(plugin["type"] in DRAWN for plugin in config["plugins"])
        stages = [one for one in config.get("schedulingProfiles") or [] if one["name"] != "decode"]
        # Without a scorer all endpoints of a stage are equal.
        self.has_strict_stages = plugins_of(config, stages) <= set(REPORTED) and all(
            any(one.endswith("-scorer") for one in plugins_of(config, [stage])) for stage in stages)
        self.counts, self.expected, self.differences = collections.Counter(), collections.Counter(), []

    def judge(self, pool, what, request, answers, is_free):
        self.counts["requests"] += 1
        reason = self.reason(answers) or (self.reason_of_scores(answers) if is_free else None)
        scores = answers[0].scores.values()
        if is_free and not self.drawn and len(scores) > 1:
            self.counts["determined" if sum(max(scores) - CLOSE < score for score in scores) == 1 else "tied"] += 1
            self.counts["scores"] += len(scores)
        if reason:
            kind = reason.partition(":")[0]
            why = [one for one, explains in EXPECTED.items() if explains(self.config, kind, answers, request)]
            self.expected.update(why)
            if not why:
                self.differences.append((kind, pool, what, request, answers, reason))

    def judge_token(self, pool, endpoint, tokens):
        if tokens[0] != tokens[1]:
            self.differences.append(("token", pool, endpoint.at, {}, (), f"token: {tokens}"))

    def reason(self, answers):
        """Why these two are not the same; None: they are."""
        upstream, own = answers
        if bool(upstream.endpoints) != bool(own.endpoints) or upstream.status != own.status:
            return f"answer: {upstream.status or upstream.endpoints} and {own.status or own.endpoints} {own.body or upstream.body}"
        if upstream.status:
            self.counts["refused"] += 1
            return None
        if set(upstream.stages) != set(own.stages):
            return f"stages: {upstream.stages} and {own.stages}"
        if upstream.stages != own.stages and self.has_strict_stages and not self.drawn:
            return f"endpoint of a stage: {upstream.stages} and {own.stages}"
        if set(upstream.endpoints) != set(own.endpoints):
            return f"candidates: {upstream.endpoints} and {own.endpoints}"
        return None

    def reason_of_scores(self, answers):
        """The same, of requests that may go to several endpoints whose loads were reported since the last request."""
        upstream, own = answers
        if self.drawn or not (upstream.endpoints and own.endpoints) or set(upstream.endpoints) != set(own.endpoints):
            return None
        if not set(own.endpoints) <= set(upstream.scores):
            return None  # the router gives the scores of the addresses before a handler changes their ports
        scores = [upstream.scores[one] for one in own.endpoints]
        best = max(upstream.scores.values())
        if scores[0] < best - CLOSE:
            return f"pick: {upstream.endpoints[0]} and {own.endpoints[0]}"
        if any(after > before + CLOSE for before, after in zip(scores, scores[1:])):
            return f"order: {upstream.endpoints} and {own.endpoints}"
        # A part that all have alike decides nothing: token-load-scorer here leaves out the request's own tokens.
        alike = own.scores[own.endpoints[0]] - scores[0]
        apart = [one for one, score in own.scores.items() if abs(score - upstream.scores[one] - alike) > CLOSE]
        if apart:
            return "score: " + ", ".join(f"{one} {upstream.scores[one]:.5f} and {own.scores[one]:.5f}" for one in apart)
        return None


def needs_fresh_pickers(config):
    """Where requests to the endpoints of other pools would count."""
    return any(plugin["type"] == "no-hit-lru-scorer" for plugin in config["plugins"])


def compare(router, config, n_pools, seed):
    """Returns: the report, or why it was not compared."""
    report = Report(config)
    gated = "flowControl" in (config.get("featureGates") or [])
    at_once = 1 if needs_fresh_pickers(config) else BATCH
    n_pools = max(min(n_pools, FEWEST), n_pools // FRESH_PART) if needs_fresh_pickers(config) else n_pools
    for first in range(0, n_pools, at_once):
        server = fleet.Server()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            stack.callback(server.close)
            folder = pathlib.Path(folder)
            pools = [Pool(seed, number, server.port, config, 4 if gated else first % 3 * 40 + 4, 0.7 if gated else 1)
                     for number in range(first, min(n_pools, first + at_once))]
            endpoints = [endpoint for pool in pools for endpoint in pool.endpoints]
            server.serves(endpoints)
            whole = cases.with_patience(both.with_endpoints(config, endpoints, folder))
            interval = f"{max(100, 2000 * len(endpoints) // SCRAPES_PER_SECOND)}ms"
            try:
                own = stack.enter_context(both.ours(whole, folder, interval))
                upstream = stack.enter_context(both.theirs(router, whole, folder, interval))
            except both.Refused as refusal:
                return str(refusal)
            report.counts["pools"] += len(pools)
            pickers = (upstream, own)
            scraping = (False, True) if has_scrapes(config) else ()
            wait_for_scrapes(server, endpoints, scraping)
            for pool in pools:
                prepare(pickers, pool, report)
            wait_for_scrapes(server, endpoints, scraping)
            choose(pickers, pools, report, lambda: wait_for_scrapes(server, endpoints, scraping))
            for one in (one for pool in pools for one in pool.held):
                one.reset()
    return report


def has_scrapes(config):
    return not (config.get("dataLayer") or {}).get("injectDefaults") is False or (config["dataLayer"].get("sources"))


def wait_for_scrapes(server, endpoints, clients):
    since, deadline = server.counts.copy(), time.monotonic() + 120
    while not server.have_scraped(endpoints, clients, since):
        if time.monotonic() > deadline:
            raise SystemExit("the endpoints are not scraped")
        time.sleep(0.05)


def shown(report, n_shown):
    """The first differences of each kind."""
    left = {kind: n_shown for kind, *_ in report.differences}
    for kind, pool, what, request, answers, reason in report.differences:
        left[kind] -= 1
        if left[kind] < 0:
            continue
        yield f"  pool {pool.number}, {what}: {reason}"
        if request:
            yield f"    {request['path']} {request['fields']} {len(request['data'])} bytes {request['data'][:90]!r}…"
        for endpoint in pool.endpoints:
            scores = " ".join(f"{answer.scores[endpoint.at]:.4f}" for answer in answers if endpoint.at in answer.scores)
            yield f"    {endpoint} {endpoint.at} {scores}"


def compare_case(name, config, options):
    """Returns: the lines for it, and its numbers."""
    report = compare(options.router, config, options.pools, options.seed)
    if isinstance(report, str):
        return [f"{name:<44} not compared: {report.splitlines()[-1] if report else ''}"[:400]], collections.Counter()
    kinds = collections.Counter(kind for kind, *_ in report.differences)
    counts = " ".join(f"{n} {what}," for what, n in sorted(report.counts.items()))
    lines = [f"{name:<44} {counts} {'DIFFERS ' + str(dict(kinds)) if kinds else 'same'}"]
    lines += [f"  {n} expected: {why}" for why, n in report.expected.items()]
    numbers = report.counts + collections.Counter(
        {"configurations": 1, "expected differences": sum(report.expected.values()), "differences": sum(kinds.values())})
    return [*lines, *shown(report, options.show)], numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("router")
    parser.add_argument("--pools", type=int, default=20, help="of each configuration")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=1, help="differences of each kind that are printed")
    parser.add_argument("--jobs", type=int, default=2, help="configurations that are compared at the same time")
    options = parser.parse_args()
    total = collections.Counter()
    # Each in a process of its own: gRPC's threads don't survive a fork.
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as jobs:
        running = [jobs.submit(compare_case, name, config, options) for name, config in cases.all_cases().items()
                   if options.only in name]
        for one in running:
            lines, numbers = one.result()
            print("\n".join(lines), flush=True)
            total += numbers
    print("total: " + ", ".join(f"{total[what]} {what}" for what in (
        "configurations", "pools", "requests", "scores", "determined", "tied", "refused", "expected differences",
        "differences")))
    return total["differences"] > 0


if __name__ == "__main__":
    sys.exit(main())
