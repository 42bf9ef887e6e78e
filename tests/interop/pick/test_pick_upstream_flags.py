"""`sluice pick` started as the manifests of the upstream project's picker start theirs: its flags, ports,
probes and configuration. Only the ports are others (0: a free one), and endpoints stand on the command line."""
import base64
import functools
import http.client
import re
import signal
import socket
import ssl

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import http1
from lib.certificates import Identity
from lib.ext_proc import NAMESPACE
from lib.metric_pages import MetricPages
from lib.pick_client import Proxy, answer_headers, endpoint_of, headers, set_headers
from lib.picker import Picker
from lib.server import lines_of, run

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
VLLM = "vllm:num_requests_waiting 7\nvllm:num_requests_running 4\nvllm:kv_cache_usage_perc 0.5\n"
PORTS = ("--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0")
CONFIG = """apiVersion: {version}
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: decode-filter
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: decode-filter
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: max-score-picker
"""
GROUPS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
# What probes ask for: llm-d's charts (one replica, several), its examples, and the conformance suite.
PROBED = ("inference-extension", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "")


class Dropped(Picker):
    """In upstream's place: `pool` is the file of --config-file."""

    def flags(self, grpc):
        return ["--config-file", self.pool_file, "--zap-encoder", "json", *PORTS]

    def start(self, grpc):
        super().start(grpc)
        places = {line.rpartition("/")[2]: line for line in lines_of(self.ready_file)}
        self.health, self.metrics_address = at_loopback(places["health"]), at_loopback(places["metrics"])
        self.proxied = at_loopback(self.grpc_addresses[0])

    def explained(self):
        return http1.request(self.metrics_address, "GET", "/debug/pick?path=/v1/completions").body.decode()


def at_loopback(listened):
    """It listens on every address of the machine."""
    assert "[::]:" in listened, listened
    return "127.0.0.1:" + re.search(r"\[::\]:(\d+)", listened)[1]


@pytest.fixture
def start(start_picker):
    """start(pool, flag, …): one of the test's own."""
    return functools.partial(start_picker, kind=Dropped)


def certificate_of(address):
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def encrypted(address):
    """A proxy that believes whatever certificate is there, as gateways do here."""
    return Proxy(address.replace("127.0.0.1", "localhost"), grpc.ssl_channel_credentials(certificate_of(address)))


def health(address, service):
    with grpc.insecure_channel(address) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=http1.PATIENCE).status


def test_upstream_manifest_arguments_start(start):
    """Probes without TLS at a port of their own, ext-proc over TLS, numbers at a third."""
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--v", "4",
                   "--allow-experimental-plugins=true",
                   "--metrics-endpoint-auth=false", "--ha-enable-leader-election=false", "--tracing=false")
    assert [health(picker.health, name) for name in PROBED] == [health_pb2.HealthCheckResponse.SERVING] * 5
    with encrypted(picker.proxied) as proxy:
        assert proxy.pick("/v1/completions") == A
    assert picker.numbers()["sluice_pick_open_streams"] >= 0
    assert any(line.get("event") == "picked" for line in picker.log_lines())  # --v 4


def test_upstream_secure_serving_off(start):
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--secure-serving=false")
    with Proxy(picker.proxied) as proxy:
        assert proxy.pick("/v1/completions") == A


def test_upstream_cert_path_is_reloaded(start, tmp_path):
    """It may change, as one that is mounted does."""
    first, second = Identity("first"), Identity("second")
    first.write(str(tmp_path / "certs"))
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--cert-path", str(tmp_path / "certs"),
                   "--enable-cert-reload", "--reload-interval", "50ms")
    assert certificate_of(picker.proxied) == first.cert_pem()
    second.write(str(tmp_path / "certs"))
    picker.wait_until(lambda _: certificate_of(picker.proxied) == second.cert_pem(), "the other certificate")
    with encrypted(picker.proxied) as proxy:
        assert proxy.pick("/v1/completions") == A


def scrape(address, trusted, identity=None):
    """The page of metrics over TLS, as Prometheus gets it; `identity`: the files of a certificate and key."""
    context = ssl.create_default_context(cadata=trusted.cert_pem().decode())
    if identity:
        context.load_cert_chain(*identity)
    host, _, port = address.rpartition(":")
    done = http.client.HTTPSConnection(host, int(port), timeout=http1.PATIENCE, context=context)
    try:
        done.request("GET", "/metrics")
        answer = done.getresponse()
        return answer.status, answer.read().decode()
    finally:
        done.close()


