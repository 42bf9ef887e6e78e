/* A configuration as JSON, proto3's mapping of ModelConfig, in the form that the reader of
 * config.pbtxt reads: what a client sends with a load, often what it got from the server before. */
#ifndef SLUICE_CODEC_KSERVE_MODEL_CONFIG_JSON_H
#define SLUICE_CODEC_KSERVE_MODEL_CONFIG_JSON_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Rewrites what the two forms write differently: maps, which become lists of `key` and `value`, and
 * 64-bit numbers that are written as text. What is wrong with the rest is left to the reader.
 * Returns: ST_BAD_CONFIG for what is no JSON object, or nested too deep. Owns: *out is in
 * `arena`. */
enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) __attribute__((warn_unused_result));

#endif
