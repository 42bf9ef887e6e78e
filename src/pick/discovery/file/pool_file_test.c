/* A pool's configuration file: valid files and the specs that they result in, invalid files and
 * their error texts. */
#include "pick/discovery/file/pool_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file_fixture.h"

/* A file, and a part of its printed spec. */
static const struct {
    const char *text, *printed;
} taken[] = {
    {"", "endpoints   0\n"},
    {"---\n", "endpoints   0\n"},
    {"endpoints:\n", "endpoints   0\n"},
    {"endpoints: []\nmodels:\n", "models      0; a request for another is refused\n"},
    {"endpoints: [10.0.0.1:8000, '[::1]:80']\n", "endpoints   2\n  10.0.0.1:8000\n  [::1]:80\n"},
    {"endpoints: 10.0.0.1:8000\n", "endpoints   1\n"},
    {"endpoints:\n- address: 10.0.0.1:8000\n  labels: {app: llama, zone: ''}\n",
     "  10.0.0.1:8000                 app=llama zone=\n"},
    {"endpoints: [{address: 10.0.0.1, ports: [80, 81]}]\n",
     "endpoints   2\n  10.0.0.1:80\n  10.0.0.1:81\n"},
    {"endpoints: [10.0.0.1, '::1', '[::2]']\nports: 8000\n",
     "endpoints   3\n  10.0.0.1:8000\n  [::1]:8000\n"
     "  [::2]:8000\n"},
    {"selector: {app: a}\nendpoints:\n- {address: 10.0.0.1:1, labels: {app: a, x: y}}\n"
     "- {address: 10.0.0.2:1, labels: {app: b}}\n- 10.0.0.3:1\n",
     "endpoints   1 of 3 listed: those with app=a\n"
     "  10.0.0.1:1                    app=a x=y\n"
     "  10.0.0.2:1                    app=b  (not in the pool)\n"
     "  10.0.0.3:1                    (not in the pool)\n"},
    {"# models: none\n", "models      0; a request for another is passed on\n"},
    {"models: []\n", "models      0; a request for another is refused\n"},
    {"models: []\nunknown_models: pass\n", "models      0; a request for another is passed on\n"},
    {"unknown_models: refuse\n", "models      0; a request for another is refused\n"},
    {"model_paths: [/v1/completions, /api/generate]\n",
     "models      0; a request for another is passed on\n"
     "named in    2 paths, the bodies of POST requests to which name the model\n"
     "  …/v1/completions\n  …/api/generate\nrewrites"},
    {"model_paths: []\n", "named in    0 paths, the bodies"},
    {"models:\n- llama\n- name: 'm 2'\n  criticality: Critical\n- {name: s, criticality: "
     "Sheddable, "
     "targets: [{model: s1, weight: 3}, {model: s2, weight: 1}]}\n- {name: t, targets: [{model: "
     "u}]}\n",
     "models      4; a request for another is refused\n"
     "  llama                         Standard\n"
     "  m 2                           Critical\n"
     "  s                             Sheddable, sent as s1 75 %, s2 25 %\n"
     "  t                             Standard, sent as u\n"},
    {"models: [{name: r, targets: [{model: a, weight: 0}]}]\n",
     "  r                             Standard, sent as a (refused: no weight)\n"},
    {"models: [{name: r, targets: [{model: a}, {model: b}, {model: c}]}]\n",
     "sent as a 33.33 %, b 33.33 %, c 33.33 %\n"},
    {"objectives:\n- {name: batch, priority: -3}\n- {name: chat}\n",
     "objectives  2\n  batch                         priority -3, sheddable\n"
     "  chat                          priority 0\n"},
    {"rewrites:\n- {models: [a, b], targets: [{model: c}]}\n- {targets: [{model: d}]}\n",
     "rewrites    2\n  a                             c\n  b                             c\n"
     "  (every unknown name)          d\n"},
    {"health: {http: /v2/health/ready}\n",
     "readiness   GET /v2/health/ready, every 1 s, in 1 s; ready after 1 success, not after 2 "
     "failures\n"},
    {"health: {grpc: '', port: 9000, interval: 250ms, timeout: 0.5, healthy: 3, unhealthy: 1}\n",
     "readiness   gRPC health of \"\" at port 9000, every 0.25 s, in 0.5 s; ready after 3 "
     "successes, not after 1 failure\n"},
    {"health: {tcp: true}\n", "readiness   a TCP connection, every"},
    {"health:\n", "readiness   not checked: every endpoint is ready\n"},
    {"metrics:\n", "loads       not asked for: what counts are our own requests in flight\n"},
    {"metrics: {preset: sluice}\n",
     "loads       GET /metrics, every 0.2 s, in 1 s, up to 4194304 bytes; at most 500 a second; "
     "counts for 2 s\n"
     "  waiting           sluice_queued_requests, sum\n"
     "  running           sluice_running_requests, sum\n"},
    {"metrics: {preset: tensorrt-llm, interval: 1s, timeout: 250ms, max_age: 5s, "
     "most_per_second: 50, max_page_bytes: 65536}\n",
     "loads       GET /metrics at port 8002, every 1 s, in 0.25 s, up to 65536 bytes; at most 50 a "
     "second; counts for 5 s\n"
     "  waiting           nv_trt_llm_request_metrics{request_type=\"waiting\"}, sum\n"},
    {"metrics: {preset: trtllm-serve}\n", "GET /prometheus/metrics, every"},
    {"metrics: {preset: triton, port: 9, path: /m, scheme: https, token_file: /run/token}\n",
     "GET https /m at port 9, every 0.2 s, in 1 s, up to 4194304 bytes; at most 500 a second; "
     "counts for 2 s\n  with the token in /run/token\n"
     "  waiting           nv_inference_pending_request_count, sum\n"},
    {"metrics: {preset: vllm, scheme: https, ca_file: /run/ca.pem}\n",
     "counts for 2 s\n  certificates are verified by /run/ca.pem\n"},
    {"metrics: {preset: vllm, token_file_label: token}\n",
     "  of an endpoint with the label token: with the token in that file\n"},
    {"metrics: {preset: vllm, scheme: https, insecure_skip_verify: true}\n",
     "counts for 2 s\n  certificates are not verified\n"},
    {"metrics: {preset: vllm, rules: {kv_cache: {series: 'x:y', factor: 0.01}}}\n",
     "vllm:cache_config_info, its label num_gpu_blocks, sum\n"
     "  adapters          vllm:lora_requests_info, newest\n"
     "  kv_cache          x:y, max, times 0.01\n"},
    {"metrics:\n  rules:\n    waiting: depth\n    running: {series: busy, labels: {a: b, c: d}, "
     "combine: max, rate: true, value_label: v}\n",
     "  waiting           depth, sum\n"
     "  running           busy{a=\"b\",c=\"d\"}, its label v, max, growth in a second\n"},
    {"endpoints: [{address: 10.0.0.1:1, labels: {engine: sglang, m: '9000'}}]\n"
     "metrics: {preset_label: engine, port_label: m}\n",
     "  of an endpoint with the label engine: by that preset\n"
     "  of an endpoint with the label m: at that port\n"},
    {"saturation: {max_in_flight: 8, retry_after: 1.5s}\n",
     "saturated   when every endpoint has 8 requests in flight: sheddable ones are refused, to be "
     "sent again after 2 s\n"},
    {"saturation: {max_in_flight: 0}\nrefused_for: 90s\n",
     "saturated   never\nrefused     an endpoint that refused a connection is avoided for 90 s\n"},
    {"", "outliers    are ejected after 5 responses 5xx in a row or 5 gateway failures in a row or "
         "85 % "
         "failures of 50 or more in 10 s, for 30 s to 300 s, at most 50 % of the endpoints\n"},
    {"outlier_detection: {consecutive_5xx: 0, consecutive_gateway_failure: 2, "
     "failure_percentage_threshold: 30, failure_percentage_request_volume: 8, interval: 1s, "
     "base_ejection_time: 2s, max_ejection_time: 3s, max_ejection_percent: 40}\n",
     "outliers    are ejected after 2 gateway failures in a row or 30 % failures of 8 or more in 1 "
     "s, for 2 s to 3 s, at most 40 % of the endpoints\n"},
    {"outlier_detection: {max_ejection_percent: 0}\n", "outliers    are not ejected\n"},
    {"saturation: {queue_depth: 5, kv_cache: 0.8}\n",
     "saturated   when every endpoint has 256 requests in flight or 5 waiting or 0.8 of its KV "
     "cache used: sheddable"},
    {"saturation: {max_in_flight: 0, kv_cache: 1}\n",
     "saturated   when every endpoint has 1 of its KV cache used: sheddable"},
    {"flow_control: {}\n",
     "queue       others wait then, for 30 s at most: 10000 requests, 268435456 bytes\nrefused"},
    {"flow_control: {max_requests: 9, max_bytes: 1MiB, max_wait: 500ms, bands: [{priority: 10, "
     "max_requests: 3}, {priority: 0, max_requests: 0}]}\n",
     "queue       others wait then, for 0.5 s at most: 9 requests, 1048576 bytes\n"
     "  of priority 10: 3 requests\n  of priority 0: 0 requests\n"},
    {"flow_control: {sheddable_waits: true, fairness: global-strict, bands: [{priority: -1, "
     "max_bytes: 1MiB, max_wait: 1s, fairness: round-robin}, {priority: 2, ordering: deadline}]}\n",
     "queue       requests wait then, for 30 s at most: 10000 requests, 268435456 bytes\n"
     "  of priority -1: 1048576 bytes, for 1 s at most\n"
     "  of priority 2: any number, without regard to fairness ids, by deadline\n"
     "  of each other: any number, without regard to fairness ids\n"},
    {"flow_control: {usage_limit: {policy: static, max_ceiling: 0.5}}\n",
     "268435456 bytes\n  each may use 0.5 of the capacity\nrefused"},
    {"flow_control: {usage_limit: {policy: holdback-by-rank, min_ceiling: 0.25}}\n",
     "  the highest may use 1 of the capacity, the lowest 0.25, by rank\n"},
    {"", "profile     fewest requests in flight; with scraped loads:\n"
         "  queue-scorer                  scorer, weight 2\n"
         "  kv-cache-utilization-scorer   scorer, weight 2\n"
         "  prefix-cache-scorer           scorer, weight 3\n"
         "  active-request-scorer         scorer, weight 2\n"
         "  max-score-picker              picker\n"},
    {"profile: {plugins: [{type: random-picker}]}\n",
     "profile     as configured\n  random-picker                 picker\n"},
    {"profile: {plugins: [{type: queue-scorer}, {type: queue-scorer, name: more, parameters: {}}]}"
     "\n",
     "profile     as configured\n"
     "  queue-scorer                  scorer, weight 1\n"
     "  more                          queue-scorer, scorer, weight 1\n"
     "  max-score-picker              picker\n"},
    {"protocol: {fallback: key}\n", "fallback    the next best, in a key of its own\n"},
    {"protocol: {fallback: list, fallbacks: 3, conformance: true}\n",
     "fallback    up to 3 more, in one list with the first\nprotocol    with the headers of "
     "conformance tests\n"},
    {"protocol: {destination_header: x-to, objective_headers: [x-a, x-b], subset_key: 'any Key'}\n",
     "  destination_header            x-to\n"},
    {"protocol: {objective_headers: x-a, rewrite_headers: []}\n",
     "  rewrite_headers\n  objective_headers             x-a\n"},
};