def test_upstream_metrics_cert_dir_is_reloaded(start, tmp_path):
    """Metrics over TLS, and nothing without; the files may change."""
    authority = Identity("authority", authority=True)
    first, second = Identity("first", authority), Identity("second", authority)
    first.write(str(tmp_path / "certs"))
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--metrics-cert-dir", str(tmp_path / "certs"),
                   "--reload-interval", "50ms")
    status, page = scrape(picker.metrics_address, authority)
    assert status == 200 and "llm_d_epp_ready_endpoints" in page
    refused = http1.request(picker.metrics_address, "GET", "/metrics")
    assert refused.status == 400 and b"TLS only" in refused.body
    assert certificate_of(picker.metrics_address) == first.cert_pem()
    second.write(str(tmp_path / "certs"))
    picker.wait_for(lambda: certificate_of(picker.metrics_address) == second.cert_pem(), "the other certificate")
    assert scrape(picker.metrics_address, authority)[0] == 200


def test_upstream_metrics_certificate_is_reloaded_on_signal(start, tmp_path):
    first, second = Identity("first"), Identity("second")
    first.write(str(tmp_path / "certs"))
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--metrics-cert-dir", str(tmp_path / "certs"),
                   "--reload-interval", "1h")
    second.write(str(tmp_path / "certs"))
    assert certificate_of(picker.metrics_address) == first.cert_pem()
    picker.signal(signal.SIGHUP)
    picker.wait_for(lambda: certificate_of(picker.metrics_address) == second.cert_pem(), "the other certificate")


def test_upstream_metrics_client_ca_file(start, tmp_path):
    """Clients without a certificate of that authority get no page."""
    authority, other = Identity("authority", authority=True), Identity("other", authority=True)
    Identity("server", authority).write(str(tmp_path / "certs"))
    authority.write_cert(str(tmp_path / "ca.pem"))
    known = Identity("prometheus", authority).write(str(tmp_path / "known"))
    unknown = Identity("prometheus", other).write(str(tmp_path / "unknown"))
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--metrics-cert-dir", str(tmp_path / "certs"),
                   "--metrics-client-ca-file", str(tmp_path / "ca.pem"))
    assert scrape(picker.metrics_address, authority, known)[0] == 200
    for identity in (None, unknown):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            scrape(picker.metrics_address, authority, identity)


def cipher_of(address, highest):
    """The version and the suite that a client gets which knows TLS up to `highest`; None: refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, highest
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=http1.PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as encrypted_socket:
                return encrypted_socket.cipher()[1], encrypted_socket.cipher()[0]
        except ssl.SSLError:
            return None


def test_upstream_tls_version_and_suites(start):
    config, tls12, tls13 = CONFIG.format(version=GROUPS[0]), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    picker = start(config, "--endpoint", A, "--tls-min-version=VersionTLS13")
    assert cipher_of(picker.proxied, tls12) is None and cipher_of(picker.proxied, tls13)[0] == "TLSv1.3"
    suite = "TLS_ECDHE_{}_WITH_AES_256_GCM_SHA384"
    suites = ",".join([suite.format("ECDSA"), suite.format("RSA"), "TLS_RSA_WITH_AES_128_CBC_SHA"])
    picker = start(config, "--endpoint", A, "--tls-cipher-suites", suites)
    version, name = cipher_of(picker.proxied, tls12)
    assert version == "TLSv1.2" and name.endswith("-AES256-GCM-SHA384")
    picker = start(config, "--endpoint", A, "--tls-cipher-suites", "TLS_AES_128_GCM_SHA256")
    assert cipher_of(picker.proxied, tls12) is None and cipher_of(picker.proxied, tls13)[0] == "TLSv1.3"
    done = run("pick", "--endpoint", A, "--grpc-port=0", "--tls-cipher-suites=TLS_NONE", "--check")
    assert done.returncode == 1 and '--grpc-tls-suites: expected names of suites' in done.stderr, done


@pytest.mark.parametrize("version", GROUPS)
def test_upstream_configuration_forms(start, version):
    """As a file that changes, as text, and of the older releases' form of flags."""
    picker = start(CONFIG.format(version=version), "--endpoint", A, "--reload-interval", "50ms")
    assert "queue-scorer" in picker.explained()
    picker.write_pool(CONFIG.format(version=version).replace("queue-scorer", "running-requests-size-scorer"))
    picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 2, "the new configuration")
    assert "running-requests-size-scorer" in picker.explained()
    done = run("pick", "--endpoint", A, "-configText", CONFIG.format(version=version), "--check")
    assert done.returncode == 0 and "queue-scorer                  scorer, weight 2" in done.stdout, done


