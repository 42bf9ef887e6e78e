/* The shape of nested arrays. */
#include "program/requests/json_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void json_shape_of_arrays(void **state) {
    (void)state;
    static const struct {
        const char *text, *shape; /* NULL: an error */
    } rows[] = {
        {"5", "[]"},
        {"\"a,[b\"", "[]"},
        {"[]", "[0]"},
        {"[1]", "[1]"},
        {"[1, 2.5e3,\n-3]", "[3]"},
        {"[true,false]", "[2]"},
        {"[\"a,b\", \"c]\\\"[\", \"\"]", "[3]"},
        {"[[1,2,3],[4,5,6]]", "[2,3]"},
        {" [ [ [ 1 ] ] , [ [ 2 ] ] ] ", "[2,1,1]"},
        {"[[],[]]", "[2,0]"},
        {"[[[],[]]]", "[1,2,0]"},
        {"[[1,2],[3]]", NULL},
        {"[[1],[2,3]]", NULL},
        {"[[1],2]", NULL},
        {"[1,[2]]", NULL},
        {"[[],[1]]", NULL},
        {"[[[]],[]]", NULL},
        {"[[1],[]]", NULL},
        {"[[[1],[2]],[[1]]]", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct shape shape;
        struct error err = {0};
        char text[SHAPE_TEXT_BYTES];
        enum status status = json_shape(arena, str_of(rows[i].text), &shape, &err);
        if ((status == ST_OK) != (rows[i].shape != NULL)) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        if (rows[i].shape) {
            assert_string_equal(shape_print(shape, text), rows[i].shape);
        } else {
            assert_int_equal(status, ST_BAD_SHAPE);
        }
        arena_free(arena);
    }
}

static void json_shape_too_deep_refused(void **state) {
    (void)state;
    char text[200];
    for (size_t depth = 1; depth < 80; depth++) {
        struct arena *arena = arena_new(NULL, 0);
        struct shape shape;
        struct error err = {0};
        memset(text, '[', depth);
        text[depth] = '1';
        memset(text + depth + 1, ']', depth);
        enum status status = json_shape(arena, str_make(text, 2 * depth + 1), &shape, &err);
        assert_int_equal(status, depth <= SHAPE_MAX_RANK ? ST_OK : ST_BAD_SHAPE);
        assert_true(status != ST_OK || shape.rank == depth);
        arena_free(arena);
    }
}

/* Invalid JSON is reported later by the parser; here it must be harmless. */
static void json_shape_invalid_json_does_not_crash(void **state) {
    (void)state;
    static const char *const texts[] = {"]",     "[",   "\"",  "\"\\", "[\"",           "[1",
                                        "1]]]]", ",,,", "[,]", "[1]]", "{\"a\":[1,2]}", ""};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct shape shape;
        struct error err = {0};
        size_t n = strlen(texts[i]);
        char *copy = arena_alloc(arena, n);
        memcpy(copy, texts[i], n);
        enum status status = json_shape(arena, str_make(copy, n), &shape, &err);
        assert_true(status == ST_OK || status == ST_BAD_SHAPE);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_shape_of_arrays),
        cmocka_unit_test(json_shape_too_deep_refused),
        cmocka_unit_test(json_shape_invalid_json_does_not_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
