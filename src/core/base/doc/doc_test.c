/* The rules for every format (limits, encoding, keys), JSON, and files. */
#include "core/base/doc/doc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/doc/build.h"

static enum status parse(enum doc_format format, struct str text, struct error *err) {
    struct doc *doc;
    enum status status = doc_parse(format, "f", text, &doc, err);
    assert_int_equal(doc != NULL, status == ST_OK);
    doc_free(doc);
    return status;
}

static void doc_json_invalid_text_reports_line(void **state) {
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"{\n \"a\": 1,\n \"b\": x\n}", "f:3: not JSON: "},
        {"", "f:1: not JSON: "},
        {"{\"a\":1} 2", "f:1: not JSON: "},
        {"{\"a\":NaN}", "f:1: not JSON: "},
        {"{\"a\":1,}", "f:1: not JSON: "},
        {"{\"a\":1,\n\"b\":{\"c\":2,\n\"c\":3}}",
         "f:3: the key \"c\" is there twice; the first is in line 2"},
        {"{\"a\":1,\"a\\u0000\":2,\"\\u0061\":3}",
         "f:1: the key \"a\" is there twice; the first is in line 1"},
        {"{\"a\": \"\n\"}", "f:1: not JSON: "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        assert_int_equal(parse(DOC_JSON, str_of(rows[i].text), &err), ST_BAD_CONFIG);
        if (strncmp(err.text, rows[i].message, strlen(rows[i].message)) != 0) {
            fail_msg("%s\n%s", rows[i].text, err.text);
        }
    }
}

/* The line of every value, against an independent walk: each value of this document is the number
 * of its line, or is under a key that is. */
static void doc_json_values_have_lines(void **state) {
    static const char text[] = "{\n\"k2\": [\n3, -4.5e1, {\"k3\":\n4},\n\"\\\"]}\\\\\", true,\n"
                               "null\n, [ ], { }], \"k8\"\n:\n\n10}";
    struct error err;
    struct doc *doc;
    (void)state;
    assert_int_equal(doc_parse(DOC_JSON, "f", str_of(text), &doc, &err), ST_OK);
    static const unsigned want[] = {1, 2, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7, 7, 7, 10};
    assert_int_equal(yyjson_doc_get_val_count(doc->tree), sizeof(want) / sizeof(want[0]));
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_int_equal(doc->lines[i], want[i]);
    }
    doc_free(doc);
}

static void doc_json_depth_over_limit_is_rejected(void **state) {
    struct error err;
    size_t n = 1000000;
    char *text = malloc(2 * n);
    (void)state;
    assert_non_null(text);
    for (size_t depth = 64; depth <= n; depth += depth == 64 ? 1 : n - 65) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        enum status want = depth == 64 ? ST_OK : ST_BAD_CONFIG;
        assert_int_equal(parse(DOC_JSON, str_make(text, 2 * depth), &err), want);
    }
    assert_string_equal(err.text, "f:1: nested deeper than 64");
    free(text);
}

static void doc_parse_checks_size_and_utf8(void **state) {
    size_t n = (4u << 20) + 1;
    char *text = malloc(n);
    (void)state;
    assert_non_null(text);
    memset(text, ' ', n);
    text[0] = '1'; /* JSON and YAML; in the text format a field */
    for (int format = DOC_YAML; format <= DOC_JSON; format++) {
        struct error err;
        if (format == DOC_PBTXT) {
            memcpy(text, "a:1", 3);
        }
        assert_int_equal(parse((enum doc_format)format, str_make(text, n - 1), &err), ST_OK);
        assert_int_equal(parse((enum doc_format)format, str_make(text, n), &err), ST_BAD_CONFIG);
        assert_string_equal(err.text,
                            "f: expected at most 4194304 bytes of configuration, got 4194305");
        assert_int_equal(parse((enum doc_format)format, STR("\n\n\"\xff\""), &err), ST_BAD_CONFIG);
        assert_string_equal(err.text, "f:3: expected UTF-8 text, got the byte 0xff");
        text[0] = '1';
        text[1] = text[2] = ' ';
    }
    free(text);
}

static void doc_parse_null_error_is_accepted(void **state) {
    (void)state;
    assert_int_equal(parse(DOC_PBTXT, STR("a"), NULL), ST_BAD_CONFIG);
    assert_int_equal(parse(DOC_YAML, STR("a: *b"), NULL), ST_BAD_CONFIG);
    assert_int_equal(parse(DOC_JSON, STR("{"), NULL), ST_BAD_CONFIG);
}

static void write_file(const char *path, const char *text, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void doc_load_reads_file_or_reports_io_error(void **state) {
    char folder[] = "/tmp/sluice-doc-XXXXXX", path[64], want[128];
    struct error err;
    struct doc *doc;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/config.pbtxt", folder);
    assert_int_equal(doc_load(DOC_PBTXT, path, &doc, &err), ST_IO);
    assert_null(doc);
    snprintf(want, sizeof(want), "%s: cannot open: No such file or directory", path);
    assert_string_equal(err.text, want);
    assert_int_equal(doc_load(DOC_PBTXT, folder, &doc, &err), ST_IO);
    assert_non_null(strstr(err.text, "Is a directory"));

    write_file(path, "a: 1\nb", 6);
    assert_int_equal(doc_load(DOC_PBTXT, path, &doc, &err), ST_BAD_CONFIG);
    snprintf(want, sizeof(want), "%s:2: expected", path);
    assert_memory_equal(err.text, want, strlen(want));

    size_t n = 5u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, '\n', n);
    write_file(path, text, n);
    assert_int_equal(doc_load(DOC_PBTXT, path, &doc, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "expected at most 4194304 bytes"));
    memcpy(text + n - 4, "a:1 ", 4);
    write_file(path, text + n - (3u << 20), 3u << 20);
    assert_int_equal(doc_load(DOC_PBTXT, path, &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc), a = doc_get(&root, "a");
    assert_int_equal(doc_line(&a), (3u << 20) - 3);
    doc_free(doc);
    free(text);
    unlink(path);
    rmdir(folder);
    doc_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_json_invalid_text_reports_line),
        cmocka_unit_test(doc_json_values_have_lines),
        cmocka_unit_test(doc_json_depth_over_limit_is_rejected),
        cmocka_unit_test(doc_parse_checks_size_and_utf8),
        cmocka_unit_test(doc_parse_null_error_is_accepted),
        cmocka_unit_test(doc_load_reads_file_or_reports_io_error),
    };
    return cmocka_run_group_tests_name("core/base/doc/doc", tests, NULL, NULL);
}
