/* The reader that keeps its first error: tables of members, defaults, bounds, and which of several
 * errors is reported. */
#include "core/base/doc/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum mode { MODE_SLOW, MODE_FAST };
static const char *const MODES[] = {"slow", "fast", NULL};

struct inner {
    uint64_t n;
};

struct record {
    struct str name;
    bool on;
    uint64_t count;
    double share;
    enum mode mode;
    struct inner inner;
    uint64_t same; /* of the object that has no struct of its own */
    bool has_count;
    int64_t *sizes;
    size_t n_sizes;
    struct str view;
};

static void note_count(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct record *out = object;
    out->has_count = node->val != NULL;
    if (out->count == 13) {
        doc_reader_fail(reader, node, "%d is unlucky", 13);
    }
}

static void read_sizes(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct record *out = object;
    out->sizes = doc_reader_list(reader, node, sizeof(*out->sizes), &out->n_sizes);
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        doc_reader_i64(reader, &item, -1, 9, &out->sizes[i]);
    }
}

static const struct doc_member INNER[] = {{"n", MEMBER_WHOLE(struct inner, n, 1, 5)}, {0}};
static const struct doc_member SAME[] = {{"same", MEMBER_WHOLE(struct record, same, 0, INT64_MAX)},
                                         {0}};
static const struct doc_member RECORD[] = {
    {"name", MEMBER_TEXT(struct record, name)},
    {"on", MEMBER_BOOL(struct record, on)},
    {"count", MEMBER_WHOLE(struct record, count, 2, 20), .check = note_count},
    {"share", MEMBER_SHARE(struct record, share, false)},
    {"mode", MEMBER_WORD(struct record, mode, MODES)},
    {"inner", MEMBER_OBJECT(INNER), .offset = offsetof(struct record, inner)},
    {"outer", MEMBER_OBJECT(SAME)},
    {"sizes", MEMBER_CUSTOM(read_sizes)},
    {"view", MEMBER_BY_CALLER},
    {"old", MEMBER_IGNORED("there are no old ones"), .words = MODES},
    {"gone", MEMBER_REFUSED("it is gone")},
    {"never", MEMBER_REFUSED_TRUE("never true")},
    {0}};

struct reading {
    struct arena *arena;
    struct doc *doc;
    struct doc_node root;
    struct error err;
    struct doc_reader reader;
};

static void on_ignored(struct doc_reader *reader, const struct doc_node *node, const char *why) {
    (void)reader;
    function_called();
    assert_string_equal(node->key, "old");
    assert_string_equal(why, "there are no old ones");
}

static void reading_init(struct reading *reading, const char *text, size_t limit_bytes) {
    *reading = (struct reading){.arena = arena_new(NULL, limit_bytes)};
    if (doc_parse(DOC_YAML, "f", str_of(text), &reading->doc, &reading->err) != ST_OK) {
        fail_msg("%s\n%s", text, reading->err.text);
    }
    reading->root = doc_root(reading->doc);
    reading->reader = (struct doc_reader){.arena = reading->arena,
                                          .what = "the record",
                                          .on_ignored = on_ignored,
                                          .err = &reading->err};
}

static void reading_fini(struct reading *reading) {
    doc_free(reading->doc);
    arena_free(reading->arena);
}

static void doc_reader_object_fills_fields(void **state) {
    struct reading r;
    struct record out = {.mode = MODE_SLOW};
    (void)state;
    reading_init(&r,
                 "{name: abc, 'on': true, count: 20, share: 0.5, mode: fast, inner: {n: 5},\n"
                 "outer: {same: 7}, sizes: [-1, 9], view: text, old: 0, gone: [], never: false}",
                 0);
    doc_reader_object(&r.reader, &r.root, RECORD, &out);
    struct doc_node view = doc_get(&r.root, "view");
    doc_reader_view(&r.reader, &view, &out.view);
    assert_int_equal(r.reader.status, ST_OK);
    assert_true(str_is(out.view, "text"));
    doc_free(r.doc); /* texts are copies */
    r.doc = NULL;
    assert_true(str_is(out.name, "abc"));
    assert_true(out.on && out.has_count && out.count == 20 && out.share == 0.5);
    assert_int_equal(out.mode, MODE_FAST);
    assert_int_equal(out.inner.n, 5);
    assert_int_equal(out.same, 7);
    assert_int_equal(out.n_sizes, 2);
    assert_int_equal(out.sizes[0], -1);
    reading_fini(&r);
}

