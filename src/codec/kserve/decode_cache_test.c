/* The decode cache: repeated requests decode to the same meaning, each with its own bytes. */
#include "codec/kserve/decode_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

#define INPUT(name, n)                                                                             \
    "{\"name\":\"" name "\",\"shape\":[" n "],\"datatype\":\"UINT8\","                             \
    "\"parameters\":{\"binary_data_size\":" n "}}"
#define INPUTS(inputs) "\"inputs\":[" inputs "]"
#define PLAIN "{" INPUTS(INPUT("x", "2")) "}"

/* A decoded request in its own arena. */
struct decoded {
    struct arena *arena;
    struct v2_request request;
    struct error err;
    const char *meaning; /* or the error text */
};

static struct decoded decode(struct v2_decode_cache *cache, const char *json, struct str tensors) {
    struct decoded out = {.arena = arena_new(NULL, 0)};
    size_t json_bytes = strlen(json);
    char *body = arena_alloc(out.arena, json_bytes + tensors.len);
    memcpy(body, json, json_bytes);
    if (tensors.len > 0) {
        memcpy(body + json_bytes, tensors.ptr, tensors.len);
    }
    enum status status =
        v2_request_decode_cached(cache, out.arena, str_make(body, json_bytes + tensors.len),
                                 json_bytes, &fixture_limits, &out.request, &out.err);
    out.meaning = status == ST_OK ? fixture_request(out.arena, &out.request) : out.err.text;
    return out;
}

static struct v2_decode_cache *seen_new(void) {
    return calloc(1, sizeof(struct v2_decode_cache));
}

static const struct {
    const char *json;
    struct str tensors;
    bool is_cached;
} rows[] = {
    {PLAIN, {"ab", 2}, true},
    {"{\"id\":\"\"," INPUTS(INPUT("x", "2")) "}", {"ab", 2}, true},
    {"{" INPUTS(INPUT("x", "2") "," INPUT("y", "3")) "}", {"abcde", 5}, true},
    {"{" INPUTS(INPUT("x", "0") "," INPUT("\\u00fc\\n", "1")) "}", {"a", 1}, true},
    {"{" INPUTS("") "}", {"", 0}, true},
    {"{\"parameters\":{\"binary_data_output\":true}," INPUTS(INPUT("x", "2")) "}", {"ab", 2}, true},
    {"{" INPUTS(INPUT(
         "x",
         "2")) ",\"outputs\":[{\"name\":\"o\",\"parameters\":"
               "{\"binary_data\":true}},{\"name\":\"p\",\"parameters\":{\"classification\":3}},"
               "{\"name\":\"q\",\"parameters\":{\"binary_data\":false}}]}",
     {"ab", 2},
     true},
    /* requests that vary, or have their bytes elsewhere */
    {"{\"id\":\"7\"," INPUTS(INPUT("x", "2")) "}", {"ab", 2}, false},
    {"{\"parameters\":{\"priority\":1}," INPUTS(INPUT("x", "2")) "}", {"ab", 2}, false},
    {"{" INPUTS("{\"name\":\"x\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7]}") "}",
     {"", 0},
     false},
    {"{" INPUTS(INPUT("x", "2") ",{\"name\":\"y\",\"shape\":[1],\"datatype\":\"UINT8\","
                                "\"data\":[7]}") "}",
     {"ab", 2},
     false},
    {"{" INPUTS("{\"name\":\"x\",\"shape\":[2],\"datatype\":\"UINT8\",\"parameters\":"
                "{\"binary_data_size\":2,\"mine\":1}}") "}",
     {"ab", 2},
     false},
    {"{" INPUTS("{\"name\":\"x\",\"shape\":[2],\"datatype\":\"UINT8\",\"parameters\":"
                "{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":2}}") "}",
     {"", 0},
     false},
    {"{" INPUTS(INPUT("x", "2")) ",\"outputs\":[{\"name\":\"o\",\"parameters\":"
                                 "{\"mine\":true}}]}",
     {"ab", 2},
     false},
    {"{" INPUTS(
         INPUT("x", "2")) ",\"outputs\":[{\"name\":\"o\",\"parameters\":"
                          "{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":2}}]}",
     {"ab", 2},
     false},
    /* errors */
    {PLAIN, {"a", 1}, false},
    {PLAIN, {"abc", 3}, false},
    {PLAIN "x", {"ab", 2}, false},
    {"{" INPUTS(INPUT("x", "-1")) "}", {"ab", 2}, false},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void decode_cache_hit_matches_full_decode(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        struct v2_decode_cache *cache = seen_new();
        struct decoded plain = decode(NULL, rows[i].json, rows[i].tensors);
        for (unsigned k = 0; k < 4; k++) {
            struct decoded again = decode(cache, rows[i].json, rows[i].tensors);
            assert_string_equal(again.meaning, plain.meaning);
            assert_int_equal(again.err.status, plain.err.status);
            arena_free(again.arena);
        }
        if (cache->n_hits != (rows[i].is_cached ? 2 : 0)) {
            fail_msg("%s: known %llu times", rows[i].json, (unsigned long long)cache->n_hits);
        }
        arena_free(plain.arena);
        free(cache);
    }
}

