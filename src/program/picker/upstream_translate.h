/* Translates one flag of the upstream project's picker. For upstream_flags.c. */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_TRANSLATE_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_TRANSLATE_H

#include "core/base/json_writer.h"
#include "core/base/status.h"
#include "program/picker/upstream_flags.h"

/* The actions of upstream_flags.def. */
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
    UPSTREAM_METRICS_CERT_DIR,
    UPSTREAM_METRICS_PORT,
    UPSTREAM_METRICS_TEXT,
    UPSTREAM_METRICS_BOOL,
    UPSTREAM_METRICS_DURATION,
    UPSTREAM_METRICS_RULE,
    UPSTREAM_PROTOCOL_NAME,
    UPSTREAM_IGNORED,
    UPSTREAM_IGNORED_IF_ONE,
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

/* An object of the document that is being made. The writer refers to the text: not copied. */
struct upstream_section {
    struct buf text;
    struct json_writer json;
};

/* The document, which is JSON and so YAML: `metrics`, its `rules`, and `protocol`. */
struct upstream_config {
    struct upstream_section metrics, rules, protocol;
};

struct upstream_translation {
    struct arena *arena;
    struct upstream_flags *out;
    struct flag_note *notes; /* capacity: one for each row */
    struct upstream_config config;
};

void upstream_config_init(struct upstream_config *config, struct arena *arena);
/* Ends the sections and prints the document, whose preset is vllm. */
const char *upstream_config_print(struct upstream_config *config, struct arena *arena);

/* Puts "--flag=value", or "--flag" if `value` is empty, in front of the arguments, so that no "--"
 * precedes it. The array must have space for it. */
void upstream_add_flag(struct upstream_translation *self, const char *flag, const char *value);
/* Adds --LISTENER-tls-cert and --LISTENER-tls-key with the files of the folder; none if its name is
 * empty. */
void upstream_add_tls_files(struct upstream_translation *self, const char *listener,
                            const char *folder);
/* Translates a flag. A switch's `value` is "true" or "false". UPSTREAM_SECURE_SERVING and
 * UPSTREAM_CERT_PATH, which depend on each other, are left to the caller. Returns: ST_BAD_CONFIG
 * with what was expected, without the flag's name. */
enum status upstream_translate_flag(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) SLUICE_MUST_USE;

#endif
