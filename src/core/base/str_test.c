/* Views: comparing, trimming, cutting; the empty and the NULL one included. */
#include "core/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct str null_str = {NULL, 0};

static void assert_str(struct str got, const char *want) {
    assert_int_equal(got.len, strlen(want));
    if (got.len > 0) {
        assert_memory_equal(got.ptr, want, got.len);
    }
}

static void str_eq_compares_bytes(void **state) {
    (void)state;
    assert_true(str_eq(null_str, STR("")));
    assert_true(str_is(STR("abc"), "abc"));
    assert_false(str_is(STR("abc"), "abd"));
    assert_false(str_is(STR("abc"), "ab"));
    assert_true(str_eq(STR("a\0b"), STR("a\0b")));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
}

static void str_eq_nocase_folds_ascii(void **state) {
    (void)state;
    assert_true(str_eq_nocase(STR("Content-Length"), STR("content-LENGTH")));
    assert_true(str_eq_nocase(null_str, STR("")));
    assert_false(str_eq_nocase(STR("a"), STR("ab")));
    assert_false(str_eq_nocase(STR("@"), STR("`"))); /* 0x40 and 0x60 are no letters */
    assert_false(str_eq_nocase(STR("["), STR("{")));
    assert_false(str_eq_nocase(STR("\xc3\x89"), STR("\xc3\xa9"))); /* ASCII only */
}

static void str_starts_with_and_ends_with_match(void **state) {
    (void)state;
    assert_true(str_starts_with(STR("/v2/models"), STR("/v2")));
    assert_true(str_starts_with(STR("/v2"), STR("/v2")));
    assert_false(str_starts_with(STR("/v"), STR("/v2")));
    assert_true(str_starts_with(null_str, null_str));
    assert_true(str_ends_with(STR("model.onnx"), STR(".onnx")));
    assert_false(str_ends_with(STR("onnx"), STR(".onnx")));
    assert_false(str_ends_with(STR("model.onny"), STR(".onnx")));
    assert_true(str_ends_with(null_str, STR("")));
}

static void str_trim_strips_spaces_and_tabs(void **state) {
    (void)state;
    assert_str(str_trim(STR(" \t a b\t ")), "a b");
    assert_str(str_trim(STR(" \t ")), "");
    assert_str(str_trim(null_str), "");
    assert_str(str_trim(STR("\ra\n")), "\ra\n"); /* OWS is space and tab only */
}

static void str_cut_splits_at_separator(void **state) {
    struct str rest = STR("a,,b");
    (void)state;
    assert_str(str_cut(&rest, ','), "a");
    assert_str(str_cut(&rest, ','), "");
    assert_str(str_cut(&rest, ','), "b");
    assert_null(rest.ptr);
    rest = STR("a,");
    assert_str(str_cut(&rest, ','), "a");
    assert_non_null(rest.ptr); /* an empty last element is still one */
    assert_str(str_cut(&rest, ','), "");
    assert_null(rest.ptr);
    assert_str(str_cut(&rest, ','), "");
}

static void str_copy_lower_folds_ascii(void **state) {
    char text[] = "@AZ[`az{-X-Token\xc3\x84", copy[] = "................+";
    (void)state;
    str_copy_lower(copy, STR("X-Key"));
    assert_string_equal(copy, "x-key...........+");
    str_copy_lower(copy, null_str);
    str_copy_lower(text, str_of(text)); /* in place */
    assert_string_equal(text, "@az[`az{-x-token\xc3\x84");
}

static void str_dup_terminates_copy(void **state) {
    const char text[] = {'a', 'b', 'c'};
    (void)state;
    char *all = str_dup(str_make(text, 3)), *nothing = str_dup(str_make(NULL, 0));
    assert_string_equal(all, "abc");
    assert_string_equal(nothing, "");
    free(all);
    free(nothing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(str_eq_compares_bytes),
        cmocka_unit_test(str_eq_nocase_folds_ascii),
        cmocka_unit_test(str_starts_with_and_ends_with_match),
        cmocka_unit_test(str_trim_strips_spaces_and_tabs),
        cmocka_unit_test(str_cut_splits_at_separator),
        cmocka_unit_test(str_copy_lower_folds_ascii),
        cmocka_unit_test(str_dup_terminates_copy),
    };
    return cmocka_run_group_tests_name("core/base/str", tests, NULL, NULL);
}
