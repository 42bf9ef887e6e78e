/* Categories of endpoints that need a header: parsing of the settings, and checks. */
#include "serve/frontend/restrictions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct field {
    const char *name, *value;
    size_t n; /* how often it is there */
};

static size_t find(const void *request, const char *name, struct str *value) {
    const struct field *field = request;
    *value = str_of(field->value);
    return strcmp(field->name, name) == 0 ? field->n : 0;
}

static void restrictions_bad_settings_are_refused_without_the_value(void **state) {
    static const char *const bad[] = {
        "",          "health",   "health:k",     "health:=v1",         ":k=v1",
        "health:k=", "all:k=v1", "health,:k=v1", "health,health:k=v1", "Health:k=v1"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct restrictions restrictions;
        struct error err;
        assert_int_equal(restrictions_parse(&bad[i], 1, "API", "", arena, &restrictions, &err),
                         ST_BAD_CONFIG);
        assert_null(strstr(err.text, "v1"));
        arena_free(arena);
    }
}

static void restrictions_category_needs_its_header(void **state) {
    static const char *const settings[] = {"health,model-config:X-Key=a=b", "trace:other=c"};
    static const struct {
        enum restricted_category category;
        struct field field;
        enum status expected;
    } rows[] = {
        {RESTRICTED_HEALTH, {"p-x-key", "a=b", 1}, ST_OK},
        {RESTRICTED_MODEL_CONFIG, {"p-x-key", "a=b", 1}, ST_OK},
        {RESTRICTED_HEALTH, {"p-x-key", "a=b", 2}, ST_RESTRICTED},
        {RESTRICTED_HEALTH, {"p-x-key", "a", 1}, ST_RESTRICTED},
        {RESTRICTED_HEALTH, {"x-key", "a=b", 1}, ST_RESTRICTED},
        {RESTRICTED_HEALTH, {"p-other", "c", 1}, ST_RESTRICTED},
        {RESTRICTED_TRACE, {"p-other", "c", 1}, ST_OK},
        {RESTRICTED_INFERENCE, {"", "", 0}, ST_OK},
        {RESTRICTED_CATEGORIES, {"", "", 0}, ST_OK},
    };
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct restrictions restrictions;
    struct error err;
    assert_int_equal(restrictions_parse(settings, 2, "protocol", "p-", arena, &restrictions, &err),
                     ST_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(
            restrictions_check(&restrictions, rows[i].category, find, &rows[i].field, &err),
            rows[i].expected);
        if (rows[i].expected != ST_OK) {
            assert_string_equal(err.text,
                                "This protocol is restricted, expecting header 'p-x-key'");
        }
        assert_int_equal(restrictions_check(NULL, rows[i].category, find, &rows[i].field, &err),
                         ST_OK);
    }
    assert_true(restrictions_read_field(&restrictions, STR("p-x-key")));
    assert_false(restrictions_read_field(&restrictions, STR("x-key")));
    assert_false(restrictions_read_field(NULL, STR("p-x-key")));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restrictions_bad_settings_are_refused_without_the_value),
        cmocka_unit_test(restrictions_category_needs_its_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
