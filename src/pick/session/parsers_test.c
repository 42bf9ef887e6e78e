/* Requests in a pool with upstream's parsers: equal tokens go to one endpoint in whatever form they
 * come, bodies that can't be read are refused, and paths that no parser claims. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codec/protobuf/pb.h"
#include "pick/pool/profile/profile.h"
#include "pick/session/pick_fixture.h"

#define JSON(path) ":method=POST|:path=" path "|content-type=application/json"
#define GRPC(path) ":method=POST|:path=" path "|content-type=application/grpc"
#define GENERATE GRPC("/vllm.grpc.engine.VllmEngine/Generate")
#define VERTEX GRPC("/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions")

enum {
    ALL = MODEL_PARSER_OPENAI | MODEL_PARSER_ANTHROPIC | MODEL_PARSER_VLLM_HTTP |
          MODEL_PARSER_SGLANG_HTTP | MODEL_PARSER_VLLM_GRPC | MODEL_PARSER_VERTEX
};
enum { BLOCK = 16, N = 8 };

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};
static const struct profile BY_PREFIX = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(BLOCK, 64, 1000)}};

/* Takes the spec. */
static struct fake_proxy *open_spec(struct pool_spec *spec, unsigned parsers) {
    spec->profile = &BY_PREFIX;
    spec->parsers = parsers;
    return proxy_open_with_prefixes(spec);
}

static struct fake_proxy *open_pool(unsigned parsers) {
    return open_spec(fixture_spec_of(N), parsers);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static char memory[1 << 16];

/* With the length prefix, at `memory`. */
static struct str framed(struct str message) {
    memory[0] = 0;
    for (int i = 0; i < 4; i++) {
        memory[1 + i] = (char)(unsigned char)(message.len >> (24 - 8 * i));
    }
    memcpy(memory + 5, message.ptr, message.len);
    return str_make(memory, message.len + 5);
}

static struct str generate_body(struct arena *arena, const uint32_t *ids, size_t n) {
    struct buf list, tokenized, out;
    buf_init(&list, arena, 0);
    buf_init(&tokenized, arena, 0);
    buf_init(&out, arena, 0);
    for (size_t i = 0; i < n; i++) {
        struct buf one;
        buf_init(&one, arena, 0);
        pb_add_varint(&one, 2, ids[i]);
        buf_add(&list, (const char *)one.data + 1, one.len - 1);
    }
    pb_add_bytes(&tokenized, 2, buf_str(&list));
    pb_add_bytes(&out, 1, STR("id"));
    pb_add_bytes(&out, 2, buf_str(&tokenized));
    pb_add_varint(&out, 5, 1);
    return framed(buf_str(&out));
}

static struct str vertex_body(struct arena *arena, const char *json) {
    struct buf body, out;
    buf_init(&body, arena, 0);
    buf_init(&out, arena, 0);
    pb_add_bytes(&body, 1, STR("application/json"));
    pb_add_bytes(&body, 2, str_of(json));
    pb_add_bytes(&out, 2, buf_str(&body));
    return framed(buf_str(&out));
}

static struct str list_ids(struct arena *arena, const char *format, const uint32_t *ids, size_t n) {
    struct buf list;
    buf_init(&list, arena, 0);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&list, "%s%u", i > 0 ? ", " : "", ids[i]);
    }
    return arena_printf(arena, format, (int)list.len, (const char *)list.data);
}

/* Sends a whole request in a mode. Returns: the response that has the pick or the refusal. */
static const struct ext_proc_client_response *send_in(struct fake_proxy *proxy, const char *headers,
                                                      struct str body,
                                                      enum ext_proc_body_mode mode) {
    struct ext_proc_config config = {.request_body = mode};
    proxy_request(proxy, headers, false, &config);
    if (mode == EXT_PROC_BODY_FULL_DUPLEX) {
        for (size_t at = 0; at < body.len; at += 7) {
            size_t n = body.len - at < 7 ? body.len - at : 7;
            proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(body.ptr + at, n),
                       at + n == body.len);
        }
    } else {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
        proxy_part(proxy, EXT_PROC_REQUEST_BODY, body, true);
    }
    return proxy_next(proxy);
}