def test_upstream_scrape_is_on_by_default(start):
    """Without a word of it, as upstream does; flags say how."""
    with MetricPages(VLLM) as server, MetricPages("depth{of=\"all\"} 3\ndepth{of=\"one\"} 9\n") as other:
        waits = "sluice_pick_endpoint_waiting_requests{endpoint=\"%s\"}"
        picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", server.address)
        picker.wait_until(lambda now: now.get(waits % server.address) == 7, "the load")
        picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", other.address,
                       "--refresh-metrics-interval=50ms", "--metrics-staleness-threshold", "1m30s",
                       "--model-server-metrics-path=/other", "--total-queued-requests-metric", "depth{of=all}")
        picker.wait_until(lambda now: now.get(waits % other.address) == 3, "the load by another rule")
        assert other.heads[-1].startswith("GET /other ")


def test_upstream_scrape_by_configuration(start):
    """As charts have it. Flags about loads come before it."""
    plugins = """plugins:
- {type: metrics-data-source, parameters: {scheme: http, path: /other, insecureSkipVerify: true}}
- {type: core-metrics-extractor, parameters: {defaultEngine: sglang}}
"""
    sources = "[{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]"
    config = CONFIG.format(version=GROUPS[0]).replace("plugins:\n", plugins, 1) + f"dataLayer: {{sources: {sources}}}\n"
    waits = "sluice_pick_endpoint_waiting_requests{endpoint=\"%s\"}"
    with MetricPages("sglang:num_queue_reqs 5\nvllm:num_requests_waiting 6\n") as server:
        picker = start(config, "--endpoint", server.address)
        picker.wait_until(lambda now: now.get(waits % server.address) == 5, "the load")
        assert server.heads[-1].startswith("GET /other ")
        picker = start(config, "--endpoint", server.address, "--model-server-metrics-path=/flag")
        picker.wait_until(lambda now: now.get(waits % server.address) == 6, "the load, as flags say")
        said = [line["setting"] for line in picker.log_lines() if "setting" in line]
        assert said == ["plugins[1].parameters", "plugins[0].parameters"], said


SATURATED = """featureGates: [flowControl, dataLayer]
saturationDetector: {queueDepthThreshold: 8, kvCacheUtilThreshold: 0.75, metricsStalenessThreshold: 1m30s}
flowControl: {defaultRequestTTL: 1m30s, maxRequests: 1}
"""


@pytest.mark.parametrize("version", GROUPS)
def test_upstream_saturation_thresholds_queue(start, version):
    """Of two with 7 and 8 that wait there, the first is picked; where both have 8 a request waits, and the next is
    refused; it goes on when one has less."""
    def page(n, cache=0.5):
        return VLLM.replace("waiting 7", f"waiting {n}").replace("0.5", str(cache))

    with MetricPages(page(7)) as one, MetricPages(page(8)) as other:
        picker = start(CONFIG.format(version=version) + SATURATED, "--endpoint", one.address,
                       "--endpoint", other.address, "--secure-serving=false", "--refresh-metrics-interval=50ms")

        def told(server, n, cache=0.5):
            name = "sluice_pick_endpoint_%s{endpoint=\"" + server.address + "\"}"
            picker.wait_until(lambda now: now.get(name % "waiting_requests") == n and
                              now.get(name % "kv_cache_used") == cache, "the load")

        told(one, 7)
        told(other, 8)
        said = {line["setting"]: line["why"] for line in picker.log_lines() if "setting" in line}
        assert list(said) == ["featureGates[1]: dataLayer"], said
        with Proxy(picker.proxied) as proxy:
            assert proxy.pick("/v1/completions") == one.address
            one.says(page(1, 0.75))
            told(one, 1, 0.75)
            stream = proxy.stream(headers("/v1/completions"))
            picker.wait_waiting(1)
            status, fields, _ = proxy.refuse("/v1/completions")
            assert status == 429 and fields["x-llm-d-request-dropped-reason"] == "rejected-saturated"
            one.says(page(1, 0.5))
            assert endpoint_of(stream.next()) == one.address
            stream.reset()


def test_upstream_configuration_check(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.format(version=GROUPS[0]) + SATURATED)
    done = run("pick", "--config-file", file, "--endpoint", A, "--grpc-port", "9002", "--check")
    assert done.returncode == 0 and "8 waiting or 0.75 of the KV cache used" in done.stdout, done
    assert "requests wait then, for 90 s at most: 1 request" in done.stdout and "counts for 90 s" in done.stdout, done
    file.write_text(CONFIG.format(version=GROUPS[0]) + "featureGates: [flowControll]\n")
    done = run("pick", "--config-file", file, "--endpoint", A, "--check")
    assert done.returncode == 1 and 'no feature gate is called "flowControll"; there are flowControl' in done.stderr


