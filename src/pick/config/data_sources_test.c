/* Upstream's plugins of the data layer: the plans that they result in, which plan an endpoint has
 * by its label, notes, and errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/config/scrape_rules.h"
#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file_fixture.h"
#include "pick/pool/profile/profile.h"

#define HEAD "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"
#define EXTRACTOR(parameters) "- {type: core-metrics-extractor, parameters: " parameters "}\n"
#define SOURCE(parameters) "- {type: metrics-data-source, parameters: " parameters "}\n"
#define SCORER(key, more)                                                                          \
    "- {type: endpoint-attribute-scorer, name: s-" key ", parameters: {attributeKey: " key more    \
    ", algorithm: {type: linear_lower_is_better}}}\n"
#define DEPTH SCORER("depth", "")
#define GPU SCORER("GPUUtilization", ", producer: dcgm-extractor")

static struct pool_specs specs;

/* Returns: the spec, until close_spec. */
static const struct pool_spec *open_spec(const char *text) {
    struct error err = {.status = ST_OK};
    if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    assert_int_equal(specs.n, 1);
    return specs.items[0];
}

static void close_spec(void) {
    pool_specs_free(&specs);
}

/* ---- engines --------------------------------------------------------------------------------- */

#define ENGINES                                                                                    \
    "{engineConfigs: [{name: own, queuedRequestsSpec: 'q{state=\"waiting\",  pool = a }', "        \
    "runningRequestsSpec: r, kvUsageSpec: 'kv { a = \"x y\" } ', loraSpec: lora, cacheInfoSpec: "  \
    "info, cacheNumBlocksLabelName: n, cacheBlockSizeSpec: size, customMetrics: [{attributeKey: "  \
    "unread, metricSpec: u}, {attributeKey: depth, metricSpec: 'd{tier=gold}'}]}, {name: vllm, "   \
    "queuedRequestsSpec: v}]}"

static void engine_specs_become_rules(void **state) {
    (void)state;
    const struct pool_spec *spec = open_spec(HEAD EXTRACTOR(ENGINES) DEPTH);
    const struct scrape_engine *own = scrape_plan_find_engine(spec->scrape, STR("own"));
    assert_non_null(own);
    static const struct {
        enum scrape_metric into;
        enum scrape_combine combine;
        const char *series, *label;
        size_t n_labels;
    } rules[] = {
        {SCRAPE_WAITING, SCRAPE_FIRST, "q", "", 2},
        {SCRAPE_RUNNING, SCRAPE_FIRST, "r", "", 0},
        {SCRAPE_KV_CACHE, SCRAPE_FIRST, "kv", "", 1},
        {SCRAPE_ADAPTERS, SCRAPE_NEWEST, "lora", "", 0},
        {SCRAPE_KV_BLOCK_TOKENS, SCRAPE_FIRST, "size", "", 0},
        {SCRAPE_KV_BLOCK_TOKENS, SCRAPE_FIRST, "info", "block_size", 0},
        {SCRAPE_KV_BLOCKS, SCRAPE_FIRST, "info", "n", 0},
        {SCRAPE_ATTRIBUTE, SCRAPE_FIRST, "d", "", 1},
    };
    assert_int_equal(own->source.rules.n, sizeof(rules) / sizeof(*rules));
    for (size_t i = 0; i < own->source.rules.n; i++) {
        const struct scrape_rule *rule = &own->source.rules.items[i];
        assert_int_equal(rule->into, rules[i].into);
        assert_int_equal(rule->combine, rules[i].combine);
        assert_true(str_is(rule->series, rules[i].series));
        assert_int_equal(rule->labels.n, rules[i].n_labels);
        assert_true(str_is(rule->value_label, rules[i].label));
        assert_true(rule->attribute == 0);
    }
    const struct scrape_rule *queued = &own->source.rules.items[0];
    assert_true(str_is(queued->labels.items[0].key, "state"));
    assert_true(str_is(queued->labels.items[0].value, "waiting"));
    assert_true(str_is(queued->labels.items[1].key, "pool"));
    assert_true(str_is(queued->labels.items[1].value, "a"));
    assert_true(str_is(own->source.rules.items[2].labels.items[0].value, "x y"));
    /* It is in place of the engine that is known, and so are the endpoints without one. */
    assert_int_equal(spec->scrape->source.rules.n, 1);
    assert_true(str_is(spec->scrape->source.rules.items[0].series, "v"));
    close_spec();
}

