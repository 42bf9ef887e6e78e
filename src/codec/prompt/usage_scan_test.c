/* Token counts: the forms of both APIs, at every cut, and what is no count. */
#include "codec/prompt/usage_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *body;
    uint64_t n_input, n_output, n_cached;
    bool has_cached;
} CASES[] = {
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":46,\"completion_tokens\":34}"
     "}",
     12, 34, 0, false},
    {"{\"usage\" : {\n \"prompt_tokens\" : 7 , \"completion_tokens\" : 8,\n"
     " \"prompt_tokens_details\": {\"cached_tokens\": 5, \"prompt_tokens\": 99}\n}\n}",
     7, 8, 5, true},
    {"data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,"
     "\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n",
     3, 4, 0, true},
    {"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1,"
     "\"cache_read_input_tokens\":20}}}\n\n"
     "event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n",
     25, 15, 20, true},
    {"{\"usage\":{\"input_tokens\":1,\"input_tokens_details\":{\"cached_tokens\":2},"
     "\"output_tokens\":3}}",
     1, 3, 2, true},
    /* a later 0 does not replace a count; strings and other members are no counts */
    {"{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}} {\"usage\":{\"prompt_tokens\":0}}",
     5, 6, 0, false},
    {"{\"text\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}", 0, 0, 0, false},
    {"{\"usage\":[{\"prompt_tokens\":9}]}", 0, 0, 0, false},
    {"{\"usage\":{\"a\":{\"prompt_tokens\":9},\"b\":\"} \\\" "
     "{\",\"a_name_of_more_than_24_bytes\":1,"
     "\"completion_tokens\":6}}",
     0, 6, 0, false},
    {"\"usag\"usage\":{\"prompt_tokens\":2}", 2, 0, 0, false},
    {"{\"usage\":{\"prompt_tokens\":99999999999999999999999}}", UINT64_MAX, 0, 0, false},
    {"", 0, 0, 0, false},
};

static void assert_counts(size_t i, const struct usage_scan *scan) {
    if (CASES[i].n_input == UINT64_MAX) { /* impossible counts are bounded */
        assert_true(scan->n_input < UINT64_C(1) << 44);
    } else {
        assert_int_equal(scan->n_input, CASES[i].n_input);
    }
    assert_int_equal(scan->n_output, CASES[i].n_output);
    assert_int_equal(scan->n_cached, CASES[i].n_cached);
    assert_int_equal(scan->has_cached, CASES[i].has_cached);
}

static void usage_scan_counts_at_every_split(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct str body = str_of(CASES[i].body);
        for (size_t first = 0; first <= body.len; first++) {
            struct usage_scan scan = {.n_input = 0};
            usage_scan_feed(&scan, str_make(body.ptr, first));
            usage_scan_feed(&scan, str_make(body.ptr + first, body.len - first));
            assert_counts(i, &scan);
        }
        struct usage_scan scan = {.n_input = 0};
        for (size_t at = 0; at < body.len; at++) {
            usage_scan_feed(&scan, str_make(body.ptr + at, 1));
        }
        assert_counts(i, &scan);
    }
}

/* Of a large chunk only the end counts. */
static void usage_scan_large_chunk_is_read_at_its_end(void **state) {
    static const char usage[] = "\"usage\":{\"prompt_tokens\":12}";
    size_t n = 2 * USAGE_SCAN_BYTES, n_usage = strlen(usage);
    char *body = malloc(n);
    struct usage_scan scan = {.n_input = 0};
    (void)state;
    assert_non_null(body);
    memset(body, 'x', n);
    memcpy(body, usage, n_usage);
    usage_scan_feed(&scan, str_make(body, n));
    assert_int_equal(scan.n_input, 0);
    memcpy(body + n - n_usage, usage, n_usage);
    usage_scan_feed(&scan, str_make(body, n));
    assert_int_equal(scan.n_input, 12);
    free(body);
}

