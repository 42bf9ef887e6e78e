/* Producers in an EndpointPickerConfig: their parameters, and the names that plugins refer to. */
#include "pick/config/producers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/discovery/file/pool_file_fixture.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/profile/session_token.h"

#define HEAD "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"
#define PRODUCER "approx-prefix-cache-producer"

/* Of the file that was read last: the texts of the needs end with it. */
static uint64_t salts[PREFIX_MAX_INDEXES];

static struct pool_request_needs needs_of(const char *text) {
    struct pool_specs specs;
    struct error err = {.status = ST_OK};
    if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    assert_int_equal(specs.n, 1);
    struct pool_request_needs needs = specs.items[0]->profile->needs;
    for (uint32_t i = 0; i < needs.n_prefixes; i++) {
        salts[i] = prefix_producer_salt(&needs.prefixes[i]);
    }
    pool_specs_free(&specs);
    return needs;
}

static void producer_parameters_are_upstreams(void **state) {
    static const struct {
        const char *parameters;
        uint32_t block_tokens, most_blocks, capacity;
        bool auto_tune;
    } rows[] = {
        {"{}", 64, 2048, 31250, true},
        {"{blockSizeTokens: 128}", 128, 1024, 31250, true},
        {"{blockSizeTokens: 16, autoTune: false}", 64, 2048, 31250, false},
        {"{blockSize: 256}", 256, 512, 31250, true},
        {"{blockSize: 256, blockSizeTokens: 128}", 128, 1024, 31250, true},
        {"{maxPrefixTokensToMatch: 262144}", 64, 4096, 31250, true},
        {"{maxPrefixTokensToMatch: 0}", 64, 2048, 31250, true},
        {"{maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 100}", 64, 100, 31250, true},
        {"{maxPrefixBlocksToMatch: 100}", 64, 2048, 31250, true},
        {"{maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 0}", 64, 16384, 31250, true},
        {"{maxPrefixTokensToMatch: 1000000000}", 64, 16384, 31250, true},
        {"{lruCapacityPerServer: 4000000, autoTune: false}", 64, 2048, 4000000, false},
        {"{lruCapacityPerServer: 0}", 64, 2048, 31250, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[500];
        snprintf(text, sizeof(text),
                 HEAD "- {type: " PRODUCER ", parameters: %s}\n- type: prefix-cache-scorer\n",
                 rows[i].parameters);
        struct pool_request_needs needs = needs_of(text);
        const struct prefix_producer *producer = &needs.prefixes[0];
        assert_int_equal(needs.n_prefixes, 1);
        assert_int_equal(needs.used_prefixes, 1);
        assert_int_equal(producer->block_bytes, rows[i].block_tokens * 4);
        assert_int_equal(prefix_producer_blocks(producer, producer->block_bytes).most,
                         rows[i].most_blocks);
        assert_int_equal(producer->capacity, rows[i].capacity);
        assert_int_equal(producer->auto_capacity, rows[i].auto_tune);
        assert_int_equal(producer->auto_block, rows[i].auto_tune);
    }
}

/* As in the guide for two tiers, where no-hit-lru-scorer uses the default producer. */
static void producers_have_names_that_plugins_refer_to(void **state) {
    (void)state;
    struct pool_request_needs needs =
        needs_of(HEAD "- type: no-hit-lru-scorer\n"
                      "- {type: " PRODUCER ", name: gpu}\n"
                      "- {type: " PRODUCER ", name: cpu, parameters: {autoTune: false, "
                      "lruCapacityPerServer: 82000}}\n"
                      "- {type: prefix-cache-scorer, name: one, parameters: "
                      "{prefixMatchInfoProducerName: gpu}}\n"
                      "- {type: prefix-cache-affinity-filter, parameters: "
                      "{prefixMatchInfoProducerName: cpu}}\n");
    assert_int_equal(needs.n_prefixes, 3);
    assert_int_equal(needs.used_prefixes, 7);
    assert_int_equal(needs.cold_prefix, 0);
    assert_int_equal(needs.prefixes[1].capacity, 31250);
    assert_int_equal(needs.prefixes[2].capacity, 82000);
    assert_true(salts[1] != salts[2]);
    needs = needs_of(HEAD "- {type: " PRODUCER ", name: gpu}\n- type: queue-scorer\n");
    assert_int_equal(needs.used_prefixes, 0);
    assert_false(needs.prompt);
    /* The type itself is a name, declared or not. */
    needs = needs_of(HEAD "- {type: prefix-cache-scorer, parameters: "
                          "{prefixMatchInfoProducerName: " PRODUCER "}}\n");
    assert_int_equal(needs.used_prefixes, 1);
}

/* The default producer says what is cached where the file declares it or a plugin uses it. */
static void load_producer_parameters_are_upstreams(void **state) {
    (void)state;
    struct pool_request_needs needs = needs_of(HEAD "- type: token-load-scorer\n");
    assert_true(needs.tokens && needs.prompt && !needs.load.adds_output);
    assert_int_equal(needs.used_prefixes, 0);
    needs = needs_of(HEAD "- type: token-load-scorer\n- type: " PRODUCER "\n"
                          "- {type: inflight-load-producer, name: l, parameters: "
                          "{addEstimatedOutputTokens: true, outputRatio: 2, "
                          "maxEstimatedOutputTokens: 0}}\n");
    assert_true(needs.load.adds_output);
    assert_true(needs.load.output_ratio > 1.9 && needs.load.max_output == 0);
    assert_int_equal(needs.used_prefixes, 1);
    needs = needs_of(HEAD "- {type: token-load-scorer, parameters: "
                          "{inFlightLoadProducerName: l}}\n- type: " PRODUCER "\n"
                          "- {type: " PRODUCER ", name: cpu}\n"
                          "- {type: inflight-load-producer, name: l, parameters: "
                          "{prefixMatchInfoProducerName: cpu}}\n");
    assert_int_equal(needs.load.prefix, 1);
    assert_int_equal(needs.used_prefixes, 2);
    assert_true(needs.load.max_output == UINT64_MAX);
    assert_file_refused(HEAD "- type: queue-scorer\n- type: inflight-load-producer\n"
                             "- {type: inflight-load-producer, name: l, parameters: "
                             "{addEstimatedOutputTokens: true}}\n",
                        "6: plugins[2]: expected the same parameters as of the other "
                        "inflight-load-producer: tokens in flight are counted once");
}

static void token_producer_estimates_media(void **state) {
    static const struct {
        const char *parameters;
        uint64_t image, video;
    } rows[] = {
        {NULL, 225, 4500}, /* not declared: the default */
        {"{}", 225, 4500},
        {"{estimate: {}}", 225, 4500},
        {"{estimate: {image: {mode: dynamic, defaultResolution: {width: 1280, height: 720}, "
         "dynamic: {factor: 1024}}}}",
         900, 4500},
        {"{estimate: {image: {mode: static, static: {staticToken: 576}}}}", 576, 4500},
        {"{estimate: {video: {defaultResolution: {width: 1280, height: 720}, defaultDuration: 5, "
         "frames: {mode: sampled, sampled: {sampleFPS: 4, temporalPatchSize: 2}}}}}",
         225, 9000},
        {"{estimate: {video: {tokensPerFrame: {mode: static, static: {numTokensPerFrame: 70}}, "
         "frames: {mode: strided, maxFrames: 32, strided: {frameStride: 2}}, "
         "maxVideoTokens: 2000}}}",
         225, 2000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[600];
        struct pool_specs specs;
        struct error err = {.status = ST_OK};
        snprintf(text, sizeof(text),
                 HEAD "- {type: %s, parameters: %s}\n- type: prefix-cache-scorer\n",
                 rows[i].parameters ? "token-producer" : "queue-scorer",
                 rows[i].parameters ? rows[i].parameters : "{}");
        if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
            fail_msg("%s\n%s", text, err.text);
        }
        const struct media_estimate *media = specs.items[0]->profile->needs.estimate;
        assert_int_equal(media_image_tokens(media), rows[i].image);
        assert_int_equal(media_video_tokens(media, &(struct video_size){.width = 0}),
                         rows[i].video);
        pool_specs_free(&specs);
    }
}

#define SESSIONS(source)                                                                           \
    "- {type: session-affinity-filter, parameters: {strategy: session_id, sessionIdConfig: "       \
    "{sources: [" source "]}}}\n"

/* Blanks around names, and the case of a header's, do not count. */
static void session_producer_says_where_ids_are(void **state) {
    static const struct {
        const char *producer, *header, *cookie;
    } rows[] = {
        {"- {type: session-id-producer, name: p, parameters: {headerName: ' X-Mine '}}\n", "x-mine",
         ""},
        {"- {type: session-id-producer, name: p, parameters: {cookieName: Mine}}\n", "", "Mine"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pool_specs specs;
        struct error err = {.status = ST_OK};
        char text[600];
        snprintf(text, sizeof(text), HEAD "%s%s", rows[i].producer,
                 SESSIONS("{attribute: SessionIDDataKey, producer: p}"));
        if (pool_file_parse("f", str_of(text), &specs, &err) != ST_OK) {
            fail_msg("%s", err.text);
        }
        const struct session_parameters *parameters =
            specs.items[0]->profile->filters[0].parameters;
        assert_int_equal(parameters->id.n_sources, 1);
        assert_true(str_is(parameters->id.sources[0].header, rows[i].header));
        assert_true(str_is(parameters->id.sources[0].cookie, rows[i].cookie));
        pool_specs_free(&specs);
    }
}

static void producer_that_is_not_there_is_an_error(void **state) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"- {type: " PRODUCER ", name: gpu}\n"
         "- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: gpus}}\n",
         "5: plugins[1].parameters.prefixMatchInfoProducerName: no plugin \"" PRODUCER
         "\" has the name \"gpus\"; did you mean \"gpu\"?"},
        {"- {type: queue-scorer, name: q}\n"
         "- {type: no-hit-lru-scorer, parameters: {prefixMatchInfoProducerName: q}}\n",
         "5: plugins[1].parameters.prefixMatchInfoProducerName: \"q\" is of another type than "
         "\"" PRODUCER "\""},
        {"- {type: " PRODUCER ", name: gpu}\n"
         "- {type: prefix-cache-affinity-filter, parameters: {inFlightLoadProducerName: gpu}}\n",
         "5: plugins[1].parameters.inFlightLoadProducerName: \"gpu\" is of another type than "
         "\"inflight-load-producer\""},
        {"- {type: " PRODUCER ", parameters: {autoTune: false, blockSizeTokens: 0}}\n",
         "4: plugins[0].parameters.blockSizeTokens: expected 1 or more, as autoTune is false"},
        {"- {type: token-producer, parameters: {vllm: {url: \"http://x\"}, modelName: m}}\n",
         "4: plugins[0].parameters.vllm: prompts are not sent to an engine for their tokens; "
         "`estimate` counts four bytes as one"},
        {"- {type: tokenizer, parameters: {modelName: m}}\n",
         "4: plugins[0].parameters.modelName: prompts are not sent to an engine for their tokens; "
         "`estimate` counts four bytes as one"},
        {"- {type: token-producer, parameters: {estimate: {image: {mode: fixed}}}}\n",
         "4: plugins[0].parameters.estimate.image.mode: expected dynamic or static, got "
         "\"fixed\""},
        {"- {type: " PRODUCER ", parameters: {maxPrefixTokensToMatch: -1}}\n",
         "4: plugins[0].parameters.maxPrefixTokensToMatch: expected a whole number from 0 to "
         "2147483647, got -1"},
        {"- {type: " PRODUCER ", name: a}\n- {type: " PRODUCER ", name: b}\n"
         "- {type: " PRODUCER ", name: c}\n- {type: " PRODUCER ", name: d}\n"
         "- type: queue-scorer\n",
         "7: plugins[3]: expected at most 3 plugins \"" PRODUCER
         "\" with a name of their own, \"mm-embeddings-cache-producer\" and "
         "\"burst-prefix-cache-producer\" together"},
        {"- {type: burst-prefix-cache-producer, parameters: {maxPerReplica: 0}}\n",
         "4: plugins[0].parameters.maxPerReplica: expected -1, or a whole number from 1 to "
         "2147483647"},
        {"- {type: burst-prefix-cache-producer, parameters: {maxBatchSize: -2}}\n",
         "4: plugins[0].parameters.maxBatchSize: expected -1, or a whole number from 1 to "
         "2147483647"},
        {"- {type: burst-prefix-cache-producer, parameters: {windowDurationMs: 10001}}\n",
         "4: plugins[0].parameters.windowDurationMs: expected a whole number from 1 to 10000, got "
         "10001"},
        {"- {type: burst-prefix-cache-producer, parameters: {maxPrefixTokensToMatch: 10}}\n",
         "4: plugins[0].parameters.maxPrefixTokensToMatch: expected 0, or blockSizeTokens (64) or "
         "more"},
        {"- {type: burst-prefix-cache-producer, parameters: {balanceBy: bytes}}\n",
         "4: plugins[0].parameters.balanceBy: expected requests or tokens, got \"bytes\""},
        {"- type: burst-prefix-cache-producer\n- {type: burst-prefix-cache-producer, name: b}\n"
         "- type: queue-scorer\n",
         "5: plugins[1]: expected one burst-prefix-cache-producer: requests are held in one "
         "window"},
        {"- {type: mm-embeddings-cache-producer, parameters: {cacheSizeInMBPerServer: 1.5}}\n",
         "4: plugins[0].parameters.cacheSizeInMBPerServer: expected a whole number up to "
         "2147483647"},
        {"- {type: mm-embeddings-cache-producer, parameters: {cacheSizeInMB: 2048}}\n",
         "4: unknown field \"plugins[0].parameters.cacheSizeInMB\"; did you mean "
         "\"cacheSizeInMBPerServer\"?"},
        {"- {type: mm-embeddings-cache-scorer, parameters: {producerName: " PRODUCER "}}\n"
         "- type: " PRODUCER "\n",
         "4: plugins[0].parameters.producerName: \"" PRODUCER "\" is of another type than "
         "\"mm-embeddings-cache-producer\""},
        {"- {type: p2p-source-producer, parameters: {minCachedTokenDelta: 0}}\n",
         "4: plugins[0].parameters.minCachedTokenDelta: expected a whole number from 1 to "
         "2147483647, got 0"},
        {"- {type: p2p-source-producer, parameters: {prefixMatchInfoProducerName: gpu}}\n"
         "- type: queue-scorer\n",
         "4: plugins[0].parameters.prefixMatchInfoProducerName: no plugin \"" PRODUCER
         "\" has the name \"gpu\""},
        {"- type: p2p-source-producer\n- {type: p2p-source-producer, name: p}\n"
         "- type: queue-scorer\n",
         "5: plugins[1]: expected one p2p-source-producer: requests have one header for it"},
        {"- type: session-id-producer\n",
         "4: plugins[0].parameters: expected `headerName` or `cookieName`, got neither"},
        {"- {type: session-id-producer, parameters: {headerName: ' ', cookieName: ''}}\n",
         "4: plugins[0].parameters: expected `headerName` or `cookieName`, got neither"},
        {"- {type: session-id-producer, parameters: {headerName: a, cookieName: b}}\n",
         "4: plugins[0].parameters: expected `headerName` or `cookieName`, got both"},
        {"- {type: session-id-producer, parameters: {headerName: 'a b'}}\n",
         "4: plugins[0].parameters.headerName: expected the name of a header, got \"a b\""},
        {"- {type: session-id-producer, parameters: {cookieName: 'a;b'}}\n",
         "4: plugins[0].parameters.cookieName: expected the name of a cookie, got \"a;b\""},
        {"- {type: session-id-producer, parameters: {header: a}}\n",
         "4: unknown field \"plugins[0].parameters.header\"; did you mean \"headerName\"?"},
        {"- {type: session-id-producer, name: sid, parameters: {headerName: a}}\n" SESSIONS(
             "{attribute: SessionIDDataKey, producer: side}"),
         "5: plugins[1].parameters.sessionIdConfig.sources: no plugin \"session-id-producer\" has "
         "the name \"side\"; did you mean \"sid\"?"},
        {"- {type: queue-scorer, name: sid}\n" SESSIONS(
             "{attribute: SessionIDDataKey, producer: sid}"),
         "5: plugins[1].parameters.sessionIdConfig.sources: no plugin \"session-id-producer\" has "
         "the name \"sid\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[800];
        snprintf(text, sizeof(text), HEAD "%s", rows[i].text);
        assert_file_refused(text, rows[i].message);
    }
}

