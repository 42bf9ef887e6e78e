/* Limits of a JSON text, checked before memory is allocated for it. Each is a setting that messages
 * name. */
#ifndef SLUICE_CODEC_JSON_LIMITS_H
#define SLUICE_CODEC_JSON_LIMITS_H

#include <stdint.h>

struct json_limits {
    uint64_t max_json_size;       /* --max-json-size: tree.c:parse_text */
    uint64_t max_json_depth;      /* --max-json-depth: tree.c:check_scan */
    uint64_t max_tensor_elements; /* --max-tensor-elements, per tensor: tree.c:check_scan;
                                     codec/kserve */
};

#endif
