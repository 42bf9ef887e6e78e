/* The YAML file of a command: values of each type, precedence of flags, and errors with file, line
 * and key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "program/options/options.h"

struct values {
    const char *url, *name, *config;
    struct option_texts tags, models;
    uint64_t count, size, span;
    struct option_memory memory;
    bool loud, quick;
    unsigned colour;
};

#define AT(field) offsetof(struct values, field)
static const struct option table[] = {
    {"url", "", OPTION_ARGUMENT, "", "URL", 0, 0, "", "", AT(url)},
    {"models", "", OPTION_MODELS, "", "FILE", 0, 0, "", "", AT(models)},
    {"name", "", OPTION_TEXT, "nobody", "NAME", 0, 0, "", "", AT(name)},
    {"tag", "", OPTION_TEXTS, "plain", "TAG", 0, 0, "", "", AT(tags)},
    {"count", "", OPTION_U64, "7", "N", 1, 9, "", "", AT(count)},
    {"size", "", OPTION_BYTES, "2KiB", "SIZE", 1024, 1048576, "", "", AT(size)},
    {"memory", "", OPTION_MEMORY, "40%", "SIZE|PERCENT", 1024, 1048576, "", "", AT(memory)},
    {"span", "", OPTION_DURATION, "1s", "TIME", 1000000, 60000000000, "", "", AT(span)},
    {"loud", "", OPTION_BOOL, "true", "BOOL", 0, 0, "", "", AT(loud)},
    {"quick", "", OPTION_SWITCH, "", "", 0, 0, "", "", AT(quick)},
    {"colour", "", OPTION_WORD, "red", "green|red", 0, 0, "", "", AT(colour)},
    {"config", "", OPTION_CONFIG, "", "FILE", 0, 0, "", "", AT(config)},
};
static const struct option_set set = {.command = "try",
                                      .usage = "URL",
                                      .options = table,
                                      .n_options = sizeof(table) / sizeof(*table)};

/* Parses `yaml` as the file t.yaml, after the flags `argv`. The values do not borrow from the
 * document. */
static enum status read_yaml(const char *yaml, int argc, char **argv, struct arena *arena,
                             struct values *values, struct error *err) {
    struct options options;
    struct doc *doc = NULL;
    *values = (struct values){0};
    enum status status = options_init(&options, &set, values, arena, err);
    if (status == ST_OK && argc > 0) {
        status = options_read_args(&options, argc, argv, err);
    }
    if (status == ST_OK) {
        status = doc_parse(DOC_YAML, "t.yaml", str_of(yaml), &doc, err);
    }
    if (status == ST_OK) {
        status = options_read_doc(&options, doc, err);
    }
    doc_free(doc);
    return status;
}

