/* Shapes of inputs: deduced from data and metadata, or read from a flag. */
#include "program/requests/infer_shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Parses a shape; "-" is none. */
static struct shape read_shape(struct arena *arena, const char *text) {
    struct str rest = str_of(text);
    int64_t *dims = arena_calloc(arena, 8, sizeof(*dims));
    size_t rank = 0;
    while (rest.ptr && rest.len > 0) {
        struct str part = str_cut(&rest, ',');
        dims[rank++] = str_is(part, "-1") ? -1 : part.ptr[0] - '0';
    }
    return (struct shape){dims, rank};
}

static void infer_shape_fits_data_and_model(void **state) {
    (void)state;
    static const struct {
        const char *data; /* "-": flat, without a shape */
        uint64_t n;
        const char *spec, *shape; /* NULL: an error */
    } rows[] = {
        {"2,3", 6, "-1,3", "[2,3]"},
        {"3", 3, "-1,3", "[1,3]"}, /* lacks the batch dimension */
        {"2,3", 6, "-1,2,3", "[1,2,3]"},
        {"2,3", 6, "2,3", "[2,3]"},
        {"2,3", 6, "3,2", NULL},
        {"2,3", 6, "6", NULL},
        {"6", 6, "-1,3", "[2,3]"}, /* flat data */
        {"6", 6, "2,3", "[2,3]"},
        {"5", 5, "2,3", NULL},
        {"6", 6, "-1,-1", "[1,6]"},
        {"6", 6, "-1,-1,3", "[1,2,3]"},
        {"6", 6, "-1,3,-1", "[1,3,2]"},
        {"6", 6, "-1,-1,-1", NULL},
        {"6", 6, "2,-1,-1", NULL},
        {"7", 7, "-1,3", NULL},
        {"-", 6, "-1,3", "[2,3]"},
        {"-", 1, "-1,1", "[1,1]"},
        {"-", 1, "", "[]"},
        {"-", 2, "", NULL},
        {"", 1, "", "[]"},
        {"1,0", 0, "-1,0", "[1,0]"},
        {"0", 0, "-1,3", "[0,3]"},
        {"0", 0, "-1,0", "[1,0]"},
        {"-", 3, "-1,0", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct infer_extent data = {.n_elements = rows[i].n};
        struct tensor_spec spec = {.name = STR("x"), .shape = read_shape(arena, rows[i].spec)};
        struct shape shape;
        char text[SHAPE_TEXT_BYTES];
        data.has_shape = strcmp(rows[i].data, "-") != 0;
        if (data.has_shape) {
            data.shape = read_shape(arena, rows[i].data);
        }
        enum status status = infer_shape_resolve(arena, &data, &spec, &shape, &err);
        if ((status == ST_OK) != (rows[i].shape != NULL)) {
            fail_msg("%s into %s: %s", rows[i].data, rows[i].spec, err.text);
        }
        if (rows[i].shape) {
            assert_string_equal(shape_print(shape, text), rows[i].shape);
        } else {
            assert_int_equal(status, ST_BAD_SHAPE);
            assert_non_null(strstr(err.text, "--shape x="));
        }
        arena_free(arena);
    }
}

static void infer_shape_text_is_parsed(void **state) {
    (void)state;
    static const struct {
        const char *text, *shape;
    } rows[] = {
        {"1,28,28", "[1,28,28]"},
        {"[1, 28, 28]", "[1,28,28]"},
        {"7", "[7]"},
        {"", "[]"},
        {"[]", "[]"},
        {"0,3", "[0,3]"},
        {"-1", NULL},
        {"1,", NULL},
        {",1", NULL},
        {"1x", NULL},
        {"[1", NULL},
        {"1.5", NULL},
        {"9223372036854775808", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct shape shape;
        char text[SHAPE_TEXT_BYTES];
        enum status status = infer_shape_parse(arena, str_of(rows[i].text), &shape, &err);
        assert_int_equal(status, rows[i].shape ? ST_OK : ST_BAD_CONFIG);
        if (rows[i].shape) {
            assert_string_equal(shape_print(shape, text), rows[i].shape);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(infer_shape_fits_data_and_model),
                                       cmocka_unit_test(infer_shape_text_is_parsed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
