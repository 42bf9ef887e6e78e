/* A MIP server's answer as lines of JSON, and as files. */
#include "program/commands/infer_mip_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "program/requests/file.h"

#define ITEM(kind, text)                                                                           \
    {                                                                                              \
        .size = sizeof(sluice_mip_item), .type = SLUICE_MIP_##kind, .data = (text),                \
        .n_bytes = sizeof(text) - 1                                                                \
    }

static const sluice_mip_item items[] = {
    ITEM(JSON, "{\"7\":0.98,\n\"1\":0.01}"),
    ITEM(TEXT, "seven\n\"7\""),
    ITEM(JSON, " [1,2] "),
    ITEM(TEXT, ""),
    ITEM(JSON, "4.0"),
    ITEM(TEXT, "gr\xc3\xbc\xc3\x9f"),
};

static void mip_answer_elements_are_json_lines(void **state) {
    (void)state;
    static const struct {
        uint32_t batch, n_outputs;
        const char *text;
    } rows[] = {
        {1, 1, "{\"7\": 0.98, \"1\": 0.01}\n"},
        {3, 1, "{\"7\": 0.98, \"1\": 0.01}\n\"seven\\n\\\"7\\\"\"\n[1, 2]\n"},
        {3, 2,
         "[{\"7\": 0.98, \"1\": 0.01}, \"seven\\n\\\"7\\\"\"]\n"
         "[[1, 2], \"\"]\n"
         "[4.0, \"gr\xc3\xbc\xc3\x9f\"]\n"},
        {2, 0, "[]\n[]\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct buf out;
        struct client_mip_answer answer = {
            .items = items, .batch = rows[i].batch, .n_outputs = rows[i].n_outputs};
        buf_init(&out, arena, 0);
        assert_int_equal(infer_items_print(&out, &answer, &err), ST_OK);
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].text);
        arena_free(arena);
    }
}

static void mip_answer_without_json_form_refused(void **state) {
    (void)state;
    static const struct {
        sluice_mip_item item;
        const char *says;
    } rows[] = {
        {ITEM(JSON, "[1,"), "the value: malformed JSON"},
        {ITEM(JSON, ""), "the value: expected JSON"},
        {ITEM(TEXT, "\xff"), "it is text that is not UTF-8"},
        {ITEM(IMAGE, "\x89PNG"), "it is a picture of 4 bytes"},
        {{sizeof(sluice_mip_item), (sluice_mip_type)9, "abc", 3},
         "it is 3 bytes of the unknown type 9"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct buf out;
        sluice_mip_item two[] = {ITEM(JSON, "1"), ITEM(JSON, "1"), ITEM(JSON, "1"), rows[i].item};
        struct client_mip_answer answer = {.items = two, .batch = 2, .n_outputs = 2};
        buf_init(&out, arena, 0);
        assert_int_equal(infer_items_print(&out, &answer, &err), ST_BAD_ANSWER);
        assert_non_null(strstr(err.text, "output 1 of element 1 can't be printed as JSON: "));
        assert_non_null(strstr(err.text, rows[i].says));
        assert_non_null(strstr(err.text, "--format raw"));
        arena_free(arena);
    }
}

static void mip_answer_suffix_follows_bytes(void **state) {
    (void)state;
    static const struct {
        sluice_mip_item item;
        const char *suffix;
    } rows[] = {
        {ITEM(TEXT, "\xff\xd8\xff"), "txt"},
        {ITEM(JSON, "1"), "json"},
        {ITEM(IMAGE, "\xff\xd8\xff\xe0"), "jpg"},
        {ITEM(IMAGE, "\x89PNG\r\n\x1a\n"), "png"},
        {ITEM(IMAGE, "RIFF1234WEBPVP8 "), "webp"},
        {ITEM(IMAGE, "RIFF1234WEB"), "bin"},
        {ITEM(IMAGE, "GIF89a"), "gif"},
        {ITEM(IMAGE, ""), "bin"},
        {{sizeof(sluice_mip_item), (sluice_mip_type)9, "GIF89a", 6}, "gif"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_string_equal(infer_item_suffix(&rows[i].item), rows[i].suffix);
    }
}

static void expect_file(struct arena *arena, const char *path, struct str bytes) {
    struct error err = {0};
    struct str read;
    if (file_read(arena, path, UINT64_MAX, &read, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(str_eq(read, bytes));
    unlink(path);
}

static void mip_answer_items_are_saved(void **state) {
    (void)state;
    char folder[] = "/tmp/sluice-answer-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct arena *arena = arena_new(NULL, 0);
    struct error err = {0};
    struct client_mip_answer answer = {.items = items, .batch = 3, .n_outputs = 2};
    const char *dir = arena_printf(arena, "%s/new", folder).ptr;
    struct infer_settings settings = {.format = INFER_FORMAT_RAW, .output_dir = dir};
    assert_int_equal(infer_items_save(arena, &settings, &answer, &err), ST_OK);
    static const char *const names[] = {"0-0.json", "0-1.txt",  "1-0.json",
                                        "1-1.txt",  "2-0.json", "2-1.txt"};
    for (size_t i = 0; i < 6; i++) {
        expect_file(arena, arena_printf(arena, "%s/%s", dir, names[i]).ptr,
                    str_make(items[i].data, items[i].n_bytes));
    }
    assert_int_equal(rmdir(dir), 0);

    const char *file = arena_printf(arena, "%s/one", folder).ptr;
    settings = (struct infer_settings){.format = INFER_FORMAT_RAW, .output_file = file};
    assert_int_equal(infer_items_save(arena, &settings, &answer, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "the answer has 6 items"));
    answer = (struct client_mip_answer){.items = items + 1, .batch = 1, .n_outputs = 1};
    assert_int_equal(infer_items_save(arena, &settings, &answer, &err), ST_OK);
    expect_file(arena, file, STR("seven\n\"7\""));
    answer = (struct client_mip_answer){.items = items + 3, .batch = 1, .n_outputs = 1};
    assert_int_equal(infer_items_save(arena, &settings, &answer, &err), ST_OK);
    expect_file(arena, file, STR(""));
    assert_int_equal(rmdir(folder), 0);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_answer_elements_are_json_lines),
        cmocka_unit_test(mip_answer_without_json_form_refused),
        cmocka_unit_test(mip_answer_suffix_follows_bytes),
        cmocka_unit_test(mip_answer_items_are_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
