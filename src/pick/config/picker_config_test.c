/* The upstream picker's EndpointPickerConfig: the specs that its sections result in, the notes, and
 * the errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file_fixture.h"

#define NEW "apiVersion: llm-d.ai/v1alpha1\n"
#define OLD "apiVersion: inference.networking.x-k8s.io/v1alpha1\n"
#define KIND "kind: EndpointPickerConfig\n"
#define PLUGINS "plugins:\n- type: queue-scorer\n"
#define DETECTOR(parameters) "- {name: d, type: utilization-detector, parameters: " parameters "}\n"
#define PROFILE(step)                                                                              \
    "schedulingProfiles: [{name: a, plugins: [{pluginRef: " step "}, {pluginRef: "                 \
    "queue-scorer}]}]\n"
#define METRICS "metrics: {preset: vllm}\n---\n"

#define THRESHOLDS(depth, used)                                                                    \
    "saturated   as a whole, with " depth " waiting or " used                                      \
    " of the KV cache used in the mean of the endpoints with a recent load: "
#define OURS "saturated   when every endpoint has 256 requests in flight: "

static const struct {
    const char *text, *printed; /* "!TEXT": TEXT must not be printed */
} taken[] = {
    /* gates */
    {METRICS NEW KIND PLUGINS, THRESHOLDS("5", "0.8") "sheddable ones are refused"},
    {NEW KIND PLUGINS, OURS},
    {NEW KIND PLUGINS, "!notes"},
    {"saturation: {max_in_flight: 256}\n" METRICS NEW KIND PLUGINS, OURS},
    {METRICS NEW KIND PLUGINS, "!queue       others wait"},
    {METRICS NEW KIND "featureGates: [flowControl]\n" PLUGINS,
     "saturated   as a whole, with 5 waiting or 0.8 of the KV cache used in the mean of the "
     "endpoints with a recent load\n"
     "queue       requests wait then, for 60 s at most: any number\n"
     "  of each other: 5000 requests, 1000000000 bytes, without regard to fairness ids\n"
     "  while no endpoint is ready: for 60 s at most\nrefused"},
    {METRICS NEW KIND "featureGates: [flowControl]\nflowControl: {defaultRequestTTL: 5s}\n" PLUGINS,
     "  while no endpoint is ready: for 5 s at most\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {noEndpointRequestTTL: 10m}\n" PLUGINS,
     "  while no endpoint is ready: for 600 s at most\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {noEndpointRequestTTL: 0s}\n" PLUGINS,
     "  while no endpoint is ready: for any time\n"},
    {METRICS OLD KIND "featureGates:\n- flowControl=true\n" PLUGINS, "queue       requests wait"},
    {METRICS OLD KIND "featureGates: [flowControl, flowControl=false]\n" PLUGINS,
     "!queue       others wait"},
    {OLD KIND "featureGates: [dataLayer, enableLegacyMetrics, prepareDataPlugins=false, "
              "haPopulateNonLeaderDatastore]\n" PLUGINS,
     "notes       featureGates[0]: dataLayer (loads are scraped without "
     "it)\n            featureGates[1]: enableLegacyMetrics ("},
    /* thresholds, as in releases before 1.5 */
    {METRICS OLD KIND "saturationDetector: {queueDepthThreshold: 7, kvCacheUtilThreshold: 0.75, "
                      "metricsStalenessThreshold: 150ms}\n" PLUGINS,
     THRESHOLDS("7", "0.75")},
    {METRICS OLD KIND "saturationDetector: {metricsStalenessThreshold: 1m30s}\n" PLUGINS,
     "counts for 90 s\n"},
    {METRICS OLD KIND "saturationDetector: {queueDepthThreshold: 9}\n" PLUGINS,
     THRESHOLDS("9", "0.8")},
    {METRICS OLD KIND "saturationDetector: {}\n" PLUGINS, THRESHOLDS("5", "0.8")},
    {METRICS OLD KIND "saturationDetector: {}\n" PLUGINS, "!notes"},
    {METRICS OLD KIND "saturationDetector:\n" PLUGINS, THRESHOLDS("5", "0.8")},
    {OLD KIND "saturationDetector: {queueDepthThreshold: 7}\n" PLUGINS,
     "saturated   when every endpoint has 256 requests in flight or 7 waiting or 0.8"},
    {OLD KIND "saturationDetector: {queueDepthThreshold: 7}\n" PLUGINS,
     "notes       saturationDetector (thresholds need `metrics`: "},
    /* thresholds of a plugin */
    {METRICS NEW KIND PLUGINS DETECTOR(
         "{queueDepthThreshold: 3, kvCacheUtilThreshold: 1}") "saturationDetector: {pluginRef: "
                                                              "d}\n",
     THRESHOLDS("3", "1")},
    {METRICS NEW KIND PLUGINS DETECTOR(
         "{queueDepthThreshold: 3}") "flowControl: {saturationDetector: {pluginRef: d}}\n"
                                     "saturationDetector: {pluginRef: none}\n",
     THRESHOLDS("3", "0.8")},
    {METRICS NEW KIND PLUGINS DETECTOR("{queueDepthThreshold: 3}"), THRESHOLDS("5", "0.8")},
    {METRICS NEW KIND PLUGINS
     "- {type: utilization-detector, parameters: {queueDepthThreshold: 4, headroom: 0.2}}\n",
     THRESHOLDS("4", "0.8")},
    {METRICS NEW KIND PLUGINS
     "- {type: utilization-detector, parameters: {queueDepthThreshold: 4, headroom: 0.2}}\n",
     "!notes"},
    {METRICS NEW KIND PLUGINS
     "- {type: utilization-detector, parameters: {stalenessPolicy: saturated}}\n",
     "saturated   as a whole, with 5 waiting or 0.8 of the KV cache used in the mean of the "
     "endpoints, of which one without a recent load is at its limit: "},
    {METRICS NEW KIND PLUGINS
     "- {type: utilization-detector, parameters: {stalenessPolicy: ignore}}\n",
     THRESHOLDS("5", "0.8")},
    {NEW KIND "saturationDetector: {pluginRef: c}\n" PLUGINS
              "- {name: c, type: concurrency-detector, parameters: {concurrencyMode: tokens, "
              "headroom: 0.5}}\n",
     "saturated   as a whole, with 1000000 tokens in flight for each endpoint: "},
    {NEW KIND "saturationDetector: {pluginRef: c}\n" PLUGINS
              "- {name: c, type: concurrency-detector, parameters: {concurrencyMode: hybrid, "
              "maxConcurrency: 7, maxTokenConcurrency: 5000}}\n",
     "saturated   as a whole, with 7 requests or 5000 tokens in flight in the mean of the "
     "endpoints: "},
    {METRICS NEW KIND "saturationDetector: {pluginRef: utilization-detector}\n" PLUGINS,
     THRESHOLDS("5", "0.8")},
    {NEW KIND "flowControl: {saturationDetector: {pluginRef: c}}\n" PLUGINS
              "- {name: c, type: concurrency-detector, parameters: {maxConcurrency: 9, "
              "concurrencyMode: requests, maxTokenConcurrency: 5}}\n",
     "saturated   as a whole, with 9 requests in flight for each endpoint: "},
    {NEW KIND "saturationDetector: {pluginRef: concurrency-detector}\n" PLUGINS,
     "saturated   as a whole, with 100 requests in flight for each endpoint: "},
    /* what is scraped is the plugins' to say where only times are given, as by a flag */
    {"metrics: {preset: vllm, interval: 300ms, max_age: 3s}\n---\n" NEW KIND PLUGINS
     "- {type: core-metrics-extractor, parameters: {defaultEngine: sglang}}\n",
     "sglang:num_queue_reqs"},
    {"metrics: {preset: vllm, interval: 300ms}\n---\n" NEW KIND PLUGINS
     "- {type: core-metrics-extractor, parameters: {defaultEngine: sglang}}\n",
     "every 0.3 s"},
    {METRICS NEW KIND PLUGINS
     "- {type: core-metrics-extractor, parameters: {defaultEngine: sglang}}\n",
     "!sglang"},
    /* filters of a profile, and the pool's detector beside them */
    {METRICS NEW KIND PLUGINS DETECTOR("{queueDepthThreshold: 3, headroom: 0.5}")
         PROFILE("d") "saturationDetector: {pluginRef: d}\n",
     THRESHOLDS("3", "0.8")},
    {METRICS NEW KIND PLUGINS DETECTOR("{queueDepthThreshold: 3}") PROFILE("d"),
     THRESHOLDS("5", "0.8")},
    {METRICS NEW KIND PLUGINS DETECTOR("{queueDepthThreshold: 3}") PROFILE("d"), "!notes"},
    {METRICS NEW KIND PLUGINS DETECTOR("{metricsStalenessThreshold: 1m30s}") PROFILE("d"),
     "counts for 90 s\n"},
    {METRICS NEW KIND PLUGINS DETECTOR("{metricsStalenessThreshold: 1m30s}")
         PROFILE("d") "saturationDetector: {metricsStalenessThreshold: 10s}\n",
     "counts for 10 s\n"},
    {METRICS NEW KIND PLUGINS DETECTOR("{metricsStalenessThreshold: 1m30s}")
         PROFILE("queue-scorer"),
     "!counts for 90 s\n"},
    {NEW KIND PLUGINS DETECTOR("{}") PROFILE("d"),
     "notes       plugins[1] (keeps all endpoints: it needs `metrics`)"},
    {"profile:\n  plugins:\n  - {type: utilization-detector, parameters: "
     "{metricsStalenessThreshold: 1m30s}}\n  - type: queue-scorer\nmetrics: {preset: vllm}\n",
     "counts for 90 s\n"},
    {NEW KIND PLUGINS
     "- {name: c, type: concurrency-detector, parameters: {maxConcurrency: 9}}\n" PROFILE("c"),
     OURS},
    {NEW KIND PLUGINS "- {name: utilization-detector, type: concurrency-detector, parameters: "
                      "{maxConcurrency: 9}}\nsaturationDetector: {}\n",
     "saturated   as a whole, with 9 requests in flight for each endpoint: "},
    /* flow control */
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {maxBytes: 1Gi, maxRequests: 2k, "
     "defaultRequestTTL: 1m30s, defaultPriorityBand: {maxRequests: 50}, priorityBands: [{priority: "
     "10, maxRequests: 7}, {priority: 0}]}\n" PLUGINS,
     "queue       requests wait then, for 90 s at most: 2000 requests, 1073741824 bytes\n"
     "  of priority 10: 7 requests, 1000000000 bytes, without regard to fairness ids\n"
     "  of priority 0: 5000 requests, 1000000000 bytes, without regard to fairness ids\n"
     "  of each other: 50 requests, 1000000000 bytes, without regard to fairness ids\n"},
    {NEW KIND "featureGates: [flowControl]\nflowControl: {maxBytes: 500M, maxRequests: 1500, "
              "defaultRequestTTL: 0s}\n" PLUGINS,
     "for any time: 1500 requests, 500000000 bytes\n"},
    {NEW KIND "featureGates: [flowControl]\nflowControl: {maxBytes: 0, maxRequests: '0', "
              "defaultRequestTTL: 9000s}\n" PLUGINS,
     "queue       requests wait then, for 9000 s at most: any number\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {defaultNegativePriorityBand: {maxRequests: 1}, "
     "priorityBands: [{priority: -1, fairnessPolicyRef: f, orderingPolicyRef: "
     "slo-deadline-ordering-policy, maxBytes: 1Gi, defaultRequestTTL: 2s}, {priority: 3, "
     "defaultRequestTTL: 0s, orderingPolicyRef: edf-ordering-policy, fairnessPolicyRef: "
     "global-strict-fairness-policy}], usageLimitPolicyPluginRef: "
     "static-usage-limit-policy, enableEviction: false}\n" PLUGINS
     "- {name: f, type: round-robin-fairness-policy}\n",
     "  of priority -1: 5000 requests, 1073741824 bytes, for 2 s at most, by deadline\n"
     "  of priority 3: 5000 requests, 1000000000 bytes, for any time, without regard to fairness "
     "ids\n"
     "  of each other below 0: 1 request, 1000000000 bytes, without regard to fairness ids\n"
     "  of each other: 5000 requests, 1000000000 bytes, without regard to fairness ids\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {priorityBands: [{priority: -10, maxRequests: "
     "50}]}\n" PLUGINS,
     "!notes"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {usageLimitPolicyPluginRef: u}\n" PLUGINS
     "- {name: u, type: static-usage-limit-policy, parameters: {threshold: 0.9}}\n",
     "  each may use 0.9 of the capacity\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {usageLimitPolicyPluginRef: u}\n" PLUGINS
     "- {name: u, type: priority-holdback-policy, parameters: {shape: linear, domain: "
     "value, minCeiling: 0.5, maxCeiling: 0.95}}\n",
     "  the highest may use 0.95 of the capacity, the lowest 0.5, by value\n"},
    {METRICS NEW KIND "featureGates: [flowControl]\nflowControl: {usageLimitPolicyPluginRef: "
                      "soft-reflective-ceiling-policy}\n" PLUGINS
                      "- type: soft-reflective-ceiling-policy\n",
     "  lower ones are admitted less and less above a share of the capacity\n"},
    {METRICS NEW KIND "featureGates: [flowControl]\nflowControl: {defaultPriorityBand: "
                      "{fairnessPolicyRef: program-aware-fairness}}\n" PLUGINS
                      "- {type: program-aware-fairness, parameters: {strategy: las}}\n",
     "5000 requests, 1000000000 bytes, the least served fairness id first\n"},
    {METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {priorityBands: [{priority: -1, "
     "defaultRequestTTL: 9000s, fairnessPolicyRef: program-aware-fairness}]}\n" PLUGINS
     "- {type: program-aware-fairness, parameters: {strategy: turn-priority}}\n",
     "for 9000 s at most, the fairness id with the most turns first\n"},
    {METRICS NEW KIND "featureGates: [flowControl]\nflowControl: {enableEviction: true}\n" PLUGINS
                      "- type: eviction-sheddable-filter\n"
                      "- type: eviction-priority-then-time-ordering\n",
     "  sheddable ones that run are ended for others of a higher priority\n"},
    {METRICS NEW KIND "flowControl: {enableEviction: true}\n" PLUGINS,
     "notes       flowControl (it needs `featureGates: [flowControl]`)\n"},
    {METRICS NEW KIND PLUGINS "- {type: probabilistic-admitter, parameters: {power: 2}}\n",
     "admission   sheddable requests are refused with the probability 300 * load^2, of 5 waiting "
     "or "
     "0.8 of the KV cache\n"},
    {METRICS NEW KIND PLUGINS "- {type: agent-identity, parameters: {additionalSessionHeaders: "
                              "[X-Agent]}}\n",
     "!notes"},
    {METRICS NEW KIND "flowControl: {maxRequests: 5}\n" PLUGINS,
     "notes       flowControl (it needs `featureGates: [flowControl]`)\n"},
    {METRICS NEW KIND "flowControl: {maxRequests: 5}\n" PLUGINS, "!queue       others wait"},
    /* with our own settings */
    {"saturation: {max_in_flight: 3}\nflow_control: {max_wait: 1s}\n---\n" NEW KIND
     "featureGates: [flowControl]\n" PLUGINS,
     "saturated   when every endpoint has 3 requests in flight: sheddable ones are refused, to be "
     "sent again after 1 s\nqueue       others wait then, for 1 s at most: 10000 requests"},
    {"flow_control: {bands: [{priority: 3, max_requests: 4}]}\n" METRICS NEW KIND
     "featureGates: [flowControl]\nflowControl: {saturationDetector: {}}\n" PLUGINS,
     "268435456 bytes\n  of priority 3: 4 requests\nrefused"},
    {"saturation: {retry_after: 9s}\n" METRICS NEW KIND "saturationDetector: {}\n" PLUGINS,
     THRESHOLDS("5", "0.8") "sheddable ones are refused, to be sent again after 9 s\n"},
    /* other sections */
    {NEW KIND PLUGINS "- type: metrics-data-source\n- type: core-metrics-extractor\n"
                      "- type: openai-parser\n- {name: p, type: vllmgrpc-parser}\n"
                      "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: "
                      "[{pluginRef: core-metrics-extractor}]}]}\n"
                      "parser: {pluginRef: openai-parser}\n"
                      "requestHandler: {parsers: [{pluginRef: p}]}\n",
     "bodies      as vllmgrpc-parser; requests to other paths are refused\n"},
    {NEW KIND PLUGINS "- type: openai-parser\n- {name: s, type: sglanghttp-parser}\n"
                      "- type: passthrough-parser\n- type: vertexai-parser\n"
                      "requestHandler: {parsers: [{pluginRef: s}, {pluginRef: openai-parser}, "
                      "{pluginRef: passthrough-parser}, {pluginRef: vertexai-parser}]}\n",
     "bodies      as openai-parser, sglanghttp-parser; requests to other paths are passed on\n"},
    {NEW KIND PLUGINS "- type: passthrough-parser\n- type: openai-parser\n"
                      "requestHandler: {parsers: [{pluginRef: passthrough-parser}, "
                      "{pluginRef: openai-parser}]}\n",
     "notes       requestHandler.parsers[1] (no effect: it is after passthrough-parser)\n"},
    {NEW KIND PLUGINS "- type: passthrough-parser\nparser: {pluginRef: passthrough-parser}\n",
     "bodies      not read\n"},
    {NEW KIND PLUGINS, "!bodies"},
    {NEW KIND PLUGINS "- {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 16}}\n"
                      "- type: inflight-load-producer\n",
     "!notes"},
    {NEW KIND PLUGINS "- {type: request-attribute-reporter, parameters: {attributes: [{key: {name: "
                      "a}, expression: usage.prompt_tokens * 2.0, condition: ''}]}}\n",
     "!notes"},
    {NEW KIND PLUGINS "- {type: request-attribute-reporter, parameters: {attributes: [{key: {name: "
                      "a}, expression: usage.prompt_tokens * 2}]}}\n",
     "notes       plugins[1].parameters.attributes[0].expression: usage.prompt_tokens * 2 (no "
     "value "
     "of ordinary responses: no such overload: * of double and int)"},
    /* a plugin of two kinds */
    {NEW KIND "plugins:\n- {type: context-length-aware, parameters: {enableFiltering: true}}\n",
     "  context-length-aware          filter\n  context-length-aware          scorer, weight 1\n"},
    /* metrics scrapes */
    {NEW KIND PLUGINS, "loads       not asked for"},
    {NEW KIND PLUGINS "- type: metrics-data-source\nsaturationDetector: {}\n",
     THRESHOLDS("5", "0.8")},
    {NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {scheme: http, path: /m, "
                      "insecureSkipVerify: true, port: 9000, interval: 1s}}\n",
     "loads       GET /m at port 9000, every 1 s, in 1 s, up to 4194304 bytes; at most 500 a "
     "second; counts for 2 s\n  of an endpoint with the label llm-d.ai/engine-type: by that "
     "engine\n"
     "  waiting           vllm:num_requests_waiting, sum\n"},
    {NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {scheme: https}}\n",
     "loads       GET https /metrics, every 0.2 s, in 1 s, up to 4194304 bytes; at most 500 a "
     "second; counts for 2 s\n  of an endpoint with the label llm-d.ai/engine-type: by that "
     "engine\n"
     "  certificates are not verified\n"},
    {NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {scheme: https, "
                      "insecureSkipVerify: false, caCertPath: /ca.pem}}\n",
     "  certificates are verified by /ca.pem\n"},
    {NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {path: /metrics}}\n"
                      "- {type: core-metrics-extractor, parameters: {defaultEngine: trtllm-serve, "
                      "engineLabelKey: llm-d.ai/engine-type}}\n",
     "loads       GET /metrics, every"},
    {NEW KIND PLUGINS
     "- {type: core-metrics-extractor, parameters: {defaultEngine: triton-tensorrt-llm}}\n",
     "loads       GET /metrics at port 8002, every"},
    {NEW KIND PLUGINS "- {type: core-metrics-extractor, parameters: {engineConfigs: []}}\n",
     "loads       GET /metrics, every"},
    {"metrics: {preset: sglang}\n---\n" NEW KIND PLUGINS
     "- {type: metrics-data-source, parameters: {path: /m}}\n",
     "notes       plugins[1].parameters (overridden by `metrics` or by flags)\n"},
    {"metrics: {preset: sglang}\n---\n" NEW KIND PLUGINS
     "- {type: metrics-data-source, parameters: {path: /m}}\n",
     "sglang:num_queue_reqs"},
    {OLD KIND PLUGINS "- type: metrics-data-source\ndata: {sources: []}\n", "notes       data ("},
    /* affinities that outweigh loads */
    {NEW KIND PLUGINS "- type: prefix-cache-scorer\n",
     "notes       profile (the scorers of affinities weigh as much as those of load, or more: "},
    {NEW KIND PLUGINS "- type: prefix-cache-scorer\n- type: active-request-scorer\n", "!notes"},
    {NEW KIND PLUGINS "- type: prefix-cache-scorer\n- type: random-picker\n", "!notes"},
    {NEW KIND "plugins: [{type: lora-affinity-scorer}, {type: session-hash-scorer}, {type: "
              "load-aware-scorer}]\nschedulingProfiles: [{name: d, plugins: [{pluginRef: "
              "lora-affinity-scorer}, {pluginRef: session-hash-scorer}, {pluginRef: "
              "load-aware-scorer, weight: 4}]}]\n",
     "notes       profile (the scorers of affinities"},
    {NEW KIND PLUGINS "- type: session-hash-filter\n",
     "notes       profile (session-hash-filter keeps a session at its endpoint whatever"},
};

static void check_printed(const char *text, const char *printed) {
    struct pool_specs specs;
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    bool without = printed[0] == '!';
    if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    buf_init(&out, arena, 0);
    pool_specs_print(&specs, &out);
    buf_add_char(&out, '\0');
    if ((strstr(out.data, printed + without) != NULL) == without) {
        fail_msg("%s\nbecame\n%s\nand not\n%s", text, out.data, printed);
    }
    arena_free(arena);
    pool_specs_free(&specs);
}

static void picker_config_valid_is_printed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        check_printed(taken[i].text, taken[i].printed);
    }
}

static const struct {
    const char *sections, *message; /* from line 3 on; the text follows "pool.yaml:" */
} refused[] = {
    {"featureGates: [flowcontrol]\n",
     "3: featureGates[0]: no feature gate is called \"flowcontrol\"; there are flowControl, "
     "dataLayer, enableLegacyMetrics, prepareDataPlugins, haPopulateNonLeaderDatastore"},
    {"featureGates: [dataLayer=maybe]\n",
     "3: featureGates[0]: expected dataLayer=true or dataLayer=false, got \"maybe\""},
    {"featureGates: {flowControl: true}\n", "3: featureGates: expected text, got an object"},
    {"saturationDetector: {queueDepth: 5}\n",
     "3: unknown field \"saturationDetector.queueDepth\"; did you mean \"queueDepthThreshold\"?"},
    {"saturationDetector: 5\n", "3: saturationDetector: expected an object (named fields), got 5"},
    {"saturationDetector: {queueDepthThreshold: 0}\n",
     "3: saturationDetector.queueDepthThreshold: expected a whole number from 1 to 2147483647, got "
     "0"},
    {"saturationDetector: {kvCacheUtilThreshold: 80}\n",
     "3: saturationDetector.kvCacheUtilThreshold: expected a share above 0, of 1 at most, got 80"},
    {"metrics: {}\n", "3: unknown field \"metrics\""},
    {"saturationDetector: {metricsStalenessThreshold: soon}\n",
     "3: saturationDetector.metricsStalenessThreshold: expected a time such as 200ms, 30s or "
     "1m30s, got \"soon\""},
    {"saturationDetector: {headroom: -1}\n", "3: saturationDetector.headroom: expected 0 or more"},
    {"saturationDetector: {pluginRef: d}\n",
     "3: saturationDetector.pluginRef: \"d\" is not one of: "
     "utilization-detector, concurrency-detector"},
    {"saturationDetector: {pluginRef: queue-scorer}\n",
     "3: saturationDetector.pluginRef: \"queue-scorer\" is not one of: "
     "utilization-detector, concurrency-detector"},
    {"saturationDetector: {pluginRef: utilization-detector, queueDepthThreshold: 5}\n",
     "3: unknown field \"saturationDetector.queueDepthThreshold\""},
    {"flowControl: {maxByte: 1}\n",
     "3: unknown field \"flowControl.maxByte\"; did you mean \"maxBytes\"?"},
    {"flowControl: {maxBytes: 1}\n",
     "3: flowControl.maxBytes: expected a quantity such as 500, 1k or 10Gi: 0, or 65536 to "
     "1099511627776"},
    {"flowControl: {maxRequests: many}\n",
     "3: flowControl.maxRequests: expected a quantity such as 500, 1k or 10Gi: 0, or 1 to "
     "10000000"},
    {"flowControl: {maxRequests: -1}\n",
     "3: flowControl.maxRequests: expected a quantity such as 500, 1k or 10Gi: 0, or 1 to "
     "10000000"},
    {"flowControl: {defaultRequestTTL: 60}\n",
     "3: flowControl.defaultRequestTTL: expected text (in quotes, where it looks like something "
     "else), got 60"},
    {"flowControl: {noEndpointRequestTTL: 5}\n",
     "3: flowControl.noEndpointRequestTTL: expected text (in quotes, where it looks like something "
     "else), got 5"},
    {"featureGates: [flowControl]\nflowControl: {enableEviction: true}\n",
     "4: flowControl.enableEviction: expected a concurrency-detector, or loads that are scraped "
     "(`metrics`): the saturation of the pool decides"},
    {"flowControl: {priorityBands: [{priority: 1}, {priority: 1}]}\n",
     "3: flowControl.priorityBands[1]: the priority 1 is there twice"},
    {"flowControl: {priorityBands: [{orderingPolicyRef: newest-first-policy}]}\n",
     "3: flowControl.priorityBands[0].orderingPolicyRef: \"newest-first-policy\" is not "
     "one of: fcfs-ordering-policy, edf-ordering-policy, slo-deadline-ordering-policy"},
    {"flowControl: {defaultPriorityBand: {fairnessPolicyRef: lottery-fairness}}\n",
     "3: flowControl.defaultPriorityBand.fairnessPolicyRef: \"lottery-fairness\" is not one "
     "of: round-robin-fairness-policy, global-strict-fairness-policy, program-aware-fairness"},
    {"flowControl: {usageLimitPolicyPluginRef: hard-ceiling-policy}\n",
     "3: flowControl.usageLimitPolicyPluginRef: \"hard-ceiling-policy\" is not one of: "
     "static-usage-limit-policy, priority-holdback-policy, soft-reflective-ceiling-policy"},
    {"flowControl: {usageLimitPolicyPluginRef: priority-holdback-policy}\n",
     "3: flowControl.usageLimitPolicyPluginRef: expected the name of a plugin with a minCeiling"},
    {"dataLayer: {discovery: {pluginRef: file-discovery}}\n",
     "3: dataLayer.discovery.pluginRef: no plugin above has the name \"file-discovery\""},
    {"dataLayer: {discovery: {endpoints: {pluginRef: queue-scorer}}}\n",
     "3: dataLayer.discovery.endpoints.pluginRef: \"queue-scorer\" is not one of: file-discovery"},
    {"dataLayer: {discovery: {peers: {pluginRef: p}}}\n",
     "3: dataLayer.discovery.peers: not supported: replicas do not know of each other"},
    {"dataLayer: {crossReplica: {syncInterval: 1s}}\n",
     "3: dataLayer.crossReplica: not supported: replicas do not know of each other's requests"},
    {"parser: {pluginRef: own-parser}\n",
     "3: parser.pluginRef: \"own-parser\" is not one of: openai-parser, "
     "passthrough-parser, anthropic-parser, vllmhttp-parser, sglanghttp-parser, vllmgrpc-parser, "
     "vertexai-parser"},
};

/* In both groups of the API. */
static void picker_config_invalid_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        char text[1000];
        snprintf(text, sizeof(text), NEW KIND "%s" PLUGINS, refused[i].sections);
        assert_file_refused(text, refused[i].message);
        snprintf(text, sizeof(text), OLD KIND "%s" PLUGINS, refused[i].sections);
        assert_file_refused(text, refused[i].message);
    }
}