static void doc_reader_absent_members_keep_defaults(void **state) {
    struct reading r;
    struct record out = {.name = STR("default"), .count = 3, .share = 7, .mode = MODE_FAST};
    (void)state;
    reading_init(&r, "{}", 0);
    out.has_count = true;
    doc_reader_object(&r.reader, &r.root, RECORD, &out);
    assert_true(doc_reader_ok(&r.reader));
    assert_true(str_is(out.name, "default") && out.count == 3 && out.share == 7);
    assert_int_equal(out.mode, MODE_FAST);
    assert_false(out.has_count); /* a check is called for an absent member, too */
    struct doc_node absent = doc_get(&r.root, "absent");
    out.has_count = true;
    doc_reader_object(&r.reader, &absent, RECORD, &out);
    assert_true(out.has_count); /* but not for members of an absent object */
    reading_fini(&r);
}

static const struct {
    const char *text;
    const char *error; /* NULL: accepted */
} rows[] = {
    {"{nam: x}", "f:1: unknown field \"nam\"; did you mean \"name\"?"},
    {"{inner: {m: 1}}", "f:1: unknown field \"inner.m\""},
    {"{inner: [{n: 1}, {n: 2}]}", "f:1: inner: expected an object (named fields), got a list of 2"},
    {"[]", "f:1: expected an object (named fields), got a list of 0"},
    {"{name: 1}", "f:1: name: expected text (in quotes, where it looks like something else), "
                  "got 1"},
    {"{name: \"a\\0b\"}", "f:1: name: holds a NUL byte"},
    {"{'on': 1}", "f:1: on: expected true or false, got 1"},
    {"{count: 1}", "f:1: count: expected a whole number from 2 to 20, got 1"},
    {"{count: 21}", "f:1: count: expected a whole number from 2 to 20, got 21"},
    {"{count: 13}", "f:1: count: 13 is unlucky"},
    {"{share: 0}", "f:1: share: expected a share above 0, of 1 at most, got 0"},
    {"{share: 2}", "f:1: share: expected a share above 0, of 1 at most, got 2"},
    {"{mode: quick}", "f:1: mode: expected slow or fast, got \"quick\""},
    {"{mode: 1}", "f:1: mode: expected text (in quotes, where it looks like something else), "
                  "got 1"},
    {"{inner: {n: 6}}", "f:1: inner.n: expected a whole number from 1 to 5, got 6"},
    {"{sizes: 4}", NULL}, /* a list of one */
    {"{sizes: [1, -2, x]}", "f:1: sizes[1]: expected a whole number from -1 to 9, got -2"},
    {"{old: slow, gone: false, never: 0}", NULL},
    {"{old: {}, gone: ''}", NULL},
    {"{gone: {}}", "f:1: gone: it is gone"},
    {"{gone: slow}", "f:1: gone: it is gone"},
    {"{never: true}", "f:1: never: never true"},
    {"{never: 3}", "f:1: never: expected true or false, got 3"},
    /* the first of several, in the order of the table; unknown members of an object before all */
    {"{count: 1, name: 1}", "f:1: name: expected text (in quotes, where it looks like something "
                            "else), got 1"},
    {"{count: 1, nam: x}", "f:1: unknown field \"nam\"; did you mean \"name\"?"},
    {"{inner: {m: 1}, count: 1}", "f:1: count: expected a whole number from 2 to 20, got 1"},
};

static void doc_reader_reports_first_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct reading r;
        struct record out = {.on = false};
        reading_init(&r, rows[i].text, 0);
        doc_reader_object(&r.reader, &r.root, RECORD, &out);
        assert_int_equal(r.reader.status, rows[i].error ? ST_BAD_CONFIG : ST_OK);
        assert_string_equal(r.err.text, rows[i].error ? rows[i].error : "");
        reading_fini(&r);
    }
}