/* Returns: the series of the requests that wait, at an endpoint with these labels. */
static const char *waiting_series(const struct pool_spec *spec, const char *key,
                                  const char *value) {
    struct pool_label label = {str_of(key), str_of(value)};
    struct pool_spec_endpoint endpoint = {.address = {.family = 4, .port = 8000},
                                          .labels = {&label, 1}};
    struct scrape_request request;
    static char series[100];
    assert_true(scrape_plan_resolve(spec->scrape, &endpoint, &request));
    snprintf(series, sizeof(series), "%.*s %.*s %u", STR_ARG(request.source->rules.items[0].series),
             STR_ARG(request.source->path), request.host.port);
    return series;
}

static void engine_label_selects_rules(void **state) {
    (void)state;
    const struct pool_spec *spec =
        open_spec(HEAD EXTRACTOR("{engineConfigs: [{name: own, queuedRequestsSpec: q}], "
                                 "defaultEngine: sglang}") "- type: queue-scorer\n");
    const char *key = "llm-d.ai/engine-type", *old = "inference.networking.k8s.io/engine-type";
    assert_string_equal(waiting_series(spec, key, "own"), "q /metrics 8000");
    assert_string_equal(waiting_series(spec, key, "vllm"),
                        "vllm:num_requests_waiting /metrics 8000");
    assert_string_equal(waiting_series(spec, key, "trtllm-serve"),
                        "trtllm_num_requests_waiting /prometheus/metrics 8000");
    assert_string_equal(waiting_series(spec, key, "triton"),
                        "nv_inference_pending_request_count /metrics 8002");
    assert_string_equal(waiting_series(spec, key, "triton-tensorrt-llm"),
                        "nv_trt_llm_request_metrics /metrics 8002");
    assert_string_equal(waiting_series(spec, key, "unknown"),
                        "sglang:num_queue_reqs /metrics 8000");
    assert_string_equal(waiting_series(spec, key, "default"),
                        "sglang:num_queue_reqs /metrics 8000");
    assert_string_equal(waiting_series(spec, key, ""), "sglang:num_queue_reqs /metrics 8000");
    assert_string_equal(waiting_series(spec, "other", "vllm"),
                        "sglang:num_queue_reqs /metrics 8000");
    assert_string_equal(waiting_series(spec, old, "own"), "q /metrics 8000");
    close_spec();
    /* Another label replaces the newer one alone; a page that is given is that of all. */
    spec = open_spec(HEAD EXTRACTOR("{engineLabelKey: engine}")
                         SOURCE("{path: /m, port: 9}") "- type: queue-scorer\n");
    assert_string_equal(waiting_series(spec, "engine", "sglang"), "sglang:num_queue_reqs /m 9");
    assert_string_equal(waiting_series(spec, old, "triton"),
                        "nv_inference_pending_request_count /m 9");
    assert_string_equal(waiting_series(spec, key, "sglang"), "vllm:num_requests_waiting /m 9");
    close_spec();
    spec = open_spec(HEAD EXTRACTOR("{defaultEngine: triton}")
                         SOURCE("{scheme: http, path: /metrics}") "- type: queue-scorer\n");
    assert_string_equal(waiting_series(spec, key, ""),
                        "nv_inference_pending_request_count /metrics 8000");
    assert_string_equal(waiting_series(spec, key, "triton-tensorrt-llm"),
                        "nv_trt_llm_request_metrics /metrics 8000");
    close_spec();
}

/* ---- what is printed ------------------------------------------------------------------------- */

