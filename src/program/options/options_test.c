/* Option parsing with a small table: command lines, with the values or the error. */
#include "program/options/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "program/options/help.h"

struct values {
    const char *url, *more, *name, *config;
    struct option_texts tags, files, words;
    uint64_t count, size, span;
    struct option_memory memory;
    bool loud, quick;
    unsigned colour;
};

#define AT(field) offsetof(struct values, field)
static const struct option table[] = {
    {"url", "", OPTION_ARGUMENT, "", "URL", 0, 0, "", "Where.", AT(url)},
    {"more", "", OPTION_OPTIONAL, "", "MORE", 0, 0, "", "How.", AT(more)},
    {"files", "", OPTION_MODELS, "", "FILE", 0, 0, "", "What.", AT(files)},
    {"name", "n", OPTION_TEXT, "nobody", "NAME", 0, 0, "One", "Who.", AT(name)},
    {"tag", "label", OPTION_TEXTS, "plain", "TAG", 0, 0, "One", "Which.", AT(tags)},
    {"word", "", OPTION_TEXTS, "", "WORD", 0, 0, "One", "What else.", AT(words)},
    {"count", "c", OPTION_U64, "7", "N", 1, 9, "One", "How many.", AT(count)},
    {"size", "", OPTION_BYTES, "2KiB", "SIZE", 1024, 1048576, "Two", "How big.", AT(size)},
    {"memory", "", OPTION_MEMORY, "40%", "SIZE|PERCENT", 1024, 1048576, "Two", "How much.",
     AT(memory)},
    {"span", "", OPTION_DURATION, "1500ms", "TIME", 1000000, 60000000000, "Two", "How long.",
     AT(span)},
    {"loud", "", OPTION_BOOL, "true", "BOOL", 0, 0, "Two", "Loud?", AT(loud)},
    {"quick", "", OPTION_SWITCH, "", "", 0, 0, "Two", "Quick.", AT(quick)},
    {"colour", "", OPTION_WORD, "red", "green|red", 0, 0, "Two", "Colour.", AT(colour)},
    {"config", "", OPTION_CONFIG, "", "FILE", 0, 0, "Two", "File.", AT(config)},
};
static const struct option_hint hints[] = {{"paint", "write --colour WORD"}, {NULL, NULL}};
static const struct option_set set = {.command = "try",
                                      .usage = "URL",
                                      .about = "Tries things.",
                                      .options = table,
                                      .n_options = sizeof(table) / sizeof(*table),
                                      .hints = hints};

/* Parses a line of arguments separated by spaces; '_' stands for an empty argument. */
static enum status read_line(const char *line, char *copy, struct arena *arena,
                             struct values *values, struct error *err) {
    char command[] = "try";
    char *argv[32] = {command};
    int argc = 1;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = strcmp(word, "_") == 0 ? word + 1 : word;
    }
    struct options options;
    *values = (struct values){0};
    enum status status = options_init(&options, &set, values, arena, err);
    return status == ST_OK ? options_read_args(&options, argc, argv, err) : status;
}

static void options_defaults_are_set(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    char copy[256];
    assert_int_equal(read_line("there", copy, arena, &values, &err), ST_OK);
    assert_string_equal(values.url, "there");
    assert_null(values.more);
    assert_string_equal(values.name, "nobody");
    assert_null(values.config);
    assert_int_equal(values.tags.n, 1);
    assert_string_equal(values.tags.items[0], "plain");
    assert_int_equal(values.files.n, 0);
    assert_int_equal(values.count, 7);
    assert_int_equal(values.size, 2048);
    assert_int_equal(values.memory.percent, 40);
    assert_int_equal(values.memory.n_bytes, 0);
    assert_int_equal(values.span, 1500000000);
    assert_true(values.loud);
    assert_false(values.quick);
    assert_int_equal(values.colour, 1);
    arena_free(arena);
}

