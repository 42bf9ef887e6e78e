/* Which paths name a model, and where; and paths with the model replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/prompt/model_location.h"

static const struct row {
    const char *method, *path;
    enum status status;
    enum model_location_kind kind;
    const char *model, *version; /* of MODEL_LOCATION_PATH */
    const char *changed;         /* with the model "a/b é" */
} rows[] = {
    {"POST", "/v2/models/m/infer", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/v2/models/m/versions/3/infer?x=/v2/models/n/infer", ST_OK, MODEL_LOCATION_PATH, "m",
     "3", "/v2/models/a%2Fb%20%C3%A9/versions/3/infer?x=/v2/models/n/infer"},
    {"POST", "/v2/models/m/generate", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/v2/models/a%2Fb%20%C3%A9/generate"},
    {"POST", "/tenant/1/v2/models/m/generate_stream", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/tenant/1/v2/models/a%2Fb%20%C3%A9/generate_stream"},
    {"POST", "/v2/models/org%2Fm%c3%a9/infer", ST_OK, MODEL_LOCATION_PATH, "org/m\xc3\xa9", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/v2/models/versions/infer", ST_OK, MODEL_LOCATION_PATH, "versions", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/v2/models/infer/versions/infer/infer", ST_OK, MODEL_LOCATION_PATH, "infer", "infer",
     "/v2/models/a%2Fb%20%C3%A9/versions/infer/infer"},
    {"POST", "/v2/models/versions/versions/versions/infer", ST_OK, MODEL_LOCATION_PATH, "versions",
     "versions", "/v2/models/a%2Fb%20%C3%A9/versions/versions/infer"},
    {"POST", "/v2/models/m/v2/models/n/infer", ST_OK, MODEL_LOCATION_PATH, "n", NULL,
     "/v2/models/m/v2/models/a%2Fb%20%C3%A9/infer"},
    {"GET", "/v2/models/m/infer", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/v2/models/m/versions/V/explain", ST_OK, MODEL_LOCATION_PATH, "m", "V",
     "/v2/models/a%2Fb%20%C3%A9/versions/V/explain"},
    {"POST", "/v2/models/m/versions/2/generate_stream", ST_OK, MODEL_LOCATION_PATH, "m", "2",
     "/v2/models/a%2Fb%20%C3%A9/versions/2/generate_stream"},
    /* bug-N9: KServe's first protocol, and TensorFlow Serving's further verbs */
    {"POST", "/v1/models/m:predict", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/v1/models/a%2Fb%20%C3%A9:predict"},
    {"POST", "/x/v1/models/o%2fm:explain?a=b", ST_OK, MODEL_LOCATION_PATH, "o/m", NULL,
     "/x/v1/models/a%2Fb%20%C3%A9:explain?a=b"},
    {"POST", "/v1/models/m/versions/12:classify", ST_OK, MODEL_LOCATION_PATH, "m", "12",
     "/v1/models/a%2Fb%20%C3%A9/versions/12:classify"},
    {"POST", "/v1/models/m/labels/stable:regress", ST_OK, MODEL_LOCATION_PATH, "m", "stable",
     "/v1/models/a%2Fb%20%C3%A9/labels/stable:regress"},
    {"POST", "/v1/models/m:predict:predict", ST_OK, MODEL_LOCATION_PATH, "m:predict", NULL,
     "/v1/models/a%2Fb%20%C3%A9:predict"},
    {"POST", "/v1/models/%61:predict", ST_OK, MODEL_LOCATION_PATH, "a", NULL,
     "/v1/models/a%2Fb%20%C3%A9:predict"},
    {"POST", "/v1/models/m%3Apredict", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/models/m:%70redict", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/m%6Fdels/m:predict", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/models/:predict", ST_NOT_FOUND, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v1/models/m", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/models/m:publish", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/models/m/x/1:predict", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/labels/stable/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", ":predict", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    /* invalid names */
    {"POST", "/v2/models//infer", ST_NOT_FOUND, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/versions//infer", ST_NOT_FOUND, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/%ff/infer", ST_NOT_FOUND, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m%2/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/versions/%zz/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL,
     NULL},
    /* not inferences */
    {"GET", "/v2/models/m", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v2/models/m/ready", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v2/models/m/versions/1/stats", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/infer/", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/infer/x", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/versions/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/versions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/v1/completions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "v2/models/m/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/repository/index", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v2", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"OPTIONS", "*", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "?/v2/models/m/infer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    /* Where a path without its empty and dot segments names another model, it is refused. */
    {"POST", "//v2/models/m/infer", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "//v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/x/../v2/models/m/infer", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/x/../v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "//v2//models/m/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m//infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/./infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/n/../m/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/n/%2e%2E/m/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/v2/models/n/../../../infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL,
     NULL, NULL},
    {"POST", "/v1//completions", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/x/../chat/completions", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "//v1/completions", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"GET", "//files//../a/..", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/../../..", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/.../..a/.%2f/v2", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    /* bug-N9: servers decode letters, digits and "-._~" before they look for a path. */
    {"POST", "/v1/%63ompletions", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/%761/completions?x=%63", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/chat%2Fcompletions", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2%2fmodels/n/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/versions/..%2F..%2Fn/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL,
     NULL, NULL},
    {"POST", "/v2/models/n/%69nfer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/m%6Fdels/n/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/n/%2E./m/infer", ST_BAD_REQUEST, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/inference.GRPC%49nferenceService/ModelInfer", ST_BAD_REQUEST, MODEL_LOCATION_NONE,
     NULL, NULL, NULL},
    {"POST", "/v2/models/%6d%2D%7E%5f/infer", ST_OK, MODEL_LOCATION_PATH, "m-~_", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/v2/models/100%25%3Fx%2f%23/infer", ST_OK, MODEL_LOCATION_PATH, "100%?x/#", NULL,
     "/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/t%65nant/v2/models/m/infer", ST_OK, MODEL_LOCATION_PATH, "m", NULL,
     "/t%65nant/v2/models/a%2Fb%20%C3%A9/infer"},
    {"POST", "/t%65nant/v1/completions", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"GET", "/files/%61%6", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    /* in a JSON body */
    {"POST", "/v1/completions", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/chat/completions?stream=1", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/embeddings", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/responses", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/messages", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/messages/count_tokens", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/completions/render", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/chat/completions/render", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/some/prefix/v1/chat/completions", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/invocations", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v2/rerank", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/score", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/score", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/pooling", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/classify", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/tokenize", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/v1/audio/speech", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/openai/v1/images/generations", ST_OK, MODEL_LOCATION_JSON_BODY, NULL, NULL, NULL},
    {"POST", "/detokenize", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v2/models/m/score", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v1/chat/completions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"GET", "/v1/models", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/completions/", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/completionsx", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/xv1/completions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/x?/v1/completions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/v1/audio/transcriptions", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    {"POST", "/primary-gateway-test", ST_OK, MODEL_LOCATION_NONE, NULL, NULL, NULL},
    /* in a gRPC body */
    {"POST", "/inference.GRPCInferenceService/ModelInfer", ST_OK, MODEL_LOCATION_GRPC_BODY, NULL,
     NULL, NULL},
    {"POST", "/inference.GRPCInferenceService/ModelStreamInfer", ST_OK, MODEL_LOCATION_NONE, NULL,
     NULL, NULL},
    {"POST", "/inference.GRPCInferenceService/ModelReady", ST_OK, MODEL_LOCATION_NONE, NULL, NULL,
     NULL},
    {"GET", "/inference.GRPCInferenceService/ModelInfer", ST_OK, MODEL_LOCATION_NONE, NULL, NULL,
     NULL},
};

static void check_row(struct arena *arena, const struct row *row, struct str path) {
    struct model_location got;
    struct error err = {0};
    enum status status = model_location_parse(arena, NULL, str_of(row->method), path, &got, &err);
    if (status != row->status || got.kind != row->kind) {
        fail_msg("%s %s: %d, %d", row->method, row->path, (int)status, (int)got.kind);
    }
    assert_int_equal(status, err.status);
    if (row->kind != MODEL_LOCATION_PATH) {
        return;
    }
    struct buf changed;
    buf_init(&changed, arena, 0);
    assert_true(str_is(got.model, row->model));
    assert_int_equal(got.version.ptr != NULL, row->version != NULL);
    assert_true(!row->version || str_is(got.version, row->version));
    model_location_print_path(&changed, &got, path, STR("a/b \xc3\xa9"));
    assert_true(str_is(buf_str(&changed), row->changed));
    status = model_location_parse(arena, NULL, STR("POST"), buf_str(&changed), &got, &err);
    assert_int_equal(status, ST_OK);
    assert_true(str_is(got.model, "a/b \xc3\xa9"));
}

static void model_location_parse_rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        size_t n = strlen(rows[i].path);
        char *exact = malloc(n + (n == 0)); /* exact size, for the address sanitizer */
        memcpy(exact, rows[i].path, n);
        check_row(arena, &rows[i], str_make(exact, n));
        free(exact);
        arena_free(arena);
    }
}

/* A list of paths replaces the default, and what is known about a prompt in them stays. */
static void model_location_listed_paths_replace_default(void **state) {
    static const struct str items[] = {STR("/v1/messages"), STR("/api/generate")};
    static const struct model_paths paths = {.items = items, .n = 2};
    static const struct {
        const char *path;
        enum model_location_kind kind;
        bool has_prompt, may_have_system;
    } cases[] = {
        {"/x/v1/messages", MODEL_LOCATION_JSON_BODY, true, true},
        {"/api/generate?x", MODEL_LOCATION_JSON_BODY, false, false},
        {"/v1/completions", MODEL_LOCATION_NONE, false, false},
        {"/v2/models/m/api/generate", MODEL_LOCATION_NONE, false, false},
        {"/v1/models/m:predict", MODEL_LOCATION_PATH, false, false},
    };
    struct arena *arena = arena_new(NULL, 0);
    struct model_location got;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            model_location_parse(arena, &paths, STR("POST"), str_of(cases[i].path), &got, &err),
            ST_OK);
        assert_int_equal(got.kind, cases[i].kind);
        assert_int_equal(got.has_prompt, cases[i].has_prompt);
        assert_int_equal(got.may_have_system, cases[i].may_have_system);
    }
    assert_int_equal(
        model_location_parse(arena, &paths, STR("POST"), STR("/api/%67enerate"), &got, &err),
        ST_BAD_REQUEST);
    assert_int_equal(
        model_location_parse(arena, NULL, STR("POST"), STR("/v1/responses"), &got, &err), ST_OK);
    assert_true(got.has_prompt && got.may_have_system);
    arena_free(arena);
}

/* The parsers of the upstream project that are listed, by the longest end of the path. */
static void model_location_parsers_claim_paths(void **state) {
    enum { ALL = 127 & ~MODEL_PARSER_PASSTHROUGH };
    static const struct {
        unsigned parsers;
        const char *path;
        enum model_location_kind kind;
        bool is_unclaimed, has_prompt, may_have_system;
        enum prompt_format format;
        const char *required;
    } cases[] = {
#define NOWHERE MODEL_LOCATION_NONE
#define IN_JSON MODEL_LOCATION_JSON_BODY
        {ALL, "/v1/chat/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT, "messages"},
        {ALL, "/v1/chat/completions/?a=b", IN_JSON, false, true, false, PROMPT_OF_TEXT, "messages"},
        {ALL, "/v1/projects/p/chat/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT,
         "messages"},
        {ALL, "/v1/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT, "prompt"},
        {ALL, "/v1/completions/render", IN_JSON, false, true, false, PROMPT_OF_TEXT, "prompt"},
        {ALL, "/v1/chat/completions/render", IN_JSON, false, true, false, PROMPT_OF_TEXT,
         "messages"},
        {ALL, "/v1/embeddings", IN_JSON, false, true, false, PROMPT_OF_TEXT, "input"},
        {ALL, "/v1/responses", IN_JSON, false, true, true, PROMPT_OF_TEXT, "input"},
        {ALL, "/v1/conversations", IN_JSON, false, true, false, PROMPT_OF_TEXT, "items"},
        {ALL, "/v1/images/generations", IN_JSON, false, false, false, PROMPT_OF_TEXT, NULL},
        {ALL, "/v1/messages", IN_JSON, false, true, true, PROMPT_OF_TEXT, "messages"},
        {ALL, "/v1/messages/count_tokens", IN_JSON, false, false, false, PROMPT_OF_TEXT, NULL},
        {ALL, "/inference/v1/generate", IN_JSON, false, true, false, PROMPT_OF_VLLM_TOKENS, NULL},
        {ALL, "/generate", NOWHERE, false, true, false, PROMPT_OF_SGLANG_TOKENS, NULL},
        {ALL, "/x/generate", NOWHERE, true, false, false, PROMPT_OF_TEXT, NULL},
        {ALL, "/vllm.grpc.engine.VllmEngine/Generate", NOWHERE, false, true, false,
         PROMPT_OF_VLLM_GENERATE, NULL},
        {ALL, "/vllm.grpc.engine.VllmEngine/Embed", NOWHERE, false, true, false,
         PROMPT_OF_VLLM_EMBED, NULL},
        {ALL, "/vllm.grpc.engine.VllmEngine/Abort", NOWHERE, true, false, false, PROMPT_OF_TEXT,
         NULL},
        {ALL, "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions", NOWHERE, false,
         true, false, PROMPT_OF_VERTEX, "messages"},
        {ALL, "/google.cloud.aiplatform.v1beta1.PredictionService/RawPredict", NOWHERE, false, true,
         true, PROMPT_OF_VERTEX, "input"},
        {ALL, "/google.cloud.aiplatform.v1beta1.PredictionService/StreamRawPredict", NOWHERE, false,
         true, true, PROMPT_OF_VERTEX, "input"},
        {ALL, "/score", NOWHERE, true, false, false, PROMPT_OF_TEXT, NULL},
        {ALL, "/v1/models/m:predict", MODEL_LOCATION_PATH, false, false, false, PROMPT_OF_TEXT,
         NULL},
        {MODEL_PARSER_SGLANG_HTTP, "/inference/v1/generate", NOWHERE, true, false, false,
         PROMPT_OF_TEXT, NULL},
        {MODEL_PARSER_VLLM_HTTP, "/generate", NOWHERE, true, false, false, PROMPT_OF_TEXT, NULL},
        {MODEL_PARSER_OPENAI, "/v1/messages", NOWHERE, true, false, false, PROMPT_OF_TEXT, NULL},
        {MODEL_PARSER_OPENAI | MODEL_PARSER_PASSTHROUGH, "/v1/messages", NOWHERE, false, false,
         false, PROMPT_OF_TEXT, NULL},
        {MODEL_PARSER_PASSTHROUGH, "/v1/completions", NOWHERE, false, false, false, PROMPT_OF_TEXT,
         NULL},
        /* the default list, and the paths of this picker */
        {MODEL_PARSERS_DEFAULT, "/v1/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT,
         "prompt"},
        {MODEL_PARSERS_DEFAULT, "/openai/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT,
         "prompt"},
        {MODEL_PARSERS_DEFAULT, "/score", IN_JSON, false, false, false, PROMPT_OF_TEXT, NULL},
        {MODEL_PARSERS_DEFAULT, "/inference/v1/generate", IN_JSON, false, true, false,
         PROMPT_OF_VLLM_TOKENS, NULL},
        {MODEL_PARSERS_DEFAULT, "/generate", NOWHERE, false, false, false, PROMPT_OF_TEXT, NULL},
        {MODEL_PARSERS_DEFAULT, "/other", NOWHERE, false, false, false, PROMPT_OF_TEXT, NULL},
        {0, "/inference/v1/generate", IN_JSON, false, true, false, PROMPT_OF_VLLM_TOKENS, NULL},
        {0, "/v1/completions", IN_JSON, false, true, false, PROMPT_OF_TEXT, NULL},
    };
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_paths paths = {.parsers = cases[i].parsers};
        struct model_location got;
        struct error err;
        assert_int_equal(
            model_location_parse(arena, &paths, STR("POST"), str_of(cases[i].path), &got, &err),
            ST_OK);
        if (got.kind != cases[i].kind || got.is_unclaimed != cases[i].is_unclaimed ||
            got.has_prompt != cases[i].has_prompt || got.format != cases[i].format ||
            got.may_have_system != cases[i].may_have_system ||
            (got.required.ptr != NULL) != (cases[i].required != NULL) ||
            (got.required.ptr && !str_is(got.required, cases[i].required))) {
            fail_msg("%zu: %s", i, cases[i].path);
        }
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_location_parse_rows_match),
        cmocka_unit_test(model_location_listed_paths_replace_default),
        cmocka_unit_test(model_location_parsers_claim_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
