/* What flags of the upstream project's picker say of the pool, as YAML for its configuration (which
 * JSON is). */
#ifndef SLUICE_PROGRAM_PICKER_UPSTREAM_CONFIG_H
#define SLUICE_PROGRAM_PICKER_UPSTREAM_CONFIG_H

#include "core/base/buf.h"
#include "core/base/status.h"

/* The members of the sections and of `rules`, each begun by the first of them. */
struct upstream_config {
    struct buf metrics, rules, protocol;
};

void upstream_config_init(struct upstream_config *config, struct arena *arena);
/* `value` as it is: a number, true or false. */
void upstream_config_plain(struct buf *section, const char *key, struct str value);
void upstream_config_text(struct buf *section, const char *key, struct str value);
/* A rule by upstream's writing of a series: NAME or NAME{LABEL=VALUE,…}, with quotes or without. An
 * empty one says nothing. Returns: ST_BAD_CONFIG. */
enum status upstream_config_rule(struct upstream_config *config, const char *key, struct str spec,
                                 struct error *err) __attribute__((warn_unused_result));
/* One document of all of it. Its preset is vllm's. Returns: NULL when out of memory. */
const char *upstream_config_print(const struct upstream_config *config, struct arena *arena);

#endif
