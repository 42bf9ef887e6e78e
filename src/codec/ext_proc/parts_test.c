/* What parts.c makes is what the accessors of a decoded request read. */
#include "codec/ext_proc/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"

static void check_headers(struct arena *arena, const struct ext_proc_header *headers, size_t n,
                          bool is_compact) {
    struct ext_proc_headers fields;
    struct ext_proc_header header = {STR(""), STR("")};
    struct error err;
    assert_int_equal(ext_proc_headers_make(arena, headers, n, &fields, &err), ST_OK);
    assert_true(fields.is_compact == is_compact);
    struct ext_proc_header_iter walk = ext_proc_header_iter(&fields);
    for (size_t i = 0; i < n; i++) {
        assert_true(ext_proc_header_next(&walk, &header));
        assert_true(str_eq(header.key, headers[i].key));
        assert_true(str_eq(header.value, headers[i].value));
    }
    assert_false(ext_proc_header_next(&walk, &header));
}

static void ext_proc_headers_of_any_length_are_read(void **state) {
    static char bytes[70000];
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    memset(bytes, 0xff, sizeof(bytes));
    check_headers(arena, &(struct ext_proc_header){STR("none"), STR("")}, 0, true);
    for (size_t n = 0; n < 300; n++) {
        const struct ext_proc_header headers[] = {
            {STR(":path"), str_make(bytes, n)}, {STR(""), STR("")}, {STR("last"), STR("x")}};
        check_headers(arena, headers, 3, n + strlen(":path") + 6 <= 129);
        const struct ext_proc_header keys[] = {{str_make(bytes, n), STR("value")}};
        check_headers(arena, keys, 1, n + strlen("value") + 6 <= 129);
    }
    const struct ext_proc_header large[] = {{STR("cookie"), str_make(bytes, sizeof(bytes))}};
    check_headers(arena, large, 1, false);
    arena_free(arena);
}

static void ext_proc_metadata_and_attributes_are_found(void **state) {
    static const struct str items[] = {STR("one"), STR("two")};
    static const struct ext_proc_number number = {.key = {NULL, 0}, .number = 32};
    static const struct ext_proc_entry entries[] = {
        {.key = STR("text"), .text = STR("value")},
        {.key = STR("list"), .list = items, .n_list = 2},
        {.key = STR("number"), .numbers = &number, .n_list = 1}};
    static const struct ext_proc_namespace space = {STR("space"), entries, 3};
    struct arena *arena = arena_new(NULL, 0);
    struct ext_proc_request request = {.metadata = ext_proc_metadata_make(arena, &space, 1),
                                       .attributes = &space};
    (void)state;
    struct ext_proc_value text = ext_proc_metadata_find(&request, STR("space"), STR("text"));
    assert_true(text.kind == EXT_PROC_STRING && str_is(text.text, "value"));
    struct ext_proc_value list = ext_proc_metadata_find(&request, STR("space"), STR("list"));
    assert_int_equal(list.kind, EXT_PROC_LIST);
    struct pb_reader reader = pb_read(list.list);
    for (size_t i = 0; i < 2; i++) {
        assert_true(ext_proc_list_next(&reader, &text));
        assert_true(str_eq(text.text, items[i]));
    }
    struct ext_proc_value found = ext_proc_attribute_find(&request, STR("space"), STR("number"));
    assert_true(found.kind == EXT_PROC_NUMBER && found.number > 31.5 && found.number < 32.5);
    found = ext_proc_attribute_find(&request, STR("space"), STR("text"));
    assert_true(found.kind == EXT_PROC_STRING && str_is(found.text, "value"));
    assert_int_equal(ext_proc_attribute_find(&request, STR("space"), STR("none")).kind,
                     EXT_PROC_ABSENT);
    request.message = STR("");
    assert_int_equal(ext_proc_attribute_find(&request, STR("other"), STR("text")).kind,
                     EXT_PROC_ABSENT);
    assert_int_equal(ext_proc_metadata_make(arena, NULL, 0).len, 0);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ext_proc_headers_of_any_length_are_read),
        cmocka_unit_test(ext_proc_metadata_and_attributes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