static void doc_reader_reports_ignored_members(void **state) {
    static const char *const texts[] = {"{old: 1}", "{old: fast}", "{old: [{}]}", "{old: {a: 1}}"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct reading r;
        struct record out = {.on = false};
        reading_init(&r, texts[i], 0);
        expect_function_call(on_ignored);
        doc_reader_object(&r.reader, &r.root, RECORD, &out);
        assert_true(doc_reader_ok(&r.reader));
        r.reader.on_ignored = NULL;
        doc_reader_object(&r.reader, &r.root, RECORD, &out);
        assert_true(doc_reader_ok(&r.reader));
        reading_fini(&r);
    }
}

static void doc_reader_dup_lower_folds_ascii_letters(void **state) {
    struct reading r;
    struct str out = {NULL, 0};
    (void)state;
    reading_init(&r, "{}", 0);
    doc_reader_dup_lower(&r.reader, STR("@AZ[`az{-X-Token\xc3\x84"), &out);
    assert_true(str_is(out, "@az[`az{-x-token\xc3\x84"));
    assert_int_equal(out.ptr[out.len], '\0');
    doc_reader_dup_lower(&r.reader, str_make(NULL, 0), &out);
    assert_true(out.ptr && out.len == 0);
    reading_fini(&r);
}

/* After an error nothing is read, and the text stays. */
static void doc_reader_after_error_does_nothing(void **state) {
    struct reading r;
    struct record out = {.name = STR("before"), .count = 3, .share = 7, .view = STR("before")};
    int64_t whole = 5;
    double real = 5;
    unsigned word = 1;
    size_t n = 4;
    (void)state;
    reading_init(&r, "{name: abc, 'on': true, count: 20, share: 0.5, mode: slow, sizes: [1]}", 0);
    doc_reader_fail(&r.reader, &r.root, "the first");
    doc_reader_object(&r.reader, &r.root, RECORD, &out);
    struct doc_node name = doc_get(&r.root, "name"), count = doc_get(&r.root, "count");
    struct doc_node on = doc_get(&r.root, "on"), share = doc_get(&r.root, "share");
    struct doc_node mode = doc_get(&r.root, "mode"), sizes = doc_get(&r.root, "sizes"), item = {0};
    doc_reader_text(&r.reader, &name, &out.name);
    doc_reader_dup_lower(&r.reader, STR("abc"), &out.name);
    doc_reader_view(&r.reader, &name, &out.view);
    doc_reader_bool(&r.reader, &on, &out.on);
    doc_reader_u64(&r.reader, &count, 0, 20, &out.count);
    doc_reader_i64(&r.reader, &count, 0, 20, &whole);
    doc_reader_f64(&r.reader, &share, &real);
    doc_reader_share(&r.reader, &share, true, &out.share);
    doc_reader_word(&r.reader, &mode, MODES, NULL, &word);
    assert_null(doc_reader_list(&r.reader, &sizes, sizeof(int), &n));
    assert_int_equal(n, 0);
    assert_false(doc_reader_next(&r.reader, &sizes, &item));
    assert_null(doc_reader_calloc(&r.reader, 1, 8));
    doc_reader_no_memory(&r.reader);
    doc_reader_fail(&r.reader, &name, "the second");
    assert_true(str_is(out.name, "before") && str_is(out.view, "before") && !out.on);
    assert_true(out.count == 3 && whole == 5 && real == 5 && out.share == 7 && word == 1);
    assert_int_equal(r.reader.status, ST_BAD_CONFIG);
    assert_string_equal(r.err.text, "f:1: the first");
    reading_fini(&r);
}

static void doc_reader_expected_words_are_replaced(void **state) {
    struct reading r;
    unsigned word = 7;
    (void)state;
    reading_init(&r, "{mode: quick}", 0);
    struct doc_node mode = doc_get(&r.root, "mode");
    doc_reader_word(&r.reader, &mode, MODES, "a speed", &word);
    assert_string_equal(r.err.text, "f:1: mode: expected a speed, got \"quick\"");
    assert_int_equal(word, 7);
    reading_fini(&r);
}

