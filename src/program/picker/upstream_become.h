/* What a flag of the upstream project's picker becomes, one at a time. For upstream_flags.c. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_BECOME_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_BECOME_H

#include "program/picker/upstream_config.h"
#include "program/picker/upstream_flags.h"

/* The words of upstream_flags.def. */
enum upstream_becomes {
    FLAG,
    POOL,
    YES,
    PORT,
    SIZE,
    TIME,
    SECURE,
    CERT,
    LEVEL,
    ZAP_LEVEL,
    ENCODER,
    LEAST_TLS,
    METRICS_PORT,
    METRICS_TEXT,
    METRICS_YES,
    METRICS_TIME,
    RULE,
    PROTOCOL,
    NOTHING,
    NOTHING_YES,
    REFUSED,
    REFUSED_YES,
};
enum upstream_kind { VALUE, SWITCH };

struct upstream_row {
    const char *name;
    enum upstream_kind kind;
    enum upstream_becomes becomes;
    const char *ours, *why;
};

struct upstream_translation {
    struct arena *arena;
    struct upstream_flags *out;
    struct upstream_note *notes; /* room for one of each row */
    struct upstream_config config;
};

/* Puts "--flag=value", or "--flag" where `value` is empty, in front of the arguments, where no "--"
 * ends the flags. There must be room. */
enum status upstream_add_flag(struct upstream_translation *self, const char *flag,
                              const char *value, struct error *err)
    __attribute__((warn_unused_result));
/* `value` of a switch is "true" or "false". SECURE and CERT, which go together, are the caller's.
 * Returns: ST_BAD_CONFIG with what was expected, not yet the flag's name. */
enum status upstream_become(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err)
    __attribute__((warn_unused_result));

#endif
