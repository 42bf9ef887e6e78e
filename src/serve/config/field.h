/* The fields that a model's configuration may have and how each is treated: the table in field.def,
 * checked before any value is read. */
#ifndef SLUICE_SERVE_CONFIG_FIELD_H
#define SLUICE_SERVE_CONFIG_FIELD_H

#include "core/base/doc/doc.h"
#include "core/base/status.h"

enum config_message {
    CONFIG_NONE,
    CONFIG_MODEL,
    CONFIG_INPUT,
    CONFIG_OUTPUT,
    CONFIG_RESHAPE,
    CONFIG_VERSION_POLICY,
    CONFIG_VERSIONS_LATEST,
    CONFIG_VERSIONS_ALL,
    CONFIG_VERSIONS_SPECIFIC,
    CONFIG_INSTANCE_GROUP,
    CONFIG_DYNAMIC_BATCHING,
    CONFIG_LEVEL,
    CONFIG_QUEUE_POLICY,
    CONFIG_SEQUENCES,
    CONFIG_CONTROL_INPUT,
    CONFIG_CONTROL,
    CONFIG_DIRECT,
    CONFIG_OLDEST,
    CONFIG_WARMUP,
    CONFIG_WARMUP_ENTRY,
    CONFIG_WARMUP_INPUT,
    CONFIG_PARAMETER,
    CONFIG_PARAMETER_VALUE,
    CONFIG_TRANSACTION_POLICY,
    CONFIG_RESPONSE_CACHE,
};

/* Checks `node` and all messages inside it: logs a warning for a field without effect, refuses a
 * field that is unknown or would change answers. Returns: ST_BAD_CONFIG with file, line, path and
 * reason. */
enum status config_fields_check(const struct doc_node *node, enum config_message message,
                                struct error *err) SLUICE_MUST_USE;

#endif