static struct pool_specs parse(const char *text) {
    struct pool_specs specs;
    struct error err;
    if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    return specs;
}

static void check_printed(const char *text, const char *printed) {
    struct pool_specs specs = parse(text);
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 0);
    pool_specs_print(&specs, &out);
    buf_add_char(&out, '\0');
    if (!strstr(out.data, printed)) {
        fail_msg("%s\nbecame\n%s\nwithout\n%s", text, out.data, printed);
    }
    assert_null(strstr(out.data, " \n"));
    arena_free(arena);
    pool_specs_free(&specs);
}

static void pool_file_valid_is_printed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        check_printed(taken[i].text, taken[i].printed);
    }
}

/* ---- API objects ----------------------------------------------------------------------------- */

#define POOL_V1                                                                                    \
    "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\n"                            \
    "metadata: {name: llama-pool, namespace: ns, labels: {a: b}}\n"                                \
    "spec:\n  selector:\n    matchLabels: {app: llama}\n  targetPorts: [{number: 8000}, {number: " \
    "8001}]\n  appProtocol: http\n  endpointPickerRef: {name: epp, port: {number: 9002}}\n"        \
    "status: {parents: []}\n---\n"
#define POOL_V1ALPHA2                                                                              \
    "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferencePool\n"                    \
    "metadata: {name: old}\nspec:\n  selector: {app: llama, matchLabels: x}\n"                     \
    "  targetPortNumber: 9000\n  extensionRef: {name: epp, failureMode: FailOpen}\n---\n"
