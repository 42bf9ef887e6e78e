/* Prompts in gRPC bodies: vLLM's messages and JSON in an HttpBody, cut at every byte; what is
 * malformed; and the walk over fields. */
#include "codec/prompt/prompt_grpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/protobuf/pb.h"
#include "core/base/arena_fixture.h"
#include "core/base/random.h"

enum { ROOM = 4096 };

static void begin(struct buf *out) {
    buf_init(out, arena, 0);
}

static void add_message(struct buf *out, uint32_t number, const struct buf *message) {
    pb_add_bytes(out, number, buf_str(message));
}

/* With the length prefix. */
static struct str framed(const struct buf *message) {
    struct buf out;
    buf_init(&out, arena, 0);
    buf_add_char(&out, 0);
    for (int shift = 24; shift >= 0; shift -= 8) {
        buf_add_char(&out, (char)(unsigned char)(message->len >> shift));
    }
    buf_add(&out, message->data, message->len);
    return buf_str(&out);
}

struct scanned {
    struct prompt_scan scan;
    struct prompt_grpc grpc;
};

/* In two parts, each in memory of its own. */
static void scan_cut(enum prompt_format format, struct str body, size_t cut, struct scanned *out) {
    prompt_scan_init(&out->scan, arena, ROOM);
    out->scan.format = format;
    out->scan.lists_items = true;
    out->scan.may_have_system = false;
    prompt_grpc_init(&out->grpc, &out->scan, arena);
    for (int i = 0; i < 2; i++) {
        struct str part =
            i == 0 ? str_make(body.ptr, cut) : str_make(body.ptr + cut, body.len - cut);
        char *copy = malloc(part.len + 1);
        memcpy(copy, part.ptr, part.len);
        prompt_grpc_feed(&out->grpc, str_make(copy, part.len));
        free(copy);
    }
}

static enum status check(const struct scanned *scanned) {
    struct error err = {0};
    enum status st = prompt_grpc_check(&scanned->grpc, true, &err);
    assert_int_equal(st == ST_OK, err.text[0] == '\0');
    return st;
}

static void add_tokens(struct buf *tokenized, bool packed, const uint32_t *ids, size_t n) {
    struct buf list;
    begin(&list);
    for (size_t i = 0; i < n; i++) {
        struct buf one;
        begin(&one);
        pb_add_varint(&one, 2, ids[i]);
        if (packed) {
            buf_add(&list, (const char *)one.data + 1, one.len - 1); /* without the tag */
        } else {
            buf_add(tokenized, one.data, one.len);
        }
    }
    if (packed) {
        pb_add_bytes(tokenized, 2, buf_str(&list));
    }
}

static const uint32_t IDS[] = {1, 300, 70000, UINT32_MAX};
static const char ID_BYTES[] = "\x01\0\0\0\x2c\x01\0\0\x70\x11\x01\0\xff\xff\xff\xff";

/* A GenerateRequest with everything that is read. */
static struct str generate(bool packed, bool text) {
    struct buf out, tokenized, sampling, media;
    begin(&out);
    begin(&tokenized);
    begin(&sampling);
    begin(&media);
    pb_add_bytes(&tokenized, 1, STR("the original text is not the prompt"));
    add_tokens(&tokenized, packed, IDS, 4);
    pb_add_fixed32(&sampling, 2, 7); /* top_p */
    pb_add_varint(&sampling, 8, 99);
    pb_add_bytes(&media, 6, STR("hash-a"));
    pb_add_bytes(&media, 6, STR("hash-b"));
    pb_add_bytes(&media, 6, STR("hash-a"));
    pb_add_bytes(&out, 1, STR("id"));
    if (text) {
        pb_add_bytes(&out, 3, STR("a text"));
    } else {
        add_message(&out, 2, &tokenized);
    }
    add_message(&out, 4, &sampling);
    pb_add_varint(&out, 5, 1);
    add_message(&out, 7, &media);
    return framed(&out);
}

