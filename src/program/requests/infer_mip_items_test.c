/* Items from the arguments of `sluice infer`, with files in a folder of the test; and errors for
 * arguments that do not match the URL's protocol. */
#include "program/requests/infer_mip_items.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "program/requests/file.h"

static const char *const names[] = {"a.png", "b.txt", "c.json", "empty", "bad.txt", "@d"};

static void put(const char *name, const char *text) {
    struct str piece = str_of(text);
    struct error err;
    assert_int_equal(file_write(name, &piece, 1, &err), ST_OK);
}

static int enter_folder(void **state) {
    char folder[] = "/tmp/sluice-items-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0) {
        return -1;
    }
    put("a.png", "\x89PNG");
    put("b.txt", "text\n");
    put("c.json", " [1]\n");
    put("empty", "");
    put("bad.txt", "ab\xff");
    put("@d", "at");
    *state = strdup(folder);
    return *state ? 0 : -1;
}

static int leave_folder(void **state) {
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        unlink(names[i]);
    }
    int failed = chdir("/") != 0 || rmdir(*state) != 0;
    free(*state);
    return failed;
}

/* Reads arguments separated by '|'. Returns: what infer_settings_read returns. */
static int read_settings(struct arena *arena, const char *line, struct infer_settings *settings) {
    char infer[] = "infer";
    char *argv[32] = {infer};
    int argc = 1;
    struct str rest = str_of(line);
    while (rest.ptr) {
        argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
    }
    return infer_settings_read(argc, argv, arena, settings);
}

static enum status read_items(struct arena *arena, const char *line, struct infer_items *items,
                              struct error *err) {
    struct infer_settings *settings = arena_calloc(arena, 1, sizeof(*settings));
    assert_int_equal(read_settings(arena, line, settings), -1);
    return infer_items_read(arena, settings, items, err);
}

/* Items as text: "type:bytes@file" each, separated by spaces. */
static const char *print(struct arena *arena, const struct infer_items *items) {
    static const char *const types[] = {"", "T", "J", "I"};
    struct buf out;
    buf_init(&out, arena, 0);
    buf_printf(&out, "%ux%u", items->batch, items->n_inputs);
    for (size_t i = 0; i < items->n; i++) {
        const sluice_mip_item *item = &items->items[i];
        buf_printf(&out, " %s:%.*s", types[item->type], (int)item->n_bytes,
                   (const char *)item->data);
        if (items->files[i]) {
            buf_printf(&out, "@%s", items->files[i]);
        }
    }
    buf_add_char(&out, '\0');
    return out.data;
}

static void mip_items_are_read(void **state) {
    (void)state;
    static const struct {
        const char *line, *items;
    } rows[] = {
        {"tcp://h:1|--text|hi", "1x1 T:hi"},
        {"unix:///s|--text|", "1x1 T:"},
        {"tcp://h:1|--text=--x", "1x1 T:--x"},
        {"tcp://h:1|--image|a.png", "1x1 I:\x89PNG@a.png"},
        {"tcp://h:1|--image|@a.png", "1x1 I:\x89PNG@a.png"},
        {"tcp://h:1|--image|./@d", "1x1 I:at@./@d"},
        {"tcp://h:1|--text|@b.txt", "1x1 T:text\n@b.txt"},
        {"tcp://h:1|--json|@c.json", "1x1 J: [1]\n@c.json"},
        {"tcp://h:1|--text|@empty", "1x1 T:@empty"},
        {"tcp://h:1|--json|-1", "1x1 J:-1"},
        {"tcp://h:1|--json|1|--text|2|--json|3|--image|a.png|--text|4|--json|5",
         "6x1 J:1 T:2 J:3 I:\x89PNG@a.png T:4 J:5"},
        {"--text|a|tcp://h:1|--inputs|2|--json|1|--text|b|--json|2", "2x2 T:a J:1 T:b J:2"},
        {"tcp://h:1|--text|a|--text|b|--text|c|--inputs=3", "1x3 T:a T:b T:c"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_items items;
        struct error err = {0};
        if (read_items(arena, rows[i].line, &items, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].line, err.text);
        }
        assert_string_equal(print(arena, &items), rows[i].items);
        arena_free(arena);
    }
}

static void mip_items_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const char *line;
        enum status status;
        const char *says;
    } rows[] = {
        {"tcp://h:1|--image|none.png", ST_IO, "--image: opening none.png: No such file"},
        {"tcp://h:1|--image|.", ST_IO, "--image: reading .: Is a directory"},
        {"tcp://h:1|--image|empty", ST_BAD_CONFIG, "--image empty: it is empty"},
        {"tcp://h:1|--image|", ST_BAD_CONFIG, "--image: the name of a file is missing"},
        {"tcp://h:1|--text|@", ST_BAD_CONFIG, "--text: the name of a file is missing"},
        {"tcp://h:1|--text|@bad.txt", ST_BAD_CONFIG,
         "--text bad.txt: it is not UTF-8 (byte 2 of 3)"},
        {"tcp://h:1|--json|hello", ST_BAD_JSON,
         "--json hello: the value: malformed JSON at byte 0"},
        {"tcp://h:1|--json|@b.txt", ST_BAD_JSON, "--json b.txt: the value: "},
        {"tcp://h:1|--json|", ST_BAD_JSON, "--json : the value: expected JSON"},
        {"tcp://h:1|--text|@b.txt|--max-input-size|4", ST_BODY_TOO_LARGE,
         "--text: b.txt has more than 4 bytes, which is the limit (--max-input-size)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_items items;
        struct error err = {0};
        assert_int_equal(read_items(arena, rows[i].line, &items, &err), rows[i].status);
        if (strncmp(err.text, rows[i].says, strlen(rows[i].says)) != 0) {
            fail_msg("%s: \"%s\"", rows[i].line, err.text);
        }
        arena_free(arena);
    }
}