def test_upstream_ignored_flags_are_logged(start):
    picker = start(CONFIG.format(version=GROUPS[0]), "--endpoint", A, "--zap-devel", "--enable-pprof=false")
    said = {line["flag"]: line["why"] for line in picker.log_lines() if "flag" in line}
    assert set(said) == {"--zap-devel=true", "--enable-pprof=false"}
    assert all(said.values())


@pytest.mark.parametrize("args, why", [
    (["--grpc-port", "none"], "--grpc-port: expected a port up to 65535"),
    (["--metrics-client-ca-file", "/ca.pem"], "--metrics-tls-client-ca needs --metrics-tls-cert FILE"),
    (["--tls-min-version", "VersionTLS14"], "TLS 1.2 and 1.3 are supported"),
    (["--disable-endpoint-subset-filter"], "the proxy's subset hint always applies"),
    (["--grpc-prot", "1"], "unknown flag --grpc-prot"),
])
def test_upstream_refused_flags(args, why):
    done = run("pick", "--endpoint", A, *args)
    assert done.returncode == 2 and why in done.stderr, done


def test_upstream_flags_with_own_file(tmp_path):
    """Flags about loads have no place beside it, upstream's other flags do."""
    file = tmp_path / "pool.yaml"
    file.write_text(f"endpoints: [{A}]\n")
    done = run("pick", "--config-file", file, "--grpc-port", "9002", "--check")
    assert done.returncode == 0 and "loads       not asked for" in done.stdout, done
    done = run("pick", "--config-file", file, "--refresh-metrics-interval", "100ms", "--check")
    assert done.returncode == 1 and "--refresh-metrics-interval:1: expected one document" in done.stderr, done


NO_CLUSTER = """apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: file-discovery
  parameters: {path: ENDPOINTS, watchFile: true}
- type: queue-scorer
- type: kv-cache-utilization-scorer
- {name: metrics-source, type: metrics-data-source}
- {name: metrics-extractor, type: core-metrics-extractor}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
dataLayer:
  injectDefaults: false
  discovery: {endpoints: {pluginRef: file-discovery}}
  sources:
  - {pluginRef: metrics-source, extractors: [{pluginRef: metrics-extractor}]}
"""


def entry(name, address):
    host, _, port = address.rpartition(":")
    return f"- {{name: {name}, address: {host}, port: '{port}'}}\n"


def test_file_discovery_needs_no_cluster_for_the_name_of_a_pool(start, tmp_path):
    """The arguments of llm-d's guide without Kubernetes: --pool-name is a name only."""
    endpoints = tmp_path / "endpoints.yaml"
    endpoints.write_text("endpoints:\n" + entry("a", A) + entry("b", "models.example:8000"))
    picker = start(NO_CLUSTER.replace("ENDPOINTS", str(endpoints)), "--pool-name=file-discovery",
                   "--pool-namespace=default", "--secure-serving=false", "--v=2", "--reload-interval", "50ms")
    with Proxy(picker.proxied) as proxy:
        assert proxy.pick("/v1/completions") == A
        numbers = picker.numbers()
        assert numbers["inference_pool_ready_pods{name=\"file-discovery\"}"] == 1
        endpoints.write_text("endpoints:\n" + entry("b", B))
        picker.wait_until(lambda now: now["sluice_pick_pool_generation"] == 2, "the new file")
        assert proxy.pick("/v1/completions") == B


def test_check_names_every_error(tmp_path):
    """Not the first alone: who brings a file from upstream sees all of what is missing."""
    config = CONFIG.format(version=GROUPS[0]).replace("queue-scorer\n- type", "queue-scorr\n- type") + (
        "featureGates: [flowControll]\nflowControl: {maxRequests: x}\nother: 1\n"
        "---\nsaturation: {max_in_flight: -1}\n")
    done = run("pick", "--endpoint", A, "--config-text", config, "--check")
    paths = ('unknown field "other"', "plugins[0].type", "featureGates[0]", "flowControl.maxRequests",
             "saturation.max_in_flight")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and not done.stdout, done
    assert [sum(path in line for line in lines) for path in paths] == [1] * 5, done.stderr
    assert all(line.startswith("sluice pick: --config-text:") for line in lines), done.stderr
    unknown = CONFIG.format(version=GROUPS[0]).replace("- type: queue-scorer", "- {name: u, type: unknown-policy}\n- type: queue-scorer")
    refs = ("usageLimitPolicyPluginRef: u, saturationDetector: {pluginRef: u}, defaultPriorityBand: "
            "{fairnessPolicyRef: u, orderingPolicyRef: u}")
    done = run("pick", "--endpoint", A, "--config-text", f"{unknown}flowControl: {{{refs}}}\n", "--check")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "unknown-policy" in done.stderr, done