static void yaml_values_of_each_type_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    const char *yaml = "models:\n  - a.onnx\n  - {name: b, path: /m/c.onnx}\n  - path: d.onnx\n"
                       "name: me\ntag: [x, y]\ncount: 3\nsize: 4096\nspan: 2.5\nloud: false\n"
                       "colour: green\n";
    if (read_yaml(yaml, 0, NULL, arena, &values, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(values.models.n, 3);
    assert_string_equal(values.models.items[0], "a.onnx");
    assert_string_equal(values.models.items[1], "b=/m/c.onnx");
    assert_string_equal(values.models.items[2], "d.onnx");
    assert_int_equal(values.models.pairs[0].n, 0);
    assert_string_equal(values.name, "me");
    assert_int_equal(values.tags.n, 2);
    assert_string_equal(values.tags.items[1], "y");
    assert_int_equal(values.count, 3);
    assert_int_equal(values.size, 4096);
    assert_int_equal(values.span, 2500000000);
    assert_false(values.loud);
    assert_int_equal(values.colour, 0);
    arena_free(arena);
}

static void yaml_memory_is_size_or_percentage(void **state) {
    (void)state;
    static const struct {
        const char *yaml;
        struct option_memory memory;
    } rows[] = {
        {"memory: 25%\n", {.percent = 25}},
        {"memory: '25%'\n", {.percent = 25}},
        {"memory: 4KiB\n", {.n_bytes = 4096}},
        {"memory: 4096\n", {.n_bytes = 4096}}, /* replaces the default's percentage */
        {"count: 3\n", {.percent = 40}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct values values;
        struct error err = {0};
        assert_int_equal(read_yaml(rows[i].yaml, 0, NULL, arena, &values, &err), ST_OK);
        assert_int_equal(values.memory.n_bytes, rows[i].memory.n_bytes);
        assert_int_equal(values.memory.percent, rows[i].memory.percent);
        arena_free(arena);
    }
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    char try[] = "try", url[] = "u", flag[] = "--memory=30%";
    char *argv[] = {try, url, flag};
    assert_int_equal(read_yaml("memory: 2KiB\n", 3, argv, arena, &values, &err), ST_OK);
    assert_int_equal(values.memory.percent, 30); /* the flag wins */
    assert_int_equal(values.memory.n_bytes, 0);
    arena_free(arena);
}

/* A model's parameters are texts, also when YAML has another type for them. */
static void yaml_model_parameters_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    const char *yaml = "models:\n  - a.onnx\n  - path: b.onnx\n    parameters:\n      t: x y\n"
                       "      n: 3\n      m: -4\n      f: 0.5\n      b: true\n"
                       "      l: [0.25, 2, z]\n      e: []\n      h: 1/255\n  - c.onnx\n";
    static const char *const expected[][2] = {{"t", "x y"}, {"n", "3"},    {"m", "-4"},
                                              {"f", "0.5"}, {"b", "true"}, {"l", "0.25,2,z"},
                                              {"e", ""},    {"h", "1/255"}};
    if (read_yaml(yaml, 0, NULL, arena, &values, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(values.models.n, 3);
    assert_int_equal(values.models.pairs[0].n, 0);
    assert_int_equal(values.models.pairs[1].n, 8);
    assert_int_equal(values.models.pairs[2].n, 0);
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(values.models.pairs[1].items[i].name, expected[i][0]);
        assert_string_equal(values.models.pairs[1].items[i].value, expected[i][1]);
    }
    arena_free(arena);
}

static void yaml_units_and_single_values_are_read(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    const char *yaml = "models: a.onnx\ntag: x\nsize: 3KiB\nspan: 20ms\nname: null\n";
    if (read_yaml(yaml, 0, NULL, arena, &values, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(values.models.n, 1);
    assert_int_equal(values.tags.n, 1);
    assert_string_equal(values.tags.items[0], "x");
    assert_int_equal(values.size, 3072);
    assert_int_equal(values.span, 20000000);
    assert_string_equal(values.name, "nobody"); /* null sets nothing */
    assert_int_equal(read_yaml("", 0, NULL, arena, &values, &err), ST_OK);
    assert_int_equal(values.count, 7);
    arena_free(arena);
}

static void yaml_flags_override_file(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct values values;
    struct error err = {0};
    char try[] = "try", url[] = "u", tag[] = "--tag=f", count[] = "--count=2", file[] = "m";
    char *argv[] = {try, url, tag, count, file};
    const char *yaml = "models: [a, b]\ntag: [x, y]\ncount: 3\nname: me\n";
    if (read_yaml(yaml, 5, argv, arena, &values, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(values.tags.n, 1);
    assert_string_equal(values.tags.items[0], "f");
    assert_int_equal(values.count, 2);
    assert_int_equal(values.models.n, 1);
    assert_string_equal(values.models.items[0], "m");
    assert_string_equal(values.name, "me");
    /* an overridden key must be valid, too */
    assert_int_equal(read_yaml("count: 99\n", 5, argv, arena, &values, &err), ST_BAD_CONFIG);
    assert_int_equal(read_yaml("tag: [x, 5]\n", 5, argv, arena, &values, &err), ST_BAD_CONFIG);
    assert_int_equal(read_yaml("models: [{}]\n", 5, argv, arena, &values, &err), ST_BAD_CONFIG);
    arena_free(arena);
}

/* `says` are parts of the message; the first is the place */
static const struct {
    const char *yaml, *says[3];
} refusals[] = {
    {"name: a\ncuont: 3\n", {"t.yaml:2: ", "cuont", "\"count\""}},
    {"quick: true\n", {"t.yaml:1: ", "quick", ""}},
    {"config: x.yaml\n", {"t.yaml:1: ", "config", ""}},
    {"url: x\n", {"t.yaml:1: ", "url", ""}},
    {"- a\n", {"t.yaml:1: ", "", ""}},
    {"\ncount: 10\n", {"t.yaml:2: ", "count", "expected a whole number from 1 to 9, got 10"}},
    {"count: x\n", {"t.yaml:1: ", "count", ""}},
    {"count: -1\n", {"t.yaml:1: ", "count", "from 1 to 9, got -1"}},
    {"size: 1GiB\n", {"t.yaml:1: ", "size", "out of range: from 1KiB to 1MiB"}},
    {"size: 1023\n", {"t.yaml:1: ", "size", "from 1024 to 1048576, got 1023"}},
    {"size: [1]\n", {"t.yaml:1: ", "size", ""}},
    {"size: 4%\n", {"t.yaml:1: ", "size", "expected a size such as"}},
    {"memory: 0\n", {"t.yaml:1: ", "memory", "from 1024 to 1048576, got 0"}},
    {"memory: 101%\n", {"t.yaml:1: ", "memory", "101% is out of range: from 1% to 100%"}},
    {"memory: half\n", {"t.yaml:1: ", "memory", "or a percentage such as 40%"}},
    {"memory: 0.4\n", {"t.yaml:1: ", "memory", ""}},
    {"span: soon\n", {"t.yaml:1: ", "span", "expected a time"}},
    {"span: -1\n", {"t.yaml:1: ", "span", "seconds, got -1"}},
    {"loud: yes please\n", {"t.yaml:1: ", "loud", ""}},
    {"colour: blue\n", {"t.yaml:1: ", "colour", "one of green|red"}},
    {"name: 5\n", {"t.yaml:1: ", "name", ""}},
    {"name: \"a\\0b\"\n", {"t.yaml:1: ", "name", "NUL"}},
    {"tag: [a, 5]\n", {"t.yaml:1: ", "tag[1]", ""}},
    {"models:\n- {name: a}\n", {"t.yaml:2: ", "models[0]", "path"}},
    {"models:\n- {path: b, parameters: [a]}\n", {"t.yaml:2: ", "models[0].parameters", ""}},
    {"models:\n- {path: b, parameters: {a: {b: 1}}}\n",
     {"t.yaml:2: ", "models[0].parameters.a", "expected text, a number"}},
    {"models:\n- {path: b, parameters: {a: [[1]]}}\n",
     {"t.yaml:2: ", "parameters.a[0]", "expected text, a number"}},
    {"models:\n- a\n- {nmae: a, path: b}\n", {"t.yaml:3: ", "nmae", "\"name\""}},
};

static void check_text(const char *yaml, const char *text, const char *says) {
    if (!strstr(text, says)) {
        fail_msg("%s gave \"%s\", without \"%s\"", yaml, text, says);
    }
}

static void yaml_invalid_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct values values;
        struct error err = {0};
        const char *yaml = refusals[i].yaml;
        assert_int_equal(read_yaml(yaml, 0, NULL, arena, &values, &err), ST_BAD_CONFIG);
        for (size_t k = 0; k < 3; k++) {
            check_text(yaml, err.text, refusals[i].says[k]);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_values_of_each_type_are_read),
        cmocka_unit_test(yaml_memory_is_size_or_percentage),
        cmocka_unit_test(yaml_model_parameters_are_read),
        cmocka_unit_test(yaml_units_and_single_values_are_read),
        cmocka_unit_test(yaml_flags_override_file),
        cmocka_unit_test(yaml_invalid_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