static void options_flags_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    char copy[256];
    const char *line = "--tag=a -n me --label b u h --count=9 --size 1MiB --span 2 --loud=false "
                       "--quick --colour green f --config=c -- --g -";
    if (read_line(line, copy, arena, &values, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(values.url, "u");
    assert_string_equal(values.more, "h");
    assert_string_equal(values.name, "me");
    assert_int_equal(values.tags.n, 2); /* the default was replaced */
    assert_string_equal(values.tags.items[0], "a");
    assert_string_equal(values.tags.items[1], "b");
    assert_int_equal(values.files.n, 3);
    assert_string_equal(values.files.items[0], "f");
    assert_string_equal(values.files.items[1], "--g");
    assert_string_equal(values.files.items[2], "-");
    assert_int_equal(values.count, 9);
    assert_int_equal(values.size, 1048576);
    assert_int_equal(values.span, 2000000000);
    assert_false(values.loud);
    assert_true(values.quick);
    assert_int_equal(values.colour, 0);
    assert_string_equal(values.config, "c");
    assert_int_equal(read_line("u --name=", copy, arena, &values, &err), ST_OK);
    assert_string_equal(values.name, "");
    arena_free(arena);
}

static void options_memory_is_size_or_percentage(void **state) {
    (void)state;
    static const struct {
        const char *line;
        struct option_memory memory;
    } rows[] = {
        {"u --memory 1%", {.percent = 1}},      {"u --memory=100%", {.percent = 100}},
        {"u --memory 4KiB", {.n_bytes = 4096}}, {"u --memory 1024", {.n_bytes = 1024}},
        {"u --memory 007%", {.percent = 7}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct values values;
        struct error err = {0};
        char copy[256];
        assert_int_equal(read_line(rows[i].line, copy, arena, &values, &err), ST_OK);
        assert_int_equal(values.memory.n_bytes, rows[i].memory.n_bytes);
        assert_int_equal(values.memory.percent, rows[i].memory.percent);
        arena_free(arena);
    }
}

/* The order of the items across several lists is kept. */
static void options_lists_keep_order(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    char copy[256];
    assert_int_equal(
        read_line("--word w1 u --tag t1 -n x --tag t2 --word w2", copy, arena, &values, &err),
        ST_OK);
    assert_int_equal(values.tags.n, 2);
    assert_int_equal(values.words.n, 2);
    assert_string_equal(values.words.items[1], "w2");
    assert_true(values.words.order[0] < values.tags.order[0]);
    assert_true(values.tags.order[0] < values.tags.order[1]);
    assert_true(values.tags.order[1] < values.words.order[1]);
    arena_free(arena);
}

static void options_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *text;
    } rows[] = {
        {"", "URL is missing: try URL"},
        {"u --cuont 3", "unknown flag --cuont; did you mean --count?"},
        {"u --lable x", "unknown flag --lable; did you mean --label?"},
        {"u --zzzzzz", "unknown flag --zzzzzz"},
        {"u -z", "unknown flag -z"},
        {"u -name x", "unknown flag -name; did you mean --name?"},
        {"u --n x", "unknown flag --n"},
        {"u --paint x", "there is no flag --paint: write --colour WORD"},
        {"u --url x", "unknown flag --url"},
        {"u --name", "--name needs a value: --name NAME"},
        {"u -n", "-n needs a value: --name NAME"},
        {"u --name --quick", "--name needs a value, and --quick looks like the next flag (a value "
                             "that begins with dashes is written --name=VALUE)"},
        {"u --name a --name b", "--name is given twice"},
        {"u --quick --quick", "--quick is given twice"},
        {"u --quick=true", "--quick takes no value"},
        {"u --count 0", "--count: 0 is out of range: from 1 to 9"},
        {"u -c 0", "-c: 0 is out of range: from 1 to 9"},
        {"u --count=0", "--count: 0 is out of range: from 1 to 9"},
        {"u --count 10", "--count: 10 is out of range: from 1 to 9"},
        {"u --count +1", "--count: expected a whole number from 1 to 9, got \"+1\""},
        {"u --count _", "--count: expected a whole number from 1 to 9, got \"\""},
        {"u --size 1GiB", "--size: 1GiB is out of range: from 1KiB to 1MiB"},
        {"u --size 1023", "--size: 1023B is out of range: from 1KiB to 1MiB"},
        {"u --size 1x", "--size: expected a size such as 512, 64KiB or 2GB, got \"1x\""},
        {"u --size 40%", "--size: expected a size such as 512, 64KiB or 2GB, got \"40%\""},
        {"u --memory 1GiB", "--memory: 1GiB is out of range: from 1KiB to 1MiB"},
        {"u --memory 0", "--memory: 0 is out of range: from 1KiB to 1MiB"},
        {"u --memory 0%", "--memory: 0% is out of range: from 1% to 100%"},
        {"u --memory 101%", "--memory: 101% is out of range: from 1% to 100%"},
        {"u --memory 4.5%", "--memory: expected a size such as 512, 64KiB or 2GB, or a percentage "
                            "such as 40%, got \"4.5%\""},
        {"u --memory %", "--memory: expected a size such as 512, 64KiB or 2GB, or a percentage "
                         "such as 40%, got \"%\""},
        {"u --memory -4%", "--memory: expected a size such as 512, 64KiB or 2GB, or a percentage "
                           "such as 40%, got \"-4%\""},
        {"u --memory _", "--memory: expected a size such as 512, 64KiB or 2GB, or a percentage "
                         "such as 40%, got \"\""},
        {"u --memory", "--memory needs a value: --memory SIZE|PERCENT"},
        {"u --memroy 4%", "unknown flag --memroy; did you mean --memory?"},
        {"u --span 0", "--span: 0 is out of range: from 1ms to 1m"},
        {"u --span 90s", "--span: 90s is out of range: from 1ms to 1m"},
        {"u --span soon", "--span: expected a time such as 250ms, 30s or 2m, got \"soon\""},
        {"u --loud yes", "--loud: expected true or false, got \"yes\""},
        {"u --loud", "--loud needs a value: --loud BOOL"},
        {"u --colour blue", "--colour: expected one of green|red, got \"blue\""},
        {"u --colour green|red", "--colour: expected one of green|red, got \"green|red\""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct values values;
        struct error err = {0};
        char copy[256];
        assert_int_equal(read_line(rows[i].line, copy, arena, &values, &err), ST_BAD_CONFIG);
        assert_string_equal(err.text, rows[i].text);
        arena_free(arena);
    }
}

static void options_help_flag_is_found(void **state) {
    (void)state;
    char try[] = "try", help[] = "--help", h[] = "-h", dashes[] = "--", u[] = "u";
    assert_true(options_wants_help(2, (char *[]){try, help}));
    assert_true(options_wants_help(3, (char *[]){try, u, h}));
    assert_false(options_wants_help(3, (char *[]){try, dashes, help}));
    assert_false(options_wants_help(2, (char *[]){try, u}));
    assert_false(options_wants_help(1, (char *[]){help}));
}

static void options_help_page_lists_flags(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 0);
    help_print(&out, &set, (struct help_style){.columns = 80});
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    assert_string_equal(out.data, "usage: try URL\n"
                                  "\n"
                                  "Tries things.\n"
                                  "\n"
                                  "  URL                         Where.\n"
                                  "  MORE                        How.\n"
                                  "  FILE…                       What.\n"
                                  "\n"
                                  "One\n"
                                  "  -n, --name NAME             Who. [default: nobody]\n"
                                  "  --tag TAG                   Which. Repeatable. Also --label. "
                                  "[default: plain]\n"
                                  "  --word WORD                 What else. Repeatable.\n"
                                  "  -c, --count N               How many. [default: 7]\n"
                                  "\n"
                                  "Two\n"
                                  "  --size SIZE                 How big. [default: 2KiB]\n"
                                  "  --memory SIZE|PERCENT       How much. [default: 40%]\n"
                                  "  --span TIME                 How long. [default: 1500ms]\n"
                                  "  --loud BOOL                 Loud? [default: true]\n"
                                  "  --quick                     Quick.\n"
                                  "  --colour green|red          Colour. [default: red]\n"
                                  "  --config FILE               File.\n");
    arena_free(arena);
}

