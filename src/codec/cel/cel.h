/* Expressions in CEL (Common Expression Language, github.com/google/cel-spec) over one variable,
 * which is a map of numbers: arithmetic, comparison, logic, the conditional, selection of members,
 * has(), conversions, and some functions of texts. Lists, maps, bytes, times, macros over lists and
 * regular expressions of the language are not supported.
 *
 * As in cel-go numbers of different types are compared, but not added: 1.5 + 1 is an error, and so
 * are overflows. Bounded: the expression's size, nodes and depth, and the bytes of the texts that
 * it makes. Without I/O.
 *
 * Thread: any; a program is immutable. */
#ifndef SLUICE_CODEC_CEL_CEL_H
#define SLUICE_CODEC_CEL_CEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum {
    CEL_MAX_BYTES = 4096,
    CEL_MAX_NODES = 512,
    CEL_MAX_DEPTH = 48,
    CEL_MAX_TEXT_BYTES = 64 << 10 /* of all texts that are made while it is evaluated */
};

enum cel_type {
    CEL_DYN, /* known when it is evaluated; no value has it */
    CEL_NULL,
    CEL_BOOL,
    CEL_INT,
    CEL_UINT,
    CEL_DOUBLE,
    CEL_STRING,
    CEL_MAP,
};

struct cel_entry;

struct cel_map {
    const struct cel_entry *entries;
    size_t n;
};

struct cel_value {
    enum cel_type type;
    union {
        bool boolean;
        int64_t integer;
        uint64_t natural; /* CEL_UINT */
        double real;
        struct str text;
        struct cel_map map;
    };
};

struct cel_entry {
    struct str key;
    struct cel_value value;
};

struct cel_program;

/* "double" */
const char *cel_type_name(enum cel_type type);

/* Parses and checks. `variable`: the name of the map. Returns: ST_BAD_CONFIG with a sentence;
 * ST_NO_MEMORY. Owns: *out, in `arena`; it borrows nothing. */
enum status cel_compile(struct arena *arena, struct str text, const char *variable,
                        struct cel_program **out, struct error *err) SLUICE_MUST_USE;
/* The type of its values, or CEL_DYN. */
enum cel_type cel_result_type(const struct cel_program *program);
/* Returns: ST_BAD_ANSWER with a sentence; ST_NO_MEMORY. Owns: texts of *out are in `arena`, or the
 * program's or the variable's. */
enum status cel_evaluate(const struct cel_program *program, const struct cel_map *variable,
                         struct arena *arena, struct cel_value *out,
                         struct error *err) SLUICE_MUST_USE;

#endif