static void prompt_grpc_generate_is_read_at_each_split(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct str body = generate(k == 0, k == 2);
        for (size_t cut = 0; cut <= body.len; cut++) {
            struct scanned got;
            scan_cut(PROMPT_OF_VLLM_GENERATE, body, cut, &got);
            assert_int_equal(check(&got), ST_OK);
            assert_int_equal(got.scan.result, PROMPT_SCAN_END);
            assert_int_equal(got.scan.max_tokens, 99);
            assert_int_equal(got.scan.n_items, 2);
            assert_int_equal(got.scan.item_kinds[1], PROMPT_MEDIA_IMAGE);
            assert_true(got.scan.is_streamed && got.scan.has_media);
            if (k == 2) {
                assert_true(str_is(buf_str(&got.scan.text), "a text"));
                assert_int_equal(got.scan.n_bytes, 6);
            } else {
                assert_int_equal(got.scan.n_tokens, 4);
                assert_int_equal(got.scan.text.len, 16);
                assert_memory_equal(got.scan.text.data, ID_BYTES, 16);
            }
        }
    }
}

static void prompt_grpc_embed_is_read(void **state) {
    struct buf out, tokenized;
    struct scanned got;
    (void)state;
    begin(&out);
    begin(&tokenized);
    add_tokens(&tokenized, true, IDS, 4);
    pb_add_bytes(&out, 1, STR("id"));
    add_message(&out, 2, &tokenized);
    scan_cut(PROMPT_OF_VLLM_EMBED, framed(&out), 7, &got);
    assert_int_equal(check(&got), ST_OK);
    assert_int_equal(got.scan.n_tokens, 4);
}

/* An HttpBody in a request of Google's PredictionService. */
static struct str vertex(const char *json) {
    struct buf out, body;
    begin(&out);
    begin(&body);
    pb_add_bytes(&body, 1, STR("application/json"));
    if (json) {
        pb_add_bytes(&body, 2, str_of(json));
    }
    pb_add_bytes(&out, 1, STR("projects/p/locations/l/endpoints/e"));
    add_message(&out, 2, &body);
    return framed(&out);
}

static void prompt_grpc_vertex_has_openai_json(void **state) {
    struct str body =
        vertex("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
               "\"stream\":true,\"max_tokens\":7}");
    (void)state;
    for (size_t cut = 0; cut <= body.len; cut++) {
        struct scanned got;
        scan_cut(PROMPT_OF_VERTEX, body, cut, &got);
        got.scan.required = STR("messages");
        assert_true(str_is(buf_str(&got.scan.text), "\x02Hi\x03user"));
        assert_int_equal(got.scan.max_tokens, 7);
        assert_true(got.scan.is_streamed);
        assert_int_equal(got.grpc.model.result, MODEL_SCAN_FOUND);
        assert_true(str_is(buf_str(&got.grpc.model.name), "m"));
    }
}