#define MODEL(spec)                                                                                \
    "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferenceModel\n"                   \
    "metadata: {name: any}\nspec: " spec "\n---\n"
#define OBJECTIVE(spec)                                                                            \
    "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: chat}\n"            \
    "spec: " spec "\n---\n"
#define REWRITE(spec)                                                                              \
    "apiVersion: inference.networking.k8s.io/v1alpha2\nkind: InferenceModelRewrite\n"              \
    "metadata: {name: any}\nspec: " spec "\n---\n"
#define PICKER(version, profile)                                                                   \
    "apiVersion: " version "\nkind: EndpointPickerConfig\nplugins:\n"                              \
    "- {name: one, type: single-profile-handler}\n- {name: b, type: queue-scorer}\n"               \
    "- type: kv-cache-utilization-scorer\n- type: weighted-random-picker\n"                        \
    "schedulingProfiles: [" profile "]\n"
#define TWO_ENDPOINTS                                                                              \
    "endpoints:\n- {address: 10.0.0.1, labels: {app: llama}}\n"                                    \
    "- {address: 10.0.0.2, labels: {app: other}}\n---\n"

static void pool_file_kube_objects_are_read(void **state) {
    static const struct {
        const char *text, *printed;
    } rows[] = {
        {TWO_ENDPOINTS POOL_V1,
         "pool        llama-pool\nendpoints   2 of 4 listed: those with app=llama\n"
         "  10.0.0.1:8000                 app=llama\n  10.0.0.1:8001                 app=llama\n"},
        {POOL_V1ALPHA2 "endpoints:\n- {address: 10.0.0.1, labels: {app: llama, matchLabels: x}}\n",
         "pool        old\nendpoints   1 of 1 listed: those with app=llama matchLabels=x\n"
         "  10.0.0.1:9000 "},
        {POOL_V1 "ports: 7000\nendpoints: [{address: 10.0.0.1, labels: {app: llama}}]\n",
         "  10.0.0.1:7000 "}, /* the file's own setting has precedence */
        {MODEL("{modelName: llama, criticality: Critical, poolRef: {name: p}, targetModels: "
               "[{name: a, weight: 1}, {name: b, weight: 1}]}"),
         "models      1; a request for another is refused\n"
         "  llama                         Critical, sent as a 50 %, b 50 %\n"},
        {MODEL("{modelName: m, poolRef: {name: llama-pool}}") POOL_V1 MODEL("{modelName: n}"),
         "models      2; a request for another is refused\n"},
        {"unknown_models: pass\n---\n" MODEL("{modelName: m}"),
         "models      1; a request for another is passed on\n"},
        {OBJECTIVE("{priority: 7, poolRef: {name: p, group: g}}"),
         "objectives  1\n  chat                          priority 7\n"},
        {OBJECTIVE("{poolRef: {name: p}}"), "  chat                          priority 0\n"},
        {REWRITE("{rules: [{matches: [{model: {type: Exact, value: a}}, {model: {value: b}}], "
                 "targets: [{modelRewrite: c, weight: 9}, {modelRewrite: d, weight: 1}]}, "
                 "{matches: [], targets: [{modelRewrite: e}]}]}"),
         "rewrites    2\n  a                             c 90 %, d 10 %\n"
         "  b                             c 90 %, d 10 %\n  (every unknown name)          e\n"},
        {PICKER("llm-d.ai/v1alpha1", "{name: d, plugins: [{pluginRef: b, weight: 2.5}, {pluginRef: "
                                     "weighted-random-picker}, {pluginRef: one}]}"),
         "profile     as configured\n"
         "  b                             queue-scorer, scorer, weight 2.5\n"
         "  weighted-random-picker        picker\n"},
        {PICKER("inference.networking.x-k8s.io/v1alpha1",
                "{name: d, plugins: [{pluginRef: kv-cache-utilization-scorer, weight: 0}]}"),
         "profile     as configured\n"
         "  kv-cache-utilization-scorer   scorer, weight 0\n"
         "  max-score-picker              picker\n"},
        {"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: "
         "header-based-testing-filter\n- type: destination-endpoint-served-verifier\n",
         "profile     as configured\n  header-based-testing-filter   filter\n"
         "  max-score-picker              picker\n"},
        {"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: "
         "destination-endpoint-served-verifier\n- type: random-picker\n",
         "protocol    with the response header of conformance tests\n"},
        {"kind: List\napiVersion: v1\nitems:\n- apiVersion: llm-d.ai/v1\n  kind: "
         "InferenceObjective\n  metadata: {name: x}\n  spec: {priority: 1}\n- apiVersion: "
         "inference.networking.k8s.io/v1\n  kind: InferencePool\n  metadata: {name: p}\n  spec: "
         "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 1}]}\n",
         "pool        p\n"},
        {"apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: "
         "all}\nspec: {selector: {matchLabels: {}}, targetPorts: [{number: 8000}]}\n---\n"
         "endpoints: [10.0.0.1]\n",
         "pool        all\nendpoints   1\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_printed(rows[i].text, rows[i].printed);
    }
}

/* ---- invalid files --------------------------------------------------------------------------- */

static const struct {
    const char *text, *message; /* follows "pool.yaml:" */
} refused[] = {
    {"a: [", "2: not YAML: did not find expected node content, while parsing a flow node"},
    {"- 10.0.0.1:8000\n", "1: expected an object (named fields), got a list of 1"},
    {"endpoint: []\n", "1: unknown field \"endpoint\"; did you mean \"endpoints\"?"},
    {"endpoints: []\n---\nmodels: []\n",
     "3: expected one document of the picker's own settings, got a second (an object of the API "
     "has `apiVersion` and `kind`)"},
    /* endpoints */
    {"endpoints:\n- 10.0.0.256:8000\n",
     "2: endpoints[0]: expected \"IP:PORT\" (10.0.0.1:8000, and in quotes \"[::1]:8000\") or "
     "\"NAME:PORT\" (models.example:8000), got \"10.0.0.256:8000\""},
    {"endpoints: [7]\n", "1: endpoints[0]: expected an object (named fields), got 7"},
    {"endpoints: [{labels: {a: b}}]\n",
     "1: endpoints[0].address: expected \"IP:PORT\", got nothing"},
    {"endpoints:\n- 10.0.0.1\n",
     "2: endpoints[0]: expected a port after the IP (IP:PORT), or `ports`, or an InferencePool "
     "with targetPorts"},
    {"endpoints:\n- {address: 10.0.0.1:80, ports: 81}\n",
     "2: endpoints[0].address: has a port, and the endpoint has `ports` as well"},
    {"endpoints:\n- {address: 10.0.0.1, ports: [0]}\n",
     "2: endpoints[0].ports[0]: expected a whole number from 1 to 65535, got 0"},
    {"ports: [1,2,3,4,5,6,7,8,9]\n", "1: ports: expected at most 8 ports, got 9"},
    {"endpoints:\n- address: 10.0.0.1:80\n  label: {}\n",
     "3: unknown field \"endpoints[0].label\"; did you mean \"labels\"?"},
    {"endpoints:\n- address: 10.0.0.1:80\n  labels: {gpu: 8}\n",
     "3: endpoints[0].labels.gpu: expected text (in quotes, where it looks like something else), "
     "got 8"},
    {"endpoints:\n- 10.0.0.1:80\n- 10.0.0.2:80\n- {address: 10.0.0.1, ports: [79, 80]}\n",
     "4: the endpoint \"10.0.0.1:80\" is there twice; the first is in line 2"},
    {"endpoints:\n- '[::1]:80'\n- '[0:0::1]:80'\n",
     "3: the endpoint \"[::1]:80\" is there twice; the first is in line 2"},
    {"selector: [a]\n", "1: selector: expected an object (named fields), got a list of 1"},
    /* models */
    {"models: [{}]\n",
     "1: models[0].name: expected a name of 1 to 256 bytes without control characters, got none"},
    {"models: ['']\n",
     "1: models[0]: expected a name of 1 to 256 bytes without control characters"},
    {"models: [{name: \"a\\0b\"}]\n",
     "1: models[0].name: expected a name of 1 to 256 bytes without control characters"},
    {"models: [{name: a, criticality: critical}]\n",
     "1: models[0].criticality: expected Standard, Critical or Sheddable, got \"critical\""},
    {"models: [{name: a, criticalty: Critical}]\n",
     "1: unknown field \"models[0].criticalty\"; did you mean \"criticality\"?"},
    {"models:\n- a\n- b\n- name: a\n", "4: the model \"a\" is there twice; the first is in line 2"},
    {"models: [{name: a, targets: [{name: b}]}]\n",
     "1: unknown field \"models[0].targets[0].name\""},
    {"models: [{name: a, targets: [{model: b, weight: -1}]}]\n",
     "1: models[0].targets[0].weight: expected a whole number from 0 to 1000000, got -1"},
    {"models:\n- name: a\n  targets:\n  - {model: b, weight: 1}\n  - {model: c}\n",
     "4: models[0].targets: expected a weight for every target or for none; 1 of 2 have one"},
    {"model_paths: [v1/x]\n",
     "1: model_paths[0]: expected a path of visible ASCII that begins with /, got \"v1/x\""},
    {"model_paths: [/a, /v1//x]\n", "1: model_paths[1]: expected the end of a path such as "
                                    "/v1/completions, without query, escapes "
                                    "and empty segments, got \"/v1//x\""},
    {"model_paths: [/%61]\n", "1: model_paths[0]: expected the end of a path such as "
                              "/v1/completions, without query, escapes "
                              "and empty segments, got \"/%61\""},
    {"model_paths: [/a?b]\n", "1: model_paths[0]: expected the end of a path such as "
                              "/v1/completions, without query, escapes "
                              "and empty segments, got \"/a?b\""},
    {"model_paths: [/a/../b]\n", "1: model_paths[0]: expected the end of a path such as "
                                 "/v1/completions, without query, escapes "
                                 "and empty segments, got \"/a/../b\""},
    {"model_paths: [/]\n", "1: model_paths[0]: expected the end of a path such as /v1/completions, "
                           "without query, escapes "
                           "and empty segments, got \"/\""},
    {"unknown_models: reject\n", "1: unknown_models: expected refuse or pass, got \"reject\""},
    {"objectives: [{priority: 1}]\n",
     "1: objectives[0].name: expected a name of 1 to 256 bytes without control characters, got "
     "none"},
    {"objectives: [{name: a, priority: 1.5}]\n",
     "1: objectives[0].priority: expected a whole number from -2147483648 to 2147483647, got 1.5"},
    {"objectives:\n- name: a\n- name: a\n",
     "3: the objective \"a\" is there twice; the first is in line 2"},
    {"rewrites:\n- models: [a, b]\n- models: [a]\n",
     "3: the rewrite of the model \"a\" is there twice; the first is in line 2"},
    {"models:\n- {name: a, targets: [{model: x}]}\nrewrites:\n- models: [b, a]\n  targets: "
     "[{model: "
     "y}]\n",
     "4: the model \"a\" has targets of its own, in line 2; expected these or a rewrite"},
    /* settings */
    {"health: {}\n", "1: health: expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`"},
    {"health: {http: /, tcp: true}\n",
     "1: health: expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`"},
    {"health: {http: ready}\n",
     "1: health.http: expected a path of visible ASCII that begins with /, got \"ready\""},
    {"health: {http: \"/a\\r\\nX: y\"}\n",
     "1: health.http: expected a path of visible ASCII that begins with /, got \"/a??X: y\""},
    {"health: {tcp: true, interval: 1ms}\n", "1: health.interval: expected 0.01 to 3600 seconds"},
    {"health: {tcp: true, interval: soon}\n",
     "1: health.interval: expected a time (250ms, 1.5s, 2m), got \"soon\""},
    {"health: {tcp: true, interval: -1}\n", "1: health.interval: expected 0.01 to 3600 seconds"},
    {"health: {tcp: true, interval: .nan}\n", "1: health.interval: expected 0.01 to 3600 seconds"},
    {"health: {tcp: true, healthy: 0}\n",
     "1: health.healthy: expected a whole number from 1 to 100, got 0"},
    {"metrics: {}\n", "1: metrics: expected `preset` (sluice, triton, vllm, sglang, tensorrt-llm "
                      "or trtllm-serve) or `rules`"},
    {"metrics: {preset: vlm}\n",
     "1: metrics.preset: expected sluice, triton, vllm, sglang, tensorrt-llm or trtllm-serve, got "
     "\"vlm\""},
    {"metrics: {preset: vllm, intervall: 1s}\n",
     "1: unknown field \"metrics.intervall\"; did you mean \"interval\"?"},
    {"metrics: {preset: vllm, interval: 1ms}\n",
     "1: metrics.interval: expected 0.05 to 3600 seconds"},
    {"metrics: {preset: vllm, path: metrics}\n",
     "1: metrics.path: expected a path of visible ASCII that begins with /, got \"metrics\""},
    {"metrics: {preset: vllm, scheme: ftp}\n",
     "1: metrics.scheme: expected http or https, got \"ftp\""},
    {"metrics: {preset: vllm, ca_file: a}\n",
     "1: metrics.ca_file: expected `scheme: https` with it"},
    {"metrics: {preset: vllm, insecure_skip_verify: true}\n",
     "1: metrics.insecure_skip_verify: expected `scheme: https` with it"},
    {"metrics: {rules: {queued: x}}\n", "1: unknown field \"metrics.rules.queued\""},
    {"metrics: {rules: {waiting: 'a b'}}\n",
     "1: metrics.rules.waiting: expected a name of letters, digits and _ and :, got \"a b\""},
    {"metrics: {rules: {waiting: {labels: {a: b}}}}\n",
     "1: metrics.rules.waiting.series: expected a name of 1 to 256 bytes without control "
     "characters, got none"},
    {"metrics: {rules: {waiting: {series: a, combine: mean}}}\n",
     "1: metrics.rules.waiting.combine: expected sum, max, newest or first, got \"mean\""},
    {"metrics: {rules: {waiting: {series: a, combine: newest, rate: true}}}\n",
     "1: metrics.rules.waiting: expected `combine: sum` or `max` beside `rate`"},
    {"metrics: {rules: {adapters: {series: a, rate: true}}}\n",
     "1: metrics.rules.adapters: expected only `series` and `labels`: adapters are the labels of "
     "the newest series"},
    {"endpoints: [{address: 10.0.0.1:1, labels: {e: vlm}}]\nmetrics: {preset_label: e}\n",
     "2: metrics: the endpoint 10.0.0.1:1 can't be scraped: expected a label with a preset's name "
     "(sluice, triton, vllm, sglang, tensorrt-llm, trtllm-serve) or `preset` here, and a port "
     "from 1 to 65535"},
    {"saturation: {max: 1}\n",
     "1: unknown field \"saturation.max\"; did you mean \"max_in_flight\"?"},
    {"saturation: {kv_cache: 80}\n",
     "1: saturation.kv_cache: expected a share from 0 to 1, got 80"},
    {"saturation: {queue_depth: -1}\n",
     "1: saturation.queue_depth: expected a whole number from 0 to 2147483647, got -1"},
    {"flow_control:\n", "1: flow_control: expected an object (named fields), got nothing (null)"},
    {"flow_control: true\n", "1: flow_control: expected an object (named fields), got true"},
    {"flow_control: {max_request: 1}\n", "1: unknown field \"flow_control.max_request\"; did you "
                                         "mean \"max_requests\"?"},
    {"flow_control: {max_requests: 0}\n",
     "1: flow_control.max_requests: expected a whole number from 1 to 10000000, got 0"},
    {"flow_control: {max_bytes: 1}\n",
     "1: flow_control.max_bytes: expected a whole number from 65536 to 1099511627776, got 1"},
    {"flow_control: {max_bytes: 3 potatoes}\n",
     "1: flow_control.max_bytes: expected a size from 64KiB to 1024GiB, got \"3 potatoes\""},
    {"flow_control: {max_wait: 2h}\n", "1: flow_control.max_wait: expected 0.001 to 3600 seconds"},
    {"flow_control: {bands: [{max_requests: 1}]}\n",
     "1: flow_control.bands[0]: expected a priority"},
    {"flow_control: {bands: [{priority: 1, max_requests: -1}]}\n",
     "1: flow_control.bands[0].max_requests: expected a whole number from 0 to 10000000, got -1"},
    {"flow_control: {usage_limit: {policy: holdback-by-rank}}\n",
     "1: flow_control.usage_limit.min_ceiling: expected the share for the lowest priority"},
    {"flow_control: {fairness: none}\n",
     "1: flow_control.fairness: expected round-robin or global-strict, got \"none\""},
    {"flow_control: {bands: [{priority: 1, ordering: newest}]}\n",
     "1: flow_control.bands[0].ordering: expected arrival or deadline, got \"newest\""},
    {"flow_control: {bands: [{priority: 1, max_requests: 1}, {priority: 1, max_requests: 2}]}\n",
     "1: flow_control.bands[1]: the priority 1 is there twice"},
    {"outlier_detection: {max_ejection_percent: 101}\n",
     "1: outlier_detection.max_ejection_percent: expected a whole number from 0 to 100, got 101"},
    {"outlier_detection: {consecutive_5x: 1}\n",
     "1: unknown field \"outlier_detection.consecutive_5x\"; did you mean \"consecutive_5xx\"?"},
    {"outlier_detection: {interval: 2h}\n",
     "1: outlier_detection.interval: expected 0.001 to 3600 seconds"},
    {"refused_for: [1]\n", "1: refused_for: expected text, got a list of 1"},
    {"protocol: {destination_headers: x}\n",
     "1: unknown field \"protocol.destination_headers\"; did you mean \"destination_header\"?"},
    {"protocol: {destination_header: X-To}\n",
     "1: protocol.destination_header: expected the name of a header in lower case, got \"X-To\""},
    {"protocol: {destination_key: x-gateway-destination-endpoint-fallback}\n",
     "1: protocol: expected destination_key and fallback_key to differ"},
    {"protocol: {objective_headers: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]}\n",
     "1: protocol.objective_headers: expected at most 16 headers, got 17"},
    {"protocol: {fallback: both}\n",
     "1: protocol.fallback: expected none, key or list, got \"both\""},
    {"protocol: {fallback: key, fallbacks: 2}\n",
     "1: protocol.fallbacks: is for `fallback: list`; a key takes one"},
    {"protocol: {fallback: list, fallbacks: 8}\n",
     "1: protocol.fallbacks: expected a whole number from 1 to 7, got 8"},
    /* objects */
    {"kind: Service\n", "1: kind: expected InferencePool, InferenceModel, InferenceObjective, "
                        "InferenceModelRewrite, "
                        "EndpointPickerConfig or List, got \"Service\""},
    {PICKER("v1", ""),
     "1: apiVersion: expected a version of inference.networking.k8s.io, "
     "inference.networking.x-k8s.io or llm-d.ai (inference.networking.k8s.io/v1), "
     "got \"v1\""},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: [{pluginRef: c}]}"),
     "8: schedulingProfiles[0].plugins[0].pluginRef: no plugin above has the name \"c\""},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: [{pluginRef: kv-cache-utilisation-scorer}]}"),
     "8: schedulingProfiles[0].plugins[0].pluginRef: no plugin above has the name "
     "\"kv-cache-utilisation-scorer\"; did you mean \"kv-cache-utilization-scorer\"?"},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: [{pluginRef: b, weight: -1}]}"),
     "8: schedulingProfiles[0].plugins[0].weight: expected a weight from 0 to 1000000"},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: [{pluginRef: b, weight: .nan}]}"),
     "8: schedulingProfiles[0].plugins[0].weight: expected a weight from 0 to 1000000"},
    {PICKER("llm-d.ai/v1alpha1",
            "{name: a, plugins: [{pluginRef: weighted-random-picker, weight: 1}]}"),
     "8: schedulingProfiles[0].plugins[0].weight: \"weighted-random-picker\" is a picker; only "
     "scorers have weights"},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: []}"),
     "8: schedulingProfiles[0].plugins: expected 1 to 64 plugins, got 0"},
    {PICKER("llm-d.ai/v1alpha1", "{name: a, plugins: [{pluginRef: b}]}, {name: c, plugins: "
                                 "[{pluginRef: b}]}"),
     "8: schedulingProfiles: single-profile-handler is for one profile, and there are 2"},
    {PICKER("llm-d.ai/v1alpha1",
            "{name: a, plugins: [{pluginRef: b}]}") "---\nprofile: {plugins: "
                                                    "[{type: queue-scorer}]}\n",
     "1: the file has a profile already"},
    {"profile: {plugins: [{type: queue}]}\n",
     "1: profile.plugins[0].type: no plugin is called \"queue\"; did you mean "
     "\"queue-scorer\"?"},
    {"profile: {plugins: [{type: best-of-all-picker}]}\n",
     "1: profile.plugins[0].type: no plugin is called \"best-of-all-picker\"; there are "
     "max-score-picker, power-of-two-picker, random-picker, round-robin-picker, "
     "weighted-random-picker"},
    {"profile: {plugins: [{type: everything}]}\n",
     "1: profile.plugins[0].type: no plugin is called \"everything\"; their names end in -filter, "
     "-scorer or -picker"},
    {"profile: {plugins: [{type: prefix-cache-scorer, parameters: {blockSize: 0}}]}\n",
     "1: profile.plugins[0].parameters.blockSize: expected a whole number from 1 to 4096, got 0"},
    {"profile: {plugins: [{type: header-label-affinity-scorer}]}\n",
     "1: profile.plugins[0].parameters.headerName: expected a text that is not empty"},
    {"profile: {plugins: [{type: prefix-cache-scorer}, {type: prefix-cache-scorer, name: b, "
     "parameters: {blockSize: 32}}]}\n",
     "1: profile: the profile has two prefix-cache-scorers with different parameters"},
    {"profile: {plugins: [{type: queue-scorer, parameters: {threshold: 1}}]}\n",
     "1: unknown field \"profile.plugins[0].parameters.threshold\""},
    {"profile: {plugins: [{type: queue-scorer}, {type: queue-scorer}]}\n",
     "1: profile.plugins[1]: the plugin \"queue-scorer\" is there twice"},
    {"profile: {plugins: [{type: random-picker}, {type: max-score-picker}]}\n",
     "1: profile: expected one picker, got \"random-picker\" and \"max-score-picker\""},
    {"profile: {plugins: [{name: a}]}\n", "1: profile.plugins[0].type: expected a name of 1 to 256 "
                                          "bytes without control characters, got none"},
    {"profile: {plugin: []}\n", "1: unknown field \"profile.plugin\"; did you mean \"plugins\"?"},
    {"profile: {}\n", "1: profile.plugins: expected 1 to 64 plugins, got 0"},
    {"kind: [a]\n", "1: kind: expected text, got a list of 1"},
    {"kind: InferenceModel\nspec: {}\n",
     "1: apiVersion: expected a version of inference.networking.k8s.io, "
     "inference.networking.x-k8s.io or llm-d.ai (inference.networking.k8s.io/v1), got \"\""},
    {"kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\n",
     "1: spec: expected the object's spec, got nothing"},
    {POOL_V1 "kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\nspec: {}\n",
     "12: expected one InferencePool in the file, got a second (several need `pools`, with the "
     "name of each)"},
    {POOL_V1 "selector: {a: b}\n", "12: selector: the file's InferencePool has a selector already"},
    {POOL_V1 MODEL("{modelName: m, poolRef: {name: other}}"),
     "15: spec.poolRef.name: expected the file's InferencePool, \"llama-pool\", got \"other\""},
    {MODEL("{modelname: m}"), "4: unknown field \"spec.modelname\"; did you mean \"modelName\"?"},
    {MODEL("{}"), "4: spec.modelName: expected a name of 1 to 256 bytes without control "
                  "characters, got none"},
    {MODEL("{modelName: m}") "models: [m]\n",
     "6: the model \"m\" is there twice; the first is in line 4"},
    {REWRITE("{rules: [{matches: [{model: {type: Prefix, value: a}}]}]}"),
     "4: spec.rules[0].matches[0].model.type: expected Exact, got \"Prefix\""},
    {REWRITE("{rules: [{matches: [{header: {}}]}]}"),
     "4: unknown field \"spec.rules[0].matches[0].header\""},
    {"kind: InferencePool\napiVersion: inference.networking.k8s.io/v1\nmetadata: {name: p}\nspec: "
     "{targetPorts: [{number: 1}]}\n",
     "4: spec.selector: expected the labels of the pool's endpoints, got none"},
};

