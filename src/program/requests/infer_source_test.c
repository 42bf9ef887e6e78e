/* The sources of inputs: the argument, and files in a folder of the test. */
#include "program/requests/infer_source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "program/requests/file.h"

enum { MAX = 1 << 20 };

static const char npy[] = "\x93NUMPY\1\1";

static void put(const char *name, const char *text) {
    struct str piece = str_of(text);
    struct error err;
    assert_int_equal(file_write(name, &piece, 1, &err), ST_OK);
}

static int enter_folder(void **state) {
    char folder[] = "/tmp/sluice-source-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0) {
        return -1;
    }
    put("a.json", "[1]");
    put("a.npy", npy);
    put("a.bin", "abc");
    put("empty", "");
    *state = strdup(folder);
    return *state ? 0 : -1;
}

static int leave_folder(void **state) {
    static const char *const names[] = {"a.json", "a.npy", "a.bin", "empty"};
    for (size_t i = 0; i < 4; i++) {
        unlink(names[i]);
    }
    int failed = chdir("/") != 0 || rmdir(*state) != 0;
    free(*state);
    return failed;
}

static void infer_source_kinds_are_read(void **state) {
    (void)state;
    static const struct {
        const char *argument, *name;
        enum infer_source_kind kind;
        const char *bytes;
    } rows[] = {
        {"x=[1,2]", "x", INFER_SOURCE_INLINE, "[1,2]"},
        {"x=", "x", INFER_SOURCE_INLINE, ""},
        {"x=a=b", "x", INFER_SOURCE_INLINE, "a=b"},
        {"x=-1", "x", INFER_SOURCE_INLINE, "-1"},
        {"x=@a.json", "x", INFER_SOURCE_JSON, "[1]"},
        {"x=@a.npy", "x", INFER_SOURCE_NPY, npy},
        {"x=@a.bin", "x", INFER_SOURCE_RAW, "abc"},
        {"x=@empty", "x", INFER_SOURCE_RAW, ""},
        {"x=raw:a.json", "x", INFER_SOURCE_RAW, "[1]"},
        {"x=json:a.bin", "x", INFER_SOURCE_JSON, "abc"},
        {"x=npy:a.bin", "x", INFER_SOURCE_NPY, "abc"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_source source;
        struct error err = {0};
        if (infer_source_read(arena, rows[i].argument, MAX, &source, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].argument, err.text);
        }
        assert_true(str_is(source.name, rows[i].name));
        assert_int_equal(source.kind, rows[i].kind);
        assert_true(str_is(source.bytes, rows[i].bytes));
        arena_free(arena);
    }
}

static void infer_source_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const char *argument;
        enum status status;
        const char *says;
    } rows[] = {
        {"x", ST_BAD_CONFIG, "NAME=SOURCE"},  {"=1", ST_BAD_CONFIG, "NAME=SOURCE"},
        {"", ST_BAD_CONFIG, "NAME=SOURCE"},   {"x=@", ST_BAD_CONFIG, "missing"},
        {"x=raw:", ST_BAD_CONFIG, "missing"}, {"x=@nowhere.npy", ST_IO, "nowhere.npy: No such"},
        {"x=@.", ST_IO, "Is a directory"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_source source;
        struct error err = {0};
        assert_int_equal(infer_source_read(arena, rows[i].argument, MAX, &source, &err),
                         rows[i].status);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].argument, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

/* The kind of standard input is recognized by its first bytes. */
static void infer_source_standard_input_kind_is_detected(void **state) {
    (void)state;
    static const struct {
        const char *argument, *bytes;
        enum infer_source_kind kind;
    } rows[] = {
        {"x=-", " \n[1]", INFER_SOURCE_JSON}, {"x=@-", npy, INFER_SOURCE_NPY},
        {"x=-", "abc", INFER_SOURCE_RAW},     {"x=-", "", INFER_SOURCE_RAW},
        {"x=raw:-", "[1]", INFER_SOURCE_RAW},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_source source;
        struct error err = {0};
        put("empty", rows[i].bytes);
        assert_non_null(freopen("empty", "rb", stdin));
        assert_int_equal(infer_source_read(arena, rows[i].argument, MAX, &source, &err), ST_OK);
        assert_int_equal(source.kind, rows[i].kind);
        assert_true(str_is(source.bytes, rows[i].bytes));
        assert_string_equal(source.file, "standard input");
        assert_int_equal(infer_source_read(arena, "x=-", MAX, &source, &err), ST_BAD_CONFIG);
        assert_non_null(strstr(err.text, "twice"));
        arena_free(arena);
    }
}

/* A file larger than one read. */
static void infer_source_file_over_limit_refused(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct error err = {0};
    size_t n = 300001;
    char *data = arena_alloc(arena, n);
    for (size_t i = 0; i < n; i++) {
        data[i] = (char)(i * 31 + (i >> 9));
    }
    struct str pieces[] = {str_make(data, 1000), str_make(data + 1000, n - 1000)};
    struct str read;
    assert_int_equal(file_write("empty", pieces, 2, &err), ST_OK);
    assert_int_equal(file_read(arena, "empty", n, &read, &err), ST_OK);
    assert_true(str_eq(read, str_make(data, n)));
    assert_int_equal(file_read(arena, "empty", n - 1, &read, &err), ST_BODY_TOO_LARGE);
    assert_string_equal(err.text, "empty has more than 300000 bytes, which is the limit "
                                  "(--max-input-size)");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_source_kinds_are_read),
        cmocka_unit_test(infer_source_invalid_refused),
        cmocka_unit_test(infer_source_standard_input_kind_is_detected),
        cmocka_unit_test(infer_source_file_over_limit_refused),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
