/* The command line: flags and arguments are parsed into the values of a command. There are no
 * abbreviated flags, no bundled letters and no environment variables, so that each flag is exactly
 * one line of --help. */
#include "program/options/options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

/* ---- values ---------------------------------------------------------------------------------- */

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

/* Prints in the largest unit that gives a whole number. */
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
    const struct amount_unit *units = option->type == OPTION_BYTES || option->type == OPTION_MEMORY
                                          ? byte_units
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
    if (option->type == OPTION_MEMORY) {
        *(struct option_memory *)option_place(options, index) = (struct option_memory){value, 0};
        return ST_OK;
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

/* "40%", a whole number of percent, or a size. */
static enum status set_memory_text(struct options *options, size_t index, struct str text,
                                   struct error *err) {
    uint64_t value = 0;
    if (num_parse_bytes(text, &value)) {
        return option_set_number(options, index, value, err);
    }
    bool is_share = text.len > 0 && text.ptr[text.len - 1] == '%';
    if (!is_share || !num_parse_u64(str_make(text.ptr, text.len - 1), &value)) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected a size such as 512, 64KiB or 2GB, or a percentage such as 40%%, "
                         "got \"%.*s\"",
                         STR_ARG(text));
    }
    if (value < 1 || value > 100) {
        return error_set(err, ST_BAD_CONFIG, "%.*s is out of range: from 1%% to 100%%",
                         STR_ARG(text));
    }
    *(struct option_memory *)option_place(options, index) =
        (struct option_memory){.percent = (unsigned)value};
    return ST_OK;
}

static enum status set_bool_text(struct options *options, size_t index, const char *text,
                                 struct error *err) {
    assert(text);
    bool yes;
    if (!num_parse_bool(str_of(text), &yes)) {
        return error_set(err, ST_BAD_CONFIG, "expected true or false, got \"%s\"", text);
    }
    option_set_bool(options, index, yes);
    return ST_OK;
}

static enum status set_word(struct options *options, size_t index, struct str text,
                            struct error *err) {
    struct str words = str_of(options->set->options[index].unit);
    for (unsigned i = 0; words.ptr; i++) {
        if (!str_eq_nocase(str_cut(&words, '|'), text)) {
            continue;
        }
        *(unsigned *)option_place(options, index) = i;
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "expected one of %s, got \"%.*s\"",
                     options->set->options[index].unit, STR_ARG(text));
}

/* The capacity of a list is the next power of two, because lists may have thousands of items. */
static void *grow_list(struct options *options, void *items, size_t n, size_t size) {
    bool full = (n & (n - 1)) == 0;
    size_t room = n == 0 ? 1 : 2 * n;
    return full ? arena_realloc(options->arena, items, n * size, room * size) : items;
}

static void add_text(struct options *options, size_t index, const char *text) {
    struct option_texts *texts = option_place(options, index);
    const char **items = grow_list(options, texts->items, texts->n, sizeof(*items));
    size_t *order = grow_list(options, texts->order, texts->n, sizeof(*order));
    struct option_pairs *pairs = grow_list(options, texts->pairs, texts->n, sizeof(*pairs));
    items[texts->n] = text;
    order[texts->n] = options->n_texts++;
    pairs[texts->n] = (struct option_pairs){NULL, 0};
    *texts = (struct option_texts){items, order, pairs, texts->n + 1};
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
        add_text(options, index, text);
        return ST_OK;
    case OPTION_U64:
    case OPTION_BYTES:
    case OPTION_DURATION:
        return set_number_text(options, index, str_of(text), err);
    case OPTION_MEMORY:
        return set_memory_text(options, index, str_of(text), err);
    case OPTION_BOOL:
    case OPTION_SWITCH:
        return set_bool_text(options, index, text, err);
    case OPTION_WORD:
        return set_word(options, index, str_of(text), err);
    }
    return error_set(err, ST_INTERNAL, "option of an unknown type");
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* The arguments being parsed. */
struct args {
    int argc;
    char **argv;
    int next;
    bool only_arguments; /* after "--" */
    size_t n_arguments;
};

/* A flag as written: "--name=value", "--name", "-o". */
struct flag {
    const char *text;  /* the whole argument */
    struct str name;   /* without dashes and value */
    const char *value; /* after '='; NULL: none */
};

enum status options_init(struct options *options, const struct option_set *set, void *values,
                         struct arena *arena, struct error *err) {
    assert(set->n_options <= OPTIONS_MAX);
    *options = (struct options){.set = set, .values = values, .arena = arena};
    for (size_t i = 0; i < set->n_options; i++) {
        const char *value = set->options[i].value;
        if (*value && option_set_text(options, i, value, err) != ST_OK) {
            return error_prefix(err, "the default of --%s", set->options[i].name);
        }
    }
    return ST_OK;
}

static bool is_help(const char *arg) {
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

bool options_wants_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            return true;
        }
    }
    return false;
}

const char *options_help_topic(int argc, char **argv) {
    for (int i = 1; i + 1 < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            return *argv[i + 1] == '-' ? NULL : argv[i + 1];
        }
    }
    return NULL;
}