static void media_producer_size_is_upstreams(void **state) {
    static const struct {
        const char *size;
        uint32_t capacity;
    } rows[] = {{"4096", 2048},
                {"2048", 1024},
                {"1", 1},
                {"3", 1},
                {"0", 2048},
                {"-5", 2048},
                {"2147483647", 1073741823}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[500];
        snprintf(text, sizeof(text),
                 HEAD "- {type: mm-embeddings-cache-producer, parameters: "
                      "{cacheSizeInMBPerServer: %s}}\n- type: mm-embeddings-cache-scorer\n",
                 rows[i].size);
        struct pool_request_needs needs = needs_of(text);
        assert_int_equal(needs.n_prefixes, 2);
        assert_int_equal(needs.used_prefixes, 2);
        assert_int_equal(needs.prefixes[1].kind, PREFIX_MEDIA);
        assert_int_equal(needs.prefixes[1].capacity, rows[i].capacity);
        assert_true(needs.media_items && needs.body);
    }
    struct pool_request_needs needs =
        needs_of(HEAD "- {type: mm-embeddings-cache-producer, name: a}\n"
                      "- {type: mm-embeddings-cache-producer, name: b, parameters: "
                      "{cacheSizeInMBPerServer: 20}}\n"
                      "- {type: mm-embeddings-cache-scorer, parameters: {producerName: b}}\n");
    assert_int_equal(needs.n_prefixes, 3);
    assert_int_equal(needs.used_prefixes, 4);
    assert_int_equal(needs.prefixes[2].capacity, 10);
    assert_true(salts[1] != salts[2]);
}

