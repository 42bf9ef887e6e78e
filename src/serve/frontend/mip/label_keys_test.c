/* Labels as keys: lines, invalid labels, and duplicates. */
#include "serve/frontend/mip/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sys/resource.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"

static const struct {
    const char *text;
    const char *labels; /* separated by '|'; NULL: an error */
    const char *says;
} rows[] = {
    {"a\nb\nc\n", "a|b|c", NULL},
    {"a\nb\nc", "a|b|c", NULL},
    {"a\r\nb\r\n\r\n\n", "a|b", NULL},
    {"\xef\xbb\xbf"
     "a\nb",
     "a|b", NULL},
    {" two words \n\ttab\t\n", "two words|tab", NULL},
    {"\xc3\xa9t\xc3\xa9\n", "\xc3\xa9t\xc3\xa9", NULL},
    /* duplicates */
    {"crane\nboat\ncrane\n", "crane (0)|boat|crane (2)", NULL},
    {"a\na\na\n", "a (0)|a (1)|a (2)", NULL},
    {"a\na\na (0)\n", NULL, "labels:"},
    {"", NULL, "no labels"},
    {"\n\n", NULL, "no labels"},
    {"a\n\nb\n", NULL, "labels:2: expected a label, the line is empty"},
    {"a\n \nb\n", NULL, "labels:2:"},
    {"a\nb\xff\n", NULL, "labels:2: expected UTF-8"},
};

static void check_labels(size_t row, const struct labels *labels, const char *expected) {
    char text[200];
    size_t len = 0;
    for (size_t i = 0; i < labels->n; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s", i > 0 ? "|" : "",
                                STR_ARG(labels->items[i]));
    }
    if (strcmp(text, expected) != 0) {
        fail_msg("row %zu: expected %s, got %s", row, expected, text);
    }
}

static void labels_each_text_gives_unique_keys_or_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct labels labels;
        struct error err = {0};
        enum status st = labels_parse(arena, "labels", str_of(rows[i].text), &labels, &err);
        if (st == ST_OK) {
            st = mip_labels_make_keys(arena, "labels", &labels, &err);
        }
        assert_int_equal(st, rows[i].labels ? ST_OK : ST_BAD_CONFIG);
        if (rows[i].labels) {
            check_labels(i, &labels, rows[i].labels);
        } else if (!strstr(err.text, rows[i].says)) {
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

static void labels_unreadable_file_error_names_path(void **state) {
    (void)state;
    struct test_dir dir;
    struct labels labels;
    struct error err;
    char path[PATH_MAX];
    struct arena *arena = arena_new(NULL, 0);
    test_dir_make(&dir);
    test_dir_add(&dir, "good", "a\nb\n");
    assert_int_equal(
        labels_load(arena, NULL, STR(""), test_dir_path(&dir, "good", path), &labels, &err), ST_OK);
    check_labels(0, &labels, "a|b");
    assert_int_equal(
        labels_load(arena, NULL, STR(""), test_dir_path(&dir, "absent", path), &labels, &err),
        ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "absent: No such file"));
    assert_int_equal(labels_load(arena, NULL, STR(""), dir.path, &labels, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "regular file"));
    arena_free(arena);
    test_dir_remove(&dir);
}

/* It is not the file's fault, so a load that meets it is 503. */
static void labels_file_without_descriptors_is_not_ready(void **state) {
    (void)state;
    struct test_dir dir;
    struct labels labels;
    struct error err;
    struct rlimit usual, none;
    char path[PATH_MAX];
    struct arena *arena = arena_new(NULL, 0);
    test_dir_make(&dir);
    test_dir_add(&dir, "good", "a\nb\n");
    test_dir_path(&dir, "good", path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum status st = labels_load(arena, NULL, STR(""), path, &labels, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_int_equal(st, ST_NOT_READY);
    assert_non_null(strstr(err.text, "good: Too many open files"));
    arena_free(arena);
    test_dir_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_each_text_gives_unique_keys_or_error),
        cmocka_unit_test(labels_unreadable_file_error_names_path),
        cmocka_unit_test(labels_file_without_descriptors_is_not_ready)};
    return cmocka_run_group_tests_name("serve/frontend/mip/label_keys", tests, NULL, NULL);
}