static void data_layer_is_printed(void **state) {
    static const struct {
        const char *text, *printed; /* "!TEXT": TEXT must not be printed */
    } rows[] = {
        {HEAD EXTRACTOR(ENGINES) DEPTH,
         "  of an endpoint with the label llm-d.ai/engine-type: by that engine\n"},
        {HEAD EXTRACTOR(ENGINES) DEPTH, "  engine own: GET /metrics\n  waiting           "
                                        "q{state=\"waiting\",pool=\"a\"}, first\n"},
        {HEAD EXTRACTOR(ENGINES) DEPTH, "  depth             d{tier=\"gold\"}, first\n"},
        {HEAD EXTRACTOR(ENGINES) DEPTH, "!notes"},
        {HEAD EXTRACTOR("{}") DEPTH,
         "notes       attribute depth of \"core-metrics-extractor\" (nothing sets it: "},
        {HEAD EXTRACTOR(ENGINES) SCORER("depth", ", producer: ''"),
         "notes       attribute depth of \"\" (nothing sets it"},
        {HEAD SOURCE(
             "{scheme: https, clientCertPath: /c.pem, clientKeyPath: /k.pem}") "- type: "
                                                                               "queue-scorer\n",
         "  certificates are not verified\n  with the certificate /c.pem\n"},
        {HEAD SOURCE(
             "{scheme: http, clientCertPath: /c.pem, clientKeyPath: ''}") "- type: queue-scorer\n",
         "!certificate"},
        {HEAD "- {type: dcgm-data-source, name: d, parameters: {interval: 1s, useNodeAddress: "
              "true}}\n- {type: dcgm-extractor, name: x}\n" GPU
              "dataLayer: {sources: [{pluginRef: d, extractors: [{pluginRef: x}]}]}\n",
         "gpus        GET /metrics at port 9400, every 1 s, in 1 s, up to 4194304 bytes; at most "
         "500 a second; counts for 2 s\n  GPUUtilization    DCGM_FI_DEV_GPU_UTIL, max, divided by "
         "100, of the endpoint's pod\n"},
        {HEAD "- type: queue-scorer\ndataLayer: {sources: [{pluginRef: dcgm-data-source, "
              "extractors: [{pluginRef: dcgm-extractor}]}]}\n",
         "(no plugin reads GPUUtilization of dcgm-extractor)"},
        {HEAD "- type: dcgm-data-source\n- type: dcgm-extractor\n" GPU,
         "notes       attribute GPUUtilization of \"dcgm-extractor\" (nothing sets it"},
        {HEAD "- {type: dcgm-data-source, parameters: {scheme: https, path: /g, port: 1}}\n" GPU
              "dataLayer: {sources: [{pluginRef: dcgm-data-source, extractors: [{pluginRef: "
              "dcgm-extractor}]}]}\n",
         "gpus        GET https /g at port 1, every"},
        {HEAD SOURCE("{}") GPU "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: "
                               "[{pluginRef: core-metrics-extractor}, {pluginRef: "
                               "dcgm-extractor}]}]}\n",
         "  GPUUtilization    DCGM_FI_DEV_GPU_UTIL, max, divided by 100, of the endpoint's pod\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 0);
        pool_spec_print(open_spec(rows[i].text), &out);
        buf_add_char(&out, '\0');
        bool unwanted = rows[i].printed[0] == '!';
        if ((strstr(out.data, rows[i].printed + unwanted) != NULL) == unwanted) {
            fail_msg("%s\nbecame\n%s\nand not\n%s", rows[i].text, out.data, rows[i].printed);
        }
        arena_free(arena);
        close_spec();
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define CUSTOM(item) EXTRACTOR("{engineConfigs: [{name: a, customMetrics: [" item "]}]}")
#define CONFIG(item) EXTRACTOR("{engineConfigs: [" item "]}")
#define AT "4: plugins[0].parameters.engineConfigs[0]"

static void data_layer_invalid_refused(void **state) {
    static const struct {
        const char *plugins, *message;
    } rows[] = {
        {CONFIG("{name: default}"), AT ".name: \"default\" is what endpoints without an engine"},
        {CONFIG("{queuedRequestsSpec: a}"), AT ".name: expected a name of 1 to 256 bytes"},
        {CONFIG("{name: a}, {name: a}"),
         "4: plugins[0].parameters.engineConfigs[1]: the engine \"a\" is there twice"},
        {CONFIG("5"), AT ": expected an object"},
        {CONFIG("{name: a, queueSpec: b}"), "unknown field"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a b'}"), AT ".queuedRequestsSpec: expected the "},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: '{'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: '{a=b}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b=}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b=c,}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b=c}}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b=\"c}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a{b:c=d}'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, queuedRequestsSpec: 'a} b'}"), "NAME{LABEL=VALUE, …}"},
        {CONFIG("{name: a, cacheInfoSpec: i, cacheBlockSizeLabelName: 'a b'}"),
         ".cacheBlockSizeLabelName: expected the name of a label"},
        {CUSTOM("{attributeKey: a}"), "customMetrics[0].metricSpec: expected the name of a series"},
        {CUSTOM("{metricSpec: a}"), "customMetrics[0].attributeKey: expected a name"},
        {CUSTOM("{attributeKey: a, metricSpec: b}, {attributeKey: a, metricSpec: c}"),
         "customMetrics[1].attributeKey: the attribute \"a\" is there twice"},
        {EXTRACTOR("{}") "- {type: core-metrics-extractor, name: other}\n",
         "5: plugins[1]: expected one \"core-metrics-extractor\", got two"},
        {SOURCE("{scheme: https, clientKeyPath: /k}"), "got one of them"},
        {"- {type: dcgm-data-source, parameters: {port: 0}}\n" GPU
         "dataLayer: {sources: [{pluginRef: dcgm-data-source, extractors: [{pluginRef: "
         "dcgm-extractor}]}]}\n",
         "4: plugins[0].parameters.port: expected a whole number from 1 to 65535, got 0"},
        {GPU "dataLayer: {sources: [{pluginRef: dcgm-data-source, extractors: [{pluginRef: "
             "core-metrics-extractor}]}]}\n",
         "5: dataLayer.sources[0].extractors[0]: not supported: loads are scraped from the pages "},
        {GPU "dataLayer: {sources: [{pluginRef: dcgm-data-source, extractors: [{pluginRef: "
             "metrics-data-source}]}]}\n",
         "5: dataLayer.sources[0].extractors[0]: \"metrics-data-source\" is no extractor"},
        {"- {type: dcgm-data-source, name: a}\n- {type: dcgm-data-source, name: b}\n" GPU
         "dataLayer: {sources: [{pluginRef: a, extractors: [{pluginRef: dcgm-extractor}]}, "
         "{pluginRef: b, extractors: [{pluginRef: dcgm-extractor}]}]}\n",
         "7: dataLayer.sources[1]: expected one source of dcgm-extractor, got two"},
        {SCORER("a/b", ""), "\"a/b\" is the name of an attribute with a \"/\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[2000];
        struct error err;
        snprintf(text, sizeof(text), HEAD "%s", rows[i].plugins);
        if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) == ST_OK ||
            !strstr(err.text, rows[i].message)) {
            fail_msg("%s: %s", text, err.text);
        }
    }
}

/* Seventeen attributes are one more than a pool has. */
static void attributes_have_a_limit(void **state) {
    char text[8000] = HEAD;
    struct error err;
    (void)state;
    for (int i = 0; i < ATTRIBUTES_MAX + 1; i++) {
        size_t len = strlen(text);
        if (i == ATTRIBUTES_MAX) {
            assert_int_equal(open_spec(text)->profile->needs.n_attributes, ATTRIBUTES_MAX);
            close_spec();
        }
        snprintf(text + len, sizeof(text) - len,
                 "- {type: endpoint-attribute-scorer, name: s%d, parameters: {attributeKey: a%d, "
                 "algorithm: {type: linear_lower_is_better}}}\n",
                 i, i);
    }
    assert_int_not_equal(pool_file_parse("pool.yaml", str_of(text), &specs, &err), ST_OK);
    assert_non_null(strstr(err.text, "expected plugins that read 16 attributes"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_specs_become_rules), cmocka_unit_test(engine_label_selects_rules),
        cmocka_unit_test(data_layer_is_printed),     cmocka_unit_test(data_layer_invalid_refused),
        cmocka_unit_test(attributes_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
