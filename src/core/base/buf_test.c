/* Appending: every kind, growth over many sizes, and the failed flag. */
#include "core/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_text(const struct buf *buf, const char *want) {
    assert_false(buf->failed);
    assert_int_equal(buf->len, strlen(want));
    assert_memory_equal(buf->data, want, buf->len);
}

static void buf_add_appends_each_type(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 0);
    assert_int_equal(buf_str(&buf).len, 0);
    buf_add(&buf, "ab", 2);
    buf_add(&buf, NULL, 0);
    buf_add_str(&buf, STR("c"));
    buf_add_str(&buf, str_make(NULL, 0));
    buf_add_char(&buf, ' ');
    buf_add_u64(&buf, UINT64_MAX);
    buf_add_char(&buf, ' ');
    buf_add_i64(&buf, INT64_MIN);
    buf_printf(&buf, " %s %d", "x", 7);
    assert_text(&buf, "abc 18446744073709551615 -9223372036854775808 x 7");
    arena_free(arena);
}

static void buf_add_printable_replaces_control_characters(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    buf_init(&buf, arena, 0);
    buf_add_printable(&buf, STR("a\033[31m\xc2\x9b\n\x7f\xff\u00e9 \u6a21\xe6\xa8"));
    buf_add_printable(&buf, STR(""));
    assert_text(&buf, "a?[31m????\u00e9 \u6a21??");
    arena_free(arena);
}

static void buf_growth_keeps_content(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 1);
    for (uint64_t i = 0; i < 5000; i++) {
        buf_printf(&buf, "%06u,", (unsigned)i);
        assert_non_null(
            arena_alloc(arena, i % 3)); /* so that growing in place is not always possible */
    }
    assert_int_equal(buf.len, 35000);
    for (unsigned i = 0; i < 5000; i++) {
        char want[8];
        snprintf(want, sizeof(want), "%06u,", i);
        assert_memory_equal(buf.data + (size_t)i * 7, want, 7);
    }
    arena_free(arena);
}

static void buf_printf_at_every_capacity_appends(void **state) {
    (void)state;
    for (size_t room = 1; room < 12; room++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf buf;
        buf_init(&buf, arena, room);
        buf_printf(&buf, "%s", "12345");
        buf_printf(&buf, "%s", "");
        buf_printf(&buf, "%s", "678");
        assert_text(&buf, "12345678");
        arena_free(arena);
    }
}

static void buf_reserve_then_advance_appends(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 0);
    memset(buf_reserve(&buf, 300), 'a', 300);
    buf_advance(&buf, 3);
    assert_text(&buf, "aaa");
    assert_non_null(buf_reserve(&buf, 0));
    arena_free(arena);
}

static void buf_out_of_memory_sets_failed(void **state) {
    struct arena *arena = arena_new(NULL, 20000);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 0);
    buf_add(&buf, "kept", 4);
    assert_null(buf_reserve(&buf, 50000));
    assert_true(buf.failed);
    buf_add(&buf, "dropped", 7);
    buf_printf(&buf, "%d", 1);
    buf_add_u64(&buf, 1);
    assert_int_equal(buf.len, 4);
    assert_memory_equal(buf.data, "kept", 4);
    buf_init(&buf, arena, 1);
    assert_null(buf_reserve(&buf, SIZE_MAX));
    buf_init(&buf, arena, SIZE_MAX);
    assert_true(buf.failed);
    arena_free(arena);
}

static void buf_growth_near_limit_takes_exact_size(void **state) {
    struct arena *arena = arena_new(NULL, 40000);
    struct buf buf;
    (void)state;
    buf_init(&buf, arena, 16000);
    buf_advance(&buf, 16000);
    assert_non_null(buf_reserve(&buf, 10000)); /* doubling would pass the limit */
    assert_false(buf.failed);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_add_appends_each_type),
        cmocka_unit_test(buf_add_printable_replaces_control_characters),
        cmocka_unit_test(buf_growth_keeps_content),
        cmocka_unit_test(buf_printf_at_every_capacity_appends),
        cmocka_unit_test(buf_reserve_then_advance_appends),
        cmocka_unit_test(buf_out_of_memory_sets_failed),
        cmocka_unit_test(buf_growth_near_limit_takes_exact_size),
    };
    return cmocka_run_group_tests_name("core/base/buf", tests, NULL, NULL);
}