/* All of them in turn, repeatedly, with one cache: they evict each other. */
static void decode_cache_entries_evict_each_other(void **state) {
    (void)state;
    struct v2_decode_cache *cache = seen_new();
    for (unsigned k = 0; k < 5 * N_ROWS; k++) {
        size_t i = k / 5 * 7 % N_ROWS;
        struct decoded plain = decode(NULL, rows[i].json, rows[i].tensors);
        struct decoded again = decode(cache, rows[i].json, rows[i].tensors);
        assert_string_equal(again.meaning, plain.meaning);
        arena_free(plain.arena);
        arena_free(again.arena);
    }
    assert_true(cache->n_hits > 0);
    free(cache);
}

/* Each result has its own bytes and shares no memory: changing one (by a backend or a front end)
 * does not affect the next, and it survives the cache. */
static void decode_cache_results_share_no_memory(void **state) {
    (void)state;
    struct v2_decode_cache *cache = seen_new();
    struct decoded all[4];
    char bytes[] = "ab";
    for (size_t i = 0; i < 4; i++) {
        bytes[1] = (char)('b' + i);
        all[i] = decode(cache, PLAIN, str_make(bytes, 2));
        struct infer_input *input = &all[i].request.infer.inputs[0];
        const struct piece *piece = input->tensor.pieces;
        assert_memory_equal(piece->data, bytes, 2);
        assert_int_equal(input->spec, 0);
        assert_ptr_equal(all[i].request.infer.arena, all[i].arena);
        assert_int_equal(all[i].request.infer.batch, 1);
        assert_int_equal(input->tensor.name.ptr[input->tensor.name.len], '\0');
        input->spec = 5;
        all[i].request.infer.batch = 9;
    }
    assert_int_equal(cache->n_hits, 2);
    memset(cache, 'x', sizeof(*cache));
    free(cache);
    for (size_t i = 0; i < 4; i++) {
        char expected[40];
        snprintf(expected, sizeof(expected), "; x UINT8[2] 61%02x", 'b' + (unsigned)i);
        assert_string_equal(fixture_request(all[i].arena, &all[i].request), expected);
        arena_free(all[i].arena);
    }
}