static void picked(struct fake_proxy *proxy, const char *headers, struct str body,
                   enum ext_proc_body_mode mode, char out[64]) {
    const struct ext_proc_client_response *reply = send_in(proxy, headers, body, mode);
    snprintf(out, 64, "%.*s", STR_ARG(proxy_pick(reply)));
    proxy_next_stream(proxy);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void parsers_equal_tokens_go_to_same_endpoint(void **state) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    struct fake_proxy *proxy = open_pool(ALL);
    struct arena *arena = arena_new(NULL, 0);
    int n_same = 0;
    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        enum ext_proc_body_mode mode = modes[i % 2];
        char first[64], got[64];
        uint32_t ids[24];
        for (uint32_t k = 0; k < 24; k++) {
            ids[k] = i * 1000 + k * 7;
        }
        picked(proxy, GENERATE, generate_body(arena, ids, 24), mode, first);
        picked(proxy, JSON("/inference/v1/generate"),
               list_ids(arena, "{\"token_ids\":[%.*s],\"stream\":true}", ids, 24), mode, got);
        assert_string_equal(got, first);
        picked(proxy, JSON("/generate"), list_ids(arena, "{\"input_ids\":[%.*s]}", ids, 24), mode,
               got);
        assert_string_equal(got, first);
        picked(proxy, JSON("/v1/completions"), list_ids(arena, "{\"prompt\":[%.*s]}", ids, 24),
               mode, got);
        assert_string_equal(got, first);
        picked(proxy, JSON("/v1/embeddings"), list_ids(arena, "{\"input\":[%.*s]}", ids, 24), mode,
               got);
        assert_string_equal(got, first);
        picked(proxy, JSON("/generate"),
               list_ids(arena, "{\"extra_key\":\"other\",\"input_ids\":[%.*s]}", ids, 24), mode,
               got);
        n_same += strcmp(got, first) == 0; /* the salt makes it another prompt */
    }
    assert_true(n_same < 20);
    arena_free(arena);
    proxy_close(proxy);
}

static void parsers_chat_in_grpc_is_the_same_prompt(void **state) {
    struct fake_proxy *proxy = open_pool(ALL);
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (int i = 0; i < 20; i++) {
        char first[64], got[64], body[400];
        snprintf(body, sizeof(body),
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%d%0100d\"}]}", i,
                 0);
        picked(proxy, VERTEX, vertex_body(arena, body), EXT_PROC_BODY_BUFFERED, first);
        assert_int_equal(proxy->last_format, PROMPT_OF_VERTEX);
        assert_string_equal(proxy->last_model, "m");
        picked(proxy, JSON("/v1/chat/completions"), str_of(body), EXT_PROC_BODY_FULL_DUPLEX, got);
        assert_int_equal(proxy->last_format, PROMPT_OF_TEXT);
        assert_string_equal(got, first);
    }
    arena_free(arena);
    proxy_close(proxy);
}

static void parsers_outcome_has_format_and_stream(void **state) {
    static const uint32_t ids[] = {1, 2, 3};
    struct fake_proxy *proxy = open_pool(ALL);
    struct arena *arena = arena_new(NULL, 0);
    char at[64];
    (void)state;
    picked(proxy, GENERATE, generate_body(arena, ids, 3), EXT_PROC_BODY_BUFFERED, at);
    assert_int_equal(proxy->last_format, PROMPT_OF_VLLM_GENERATE);
    assert_true(proxy->last_is_streamed);
    picked(proxy, JSON("/generate"), STR("{\"input_ids\":[1],\"stream\":false}"),
           EXT_PROC_BODY_BUFFERED, at);
    assert_int_equal(proxy->last_format, PROMPT_OF_SGLANG_TOKENS);
    assert_false(proxy->last_is_streamed);
    arena_free(arena);
    proxy_close(proxy);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(struct fake_proxy *proxy, const char *headers, struct str body,
                           enum ext_proc_body_mode mode, const char *text) {
    const struct ext_proc_client_response *reply = send_in(proxy, headers, body, mode);
    assert_true(reply->is_immediate);
    bool is_grpc = strstr(headers, "application/grpc") != NULL;
    if (is_grpc) {
        assert_true(reply->grpc_status == 3 || reply->grpc_status == 12);
    } else {
        assert_int_equal(reply->http_status, 400);
    }
    if (!memmem(reply->body.ptr, reply->body.len, text, strlen(text))) {
        fail_msg("%.*s", STR_ARG(reply->body));
    }
    proxy_next_stream(proxy);
}

static void parsers_unreadable_bodies_are_refused(void **state) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    static const struct {
        const char *headers;
        struct str body;
        const char *text;
    } rows[] = {
        {JSON("/v1/completions"), STR("{\"model\":\"m\"}"), "prompt: expected a value"},
        {JSON("/v1/chat/completions"), STR("{\"messages\":[]}"), "messages: expected a value"},
        {JSON("/v1/chat/completions"), STR("{\"messages\":"), "not a JSON object"},
        {JSON("/v1/embeddings"), STR("{}"), "input: expected a value"},
        {JSON("/v1/responses"), STR("[]"), "not a JSON object"},
        {JSON("/v1/messages"), STR("{\"system\":\"a\"}"), "messages: expected a value"},
        {JSON("/inference/v1/generate"), STR("{\"token_ids\":[]}"), "token_ids: expected"},
        {JSON("/generate"), STR("{\"text\":\"Hi\"}"), "input_ids: expected"},
        {JSON("/x/generate"), STR("{\"input_ids\":[1]}"), "no parser of the picker"},
        {GENERATE, STR("\0\0\0\0\4\x0a\2id"), "input: expected text or token ids"},
        {GENERATE, STR("\1\0\0\0\1a"), "uncompressed"},
        {GENERATE, STR("\0\0\0\0\5\x0a\2"), "ends too early"},
        {VERTEX, STR("\0\0\0\0\0"), "http_body: expected one"},
    };
    struct fake_proxy *proxy = open_pool(ALL);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t k = 0; k < 2; k++) {
            if (strstr(rows[i].text, "no parser")) { /* at the headers */
                proxy_request(proxy, rows[i].headers, false, PROXY_CONFIG(BUFFERED, NONE));
                assert_int_equal(proxy_next(proxy)->http_status, 400);
                proxy_next_stream(proxy);
            } else {
                expect_refused(proxy, rows[i].headers, rows[i].body, modes[k], rows[i].text);
            }
        }
    }
    proxy_close(proxy);
}

