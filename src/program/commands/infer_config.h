/* What `sluice infer` takes of a model's configuration: whether it batches, and the settings with
 * which pictures become its tensors. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_CONFIG_H
#define SLUICE_PROGRAM_COMMANDS_INFER_CONFIG_H

#include "serve/config/config.h"

/* Reads max_batch_size and the parameters of a configuration as JSON, which a server of KServe v2
 * with the model configuration extension sends; all other members stay zero. What is missing or of
 * another type counts as not set. Returns: ST_BAD_ANSWER if it is no JSON. Owns: in `arena`. */
enum status infer_config_parse(struct arena *arena, struct str text, struct model_config *out,
                               struct error *err) SLUICE_MUST_USE;

#endif