static void doc_reader_arena_limit_returns_no_memory(void **state) {
    char text[9000];
    int n = snprintf(text, sizeof(text), "name: x%08000d", 7);
    struct reading r;
    struct record out = {.on = false};
    (void)state;
    assert_true(n > 0 && (size_t)n < sizeof(text));
    reading_init(&r, text, 4096);
    doc_reader_object(&r.reader, &r.root, RECORD, &out);
    assert_int_equal(r.reader.status, ST_NO_MEMORY);
    assert_string_equal(r.err.text, "out of memory for the record");
    assert_null(out.name.ptr);
    reading_fini(&r);
    reading_init(&r, "{}", 4096);
    assert_null(doc_reader_calloc(&r.reader, 1 << 20, 8));
    assert_int_equal(r.reader.status, ST_NO_MEMORY);
    reading_fini(&r);
}

struct numbers {
    uint16_t u16;
    uint32_t u32;
    uint64_t ns;
    int64_t i64;
    float f32, share;
    double f64;
    bool on;
    uint32_t custom;
};

static void read_twice(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t value = 0;
    doc_reader_u64(reader, node, 0, 100, &value);
    *(uint32_t *)out = node->val ? (uint32_t)(2 * value) : *(uint32_t *)out;
}

static const struct doc_member NUMBERS[] = {
    {"u16", MEMBER_WHOLE(struct numbers, u16, 1, UINT16_MAX), .preset = 16},
    {"u32", MEMBER_WHOLE(struct numbers, u32, 0, UINT32_MAX), .preset = 32},
    {"ns", MEMBER_DURATION(struct numbers, ns, 1000000, INT64_C(3600000000000)), .preset = 5},
    {"i64", MEMBER_WHOLE(struct numbers, i64, INT32_MIN, INT32_MAX), .preset = -64},
    {"f32", MEMBER_NUMBER(struct numbers, f32, 0, 10), .above_min = true, .preset = 0.5},
    {"share", MEMBER_SHARE(struct numbers, share, true), .preset = 0.8},
    {"f64", MEMBER_NUMBER(struct numbers, f64, -1, 10), .text = "expected -1 to 10, so",
     .preset = 2},
    {"on", MEMBER_BOOL(struct numbers, on), .preset = true},
    {"custom", MEMBER_CUSTOM_NUMBER(struct numbers, custom, read_twice), .preset = 7},
    {0}};
static const struct doc_member MORE[] = {{"other", MEMBER_BY_CALLER}, {0}};

static void doc_reader_presets_and_stores(void **state) {
    struct reading r;
    struct numbers out = {.u16 = 1};
    (void)state;
    reading_init(&r, "{}", 0);
    doc_reader_presets(NUMBERS, &out);
    doc_reader_object(&r.reader, &r.root, NUMBERS, &out);
    assert_true(out.u16 == 16 && out.u32 == 32 && out.ns == 5 && out.i64 == -64);
    assert_true(out.f32 == 0.5f && out.share == 0.8f && out.f64 == 2 && out.on && out.custom == 7);
    reading_fini(&r);
    reading_init(&r,
                 "{u16: 65535, u32: 4294967295, ns: 250ms, i64: -3, f32: 10, share: 0, f64: -1,\n"
                 "'on': false, custom: 4}",
                 0);
    doc_reader_object(&r.reader, &r.root, NUMBERS, &out);
    assert_true(doc_reader_ok(&r.reader));
    assert_true(out.u16 == 65535 && out.u32 == UINT32_MAX && out.ns == 250000000);
    assert_true(out.i64 == -3 && out.f32 == 10 && out.share == 0 && out.f64 == -1 && !out.on);
    assert_int_equal(out.custom, 8);
    reading_fini(&r);
}

static const struct {
    const char *text, *error;
} number_rows[] = {
    {"{u16: 0}", "f:1: u16: expected a whole number from 1 to 65535, got 0"},
    {"{ns: 0.5}", ""},
    {"{ns: 1e-3}", ""},
    {"{ns: 3601}", "f:1: ns: expected 0.001 to 3600 seconds"},
    {"{ns: -1}", "f:1: ns: expected 0.001 to 3600 seconds"},
    {"{ns: 0s}", "f:1: ns: expected 0.001 to 3600 seconds"},
    {"{ns: soon}", "f:1: ns: expected a time (250ms, 1.5s, 2m), got \"soon\""},
    {"{ns: true}", "f:1: ns: expected text (in quotes, where it looks like something else), got "
                   "true"},
    {"{f32: 0}", "f:1: f32: expected a number from 0 to 10"},
    {"{f32: 10.5}", "f:1: f32: expected a number from 0 to 10"},
    {"{f64: 11}", "f:1: f64: expected -1 to 10, so"},
    {"{f64: x}", "f:1: f64: expected a number, got \"x\""},
    {"{share: 1.5}", "f:1: share: expected a share from 0 to 1, got 1.5"},
};

