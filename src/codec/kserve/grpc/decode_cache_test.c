/* The decode cache over gRPC: repeated messages decode to the same meaning, each with its own
 * bytes. */
#include "codec/kserve/grpc/decode_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/grpc/fields.h"
#include "codec/protobuf/pb.h"

static const struct json_limits limits = {.max_tensor_elements = 1000};

/* The request from which a message is made. */
struct ask {
    const char *id, *param, *input_param, *wanted_param; /* NULL: none */
    const char *raw[3];                                  /* of the inputs; NULL: no more */
    bool typed;                                          /* instead of raw */
    bool after;                                          /* a field follows the raw inputs */
    size_t n_name;                                       /* of the first input; 0: 1 */
};

static void add_param(struct buf *out, uint32_t number, const char *name) {
    if (name) {
        size_t entry = pb_begin(out, number);
        pb_add_bytes(out, 1, str_of(name));
        size_t value = pb_begin(out, 2);
        pb_add_varint(out, 2, 1); /* int64_param */
        pb_end(out, value);
        pb_end(out, entry);
    }
}

static void add_input(struct buf *out, const struct ask *ask, size_t i) {
    static const char names[V2_GRPC_DECODE_CACHE_HEAD_BYTES] = "xyz";
    int64_t dims[] = {(int64_t)strlen(ask->raw[i])};
    size_t input = pb_begin(out, V2_GRPC_INPUTS);
    size_t n = i == 0 && ask->n_name > 0 ? ask->n_name : 1;
    char *name = arena_alloc(out->arena, n);
    memset(name, names[i], n);
    pb_add_bytes(out, V2_GRPC_TENSOR_NAME, str_make(name, n));
    pb_add_bytes(out, V2_GRPC_TENSOR_DATATYPE, STR("UINT8"));
    pb_add_packed_i64(out, V2_GRPC_TENSOR_SHAPE, dims, 1);
    add_param(out, V2_GRPC_TENSOR_PARAMETERS, ask->input_param);
    if (ask->typed) {
        size_t contents = pb_begin(out, V2_GRPC_TENSOR_CONTENTS);
        for (const char *at = ask->raw[i]; *at; at++) {
            pb_add_varint(out, 4, (unsigned char)*at); /* uint_contents */
        }
        pb_end(out, contents);
    }
    pb_end(out, input);
}

static struct str message_of(struct arena *arena, const struct ask *ask) {
    struct buf out;
    buf_init(&out, arena, 256);
    pb_add_bytes(&out, V2_GRPC_MODEL_NAME, STR("m"));
    pb_add_bytes(&out, V2_GRPC_MODEL_VERSION, STR("2"));
    pb_add_string(&out, V2_GRPC_ID, str_of(ask->id ? ask->id : ""));
    add_param(&out, V2_GRPC_PARAMETERS, ask->param);
    for (size_t i = 0; i < 3 && ask->raw[i]; i++) {
        add_input(&out, ask, i);
    }
    size_t wanted = pb_begin(&out, V2_GRPC_OUTPUTS);
    pb_add_bytes(&out, V2_GRPC_REQUESTED_OUTPUT_NAME, STR("o"));
    add_param(&out, V2_GRPC_REQUESTED_OUTPUT_PARAMETERS, ask->wanted_param);
    pb_end(&out, wanted);
    for (size_t i = 0; i < 3 && ask->raw[i] && !ask->typed; i++) {
        pb_add_bytes(&out, V2_GRPC_RAW_INPUTS, str_of(ask->raw[i]));
    }
    if (ask->after) {
        pb_add_varint(&out, 99, 7);
    }
    return buf_str(&out);
}

static void assert_same(const struct v2_grpc_request *one, const struct v2_grpc_request *other,
                        struct arena *arena) {
    const struct infer_request *infer = &other->infer;
    assert_true(str_eq(one->model, other->model) && str_eq(one->version, other->version));
    assert_true(str_eq(one->infer.id, infer->id));
    assert_ptr_equal(infer->arena, arena);
    assert_int_equal(infer->batch, 1);
    assert_int_equal(one->infer.params.n, infer->params.n);
    assert_int_equal(one->infer.n_inputs, infer->n_inputs);
    assert_int_equal(one->infer.n_wanted, infer->n_wanted);
    for (size_t i = 0; i < infer->n_wanted; i++) {
        assert_true(str_eq(one->infer.wanted[i].name, infer->wanted[i].name));
        assert_int_equal(one->infer.wanted[i].params.n, infer->wanted[i].params.n);
    }
    for (size_t i = 0; i < infer->n_inputs; i++) {
        const struct tensor *a = &one->infer.inputs[i].tensor, *b = &infer->inputs[i].tensor;
        assert_true(str_eq(a->name, b->name) && shape_eq(a->shape, b->shape));
        assert_int_equal(a->datatype, b->datatype);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_int_equal(a->n_pieces, b->n_pieces);
        assert_int_equal(infer->inputs[i].spec, 0);
        assert_int_equal(one->infer.inputs[i].params.n, infer->inputs[i].params.n);
        if (a->n_pieces > 0) {
            assert_int_equal(b->pieces[0].n_bytes, b->n_bytes);
            assert_memory_equal(a->pieces[0].data, b->pieces[0].data, a->n_bytes);
        }
    }
}

