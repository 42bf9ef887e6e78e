/* Scanner for token counts in a response, which comes in chunks that may be cut anywhere: the
 * objects `"usage": {…}` of OpenAI's and Anthropic's APIs, in a JSON body or in the events of a
 * stream, also within gRPC messages (Google's HttpBody); `"meta_info": {…}` of SGLang; the fields
 * of vLLM's gRPC responses. No JSON is parsed around them: text in a response cannot contain
 * `"usage"` with quotes that are not escaped. Of several objects a later count replaces an earlier
 * one, unless it is 0.
 *
 * Bounded: of a chunk of JSON only the last USAGE_SCAN_BYTES are looked at, as counts are at the
 * end of a body and of an event; no memory is allocated.
 *
 * Zeroed memory is a scan that has not begun, of PROMPT_OF_TEXT. */
#ifndef SLUICE_CODEC_PROMPT_USAGE_SCAN_H
#define SLUICE_CODEC_PROMPT_USAGE_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/prompt/grpc_walk.h"
#include "codec/prompt/prompt_scan.h"
#include "core/base/str.h"

enum { USAGE_SCAN_BYTES = 16 << 10, USAGE_KEY_BYTES = 24 };

struct usage_scan {
    enum prompt_format format;  /* of the request's body; set before the first bytes */
    uint64_t n_input, n_output; /* tokens; 0: not known */
    uint64_t n_cached;          /* of the input, with has_cached */
    bool has_cached;
    /* scan state */
    bool in_string, is_escaped, in_number;
    uint8_t state;      /* enum state of usage_scan.c */
    uint8_t n_matched;  /* bytes of `"usage"` */
    uint8_t n_key;      /* bytes of `key`; more than USAGE_KEY_BYTES: another one */
    uint16_t depth;     /* of the object */
    uint16_t n_scanned; /* bytes of the object */
    uint64_t number;
    char key[USAGE_KEY_BYTES];
    struct grpc_walk walk; /* of vLLM's gRPC responses */
};

/* The next bytes of the response. */
void usage_scan_feed(struct usage_scan *scan, struct str bytes);

#endif