/* An object without an end is left after some bytes. */
static void usage_scan_endless_object_is_left(void **state) {
    struct usage_scan scan = {.n_input = 0};
    (void)state;
    usage_scan_feed(&scan, STR("\"usage\":{\"a\":[["));
    for (int i = 0; i < 5000; i++) {
        usage_scan_feed(&scan, STR("["));
    }
    usage_scan_feed(&scan, STR("\"usage\":{\"prompt_tokens\":12}"));
    assert_int_equal(scan.n_input, 12);
}

/* SGLang's, whose chunks repeat the counts. */
static void usage_scan_meta_info_counts(void **state) {
    static const char body[] =
        "data: "
        "{\"text\":\"a\",\"meta_info\":{\"id\":\"x\",\"finish_reason\":null,\"prompt_tokens\":7,"
        "\"completion_tokens\":1,\"cached_tokens\":3}}\n\n"
        "data: "
        "{\"usage\":{\"prompt_tokens\":99},\"meta_info\":{\"finish_reason\":{\"type\":\"stop\","
        "\"prompt_tokens\":50},\"prompt_tokens\":7,\"completion_tokens\":5,\"cached_tokens\":3}}"
        "\n\n"
        "data: [DONE]\n\n";
    (void)state;
    for (size_t cut = 0; cut < sizeof(body); cut++) {
        struct usage_scan scan = {.format = PROMPT_OF_SGLANG_TOKENS};
        usage_scan_feed(&scan, str_make(body, cut));
        usage_scan_feed(&scan, str_make(body + cut, sizeof(body) - 1 - cut));
        assert_int_equal(scan.n_input, 7);
        assert_int_equal(scan.n_output, 5);
        assert_true(scan.has_cached && scan.n_cached == 3);
    }
}

/* Messages of vLLM's gRPC responses: a chunk with tokens and no counts, then the complete one. */
static void usage_scan_grpc_counts(void **state) {
    static const char generate[] =
        "\0\0\0\0\x07\x0a\x05\x0a\x03\x01\x02\x03"
        "\0\0\0\0\x0d\x0a\x0b\x0a\x03\x01\x02\x03\x10\x07\x18\x02\x20\x04"
        "\0\0\0\0\x0f\x12\x0d\x0a\x01\x05\x12\x04stop\x18\x08\x20\x09";
    static const char embed[] = "\0\0\0\0\x0c\x0a\x08\x10\x63\x18\x63\0\0\0\0\x10\x0b";
    (void)state;
    for (size_t cut = 0; cut < sizeof(generate); cut++) {
        struct usage_scan scan = {.format = PROMPT_OF_VLLM_GENERATE};
        usage_scan_feed(&scan, str_make(generate, cut));
        usage_scan_feed(&scan, str_make(generate + cut, sizeof(generate) - 1 - cut));
        assert_int_equal(scan.n_input, 8);
        assert_int_equal(scan.n_output, 9);
        assert_true(scan.has_cached && scan.n_cached == 4);
    }
    for (size_t cut = 0; cut < sizeof(embed); cut++) {
        struct usage_scan scan = {.format = PROMPT_OF_VLLM_EMBED};
        usage_scan_feed(&scan, str_make(embed, cut));
        usage_scan_feed(&scan, str_make(embed + cut, sizeof(embed) - 1 - cut));
        assert_int_equal(scan.n_input, 11);
        assert_true(scan.n_output == 0 && !scan.has_cached);
    }
}

/* Google's HttpBody: the JSON is a field of a message. */
static void usage_scan_reads_json_within_grpc(void **state) {
    static const char body[] = "\0\0\0\0\x40\x0a\x10"
                               "application/json\x12\x2c"
                               "{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";
    struct usage_scan scan = {.format = PROMPT_OF_VERTEX};
    (void)state;
    usage_scan_feed(&scan, str_make(body, sizeof(body) - 1));
    assert_true(scan.n_input == 3 && scan.n_output == 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_scan_counts_at_every_split),
        cmocka_unit_test(usage_scan_large_chunk_is_read_at_its_end),
        cmocka_unit_test(usage_scan_endless_object_is_left),
        cmocka_unit_test(usage_scan_meta_info_counts),
        cmocka_unit_test(usage_scan_grpc_counts),
        cmocka_unit_test(usage_scan_reads_json_within_grpc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