/* Decodes the message without and with the cache; both must be equal. */
static void decode(struct v2_grpc_decode_cache *cache, struct str message) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_grpc_request plain, again;
    struct error err = {0}, again_err = {0};
    char *own = malloc(message.len); /* exact size, to detect reads past its end */
    memcpy(own, message.ptr, message.len);
    message.ptr = own;
    enum status st = v2_grpc_request_decode(arena, message, &limits, &plain, &err);
    assert_int_equal(
        v2_grpc_request_decode_cached(cache, arena, message, &limits, &again, &again_err), st);
    if (st == ST_OK) {
        assert_same(&plain, &again, arena);
        if (again.infer.n_inputs > 0) {
            again.infer.inputs[0].spec = 5; /* must not affect the next result */
        }
        again.infer.batch = 9;
    } else {
        assert_string_equal(again_err.text, err.text);
    }
    free(own);
    arena_free(arena);
}

static const struct {
    struct ask ask;
    bool is_cached;
} rows[] = {
    {{.raw = {"a"}}, true},
    {{.raw = {"abc", "d", "efghij"}}, true},
    {{.raw = {"abc", "d"}, .n_name = 300}, true},
    {{.raw = {"abc"}, .n_name = V2_GRPC_DECODE_CACHE_HEAD_BYTES}, false},
    {{.raw = {"abc"}, .id = "7"}, false},
    {{.raw = {"abc"}, .param = "priority"}, false},
    {{.raw = {"abc"}, .input_param = "p"}, false},
    {{.raw = {"abc"}, .wanted_param = "p"}, false},
    {{.raw = {"abc", ""}}, false},
    {{.raw = {"abc", "d"}, .typed = true}, false},
    {{.raw = {"abc", "d"}, .after = true}, false},
    {{.raw = {NULL}}, false},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void grpc_decode_cache_hit_matches_full_decode(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        struct v2_grpc_decode_cache *cache = calloc(1, sizeof(*cache));
        struct arena *arena = arena_new(NULL, 0);
        for (unsigned k = 0; k < 4; k++) {
            decode(cache, message_of(arena, &rows[i].ask));
        }
        if (cache->n_hits != (rows[i].is_cached ? 2 : 0)) {
            fail_msg("row %zu: known %llu times", i, (unsigned long long)cache->n_hits);
        }
        arena_free(arena);
        free(cache);
    }
}

/* With other tensor bytes, and with every byte of the message changed. */
static void grpc_decode_cache_changed_byte_matches_full_decode(void **state) {
    struct v2_grpc_decode_cache *cache = calloc(1, sizeof(*cache));
    struct arena *arena = arena_new(NULL, 0);
    struct str message = message_of(arena, &(struct ask){.raw = {"abc", "de"}});
    char *bytes = arena_alloc(arena, message.len);
    (void)state;
    decode(cache, message);
    for (size_t i = 0; i < message.len; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(bytes, message.ptr, message.len);
            bytes[i] = (char)((unsigned char)bytes[i] ^ 1u << bit);
            decode(cache, str_make(bytes, message.len));
            decode(cache, message);
        }
        decode(cache, str_make(message.ptr, i));
    }
    assert_in_range(cache->n_hits, 1, UINT64_MAX);
    arena_free(arena);
    free(cache);
}

/* Results survive the cache. */
static void grpc_decode_cache_result_outlives_cache(void **state) {
    struct v2_grpc_decode_cache *cache = calloc(1, sizeof(*cache));
    struct arena *arena = arena_new(NULL, 0);
    struct str message = message_of(arena, &(struct ask){.raw = {"abc", "de"}});
    struct v2_grpc_request plain, again;
    struct error err;
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            v2_grpc_request_decode_cached(cache, arena, message, &limits, &again, &err), ST_OK);
    }
    assert_int_equal(cache->n_hits, 1);
    memset(cache, 'x', sizeof(*cache));
    free(cache);
    assert_int_equal(v2_grpc_request_decode(arena, message, &limits, &plain, &err), ST_OK);
    assert_same(&plain, &again, arena);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grpc_decode_cache_hit_matches_full_decode),
        cmocka_unit_test(grpc_decode_cache_changed_byte_matches_full_decode),
        cmocka_unit_test(grpc_decode_cache_result_outlives_cache),
    };
    return cmocka_run_group_tests_name("codec/kserve/grpc/decode_cache", tests, NULL, NULL);
}