static struct flag flag_split(const char *arg) {
    const char *name = arg + (arg[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    return (struct flag){
        .text = arg,
        .name = str_make(name, equals ? (size_t)(equals - name) : strlen(name)),
        .value = equals ? equals + 1 : NULL,
    };
}

/* Returns: the option's index, or n_options. */
static size_t find_flag(const struct option_set *set, struct str name, bool one_dash) {
    for (size_t i = 0; i < set->n_options; i++) {
        const struct option *option = &set->options[i];
        if (option_is_argument(option)) {
            continue;
        }
        if (str_is(name, one_dash ? option->alias : option->name)) {
            return i;
        }
        if (!one_dash && strlen(option->alias) > 1 && str_is(name, option->alias)) {
            return i;
        }
    }
    return set->n_options;
}

static enum status unknown_flag(const struct option_set *set, const struct flag *flag,
                                struct error *err) {
    char name[64];
    size_t n = flag->name.len < sizeof(name) ? flag->name.len : sizeof(name) - 1;
    memcpy(name, flag->name.ptr, n);
    name[n] = '\0';
    for (const struct option_hint *hint = set->hints; hint && hint->name; hint++) {
        if (strcmp(hint->name, name) == 0) {
            return error_set(err, ST_BAD_CONFIG, "there is no flag %s%s: %s", n == 1 ? "-" : "--",
                             name, hint->hint);
        }
    }
    struct suggestion suggestion = {0};
    for (size_t i = 0; i < set->n_options; i++) {
        if (!option_is_argument(&set->options[i])) {
            suggest_consider(&suggestion, flag->name, str_of(set->options[i].name));
            if (strlen(set->options[i].alias) > 1) {
                suggest_consider(&suggestion, flag->name, str_of(set->options[i].alias));
            }
        }
    }
    if (suggestion.best.ptr) {
        return error_set(err, ST_BAD_CONFIG, "unknown flag %s; did you mean --%.*s?", flag->text,
                         STR_ARG(suggestion.best));
    }
    return error_set(err, ST_BAD_CONFIG, "unknown flag %s", flag->text);
}

/* The value of a flag: after '=', or the next argument. */
static enum status flag_value(const struct option *option, const struct flag *flag,
                              struct args *args, const char **out, struct error *err) {
    *out = flag->value;
    if (flag->value) {
        return ST_OK;
    }
    if (args->next >= args->argc) {
        return error_set(err, ST_BAD_CONFIG, "%s needs a value: --%s %s", flag->text, option->name,
                         option->unit);
    }
    const char *value = args->argv[args->next];
    if (strncmp(value, "--", 2) == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s needs a value, and %s looks like the next flag (a value that begins "
                         "with dashes is written %s=VALUE)",
                         flag->text, value, flag->text);
    }
    args->next++;
    *out = value;
    return ST_OK;
}

static enum status set_flag(struct options *options, size_t index, const struct flag *flag,
                            struct args *args, struct error *err) {
    const struct option *option = &options->set->options[index];
    if (options->given[index] && !option_is_list(option)) {
        return error_set(err, ST_BAD_CONFIG, "--%s is given twice", option->name);
    }
    if (!options->given[index]) {
        option_clear(options, index);
    }
    options->given[index] = true;
    if (option->type == OPTION_SWITCH) {
        if (flag->value) {
            return error_set(err, ST_BAD_CONFIG, "--%s takes no value", option->name);
        }
        option_set_bool(options, index, true);
        return ST_OK;
    }
    const char *value;
    enum status status = flag_value(option, flag, args, &value, err);
    if (status != ST_OK) {
        return status;
    }
    status = option_set_text(options, index, value, err);
    struct str typed = str_make(flag->text, (size_t)(flag->name.ptr - flag->text) + flag->name.len);
    return status == ST_OK ? ST_OK : error_prefix(err, "%.*s", STR_ARG(typed));
}

static enum status set_argument(struct options *options, const char *text, struct args *args,
                                struct error *err) {
    const struct option_set *set = options->set;
    size_t place = 0;
    for (size_t i = 0; i < set->n_options; i++) {
        if (!option_is_argument(&set->options[i])) {
            continue;
        }
        if (place++ != args->n_arguments && !option_is_list(&set->options[i])) {
            continue;
        }
        if (!options->given[i]) {
            option_clear(options, i);
        }
        options->given[i] = true;
        args->n_arguments++;
        return option_set_text(options, i, text, err);
    }
    bool is_input = strchr(text, '=') && find_flag(set, STR("input"), false) < set->n_options;
    return error_set(err, ST_BAD_CONFIG, "one argument too many: \"%s\"%s%s%s", text,
                     is_input ? "; did you mean --input " : "", is_input ? text : "",
                     is_input ? "?" : "");
}

static enum status read_arg(struct options *options, struct args *args, struct error *err) {
    const char *arg = args->argv[args->next++];
    if (args->only_arguments || arg[0] != '-' || arg[1] == '\0') {
        return set_argument(options, arg, args, err);
    }
    if (strcmp(arg, "--") == 0) {
        args->only_arguments = true;
        return ST_OK;
    }
    struct flag flag = flag_split(arg);
    size_t index = find_flag(options->set, flag.name, arg[1] != '-');
    if (index == options->set->n_options) {
        return unknown_flag(options->set, &flag, err);
    }
    return set_flag(options, index, &flag, args, err);
}

enum status options_read_args(struct options *options, int argc, char **argv, struct error *err) {
    struct args args = {.argc = argc, .argv = argv, .next = 1};
    while (args.next < argc) {
        enum status status = read_arg(options, &args, err);
        if (status != ST_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < options->set->n_options; i++) {
        if (options->set->options[i].type == OPTION_ARGUMENT && !options->given[i]) {
            return error_set(err, ST_BAD_CONFIG, "%s is missing: %s %s",
                             options->set->options[i].unit, options->set->command,
                             options->set->usage);
        }
    }
    return ST_OK;
}
