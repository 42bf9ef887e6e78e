/* A model configuration as JSON (proto3's mapping of ModelConfig), converted to the form that
 * the parser of config.pbtxt reads. Clients send it with a load request. */
#ifndef SLUICE_CODEC_KSERVE_MODEL_CONFIG_JSON_H
#define SLUICE_CODEC_KSERVE_MODEL_CONFIG_JSON_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* Converts what differs between the two forms: maps become lists of `key` and `value`, and
 * 64-bit numbers written as text become numbers. The parser checks the rest. Returns:
 * ST_BAD_CONFIG if `json` is not a JSON object, or nested too deep. Owns: *out is in `arena`. */
enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) SLUICE_MUST_USE;

#endif
