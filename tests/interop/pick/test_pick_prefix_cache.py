"""Requests go where their prompt's beginning went before: over ext-proc by hand, in each mode that shows
bodies, and through a real Envoy; and what is wrong with a body is for its server to say."""
import collections
import contextlib
import json
import re

import pytest

from lib import echo, http1
from lib.gateway import Gateway
from lib.pick_client import Proxy, body, endpoint_of, headers

ENDPOINTS = [f"10.0.0.{i}:8000" for i in range(1, 9)]
PROFILE = """
profile:
  plugins:
    - {type: prefix-cache-scorer, parameters: {blockSize: 32}}
    - type: no-hit-lru-scorer
    - type: active-request-scorer
  schedulingProfiles:
    - name: default
      plugins:
        - {pluginRef: prefix-cache-scorer, weight: 3}
        - {pluginRef: no-hit-lru-scorer}
        - {pluginRef: active-request-scorer}
"""
MODES = ("FULL_DUPLEX_STREAMED", "BUFFERED", "BUFFERED_PARTIAL")


def pool_of(endpoints):
    return "endpoints:\n" + "".join(f"- {one}\n" for one in endpoints) + PROFILE


def text_of(number, n_blocks=8):
    """Blocks that no other number has."""
    return "".join(f"{number * 100 + i:032d}" for i in range(n_blocks))


def completion(text, model="m", **more):
    return json.dumps({"model": model, "prompt": text, **more}).encode()


def chat(system, *turns):
    messages = [{"role": "system", "content": system}]
    messages += [{"role": "user" if i % 2 == 0 else "assistant", "content": turn}
                 for i, turn in enumerate(turns)]
    return json.dumps({"messages": messages, "model": "m"}).encode()


@pytest.fixture
def picker(start_picker):
    return start_picker(pool_of(ENDPOINTS))


@pytest.fixture
def proxy(picker):
    with Proxy(picker.grpc_addresses[0]) as proxy:
        yield proxy


def pick(proxy, data, mode="FULL_DUPLEX_STREAMED", path="/v1/completions", fields=None, step=0):
    """Where a request with this body goes, sent in parts of `step` bytes."""
    stream = proxy.stream(headers(path, fields=fields, config=f"{mode} NONE"))
    if mode != "FULL_DUPLEX_STREAMED":
        assert stream.next().WhichOneof("response") == "request_headers"
    step = step or max(len(data), 1)
    for at in range(0, max(len(data), 1), step):
        stream.send(body(data[at:at + step], at + step >= len(data)))
    said = stream.next()
    stream.reset()
    return endpoint_of(said)


# ---- by hand -------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", MODES)
def test_prefix_same_beginning_same_endpoint(proxy, mode):
    first = {number: pick(proxy, completion(text_of(number)), mode) for number in range(24)}
    assert collections.Counter(first.values()) == {one: 3 for one in ENDPOINTS}
    for number, endpoint in first.items():
        assert pick(proxy, completion(text_of(number) + " and more", max_tokens=3), mode) == endpoint


def test_prefix_body_split_does_not_matter(proxy):
    first = pick(proxy, completion(text_of(1)))
    for step in (1, 7, 100):
        assert pick(proxy, completion(text_of(1)), step=step) == first


def test_prefix_conversation_stays(proxy):
    """Each of many goes on where it began, whatever interface it comes by, and however its text is
    written."""
    path = "/v1/chat/completions"
    first = {number: pick(proxy, chat(text_of(number), "Hi"), path=path) for number in range(16)}
    for number, endpoint in first.items():
        longer = chat(text_of(number), "Hi", "Hello!", "And now?")
        assert pick(proxy, longer, path=path) == endpoint
        assert pick(proxy, longer.replace(b"Hi", b"\\u0048i"), path=path) == endpoint
        parts = json.loads(longer)
        parts["messages"][1]["content"] = [{"type": "text", "text": "Hi"}]
        assert pick(proxy, json.dumps(parts, indent=2).encode(), path=path) == endpoint
    for number in range(16):
        turn = {"role": "user", "content": "Hi"}
        asked = {"max_tokens": 9, "messages": [turn], "model": "m", "system": text_of(100 + number)}
        one = pick(proxy, json.dumps(asked).encode(), path="/v1/messages")
        asked["messages"] += [{"role": "assistant", "content": "Hello!"}, turn]
        asked["system"] = [{"type": "text", "text": asked["system"]}]
        assert pick(proxy, json.dumps(asked).encode(), path="/v1/messages") == one