/* A long value must not hide the error in the message. */
static void mip_items_long_values_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct infer_items items;
    struct error err = {0};
    struct buf line;
    buf_init(&line, arena, 0);
    buf_add_str(&line, STR("tcp://h:1|--json|"));
    for (size_t i = 0; i < 1000; i++) {
        buf_add_str(&line, STR("[1,"));
    }
    buf_add_char(&line, '\0');
    assert_int_equal(read_items(arena, line.data, &items, &err), ST_BAD_JSON);
    assert_non_null(strstr(err.text, "malformed JSON"));
    arena_free(arena);
}

/* Standard input is one item. */
static void mip_items_standard_input_is_read_once(void **state) {
    (void)state;
    static const char *const lines[] = {"tcp://h:1|--text|-", "tcp://h:1|--text|@-",
                                        "tcp://h:1|--image|-"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_items items;
        struct error err = {0};
        assert_non_null(freopen("b.txt", "rb", stdin));
        assert_int_equal(read_items(arena, lines[i], &items, &err), ST_OK);
        assert_string_equal(print(arena, &items), i < 2 ? "1x1 T:text\n" : "1x1 I:text\n");
        assert_int_equal(read_items(arena, lines[i], &items, &err), ST_BAD_CONFIG);
        assert_non_null(strstr(err.text, "standard input is named twice"));
        arena_free(arena);
    }
}

/* Checks of the arguments that read no file. */
static void mip_items_settings_valid_accepted(void **state) {
    (void)state;
    static const struct {
        const char *line;
        int code; /* -1: valid */
    } rows[] = {
        {"tcp://h:1|--text|a", -1},
        {"unix:///s|--image|none", -1},
        {"unix://s|--json|1|--format|raw|-o|f", -1},
        {"tcp://h:1|--text|a|--timeout|2s|--max-answer-size|1MiB|--dry-run|-o|f", -1},
        {"tcp://h:1", 2},                                /* no items */
        {"tcp://h:1|m|--text|a", 2},                     /* a model's name */
        {"tcp://h:1|--input|a=1", 2},                    /* flags of HTTP */
        {"tcp://h:1|--text|a|--binary", 2},              /* … */
        {"tcp://h:1|--text|a|--id|x", 2},                /* … */
        {"tcp://h:1|--text|a|--format|npy|-o|f", 2},     /* no tensors */
        {"tcp://h:1|--text|a|--format|raw", 2},          /* no destination */
        {"tcp://h:1|--text|a|--output-dir|d", 2},        /* no --format raw */
        {"tcp://h:1|--text|a|--text|b|--inputs|3", 2},   /* no whole element */
        {"tcp://h:1|--text|a|--inputs|0", 2},            /* out of range */
        {"tcp://h:1|--text|a|--inputs|256", 2},          /* … */
        {"tcp://h|--text|a", 2},                         /* no port */
        {"mip://h:1|--text|a", 2},                       /* no such scheme */
        {"http://h|m|--input|a=1", -1},                  /* HTTP */
        {"http://h|m|--input|a=1|--text|b", 2},          /* flags of MIP */
        {"http://h|m|--inputs|2", 2},                    /* … */
        {"http://h|--input|a=1", 2},                     /* no model */
        {"http+unix:/s|m|--input|a=1|--image|x.png", 2}, /* flags of MIP */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct infer_settings given;
        if (read_settings(arena, rows[i].line, &given) != rows[i].code) {
            fail_msg("%s: not %d", rows[i].line, rows[i].code);
        }
        arena_free(arena);
    }
}

/* More elements than a packet can count. */
static void mip_items_over_limit_refused(void **state) {
    (void)state;
    enum { N = 65536 };
    struct arena *arena = arena_new(NULL, 0);
    char **argv = arena_calloc(arena, 2 * N + 2, sizeof(*argv));
    char infer[] = "infer", url[] = "tcp://h:1", json[] = "--json", one[] = "1";
    argv[0] = infer;
    argv[1] = url;
    for (size_t i = 0; i < N; i++) {
        argv[2 + 2 * i] = json;
        argv[3 + 2 * i] = one;
    }
    struct infer_settings given;
    struct infer_items items;
    struct error err = {0};
    assert_int_equal(infer_settings_read(2 * N + 2, argv, arena, &given), -1);
    assert_int_equal(infer_items_read(arena, &given, &items, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "a request has at most 65535 elements, these are 65536");
    assert_int_equal(infer_settings_read(2 * N, argv, arena, &given), -1);
    assert_int_equal(infer_items_read(arena, &given, &items, &err), ST_OK);
    assert_int_equal(items.batch, 65535);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_items_are_read),
        cmocka_unit_test(mip_items_invalid_refused),
        cmocka_unit_test(mip_items_long_values_are_read),
        cmocka_unit_test(mip_items_standard_input_is_read_once),
        cmocka_unit_test(mip_items_settings_valid_accepted),
        cmocka_unit_test(mip_items_over_limit_refused),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