static void pool_file_invalid_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_file_refused(refused[i].text, refused[i].message);
    }
}

static void pool_file_added_endpoint_joins_pool(void **state) {
    (void)state;
    struct pool_specs specs = parse("selector: {app: a}\nendpoints: [10.0.0.1:80]\n");
    struct pool_spec *spec = specs.items[0];
    struct error err;
    assert_int_equal(pool_file_add_endpoint(spec, STR("10.0.0.2:80"), &err), ST_OK);
    assert_int_equal(spec->n_endpoints, 2);
    assert_true(pool_labels_match(spec->endpoints[1].labels, spec->selector));
    assert_false(pool_labels_match(spec->endpoints[0].labels, spec->selector));
    pool_specs_free(&specs);
}

/* Every prefix of a file is accepted, or rejected with a line number within the file. */
static void pool_file_every_prefix_does_not_crash(void **state) {
    static const char text[] = TWO_ENDPOINTS POOL_V1 MODEL("{modelName: m, targetModels: [{name: "
                                                           "x}]}") OBJECTIVE("{priority: 1}")
        REWRITE("{rules: [{matches: [{model: {value: a}}], targets: [{modelRewrite: "
                "b}]}]}") "kind: List\nitems: [{kind: InferencePool}]\n";
    (void)state;
    for (size_t n = 0; n < sizeof(text); n++) {
        struct pool_specs specs;
        struct error err;
        enum status st = pool_file_parse("f", str_make(text, n), &specs, &err);
        assert_true(st == ST_OK || st == ST_BAD_CONFIG);
        assert_true(st == ST_OK ? specs.n == 1 : strncmp(err.text, "f:", 2) == 0);
        pool_specs_free(&specs);
    }
}

static void pool_file_ten_thousand_endpoints_are_read(void **state) {
    (void)state;
    enum { N = 10000 };
    char *text = test_malloc(N * 80 + 20);
    size_t len = (size_t)sprintf(text, "endpoints:\n");
    for (int i = 0; i < N; i++) {
        len += (size_t)sprintf(text + len, "- {address: 10.1.%d.%d:8000, labels: {n: \"%d\"}}\n",
                               i / 250, i % 250, i);
    }
    struct pool_specs specs = parse(text);
    assert_int_equal(specs.items[0]->n_endpoints, N);
    pool_specs_free(&specs);
    test_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_file_valid_is_printed),
        cmocka_unit_test(pool_file_kube_objects_are_read),
        cmocka_unit_test(pool_file_invalid_refused),
        cmocka_unit_test(pool_file_added_endpoint_joins_pool),
        cmocka_unit_test(pool_file_every_prefix_does_not_crash),
        cmocka_unit_test(pool_file_ten_thousand_endpoints_are_read),
    };
    return cmocka_run_group_tests_name("pick/discovery/file/pool_file", tests, NULL, NULL);
}
