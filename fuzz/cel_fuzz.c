/* An expression is read, and evaluated over the usage of a response: twice with one result, whose
 * type is the one that was found when it was read; errors have a text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cel/cel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct cel_entry DETAILS[] = {{STR("cached_tokens"), {.type = CEL_DOUBLE, .real = 4}}};
static const struct cel_entry USAGE[] = {
    {STR("prompt_tokens"), {.type = CEL_DOUBLE, .real = 32}},
    {STR("completion_tokens"), {.type = CEL_DOUBLE, .real = 10}},
    {STR("prompt_tokens_details"), {.type = CEL_MAP, .map = {DETAILS, 1}}},
    {STR("model"), {.type = CEL_STRING, .text = {"gpt", 3}}}};
static const struct cel_map VARIABLE = {USAGE, sizeof(USAGE) / sizeof(*USAGE)};

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static bool is_same(const struct cel_value *a, const struct cel_value *b) {
    if (a->type != b->type) {
        return false;
    }
    switch ((int)a->type) {
    case CEL_STRING:
        return str_eq(a->text, b->text);
    case CEL_BOOL:
        return a->boolean == b->boolean;
    case CEL_MAP:
        return a->map.n == b->map.n;
    case CEL_NULL:
        return true;
    default:
        return a->natural == b->natural; /* the bits of the number */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct cel_program *program = NULL;
    struct cel_value value[2] = {{.type = CEL_NULL}, {.type = CEL_NULL}};
    struct error err = {.status = ST_OK};
    struct str text = str_make((const char *)data, size);
    if (!arena) {
        return 0;
    }
    enum status st = cel_compile(arena, text, "usage", &program, &err);
    check(st == ST_OK || (st == ST_BAD_CONFIG && err.text[0] != '\0'));
    if (st == ST_OK) {
        enum status first = cel_evaluate(program, &VARIABLE, arena, &value[0], &err);
        enum cel_type type = cel_result_type(program);
        check(first == ST_OK || (first == ST_BAD_ANSWER && err.text[0] != '\0'));
        check(first != ST_OK || type == CEL_DYN || type == value[0].type);
        check(first != ST_OK || value[0].type != CEL_STRING ||
              value[0].text.len <= CEL_MAX_TEXT_BYTES + CEL_MAX_BYTES);
        check(cel_evaluate(program, &VARIABLE, arena, &value[1], &err) == first);
        check(first != ST_OK || is_same(&value[0], &value[1]));
    }
    arena_free(arena);
    return 0;
}
