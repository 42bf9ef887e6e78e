/* Tensor data from the text of a JSON array, for who has no whole request: a command line, a
 * file. */
#ifndef SLUICE_CODEC_KSERVE_DATA_TEXT_H
#define SLUICE_CODEC_KSERVE_DATA_TEXT_H

#include "codec/kserve/request.h"

/* Reads `text`, a JSON array (flat or nested in any way), as the data of `tensor`, whose name,
 * datatype and shape (every dimension >= 0) are set; fills its pieces. The rules are those of
 * `inputs[].data` in a request. Returns: as v2_request_decode; paths start with "data". Owns: the
 * bytes are in `arena`. */
enum status v2_data_text_parse(struct arena *arena, struct str text,
                               const struct json_limits *limits, struct tensor *tensor,
                               struct error *err) __attribute__((warn_unused_result));

#endif
