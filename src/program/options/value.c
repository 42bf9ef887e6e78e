/* One value of the options: from its text to its place in the command's struct, with the check of
 * its range. Which flag or key the text came from is the callers' business. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/str.h"
#include "program/options/options.h"

enum { AMOUNT_BYTES = 32 };

struct amount_unit {
    const char *name;
    uint64_t size;
};

static const struct amount_unit byte_units[] = {
    {"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"B", 1}};
static const struct amount_unit time_units[] = {{"h", UINT64_C(3600000000000)},
                                                {"m", UINT64_C(60000000000)},
                                                {"s", UINT64_C(1000000000)},
                                                {"ms", 1000000},
                                                {"us", 1000},
                                                {"ns", 1}};

static const struct amount_unit count_units[] = {{"", 1}};

/* In the largest unit that leaves a whole number. */
static void amount_print(char out[AMOUNT_BYTES], uint64_t value, const struct amount_unit *units) {
    while (units->size > 1 && value % units->size != 0) {
        units++;
    }
    snprintf(out, AMOUNT_BYTES, "%" PRIu64 "%s", value / units->size, value ? units->name : "");
}

static void *option_place(struct options *options, size_t index) {
    return options->values + options->set->options[index].offset;
}

bool option_is_list(const struct option *option) {
    return option->type == OPTION_TEXTS || option->type == OPTION_MODELS;
}

bool option_is_argument(const struct option *option) {
    return option->type == OPTION_ARGUMENT || option->type == OPTION_OPTIONAL ||
           option->type == OPTION_MODELS;
}

void option_clear(struct options *options, size_t index) {
    if (option_is_list(&options->set->options[index])) {
        *(struct option_texts *)option_place(options, index) = (struct option_texts){0};
    }
}

void option_set_bool(struct options *options, size_t index, bool value) {
    *(bool *)option_place(options, index) = value;
}

static enum status range_error(const struct option *option, uint64_t value, struct error *err) {
    char min[AMOUNT_BYTES], max[AMOUNT_BYTES], is[AMOUNT_BYTES];
    const struct amount_unit *units = option->type == OPTION_BYTES      ? byte_units
                                      : option->type == OPTION_DURATION ? time_units
                                                                        : count_units;
    amount_print(min, option->min, units);
    amount_print(max, option->max, units);
    amount_print(is, value, units);
    return error_set(err, ST_BAD_CONFIG, "%s is out of range: from %s to %s", is, min, max);
}

enum status option_set_number(struct options *options, size_t index, uint64_t value,
                              struct error *err) {
    const struct option *option = &options->set->options[index];
    if (value < option->min || value > option->max) {
        return range_error(option, value, err);
    }
    *(uint64_t *)option_place(options, index) = value;
    return ST_OK;
}

static enum status set_number_text(struct options *options, size_t index, struct str text,
                                   struct error *err) {
    const struct option *option = &options->set->options[index];
    uint64_t value = 0;
    if (option->type == OPTION_BYTES) {
        if (!num_parse_bytes(text, &value)) {
            return error_set(err, ST_BAD_CONFIG,
                             "expected a size such as 512, 64KiB or 2GB, got \"%.*s\"",
                             STR_ARG(text));
        }
    } else if (option->type == OPTION_DURATION) {
        if (!num_parse_duration_ns(text, &value)) {
            return error_set(err, ST_BAD_CONFIG,
                             "expected a time such as 250ms, 30s or 2m, got \"%.*s\"",
                             STR_ARG(text));
        }
    } else if (!num_parse_u64(text, &value)) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected a whole number from %" PRIu64 " to %" PRIu64 ", got \"%.*s\"",
                         option->min, option->max, STR_ARG(text));
    }
    return option_set_number(options, index, value, err);
}

static enum status set_bool_text(struct options *options, size_t index, const char *text,
                                 struct error *err) {
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) {
        return error_set(err, ST_BAD_CONFIG, "expected true or false, got \"%s\"", text);
    }
    option_set_bool(options, index, yes);
    return ST_OK;
}

static enum status set_word(struct options *options, size_t index, struct str text,
                            struct error *err) {
    struct str words = str_of(options->set->options[index].unit);
    for (unsigned i = 0; words.ptr; i++) {
        if (!str_eq(str_cut(&words, '|'), text)) {
            continue;
        }
        *(unsigned *)option_place(options, index) = i;
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "expected one of %s, got \"%.*s\"",
                     options->set->options[index].unit, STR_ARG(text));
}

/* A list has room for as many as the next power of two; thousands of items are no rare thing. */
static void *grow_list(struct options *options, void *items, size_t n, size_t size) {
    bool full = (n & (n - 1)) == 0;
    size_t room = n == 0 ? 1 : 2 * n;
    return full ? arena_realloc(options->arena, items, n * size, room * size) : items;
}

static enum status add_text(struct options *options, size_t index, const char *text,
                            struct error *err) {
    struct option_texts *texts = option_place(options, index);
    const char **items = grow_list(options, texts->items, texts->n, sizeof(*items));
    size_t *order = grow_list(options, texts->order, texts->n, sizeof(*order));
    struct option_pairs *pairs = grow_list(options, texts->pairs, texts->n, sizeof(*pairs));
    if (!items || !order || !pairs) {
        return error_set(err, ST_NO_MEMORY, "no memory for %zu values", texts->n + 1);
    }
    items[texts->n] = text;
    order[texts->n] = options->n_texts++;
    pairs[texts->n] = (struct option_pairs){NULL, 0};
    *texts = (struct option_texts){items, order, pairs, texts->n + 1};
    return ST_OK;
}

void option_set_pairs(struct options *options, size_t index, struct option_pairs pairs) {
    struct option_texts *texts = option_place(options, index);
    texts->pairs[texts->n - 1] = pairs;
}

enum status option_set_text(struct options *options, size_t index, const char *text,
                            struct error *err) {
    switch (options->set->options[index].type) {
    case OPTION_TEXT:
    case OPTION_CONFIG:
    case OPTION_ARGUMENT:
    case OPTION_OPTIONAL:
        *(const char **)option_place(options, index) = text;
        return ST_OK;
    case OPTION_TEXTS:
    case OPTION_MODELS:
        return add_text(options, index, text, err);
    case OPTION_U64:
    case OPTION_BYTES:
    case OPTION_DURATION:
        return set_number_text(options, index, str_of(text), err);
    case OPTION_BOOL:
    case OPTION_SWITCH:
        return set_bool_text(options, index, text, err);
    case OPTION_WORD:
        return set_word(options, index, str_of(text), err);
    }
    return error_set(err, ST_INTERNAL, "option of an unknown type");
}