static void prompt_grpc_wrong_bodies_have_a_reason(void **state) {
    struct buf out, other;
    struct scanned got;
    (void)state;
    begin(&out);
    pb_add_bytes(&out, 1, STR("id"));
    scan_cut(PROMPT_OF_VLLM_GENERATE, framed(&out), 0, &got);
    assert_int_equal(check(&got), ST_BAD_FIELD); /* no input */
    scan_cut(PROMPT_OF_VLLM_EMBED, framed(&out), 0, &got);
    assert_int_equal(check(&got), ST_BAD_FIELD);
    scan_cut(PROMPT_OF_VERTEX, framed(&out), 0, &got);
    assert_int_equal(check(&got), ST_BAD_FIELD); /* no HttpBody */
    scan_cut(PROMPT_OF_VERTEX, vertex(NULL), 0, &got);
    assert_int_equal(check(&got), ST_BAD_FIELD); /* without data */
    scan_cut(PROMPT_OF_VERTEX, vertex("{\"messages\":[{"), 0, &got);
    assert_int_equal(check(&got), ST_BAD_JSON);
    scan_cut(PROMPT_OF_VERTEX, vertex("no JSON"), 0, &got);
    assert_int_equal(check(&got), ST_BAD_JSON);
    begin(&other);
    pb_add_varint(&other, 3, 5); /* `text` is no number */
    scan_cut(PROMPT_OF_VLLM_GENERATE, framed(&other), 0, &got);
    assert_int_equal(check(&got), ST_BAD_REQUEST);
    struct str body = generate(true, false);
    char *changed = malloc(body.len);
    memcpy(changed, body.ptr, body.len);
    changed[0] = 1;
    scan_cut(PROMPT_OF_VLLM_GENERATE, str_make(changed, body.len), 0, &got);
    assert_int_equal(check(&got), ST_UNKNOWN_ENCODING);
    changed[0] = 2;
    scan_cut(PROMPT_OF_VLLM_GENERATE, str_make(changed, body.len), 0, &got);
    assert_int_equal(check(&got), ST_BAD_REQUEST);
    free(changed);
    for (size_t n = 0; n < body.len; n++) {
        scan_cut(PROMPT_OF_VLLM_GENERATE, str_make(body.ptr, n), n / 2, &got);
        assert_int_equal(check(&got), ST_BAD_REQUEST);
        assert_int_equal(prompt_grpc_check(&got.grpc, false, NULL), ST_OK); /* more may come */
    }
}

/* Lengths that do not fit into their message are refused before any byte of them. */
static void prompt_grpc_lengths_are_within_their_message(void **state) {
    static const struct str messages[] = {
        STR("\x12\x05\x12\x7f\x01\x02\x03"), /* a list longer than its message */
        STR("\x12\x03\x12\x01\xff"),         /* a cut off number in a list */
        STR("\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 text"), /* 2^64 - 1 bytes */
        STR("\x00\x01"),                                          /* field 0 */
        STR("\x0b\x0c"),                                          /* a group */
        STR("\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),      /* more than 64 bits */
        STR("\x12\x02\x08"),                                      /* a nested message ends early */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(messages) / sizeof(*messages); i++) {
        struct buf message;
        begin(&message);
        buf_add_str(&message, messages[i]);
        struct str body = framed(&message);
        for (size_t cut = 0; cut <= body.len; cut++) {
            struct scanned got;
            scan_cut(PROMPT_OF_VLLM_GENERATE, body, cut, &got);
            assert_int_equal(check(&got), ST_BAD_REQUEST);
        }
    }
}

/* Random bytes give the same result at any cut. */
static void prompt_grpc_random_splits_match(void **state) {
    static const char bytes[] = "\x12\x1a\x22\x28\x3a\x32\x10\x40\x08\x02\x01\x05\x80\x0a{}\":a";
    struct prng prng = {1};
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct buf message;
        struct scanned one, two;
        enum prompt_format format =
            (enum prompt_format)(PROMPT_OF_VLLM_GENERATE + (int)prng_below(&prng, 3));
        begin(&message);
        uint32_t n = prng_below(&prng, 24);
        for (uint32_t k = 0; k < n; k++) {
            buf_add_char(&message, bytes[prng_below(&prng, sizeof(bytes) - 1)]);
        }
        struct str body = framed(&message);
        scan_cut(format, body, body.len, &one);
        scan_cut(format, body, prng_below(&prng, (uint32_t)body.len + 1), &two);
        assert_int_equal(one.scan.result, two.scan.result);
        assert_int_equal(one.scan.n_tokens, two.scan.n_tokens);
        assert_int_equal(one.scan.n_items, two.scan.n_items);
        assert_true(str_eq(buf_str(&one.scan.text), buf_str(&two.scan.text)));
        assert_int_equal(check(&one), check(&two));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_grpc_generate_is_read_at_each_split),
        cmocka_unit_test(prompt_grpc_embed_is_read),
        cmocka_unit_test(prompt_grpc_vertex_has_openai_json),
        cmocka_unit_test(prompt_grpc_wrong_bodies_have_a_reason),
        cmocka_unit_test(prompt_grpc_lengths_are_within_their_message),
        cmocka_unit_test(prompt_grpc_random_splits_match),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