static void doc_reader_numbers_out_of_bounds_are_errors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(number_rows) / sizeof(number_rows[0]); i++) {
        struct reading r;
        struct numbers out = {.u16 = 3, .ns = 4, .f32 = 5, .f64 = 6, .share = 7};
        reading_init(&r, number_rows[i].text, 0);
        doc_reader_object(&r.reader, &r.root, NUMBERS, &out);
        assert_string_equal(r.err.text, number_rows[i].error);
        if (!doc_reader_ok(&r.reader)) {
            assert_true(out.u16 == 3 && out.ns == 4 && out.f32 == 5 && out.f64 == 6);
            assert_true(out.share == 7);
        }
        reading_fini(&r);
    }
}

static void doc_reader_two_tables_reject_what_is_in_neither(void **state) {
    struct reading r;
    (void)state;
    reading_init(&r, "{other: 1, u16: 1}", 0);
    doc_reader_reject_unknown(&r.reader, &r.root, NUMBERS, MORE);
    assert_true(doc_reader_ok(&r.reader));
    doc_reader_object(&r.reader, &r.root, MORE, NULL); /* a table without fields needs no struct */
    assert_string_equal(r.err.text, "f:1: unknown field \"u16\"");
    reading_fini(&r);
    reading_init(&r, "{othre: 1}", 0);
    doc_reader_reject_unknown(&r.reader, &r.root, NUMBERS, MORE);
    assert_string_equal(r.err.text, "f:1: unknown field \"othre\"; did you mean \"other\"?");
    reading_fini(&r);
}

/* ---- unused members, notes, and the row ------------------------------------------------------ */

struct noted {
    char keys[64]; /* of the members with a note, each followed by a blank */
    struct doc_reader reader;
    uint64_t bounded;
    struct inner inner;
};

static void on_noted(struct doc_reader *reader, const struct doc_node *node, const char *why) {
    struct noted *noted = (struct noted *)(void *)((char *)reader - offsetof(struct noted, reader));
    size_t n = strlen(noted->keys);
    assert_string_equal(why, "no effect");
    snprintf(noted->keys + n, sizeof(noted->keys) - n, "%s ", node->key);
}

static void read_by_row(struct doc_reader *reader, const struct doc_node *node, void *out) {
    doc_reader_u64(reader, node, reader->row->min, reader->row->max, out);
}

static const struct doc_member NOTED[] = {
    {"number", MEMBER_UNUSED_NUMBER(0, 5), .text = "expected 0 to 5", .note = "no effect"},
    {"whole", MEMBER_UNUSED_WHOLE(0, 5), .note = "no effect"},
    {"word", MEMBER_UNUSED_WORD(MODES)},
    {"bounded", MEMBER_CUSTOM_NUMBER(struct noted, bounded, read_by_row), .min = 2, .max = 4},
    {"inner", MEMBER_OBJECT(INNER), .offset = offsetof(struct noted, inner), .note = "no effect"},
    {0}};

