/* How large a JSON text may be, checked before memory is taken for it. Each limit is a setting,
 * which messages name. */
#ifndef SLUICE_CODEC_JSON_LIMITS_H
#define SLUICE_CODEC_JSON_LIMITS_H

#include <stdint.h>

struct json_limits {
    uint64_t max_json_size;       /* --max-json-size */
    uint64_t max_json_depth;      /* --max-json-depth */
    uint64_t max_tensor_elements; /* --max-tensor-elements: per tensor */
};

#endif