static void burst_producer_parameters_are_upstreams(void **state) {
    (void)state;
    struct pool_request_needs needs =
        needs_of(HEAD "- type: burst-prefix-cache-producer\n- {type: prefix-cache-scorer, "
                      "parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}}\n");
    assert_true(needs.burst_on && needs.prompt && needs.body);
    assert_int_equal(needs.burst_index, 1);
    assert_int_equal(needs.used_prefixes, 2);
    assert_int_equal(needs.prefixes[1].block_bytes, 256);
    assert_int_equal(needs.prefixes[1].max_blocks, 2048);
    assert_int_equal(needs.burst.window_ns, 100000000);
    assert_int_equal(needs.burst.max_per_replica, 0);
    assert_int_equal(needs.burst.min_blocks, 0);
    assert_int_equal(needs.burst.max_batch, 1000);
    assert_false(needs.burst.by_tokens);
    needs = needs_of(HEAD "- {type: burst-prefix-cache-producer, name: b, parameters: "
                          "{windowDurationMs: 5, maxPerReplica: 3, blockSizeTokens: 16, "
                          "maxPrefixTokensToMatch: 64, minColocateBlocks: 2, maxBatchSize: -1, "
                          "balanceBy: tokens}}\n- type: queue-scorer\n");
    assert_false(needs.burst_on); /* no plugin uses it */
    assert_int_equal(needs.prefixes[1].max_blocks, 4);
    assert_int_equal(needs.burst.window_ns, 5000000);
    assert_int_equal(needs.burst.max_per_replica, 3);
    assert_int_equal(needs.burst.min_blocks, 2);
    assert_int_equal(needs.burst.max_batch, UINT32_MAX);
    assert_true(needs.burst.by_tokens);
}