static void doc_reader_notes_and_unused_members(void **state) {
    static const struct {
        const char *text, *keys, *error;
    } cases[] = {
        {"{number: 1.5, whole: 0, word: fast}", "number ", ""},
        {"{number: 0, whole: 2, bounded: 4}", "whole ", ""},
        {"{inner: {n: 1}}", "inner ", ""},
        {"{number: 6}", "", "f:1: number: expected 0 to 5"},
        {"{whole: 6}", "", "f:1: whole: expected a whole number from 0 to 5, got 6"},
        {"{word: none}", "", "f:1: word: expected slow or fast, got \"none\""},
        {"{bounded: 5}", "", "f:1: bounded: expected a whole number from 2 to 4, got 5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct reading r;
        struct noted noted = {.bounded = 3};
        reading_init(&r, cases[i].text, 0);
        noted.reader = r.reader;
        noted.reader.on_ignored = on_noted;
        doc_reader_object(&noted.reader, &r.root, NOTED, &noted);
        assert_string_equal(r.err.text, cases[i].error);
        assert_string_equal(noted.keys, cases[i].keys);
        doc_reader_presets(NOTED, &noted); /* unused rows have no field */
        assert_int_equal(noted.keys[0], cases[i].keys[0]);
        reading_fini(&r);
    }
}

static void doc_reader_members_of_absent_object_are_absent(void **state) {
    struct reading r;
    struct record out = {.count = 3};
    (void)state;
    reading_init(&r, "{}", 0);
    struct doc_node absent = doc_get(&r.root, "absent");
    out.has_count = true;
    doc_reader_members(&r.reader, &absent, RECORD, &out);
    assert_true(doc_reader_ok(&r.reader) && out.count == 3);
    assert_false(out.has_count); /* the check was called */
    reading_fini(&r);
}

#define LIST "{count: x, other: 1, more: 2, list: [{count: y}, 7, {count: 8}, {count: z}]}"

/* Each row, each unknown member and each element is a part of its own; values that are right are
 * read beside them. Without a list of errors the first one ends it. */
static void doc_reader_collects_errors_of_parts(void **state) {
    static const char *const expected[] = {
        "f:1: unknown field \"other\"",
        "f:1: unknown field \"more\"",
        "f:1: count: expected a whole number from 0 to 100, got \"x\"",
        "f:1: list[0].count: expected a whole number from 0 to 100, got \"y\"",
        "f:1: list[1]: expected an object (named fields), got 7",
        "f:1: list[3].count: expected a whole number from 0 to 100, got \"z\""};
    static const struct doc_member parts[] = {
        {"count", MEMBER_WHOLE(struct record, count, 0, 100)}, {"list", MEMBER_BY_CALLER}, {0}};
    (void)state;
    for (int collects = 0; collects < 2; collects++) {
        struct reading r;
        struct record out = {.count = 3};
        struct doc_errors errors = {.n = 0};
        reading_init(&r, LIST, 0);
        struct doc_node list = doc_get(&r.root, "list"), item = {0};
        errors.arena = r.reader.arena;
        r.reader.errors = collects ? &errors : NULL;
        doc_reader_object(&r.reader, &r.root, parts, &out);
        while (doc_reader_next_part(&r.reader, &list, &item)) {
            enum status before = doc_reader_begin_part(&r.reader);
            doc_reader_object(&r.reader, &item, parts, &out);
            doc_reader_end_part(&r.reader, before);
        }
        assert_int_equal(r.reader.status, ST_BAD_CONFIG);
        assert_int_equal(out.count, collects ? 8 : 3);
        assert_int_equal(errors.n, collects ? sizeof(expected) / sizeof(expected[0]) : 0);
        for (size_t i = 0; i < errors.n; i++) {
            assert_string_equal(errors.items[i].ptr, expected[i]);
        }
        assert_true(collects || strcmp(r.err.text, expected[0]) == 0);
        reading_fini(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_reader_presets_and_stores),
        cmocka_unit_test(doc_reader_numbers_out_of_bounds_are_errors),
        cmocka_unit_test(doc_reader_two_tables_reject_what_is_in_neither),
        cmocka_unit_test(doc_reader_members_of_absent_object_are_absent),
        cmocka_unit_test(doc_reader_object_fills_fields),
        cmocka_unit_test(doc_reader_absent_members_keep_defaults),
        cmocka_unit_test(doc_reader_reports_first_error),
        cmocka_unit_test(doc_reader_reports_ignored_members),
        cmocka_unit_test(doc_reader_notes_and_unused_members),
        cmocka_unit_test(doc_reader_dup_lower_folds_ascii_letters),
        cmocka_unit_test(doc_reader_after_error_does_nothing),
        cmocka_unit_test(doc_reader_collects_errors_of_parts),
        cmocka_unit_test(doc_reader_expected_words_are_replaced),
        cmocka_unit_test(doc_reader_arena_limit_returns_no_memory),
    };
    return cmocka_run_group_tests_name("core/base/doc/reader", tests, NULL, NULL);
}
