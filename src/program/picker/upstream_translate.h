/* What a flag of the upstream project's picker becomes, one at a time. For upstream_flags.c. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_TRANSLATE_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_TRANSLATE_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "program/picker/upstream_flags.h"

/* The words of upstream_flags.def. */
enum upstream_action {
    UPSTREAM_FLAG,
    UPSTREAM_POOL_FLAG,
    UPSTREAM_FLAG_IF_TRUE,
    UPSTREAM_PORT,
    UPSTREAM_SIZE,
    UPSTREAM_DURATION,
    UPSTREAM_SECURE_SERVING,
    UPSTREAM_CERT_PATH,
    UPSTREAM_VERBOSITY,
    UPSTREAM_ZAP_LEVEL,
    UPSTREAM_ZAP_ENCODER,
    UPSTREAM_MIN_TLS,
    UPSTREAM_METRICS_PORT,
    UPSTREAM_METRICS_TEXT,
    UPSTREAM_METRICS_BOOL,
    UPSTREAM_METRICS_DURATION,
    UPSTREAM_METRICS_RULE,
    UPSTREAM_PROTOCOL_NAME,
    UPSTREAM_IGNORED,
    UPSTREAM_IGNORED_IF_TRUE,
    UPSTREAM_REJECTED,
    UPSTREAM_REJECTED_IF_TRUE,
};
enum upstream_kind { UPSTREAM_TAKES_VALUE, UPSTREAM_IS_SWITCH };

struct upstream_row {
    const char *name;
    enum upstream_kind kind;
    enum upstream_action action;
    const char *our_name, *why;
};

/* The members of the sections and of `rules`, each begun by the first of them. */
struct upstream_config {
    struct buf metrics, rules, protocol;
};

struct upstream_translation {
    struct arena *arena;
    struct upstream_flags *out;
    struct upstream_note *notes; /* room for one of each row */
    struct upstream_config config;
};

void upstream_config_init(struct upstream_config *config, struct arena *arena);
/* One document of all of it. Its preset is vllm's. Returns: NULL when out of memory. */
const char *upstream_config_print(const struct upstream_config *config, struct arena *arena);

/* Puts "--flag=value", or "--flag" where `value` is empty, in front of the arguments, where no "--"
 * ends the flags. There must be room. */
enum status upstream_add_flag(struct upstream_translation *self, const char *flag,
                              const char *value, struct error *err)
    __attribute__((warn_unused_result));
/* `value` of a switch is "true" or "false". SECURE and CERT, which go together, are the caller's.
 * Returns: ST_BAD_CONFIG with what was expected, not yet the flag's name. */
enum status upstream_translate_flag(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) __attribute__((warn_unused_result));

#endif