def test_prefix_token_arrays(proxy):
    for number in range(16):
        tokens = list(range(number * 1000, number * 1000 + 200))
        first = pick(proxy, completion(tokens))
        assert pick(proxy, completion(tokens + [1, 2, 3])) == first


def test_prefix_models_are_separate(proxy):
    """Cold ones take turns: the same prompt of eight models goes to eight endpoints."""
    first = {model: pick(proxy, completion(text_of(1), model)) for model in "abcdefgh"}
    assert sorted(first.values()) == ENDPOINTS
    for model, endpoint in first.items():
        assert pick(proxy, completion(text_of(1), model)) == endpoint


def test_prefix_removed_endpoint_is_forgotten(picker, proxy):
    first = {number: pick(proxy, completion(text_of(number))) for number in range(8)}
    gone = first[0]
    for endpoints in ([one for one in ENDPOINTS if one != gone], ENDPOINTS):
        generation = picker.numbers()["sluice_pick_pool_generation"]
        picker.write_pool(pool_of(endpoints))
        picker.wait_until(lambda now, old=generation: now["sluice_pick_pool_generation"] > old,
                          "another pool")
    for number, endpoint in first.items():
        if endpoint != gone:
            assert pick(proxy, completion(text_of(number))) == endpoint
    # It was the last to have a turn; now it has had none and is the first.
    assert pick(proxy, completion(text_of(900))) == gone


@pytest.mark.parametrize("mode", MODES)
def test_prefix_invalid_prompt_is_picked(proxy, mode):
    deep = b'{"prompt": ' + b"[" * 100000
    for data in (b"", b"hello", b'{"prompt": "', b'{"prompt": "\xff\\q"}', b'{"messages": {"role": [}',
                 deep, completion("x" * 1000000), b'{"prompt": 7, "model": []}'):
        assert pick(proxy, data, mode) in ENDPOINTS
    assert pick(proxy, b"\x1f\x8b\x08", mode) in ENDPOINTS


def test_prefix_scores_are_explained(picker, proxy):
    """Who was sent how much of a prompt; asking changes nothing."""
    first = pick(proxy, completion(text_of(1)))
    for _ in range(2):
        page = http1.request(picker.metrics_address, "GET", "/debug/pick?path=/v1/completions&model=m"
                             f"&prompt={text_of(1, 4)}{text_of(2, 4)}").body.decode()
        shares = dict(re.findall(r"^  (10\S+) .* ([01]\.000|0\.500)  +[01]\.\d+  +[01]\.\d+  +\d\.\d+$", page,
                                 re.M))
        assert shares == {one: "0.500" if one == first else "0.000" for one in ENDPOINTS}, page
        assert f"outcome     {first}\n" in page


def test_prefix_without_body_picks_at_headers(proxy):
    """The pick leaves at the headers, and asks for nothing."""
    for mode in ("NONE", "STREAMED"):
        said = proxy.ask("/v1/completions", config=f"{mode} NONE")
        assert endpoint_of(said) in ENDPOINTS
        assert not said.HasField("mode_override")
    gzip = {"content-encoding": "gzip"}
    said = proxy.ask("/v1/completions", fields=gzip, config="FULL_DUPLEX_STREAMED NONE")
    assert endpoint_of(said) in ENDPOINTS


def test_prefix_memory_is_bounded(start_picker):
    """Memory stays what it was given: a hundred thousand blocks in a table for some twenty thousand."""
    picker = start_picker(pool_of(ENDPOINTS), "--prefix-memory", "4MiB")
    with Proxy(picker.grpc_addresses[0]) as proxy:
        for number in range(400):
            pick(proxy, completion(text_of(number, 256)))
        last = pick(proxy, completion(text_of(9999)))
        assert pick(proxy, completion(text_of(9999))) == last


# ---- through a proxy -----------------------------------------------------------------------------

@pytest.fixture
def start(tmp_path):
    """start(config): Envoy, the picker with the profile, three servers. All ends well."""
    with contextlib.ExitStack() as ending:
        gateways = []

        def begin(config, profile=PROFILE):
            servers = ending.enter_context(echo.three())
            gateway = Gateway(tmp_path, config, [one.address for one in servers],
                              change=lambda text: text + profile)
            ending.callback(gateway.kill)
            gateways.append(gateway)
            return gateway, servers
        yield begin
        for gateway in gateways:
            gateway.stop()


def ask(gateway, data, path="/v1/completions"):
    return gateway.ask(path, "-H", "content-type: application/json", body=data)["server"]