static void options_help_text_is_wrapped(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned at, indent, columns;
        const char *out;
    } rows[] = {
        {"one two three", 0, 0, 80, "one two three"},
        {"one two three", 0, 2, 7, "one two\n  three"},
        {"one two three", 4, 4, 9, "one\n    two\n    three"},
        {"  one  two ", 0, 0, 80, "one two"},
        {"one\ntwo", 0, 1, 80, "one\n\n two"},
        {"überall ärger", 0, 0, 13, "überall ärger"}, /* columns, not bytes */
        {"unbreakable words", 0, 0, 4, "unbreakable\nwords"},
        {"", 0, 0, 80, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct buf out;
        buf_init(&out, arena, 16);
        help_wrap(&out, rows[i].text, rows[i].at, rows[i].indent, rows[i].columns);
        buf_add_char(&out, '\0');
        assert_string_equal(out.data, rows[i].out);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_defaults_are_set),
        cmocka_unit_test(options_flags_are_read),
        cmocka_unit_test(options_memory_is_size_or_percentage),
        cmocka_unit_test(options_lists_keep_order),
        cmocka_unit_test(options_invalid_refused),
        cmocka_unit_test(options_help_flag_is_found),
        cmocka_unit_test(options_help_page_lists_flags),
        cmocka_unit_test(options_help_text_is_wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
