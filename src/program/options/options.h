/* Settings of a command, from one table: a row defines the flag, the YAML key, the line of
 * `--help`, and the error for an invalid value. Rows are in a .def file per command, read by one
 * macro:
 *
 *     OPTION(field, name, alias, TYPE, default, unit, min, max, group, help)
 *
 *   field    member of the command's struct of values, of the type OPTION_STORE_<TYPE>
 *   name     the flag without its dashes, and the YAML key; of an argument, its name in messages
 *   alias    another name for the flag (the reference server's, or one letter for "-o"), or ""
 *   default  as a user would write it; "" leaves the value NULL, empty or 0, which `help` explains
 *   unit     how `--help` writes the value ("ADDR"); for WORD the words themselves: "text|json"
 *   min,max  of U64, BYTES and MEMORY (bytes) and DURATION (nanoseconds)
 *   group    its heading in `--help`
 *
 * Flags take precedence over YAML; a repeatable flag replaces the whole list of the file. */
#ifndef SLUICE_PROGRAM_OPTIONS_OPTIONS_H
#define SLUICE_PROGRAM_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/doc/doc.h"
#include "core/base/status.h"

enum option_type {
    OPTION_TEXT,
    OPTION_TEXTS, /* repeatable */
    OPTION_U64,
    OPTION_BYTES,
    OPTION_MEMORY,   /* bytes, or a percentage of the memory that the process may use */
    OPTION_DURATION, /* nanoseconds */
    OPTION_BOOL,     /* value true or false */
    OPTION_SWITCH,   /* no value; only on the command line */
    OPTION_WORD,     /* one of a few words; the value is its index */
    OPTION_CONFIG,   /* the YAML file with the other settings; only on the command line */
    OPTION_ARGUMENT, /* an argument without a flag; required; only on the command line */
    OPTION_OPTIONAL, /* the same, after the required ones; NULL when omitted */
    OPTION_MODELS,   /* the remaining arguments; in YAML, texts or {name: N, path: P}, which is N=P,
                        optionally with parameters: {KEY: VALUE} */
};

/* A size, or a share that program/process/memory_share.h turns into one. */
struct option_memory {
    uint64_t n_bytes; /* 0 until the share is resolved */
    unsigned percent; /* 1 to 100; 0: n_bytes was given */
};

/* Names and their values. */
struct option_pair {
    const char *name;
    const char *value;
};
struct option_pairs {
    struct option_pair *items;
    size_t n;
};

struct option_texts {
    const char **items;
    size_t *order;              /* of each item: its position among the texts of all lists */
    struct option_pairs *pairs; /* of each item: a model's parameters */
    size_t n;
};

#define OPTION_STORE_TEXT const char *
#define OPTION_STORE_TEXTS struct option_texts
#define OPTION_STORE_U64 uint64_t
#define OPTION_STORE_BYTES uint64_t
#define OPTION_STORE_MEMORY struct option_memory
#define OPTION_STORE_DURATION uint64_t
#define OPTION_STORE_BOOL bool
#define OPTION_STORE_SWITCH bool
#define OPTION_STORE_WORD unsigned
#define OPTION_STORE_CONFIG const char *
#define OPTION_STORE_ARGUMENT const char *
#define OPTION_STORE_OPTIONAL const char *
#define OPTION_STORE_MODELS struct option_texts

struct option {
    const char *name;
    const char *alias;
    enum option_type type;
    const char *value; /* the default */
    const char *unit;
    uint64_t min, max;
    const char *group;
    const char *help;
    size_t offset; /* of the value in the command's struct */
};

/* A flag that does not exist here, and the advice to print for it. */
struct option_hint {
    const char *name; /* without dashes; NULL terminates the list */
    const char *hint;
};

/* The options of one command, and the texts of its help. */
struct option_set {
    const char *const
        *most_used;      /* names of options; --help prints only these; NULL: it prints all */
    const char *command; /* "sluice serve" */
    const char *usage;   /* "[FLAGS] PATH…" */
    const char *about;   /* wrapped when printed; a line break begins a new paragraph */
    const char *epilog;  /* examples and notes; printed as they are */
    const struct option *options;
    size_t n_options;
    const struct option_hint *hints; /* NULL: none */
};

enum { OPTIONS_MAX = 128 };

/* The state of parsing. */
struct options {
    const struct option_set *set;
    char *values; /* the command's struct */
    struct arena *arena;
    bool given[OPTIONS_MAX]; /* on the command line */
    size_t n_texts;          /* in all lists */
};

/* Sets every value to its default. `arena` holds texts that are not arguments. */
enum status options_init(struct options *options, const struct option_set *set, void *values,
                         struct arena *arena, struct error *err) SLUICE_MUST_USE;
/* Parses the arguments after argv[0], then the file of an OPTION_CONFIG, which sets what no flag
 * has set. Values borrow from argv. Returns: ST_BAD_CONFIG with the place, the error and the
 * expected form. */
enum status options_read(struct options *options, int argc, char **argv,
                         struct error *err) SLUICE_MUST_USE;
/* Is there a --help or -h before any "--"? */
bool options_wants_help(int argc, char **argv);
/* Returns: the argument after --help, which names a topic; NULL: none. */
const char *options_help_topic(int argc, char **argv);

/* The steps of options_read; the tests call them one by one. */
enum status options_read_args(struct options *options, int argc, char **argv,
                              struct error *err) SLUICE_MUST_USE;
enum status options_read_doc(struct options *options, const struct doc *doc,
                             struct error *err) SLUICE_MUST_USE;

/* ---- internal: options.c and yaml.c --------------------------------------------------------- */

/* Parses `text` (NUL-terminated, lives as long as the values) into option `index`; appends to a
 * repeatable one. Returns: ST_BAD_CONFIG with the expected and the actual value; the caller adds
 * the flag or key. */
enum status option_set_text(struct options *options, size_t index, const char *text,
                            struct error *err) SLUICE_MUST_USE;
/* Stores a number of the option's type (also from YAML) after checking its range. */
enum status option_set_number(struct options *options, size_t index, uint64_t value,
                              struct error *err) SLUICE_MUST_USE;
void option_set_bool(struct options *options, size_t index, bool value);
/* Sets the pairs of the last text of a list. */
void option_set_pairs(struct options *options, size_t index, struct option_pairs pairs);
/* Empties a list that is replaced. */
void option_clear(struct options *options, size_t index);
bool option_is_list(const struct option *option);
bool option_is_argument(const struct option *option);

#endif
