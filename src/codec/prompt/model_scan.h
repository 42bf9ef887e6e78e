/* Scanner for the model's name in a request body: the string member "model" of a JSON object
 * (OpenAI's and Anthropic's APIs), read in chunks that may be cut anywhere. No tree is built and
 * only the name is stored: strings are skipped and of nested values only brackets are counted,
 * so that depth and size of the text cost no memory. The scan stops at the name. JSON errors
 * before it are reported as far as the scan notices them.
 *
 * Of two members "model" the first counts. Servers take the last, so that text after the name can
 * be scanned for another one. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_SCAN_H
#define SLUICE_CODEC_PROMPT_MODEL_SCAN_H

#include <stdint.h>

#include "codec/json/chunks.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum model_scan_result {
    MODEL_SCAN_MORE,       /* the name is not known yet */
    MODEL_SCAN_FOUND,      /* may be empty */
    MODEL_SCAN_ABSENT,     /* the object has no member "model" */
    MODEL_SCAN_NOT_OBJECT, /* the text is another value, or empty */
    MODEL_SCAN_MALFORMED,  /* not JSON, or truncated */
    MODEL_SCAN_OTHER_TYPE, /* "model" is not a string */
    MODEL_SCAN_TOO_LONG,
    MODEL_SCAN_COMPRESSED, /* a compressed gRPC message */
    MODEL_SCAN_NO_MEMORY,
};

enum { MODEL_SCAN_MAX_BYTES = 4096 }; /* of a name */

struct model_scan {
    enum model_scan_result result;
    struct buf name;                /* MODEL_SCAN_FOUND: decoded, valid UTF-8 */
    uint64_t value_at, value_bytes; /* position and size in the text, quotes included */
    uint64_t at;                    /* bytes scanned; after an error including the invalid one */
    const char *error_text;         /* reason for MODEL_SCAN_MALFORMED */
    /* scan state */
    struct json_skip skip;
    struct json_string_decoder text;
    uint8_t state;     /* enum state of model_scan.c */
    uint8_t n_matched; /* matching bytes of "model" */
    bool is_model;     /* the next value is the name */
};

/* Starts. The name grows in `arena`, which must outlive the scan. */
void model_scan_init(struct model_scan *scan, struct arena *arena);
/* Scans the next bytes. Returns: scan->result; once that is not MODEL_SCAN_MORE, further bytes
 * are ignored. */
enum model_scan_result model_scan_feed(struct model_scan *scan, struct str chunk);
/* Call at the end of the body. Returns: scan->result, never MODEL_SCAN_MORE. */
enum model_scan_result model_scan_finish(struct model_scan *scan);
/* Starts a scan of the text after a name that was found. */
void model_scan_init_rest(struct model_scan *rest, struct arena *arena);
/* Scans the next bytes. Returns: whether there is another member "model". */
bool model_scan_feed_rest(struct model_scan *rest, struct str chunk);
/* The error for a client if no name was found. Returns: ST_OK for MODEL_SCAN_FOUND, else
 * ST_BAD_JSON, ST_BAD_FIELD, ST_NO_MEMORY with a text. */
enum status model_scan_check(const struct model_scan *scan, struct error *err) SLUICE_MUST_USE;

#endif