def first_and_again(gateway):
    first = {number: ask(gateway, completion(text_of(number), "digits")) for number in range(9)}
    assert collections.Counter(first.values()) == {"a": 3, "b": 3, "c": 3}
    for number, name in first.items():
        assert ask(gateway, completion(text_of(number) + " more", "digits")) == name
    return first


def test_prefix_through_envoy_buffered(start):
    gateway, _ = start("buffered.yaml")
    first_and_again(gateway)


def test_prefix_exited_server_is_forgotten(start):
    """Its prompts have another server from then on, also when it is back."""
    gateway, servers = start("full-duplex.yaml")
    first = first_and_again(gateway)
    dead = next(one for one in servers if one.name == first[0])
    dead.close()
    statuses, after = [], {}
    for number in [number for number, name in first.items() if name == dead.name] * 2:
        reply = gateway.curl("/v1/completions", "-H", "content-type: application/json",
                             body=completion(text_of(number), "digits"))
        statuses.append(reply.status)
        if reply.status == 200:
            after.setdefault(number, json.loads(reply.body)["server"])
            assert after[number] == json.loads(reply.body)["server"] != dead.name
    assert statuses.count(503) == 1  # the one that found out
    with contextlib.closing(echo.Echo(dead.name, dead.address)):
        http1.connect(dead.address).close()
        for number, name in after.items():
            assert ask(gateway, completion(text_of(number), "digits")) == name


def image(number, n_bytes):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + f"{number:08d}" * (n_bytes // 8)}}


def user(content, is_sorted=False):
    message = {"content": content, "role": "user"} if is_sorted else {"role": "user", "content": content}
    return {"model": "digits", "messages": [message]}


def anthropic(number, n_turns):
    turns = [{"role": "user" if i % 2 == 0 else "assistant", "content": text_of(number, 64)} for i in range(n_turns)]
    return {"model": "digits", "max_tokens": 9, "messages": turns, "system": text_of(number + 50, 16)}


# Name of the case: (path, the prompt of a number, the same one or one that goes on from it)
IDENTITIES = {
    "order of members": ("/v1/chat/completions", lambda n: user(text_of(n)), lambda n: user(text_of(n), True)),
    "image of 6 KB, short text": ("/v1/chat/completions", *[lambda n: user([image(n, 6000), {
        "type": "text", "text": "what is it?"}])] * 2),
    "image of 2 MB before text": ("/v1/chat/completions", *[lambda n: user([image(n, 2000000), {
        "type": "text", "text": text_of(0)}])] * 2),
    "responses": ("/v1/responses", lambda n: {"model": "digits", "instructions": text_of(n), "input": "a"},
                  lambda n: {"model": "digits", "input": "a", "instructions": text_of(n)}),
    "messages in pieces": ("/v1/messages", lambda n: anthropic(n, 9), lambda n: anthropic(n, 11)),
}


@pytest.mark.parametrize("case", IDENTITIES)
def test_prefix_identity_through_envoy(start, case):
    """bug-N6: neither the order of members, nor media, nor how Envoy cuts a body makes it another prompt."""
    path, first_form, second_form = IDENTITIES[case]
    gateway, _ = start("full-duplex.yaml")
    first = {number: ask(gateway, json.dumps(first_form(number)).encode(), path) for number in range(6)}
    assert collections.Counter(first.values()) == {"a": 2, "b": 2, "c": 2}
    for number, name in reversed(first.items()):
        assert ask(gateway, json.dumps(second_form(number)).encode(), path) == name, number


def test_prefix_another_image_is_another_prompt(start):
    """bug-N6: three of one text go to the server that was not used for longest, each in turn."""
    gateway, _ = start("full-duplex.yaml")
    text = {"type": "text", "text": text_of(0)}
    served = [ask(gateway, json.dumps(user([image(number, 6000), text])).encode(), "/v1/chat/completions")
              for number in range(6)]
    assert served[:3] == served[3:] and sorted(served[:3]) == ["a", "b", "c"]


def test_prefix_refused_prompts_push_none_out(start):
    """bug-N14: what servers refuse with 400 is in no server's cache, and takes no place in the picker's table."""
    gateway, _ = start("full-duplex.yaml", PROFILE.replace("blockSize: 32", "blockSize: 32, lruCapacityPerServer: 100"))
    first = first_and_again(gateway)
    for number in range(100, 161):  # eight blocks each
        reply = gateway.curl("/v1/completions", "-H", "content-type: application/json", "-H", "x-answer: status=400",
                             body=completion(text_of(number), "digits"))
        assert reply.status == 400
    for number, name in reversed(first.items()):
        assert ask(gateway, completion(text_of(number), "digits")) == name, number
