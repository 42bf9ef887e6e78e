/* Which model does a body name? A scan over the chunks of a JSON text, which may be cut anywhere,
 * for the string member "model" of the object that it is. No tree is made and nothing is kept but
 * the name: strings are jumped over, of nested values only brackets are counted, so that depth and
 * size of the text cost no memory. It stops where the name is known, and refuses to be a parser:
 * what it finds wrong is wrong, but it does not look at what it need not (behind the name it looks
 * at nothing).
 *
 * Of two members "model" the first counts. The name is wanted by OpenAI's and Anthropic's
 * interfaces: a member of the request body. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_SCAN_H
#define SLUICE_CODEC_PROMPT_MODEL_SCAN_H

#include <stdint.h>

#include "codec/json/skip.h"
#include "codec/prompt/json_string_decoder.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum model_scan_result {
    MODEL_SCAN_MORE,       /* it isn't known yet */
    MODEL_SCAN_FOUND,      /* perhaps empty */
    MODEL_SCAN_ABSENT,     /* the object ended without one */
    MODEL_SCAN_NOT_OBJECT, /* the text is something else, or empty */
    MODEL_SCAN_MALFORMED,  /* no JSON, or it ended too early */
    MODEL_SCAN_OTHER_TYPE, /* a member "model" that is no string */
    MODEL_SCAN_TOO_LONG,
    MODEL_SCAN_COMPRESSED, /* a gRPC message: it can't be looked into */
    MODEL_SCAN_NO_MEMORY,
};

enum { MODEL_SCAN_MAX_BYTES = 4096 }; /* of a name */

struct model_scan {
    enum model_scan_result result;
    struct buf name;                /* MODEL_SCAN_FOUND: decoded, valid UTF-8 */
    uint64_t value_at, value_bytes; /* where it is in the text, its quotes included */
    uint64_t at;                    /* bytes looked at, the one that was wrong included */
    const char *error_text;         /* MODEL_SCAN_MALFORMED: what is wrong */
    /* how far it is */
    struct json_skip skip;
    struct json_string_decoder text;
    uint8_t state;     /* enum state of model_scan.c */
    uint8_t n_matched; /* bytes of the key that are those of "model" */
    bool is_model;     /* the value that comes is the one */
};

/* Starts. The name grows in `arena`, which must outlive the scan. */
void model_scan_init(struct model_scan *scan, struct arena *arena);
/* Looks at the next bytes, as far as it must. Returns: scan->result; once that is not
 * MODEL_SCAN_MORE, bytes make no difference. */
enum model_scan_result model_scan_feed(struct model_scan *scan, struct str chunk);
/* No more bytes come. Returns: scan->result, never MODEL_SCAN_MORE. */
enum model_scan_result model_scan_finish(struct model_scan *scan);
/* What a client is told where no name was found. Returns: ST_OK for MODEL_SCAN_FOUND, else
 * ST_BAD_JSON, ST_BAD_FIELD, ST_NO_MEMORY with a sentence. */
enum status model_scan_check(const struct model_scan *scan, struct error *err)
    __attribute__((warn_unused_result));

#endif