/* A cached text with missing tensor bytes is rejected as without the cache, and stays cached. */
static void decode_cache_hit_with_wrong_tensor_size_is_refused(void **state) {
    (void)state;
    struct v2_decode_cache *cache = seen_new();
    for (unsigned i = 0; i < 2; i++) {
        arena_free(decode(cache, PLAIN, STR("ab")).arena);
    }
    struct decoded few = decode(cache, PLAIN, STR("a")), many = decode(cache, PLAIN, STR("abc"));
    struct decoded good = decode(cache, PLAIN, STR("cd"));
    assert_int_equal(few.err.status, ST_BAD_FRAMING);
    assert_int_equal(many.err.status, ST_BAD_FRAMING);
    assert_string_equal(good.meaning, "; x UINT8[2] 6364");
    assert_int_equal(cache->n_hits, 1);
    arena_free(few.arena);
    arena_free(many.arena);
    arena_free(good.arena);
    free(cache);
}

/* Decodes three times. Returns: the number of cache hits. */
static uint64_t count_hits(struct v2_decode_cache *cache, const char *json, struct str tensors,
                           const char *meaning) {
    uint64_t before = cache->n_hits;
    for (unsigned i = 0; i < 3; i++) {
        struct decoded out = decode(cache, json, tensors);
        assert_string_equal(out.meaning, meaning);
        arena_free(out.arena);
    }
    return cache->n_hits - before;
}

static void decode_cache_json_over_max_bytes_is_not_cached(void **state) {
    (void)state;
    struct v2_decode_cache *cache = seen_new();
    char json[2 * V2_DECODE_CACHE_JSON_BYTES];
    for (size_t n_bytes = V2_DECODE_CACHE_JSON_BYTES - 5; n_bytes < V2_DECODE_CACHE_JSON_BYTES + 5;
         n_bytes++) {
        int n_spaces = (int)(n_bytes - strlen(PLAIN));
        snprintf(json, sizeof(json), "%*s" PLAIN, n_spaces, "");
        assert_int_equal(strlen(json), n_bytes);
        assert_int_equal(count_hits(cache, json, STR("ab"), "; x UINT8[2] 6162"),
                         n_bytes <= V2_DECODE_CACHE_JSON_BYTES);
    }
    free(cache);
}

/* Short texts, but each dimension takes more memory than its digit: two of the tensors exceed
 * the block, one does not. */
static void decode_cache_request_over_block_size_is_not_cached(void **state) {
    (void)state;
    struct v2_decode_cache *cache = seen_new();
    struct arena *arena = arena_new(NULL, 0);
    for (unsigned n_inputs = 1; n_inputs <= 2; n_inputs++) {
        struct buf text;
        buf_init(&text, arena, 0);
        buf_printf(&text, "{\"inputs\":[");
        for (unsigned i = 0; i < n_inputs; i++) {
            buf_printf(&text,
                       "%s{\"name\":\"\",\"datatype\":\"BOOL\",\"parameters\":"
                       "{\"binary_data_size\":0},\"shape\":[0",
                       i > 0 ? "," : "");
            for (unsigned k = 1; k < SHAPE_MAX_RANK; k++) {
                buf_printf(&text, ",1");
            }
            buf_printf(&text, "]}");
        }
        buf_printf(&text, "]}");
        buf_add_char(&text, '\0');
        assert_in_range(strlen(text.data), 1, V2_DECODE_CACHE_JSON_BYTES);
        struct decoded plain = decode(NULL, text.data, STR(""));
        assert_int_equal(plain.err.status, ST_OK);
        assert_int_equal(count_hits(cache, text.data, STR(""), plain.meaning), n_inputs == 1);
        arena_free(plain.arena);
    }
    arena_free(arena);
    free(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_cache_hit_matches_full_decode),
        cmocka_unit_test(decode_cache_entries_evict_each_other),
        cmocka_unit_test(decode_cache_results_share_no_memory),
        cmocka_unit_test(decode_cache_hit_with_wrong_tensor_size_is_refused),
        cmocka_unit_test(decode_cache_json_over_max_bytes_is_not_cached),
        cmocka_unit_test(decode_cache_request_over_block_size_is_not_cached),
    };
    return cmocka_run_group_tests_name("codec/kserve/decode_cache", tests, NULL, NULL);
}