/* Without parsers, and of bodies that are read in part, nothing is refused. */
static void parsers_refuse_only_what_was_read(void **state) {
    static char large[(1 << 20) + 100];
    char at[64];
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        struct fake_proxy *proxy = open_pool(k == 0 ? 0 : MODEL_PARSERS_DEFAULT);
        if (k == 0) {
            picked(proxy, JSON("/v1/completions"), STR("{}"), EXT_PROC_BODY_BUFFERED, at);
        }
        memset(large, ' ', sizeof(large) - 1); /* more than is buffered, or scanned */
        picked(proxy, JSON("/v1/completions"), str_of(large), EXT_PROC_BODY_BUFFERED, at);
        proxy_request(proxy, JSON("/v1/completions"), false, PROXY_CONFIG(BUFFERED_PARTIAL, NONE));
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
        proxy_body(proxy, "{\"prompt\":\"x", false);
        proxy_pick(proxy_next(proxy));
        proxy_next_stream(proxy);
        proxy_request(proxy, ":method=GET|:path=/v1/models", true, PROXY_CONFIG(NONE, NONE));
        proxy_pick(proxy_next(proxy));
        proxy_next_stream(proxy);
        proxy_request(proxy, JSON("/other"), false, PROXY_CONFIG(BUFFERED, NONE));
        proxy_pick(proxy_next(proxy));
        proxy_close(proxy);
    }
}

/* Of a list without a parser for all paths: GET requests and others without a body pass. */
static void parsers_refuse_paths_that_none_claims(void **state) {
    struct fake_proxy *proxy = open_pool(MODEL_PARSER_OPENAI);
    (void)state;
    proxy_request(proxy, JSON("/v1/messages"), false, PROXY_CONFIG(NONE, NONE));
    assert_int_equal(proxy_next(proxy)->http_status, 400);
    proxy_next_stream(proxy);
    proxy_request(proxy, ":method=GET|:path=/v1/models", true, PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_next_stream(proxy);
    proxy_request(proxy, JSON("/v2/models/m/infer"), false, PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_close(proxy);
}

/* Models make a difference, and a body of token ids may name none. */
static void parsers_model_of_tokens_may_be_left_out(void **state) {
    static const struct pool_target target = {.model = STR("other"), .weight = 1};
    struct pool_spec *spec = fixture_spec_of(N);
    struct pool_model model = {.name = STR("m")};
    char at[64];
    (void)state;
    model.targets = (struct pool_targets){&target, 1};
    pool_spec_add_model(spec, &model);
    spec->strict_models = true;
    struct fake_proxy *proxy = open_spec(spec, MODEL_PARSERS_DEFAULT);
    picked(proxy, JSON("/inference/v1/generate"), STR("{\"token_ids\":[1]}"),
           EXT_PROC_BODY_FULL_DUPLEX, at);
    assert_string_equal(proxy->last_model, "");
    const struct ext_proc_client_response *reply =
        send_in(proxy, JSON("/inference/v1/generate"), STR("{\"token_ids\":[1],\"model\":\"m\"}"),
                EXT_PROC_BODY_BUFFERED);
    proxy_pick(reply);
    assert_true(memmem(reply->body.ptr, reply->body.len, "\"other\"", 7) != NULL);
    proxy_next_stream(proxy);
    expect_refused(proxy, JSON("/v1/completions"), STR("{\"prompt\":\"a\"}"),
                   EXT_PROC_BODY_BUFFERED, "model");
    proxy_close(proxy);
}

/* Only passthrough-parser: no body is asked for. */
static void parsers_passthrough_reads_no_body(void **state) {
    struct fake_proxy *proxy = open_pool(MODEL_PARSER_PASSTHROUGH);
    (void)state;
    proxy_request(proxy, JSON("/v1/completions"), false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsers_equal_tokens_go_to_same_endpoint),
        cmocka_unit_test(parsers_chat_in_grpc_is_the_same_prompt),
        cmocka_unit_test(parsers_outcome_has_format_and_stream),
        cmocka_unit_test(parsers_unreadable_bodies_are_refused),
        cmocka_unit_test(parsers_refuse_only_what_was_read),
        cmocka_unit_test(parsers_refuse_paths_that_none_claims),
        cmocka_unit_test(parsers_model_of_tokens_may_be_left_out),
        cmocka_unit_test(parsers_passthrough_reads_no_body),
    };
    return cmocka_run_group_tests_name("pick/session/parsers", tests, NULL, NULL);
}
