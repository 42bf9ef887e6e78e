/* Which headers and metadata become parameters, and their order after those of the request. */
#include "serve/frontend/header_forward.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void header_forward_pattern_is_validated(void **state) {
    static const struct {
        const char *pattern;
        enum status status;
    } rows[] = {
        {NULL, ST_OK},
        {"", ST_OK},
        {"^x-", ST_OK},
        {"(?-i)X-", ST_OK},
        {"a|b", ST_OK},
        {"(", ST_BAD_CONFIG},
        {"[", ST_BAD_CONFIG},
        {"a{2,1}", ST_BAD_CONFIG},
        {"(?-i)[", ST_BAD_CONFIG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {.text = ""};
        assert_int_equal(header_forward_check(rows[i].pattern, &err), rows[i].status);
        assert_int_equal(strstr(err.text, "regular expression") != NULL,
                         rows[i].status == ST_BAD_CONFIG);
    }
}

/* "a=1,b=2" */
static void params_text(struct params params, char *out, size_t room) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < params.n; i++) {
        n += (size_t)snprintf(out + n, room - n, "%s%.*s=%.*s", i > 0 ? "," : "",
                              STR_ARG(params.items[i].name), STR_ARG(params.items[i].string));
    }
}

static void header_forward_http_matching_fields_become_params(void **state) {
    static const struct http_field fields[] = {
        {STR("Host"), STR("h")},       {STR("X-One"), STR("1")},  {STR("x-one"), STR("2")},
        {STR("own"), STR("header's")}, {STR("X-One"), STR("3")},  {STR("timeout"), STR("9")},
        {STR("X-Text"), STR("\xff")},  {STR("X-Empty"), STR("")},
    };
    static const struct {
        const char *pattern;
        enum status status;
        const char *text; /* the parameters, or the error message */
    } rows[] = {
        {"no-such", ST_OK, "own=request's"},
        {"^x-one$", ST_OK, "own=request's,X-One=1,x-one=2"},
        {"(?-i)^x-one$", ST_OK, "own=request's,x-one=2"},
        {"own|empty", ST_OK, "own=request's,X-Empty="},
        {"st$", ST_OK, "own=request's,Host=h"},
        {"time", ST_BAD_FIELD, "timeout"},
        {"text", ST_BAD_FIELD, "X-Text"},
    };
    const struct http_head head = {.fields = fields,
                                   .n_fields = sizeof(fields) / sizeof(fields[0])};
    static const struct param own = {
        .name = STR("own"), .kind = PARAM_STRING, .string = STR("request's")};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct header_forward *forward;
        struct params params = {&own, 1};
        struct error err;
        char text[256];
        assert_int_equal(header_forward_new(rows[i].pattern, &forward, &err), ST_OK);
        assert_int_equal(header_forward_http(forward, arena, &head, &params, &err), rows[i].status);
        if (rows[i].status == ST_OK) {
            params_text(params, text, sizeof(text));
            assert_string_equal(text, rows[i].text);
        } else {
            assert_non_null(strstr(err.text, rows[i].text));
        }
        header_forward_free(forward);
        arena_free(arena);
    }
}

/* The time for a long name is that of a short one. */
static void header_forward_long_name_never_matches(void **state) {
    static char name[HEADER_FORWARD_NAME_BYTES + 1];
    struct arena *arena = arena_new(NULL, 0);
    struct header_forward *forward;
    struct error err;
    (void)state;
    memset(name, 'x', sizeof(name));
    assert_int_equal(header_forward_new("x$", &forward, &err), ST_OK);
    for (size_t n = sizeof(name) - 1; n <= sizeof(name); n++) {
        const struct http_field field = {str_make(name, n), STR("v")};
        const struct http_head head = {.fields = &field, .n_fields = 1};
        struct params params = {NULL, 0};
        assert_int_equal(header_forward_http(forward, arena, &head, &params, &err), ST_OK);
        assert_int_equal(params.n, n <= HEADER_FORWARD_NAME_BYTES);
    }
    header_forward_free(forward);
    arena_free(arena);
}

static void header_forward_grpc_skips_reserved_metadata(void **state) {
    static const struct grpc_field fields[] = {
        {STR("te"), STR("trailers")},       {STR("content-type"), STR("application/grpc")},
        {STR("grpc-timeout"), STR("1S")},   {STR("blob-bin"), STR("\xff")},
        {STR("authorization"), STR("who")}, {STR("x"), STR("y")},
    };
    const struct grpc_call call = {.fields = fields,
                                   .n_fields = sizeof(fields) / sizeof(fields[0])};
    struct arena *arena = arena_new(NULL, 0);
    struct header_forward *forward;
    struct params params = {NULL, 0};
    struct error err;
    char text[256];
    (void)state;
    assert_int_equal(header_forward_new("", &forward, &err), ST_OK);
    assert_int_equal(header_forward_grpc(forward, arena, &call, &params, &err), ST_OK);
    params_text(params, text, sizeof(text));
    assert_string_equal(text, "authorization=who,x=y");
    params = (struct params){NULL, 0};
    assert_int_equal(header_forward_grpc(NULL, arena, &call, &params, &err), ST_OK);
    assert_int_equal(params.n, 0);
    header_forward_free(forward);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_forward_pattern_is_validated),
        cmocka_unit_test(header_forward_http_matching_fields_become_params),
        cmocka_unit_test(header_forward_long_name_never_matches),
        cmocka_unit_test(header_forward_grpc_skips_reserved_metadata),
    };
    return cmocka_run_group_tests_name("serve/frontend/header_forward", tests, NULL, NULL);
}