static void source_producer_parameters_are_upstreams(void **state) {
    (void)state;
    struct pool_request_needs needs =
        needs_of(HEAD "- type: p2p-source-producer\n- type: queue-scorer\n");
    assert_true(needs.source.on && needs.prompt && needs.body);
    assert_int_equal(needs.source.min_tokens, 1);
    assert_int_equal(needs.source.user.index, 0);
    assert_int_equal(needs.used_prefixes, 1);
    needs = needs_of(HEAD "- {type: " PRODUCER ", name: cpu}\n"
                          "- {type: p2p-source-producer, parameters: {minCachedTokenDelta: 2048, "
                          "prefixMatchInfoProducerName: cpu, prefillProfileName: default}}\n"
                          "- type: queue-scorer\n");
    assert_int_equal(needs.source.min_tokens, 2048);
    assert_int_equal(needs.source.user.index, 1);
    assert_int_equal(needs.used_prefixes, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(producer_parameters_are_upstreams),
        cmocka_unit_test(producers_have_names_that_plugins_refer_to),
        cmocka_unit_test(load_producer_parameters_are_upstreams),
        cmocka_unit_test(token_producer_estimates_media),
        cmocka_unit_test(session_producer_says_where_ids_are),
        cmocka_unit_test(producer_that_is_not_there_is_an_error),
        cmocka_unit_test(media_producer_size_is_upstreams),
        cmocka_unit_test(burst_producer_parameters_are_upstreams),
        cmocka_unit_test(source_producer_parameters_are_upstreams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