PAYLOAD_AGNOSTIC = """apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: passthrough-parser
- type: active-request-scorer
- type: session-affinity-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer, weight: 1}, {pluginRef: session-affinity-scorer, weight: 1}]
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
"""


def test_upstream_session_token_comes_back(start):
    """The chart's payload-agnostic.yaml: a response names its endpoint, and the next request with that goes there."""
    picker = start(PAYLOAD_AGNOSTIC, "--endpoint", A, "--endpoint", B, "--secure-serving=false")
    with Proxy(picker.proxied) as proxy:
        for endpoint in (A, B):
            token = base64.b64encode(endpoint.encode()).decode()
            for _ in range(8):
                stream = proxy.stream(headers("/v1/completions", fields={"x-session-token": token}, end=True))
                assert endpoint_of(stream.next()) == endpoint
                stream.send(answer_headers(end=True))
                assert set_headers(stream.next()) == {"x-session-token": token}
                assert not stream.close()
        stream = proxy.stream(headers("/v1/completions", fields={"x-session-token": "%%%"}, end=True))
        assert endpoint_of(stream.next()) in (A, B)
        stream.reset()


SCORES = "x-gateway-destination-endpoint-scores"


def scores_of(said):
    """endpoint → score, as the metadata of a pick has them; None: it has none."""
    fields = said.dynamic_metadata.fields[NAMESPACE].struct_value.fields
    if SCORES not in fields:
        return None
    assert fields[SCORES].WhichOneof("kind") == "struct_value"
    scored = fields[SCORES].struct_value.fields
    assert all(value.WhichOneof("kind") == "number_value" for value in scored.values())
    return {name: value.number_value for name, value in scored.items()}


def test_emit_endpoint_scores_names_every_candidate(start):
    """Also those that were not picked, and those with 0: the sums of weight times score, after the filters."""
    config = CONFIG.format(version=GROUPS[0])
    with MetricPages(VLLM.replace("waiting 7", "waiting 1")) as idle, MetricPages(VLLM) as busy, \
            MetricPages(VLLM.replace("waiting 7", "waiting 4")) as middle:
        servers = [server.address for server in (idle, busy, middle)]
        endpoints = [arg for server in servers for arg in ("--endpoint", server)]
        picker = start(config, *endpoints, "--secure-serving=false", "--emit-endpoint-scores",
                       "--refresh-metrics-interval=50ms")
        picker.wait_loads(3)
        with Proxy(picker.proxied) as proxy:
            said = proxy.ask("/v1/completions")
            assert endpoint_of(said) == idle.address
            assert scores_of(said) == pytest.approx({idle.address: 2, busy.address: 0, middle.address: 1})
            said = proxy.ask("/v1/completions", hint=[busy.address, middle.address])
            assert scores_of(said) == pytest.approx({busy.address: 0, middle.address: 2})
        picker = start(config, *endpoints, "--secure-serving=false", "--emit-endpoint-scores=false",
                       "--refresh-metrics-interval=50ms")
        with Proxy(picker.proxied) as proxy:
            assert scores_of(proxy.ask("/v1/completions")) is None


ROLES = """apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: prefill-filter}
- {type: decode-filter}
- {type: active-request-scorer}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer, weight: 3}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer, weight: 2}]}
dataLayer: {injectDefaults: false, discovery: {endpoints: {pluginRef: file-discovery}}}
"""


def test_emit_endpoint_scores_are_of_the_destination(start, tmp_path):
    """Of the endpoints that decode, and not of those of the other stages."""
    endpoints = tmp_path / "endpoints.yaml"
    endpoints.write_text("endpoints:\n" + "".join(
        entry(name, address).replace("}", f", labels: {{llm-d.ai/role: {role}}}}}")
        for name, address, role in (("p", A, "prefill"), ("d", B, "decode"), ("e", "10.0.0.3:8000", "decode"))))
    picker = start(ROLES.replace("ENDPOINTS", str(endpoints)), "--pool-name=file-discovery", "--secure-serving=false",
                   "--emit-endpoint-scores")
    with Proxy(picker.proxied) as proxy:
        said = proxy.ask("/v1/completions")
        assert set_headers(said)["x-prefiller-host-port"] == A
        assert scores_of(said) == {B: 2, "10.0.0.3:8000": 2}