static void picker_config_invalid_plugins_refused(void **state) {
    (void)state;
    assert_file_refused(NEW KIND PLUGINS "- type: predicted-latency-producer\n",
                        "5: plugins[1].type: \"predicted-latency-producer\" is not supported: "
                        "latencies are not predicted, and no predictor is asked");
    assert_file_refused(NEW KIND PLUGINS "- {type: disaggregatedset-rollout-screener, parameters: "
                                         "{scope: {labelSelector: 'a in (b)'}, revisionGating: "
                                         "{mode: sum, requiredRoles: [decode]}}}\n",
                        "5: plugins[1].parameters.scope.labelSelector: expected up to 16 of "
                        "LABEL=VALUE, separated by commas, got \"a in (b)\"");
    assert_file_refused(NEW KIND PLUGINS "- {type: disaggregatedset-rollout-screener, parameters: "
                                         "{scope: {labelSelector: a=b}, revisionGating: {mode: "
                                         "max-role}}}\n",
                        "5: plugins[1].parameters.revisionGating: expected `requireRoles: "
                        "{values}`, got none");
    assert_file_refused(NEW KIND PLUGINS "- {type: disaggregatedset-rollout-screener, parameters: "
                                         "{scope: {labelSelector: a=b}}}\n",
                        "5: plugins[1].parameters.revisionGating: expected `{mode, "
                        "requireRoles}`, got nothing");
    assert_file_refused(
        "profile: {plugins: [{type: latency-scorer}]}\n",
        "1: profile.plugins[0].type: \"latency-scorer\" is not supported: latencies "
        "are not predicted, and no predictor is asked; measured-latency-scorer goes "
        "by measured times");
    assert_file_refused(NEW KIND PLUGINS "- {type: concurrency-detector, name: c, parameters: "
                                         "{concurrencyMode: bytes}}\n"
                                         "saturationDetector: {pluginRef: c}\n",
                        "5: plugins[1].parameters.concurrencyMode: expected requests, tokens or "
                        "hybrid, got \"bytes\"");
    assert_file_refused(NEW KIND PLUGINS "- {type: concurrency-detector, name: c, parameters: "
                                         "{maxTokenConcurrency: 0}}\n"
                                         "saturationDetector: {pluginRef: c}\n",
                        "5: plugins[1].parameters.maxTokenConcurrency: expected a whole number "
                        "from 1 to 1099511627776, got 0");
    assert_file_refused(NEW KIND PLUGINS "- {type: utilization-detector, parameters: "
                                         "{stalenessPolicy: fail}}\n",
                        "5: plugins[1].parameters.stalenessPolicy: expected ignore or saturated, "
                        "got \"fail\"");
    assert_file_refused(NEW KIND PLUGINS "- {type: probabilistic-admitter, parameters: {k: 0}}\n",
                        "5: plugins[1].parameters.k: expected more than 0");
    assert_file_refused(NEW KIND PLUGINS "- {type: program-aware-fairness, parameters: {strategy: "
                                         "drr}}\n",
                        "5: plugins[1].parameters.strategy: expected las or turn-priority, got "
                        "\"drr\"");
    assert_file_refused(
        NEW KIND PLUGINS "- type: program-aware-fairness\n- {name: q, type: "
                         "program-aware-fairness, parameters: {lasHalfLifeSeconds: 5}}\n"
                         "flowControl: {priorityBands: [{priority: 1, fairnessPolicyRef: "
                         "program-aware-fairness}, {priority: 2, fairnessPolicyRef: q}]}\n",
        "7: flowControl.priorityBands[1].fairnessPolicyRef: expected one program-aware-fairness "
        "for all bands");
    assert_file_refused(NEW KIND PLUGINS "- {type: agent-identity, parameters: "
                                         "{additionalSessionHeaders: ['a b']}}\n",
                        "5: plugins[1].parameters.additionalSessionHeaders[0]: expected the name "
                        "of a header, got \"a b\"");
    assert_file_refused(NEW KIND PLUGINS "- type: utilisation-detector\n",
                        "5: plugins[1].type: no plugin is called \"utilisation-detector\"; did "
                        "you mean \"utilization-detector\"?");
#define REPORTER(attributes)                                                                       \
    NEW KIND PLUGINS "- {type: request-attribute-reporter, parameters: {attributes: " attributes   \
                     "}}\n"
#define AT "5: plugins[1].parameters.attributes"
    assert_file_refused(REPORTER("[]"), AT ": expected one attribute, got 0");
    assert_file_refused(REPORTER("[{}, {}]"), AT ": expected one attribute, got 2");
    assert_file_refused(REPORTER("[{expression: '1'}]"),
                        AT "[0].key.name: expected a name of 1 to 256 bytes without control "
                           "characters, got none");
    assert_file_refused(REPORTER("[{key: {name: a}}]"),
                        AT "[0].expression: expected an expression, got nothing");
    assert_file_refused(REPORTER("[{key: {name: a}, expression: usage.a + -}]"),
                        AT "[0].expression: at byte 12: expected an operand, got nothing");
    assert_file_refused(REPORTER("[{key: {name: a}, expression: has(usage.a)}]"),
                        AT "[0].expression: expected a number of type int or double, and it is of "
                           "the type bool");
    assert_file_refused(REPORTER("[{key: {name: a}, expression: '1', condition: max(1)}]"),
                        AT "[0].condition: at byte 5: there is no function max(); there are has, "
                           "int, uint, double, bool, string, dyn, size, and of texts contains, "
                           "startsWith, endsWith");
    assert_file_refused(REPORTER("[{key: {name: a}, expression: '1', condition: '1'}]"),
                        AT "[0].condition: expected a bool, and it is of the type int");
#undef AT
#undef REPORTER
    assert_file_refused(NEW KIND PLUGINS "- {type: session-affinity-filter, parameters: "
                                         "{strategy: session_id, profileName: prefill}}\n",
                        "5: plugins[1].parameters.profileName: no profile is called \"prefill\"");
    assert_file_refused(NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {scheme: "
                                         "https, clientCertPath: /c.pem}}\n",
                        "5: plugins[1].parameters.clientCertPath: expected clientCertPath and "
                        "clientKeyPath, got one of them");
    assert_file_refused(NEW KIND PLUGINS "- {type: metrics-data-source, parameters: {interval: "
                                         "1ms}}\n",
                        "5: plugins[1].parameters.interval: expected 50ms or more");
    assert_file_refused(NEW KIND PLUGINS "- {type: core-metrics-extractor, parameters: "
                                         "{defaultEngine: own}}\n",
                        "5: plugins[1].parameters.defaultEngine: no engine is called \"own\"; "
                        "there are vllm, sglang, trtllm-serve, triton-tensorrt-llm, tensorrt-llm, "
                        "triton, sluice");
    assert_file_refused(
        NEW KIND PLUGINS "- {type: static-usage-limit-policy, name: u, parameters: "
                         "{threshold: 1.5}}\n",
        "5: plugins[1].parameters.threshold: expected a share above 0, of 1 at most, "
        "got 1.5");
    assert_file_refused(NEW KIND PLUGINS "- {type: priority-holdback-policy, parameters: {domain: "
                                         "value}}\n",
                        "5: plugins[1].parameters.minCeiling: expected the share for the lowest "
                        "priority");
    assert_file_refused(NEW KIND PLUGINS "- {type: priority-holdback-policy, parameters: "
                                         "{minCeiling: 0.5, maxCeiling: 0.5}}\n",
                        "5: plugins[1].parameters.minCeiling: expected less than 0.5, the share "
                        "for the highest priority");
    assert_file_refused(NEW KIND PLUGINS "- {type: priority-holdback-policy, parameters: "
                                         "{minCeiling: 0.5, shape: step}}\n",
                        "5: plugins[1].parameters.shape: expected linear, got \"step\"");
    assert_file_refused(NEW KIND PLUGINS "- {type: soft-reflective-ceiling-policy, parameters: "
                                         "{period: 2}}\n",
                        "5: unknown field \"plugins[1].parameters.period\"");
    assert_file_refused(NEW KIND PLUGINS "- type: fcfs-ordering-policy\nschedulingProfiles: "
                                         "[{name: p, plugins: [{pluginRef: "
                                         "fcfs-ordering-policy}]}]\n",
                        "6: schedulingProfiles[0].plugins[0]: \"fcfs-ordering-policy\" has no "
                        "place in a profile");
    assert_file_refused("profile: {plugins: [{type: utilization-detektor}]}\n",
                        "1: profile.plugins[0].type: no plugin is called \"utilization-detektor\"; "
                        "did you mean \"utilization-detector\"?");
    assert_file_refused("saturation: {queue_depth: 1}\n---\n" NEW KIND
                        "saturationDetector: {}\n" PLUGINS,
                        "5: saturationDetector: the file has `saturation` already");
    assert_file_refused("flow_control: {}\n---\n" NEW KIND
                        "featureGates: [flowControl]\nflowControl: {maxRequests: 1}\n" PLUGINS,
                        "6: flowControl: the file has `flow_control` already");
}

/* Every prefix is accepted, or rejected with a line number within the file. */
static void picker_config_every_prefix_does_not_crash(void **state) {
    static const char text[] = NEW KIND PLUGINS DETECTOR(
        "{queueDepthThreshold: 3, headroom: 1}") "- type: metrics-data-source\n"
                                                 "featureGates: [flowControl, dataLayer]\n"
                                                 "flowControl:\n  maxBytes: 1Gi\n"
                                                 "  defaultRequestTTL: 1m30s\n  priorityBands:\n"
                                                 "  - {priority: 3, maxRequests: 1k}\n"
                                                 "  saturationDetector: {pluginRef: d}\n"
                                                 "dataLayer: {sources: []}\n";
    (void)state;
    for (size_t n = 0; n < sizeof(text); n++) {
        struct pool_specs specs;
        struct error err;
        enum status st = pool_file_parse("f", str_make(text, n), &specs, &err);
        assert_true(st == ST_OK || (st == ST_BAD_CONFIG && strncmp(err.text, "f:", 2) == 0));
        pool_specs_free(&specs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picker_config_valid_is_printed),
        cmocka_unit_test(picker_config_invalid_refused),
        cmocka_unit_test(picker_config_invalid_plugins_refused),
        cmocka_unit_test(picker_config_every_prefix_does_not_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
