/* Scanner for the prompt in the body of a request to a language model. It collects the first bytes
 * of the prompt's text, because model servers cache by prefix, and some counts. The JSON text comes
 * in chunks that may be cut anywhere; no tree is built. (prompt_grpc.h has the bodies of gRPC.)
 *
 * The prompt's text is, of members of the object,
 *     "prompt"     of completions: a string, or a list of strings or of token ids, each of which is
 *                  four bytes of the text
 *     "messages"   of chats: the "content" and then the "role" of each message; a content is a
 *                  string, or a list of parts, of which those with a "text" count, and images and
 *                  other media: by a hash of their strings, which are not stored
 *     "input"      of OpenAI's responses: a string, or as "messages"
 *     "items"      of OpenAI's conversations: as "messages"
 *     "token_ids"  of vLLM's /inference/v1/generate, "input_ids" of SGLang's /generate: a list of
 *                  token ids; pictures are in "features" by their hashes
 *     "system", "instructions"
 *                  in Anthropic's API and OpenAI's responses: a content. It is placed before the
 *                  messages, wherever it is in the object
 * with escapes decoded, so that whitespace, the spelling of characters, the order of members and
 * the choice of string or part make no difference. Texts are concatenated; control characters
 * separate messages and the texts of a list. Tool calls are not counted.
 *
 * Malformed or unknown input gives no prompt; prompt_scan_check has the reason. */
#ifndef SLUICE_CODEC_PROMPT_PROMPT_SCAN_H
#define SLUICE_CODEC_PROMPT_PROMPT_SCAN_H

#include "codec/json/chunks.h"
#include "core/base/buf.h"
#include "core/base/status.h"

/* Of a body. */
enum prompt_format {
    PROMPT_OF_TEXT, /* OpenAI's and Anthropic's APIs */
    PROMPT_OF_VLLM_TOKENS,
    PROMPT_OF_SGLANG_TOKENS,
    /* gRPC */
    PROMPT_OF_VLLM_GENERATE,
    PROMPT_OF_VLLM_EMBED,
    PROMPT_OF_VERTEX, /* PROMPT_OF_TEXT within Google's HttpBody */
};

enum prompt_scan_result {
    PROMPT_SCAN_MORE,
    PROMPT_SCAN_END,  /* the object has ended: the prompt is complete */
    PROMPT_SCAN_NONE, /* not a JSON object, malformed, or truncated; or out of memory */
};

/* The deepest text: a list of token lists in a list. */
enum { PROMPT_SCAN_MAX_DEPTH = 8 };
/* Pictures, sounds and videos that are listed; further ones are not. */
enum { PROMPT_SCAN_MAX_ITEMS = 256 };

/* What a part of a message has beside text. */
enum prompt_media {
    PROMPT_MEDIA_OTHER, /* a file */
    PROMPT_MEDIA_IMAGE,
    PROMPT_MEDIA_AUDIO,
    PROMPT_MEDIA_VIDEO,
    N_PROMPT_MEDIA
};

struct prompt_scan {
    enum prompt_scan_result result;
    size_t max_bytes;        /* limit for the system text and for the other text */
    struct buf system;       /* first bytes of "system" or "instructions", from n_system on */
    struct buf text;         /* first bytes of all other text, from n_text on */
    size_t n_system, n_text; /* bytes that were taken (prompt_scan_take) */
    uint64_t n_bytes;        /* bytes of both that were scanned, stored or not, without token ids */
    uint64_t n_tokens;       /* token ids in lists */
    uint64_t max_tokens;     /* "max_tokens" and its other names: tokens to generate; 0: absent */
    bool may_have_system;    /* of the API: the text is not full without it */
    enum prompt_format format; /* PROMPT_OF_TEXT unless it is set before the first byte */
    struct str required;       /* PROMPT_OF_TEXT: the member that must have a value; ptr NULL:
                                  none */
    bool is_streamed;          /* "stream": true */
    uint64_t salt;             /* a hash of "cache_salt" or "extra_key", which makes equal prompts
                                  different ones; 0: none */
    const char *error_text;    /* why the prompt is wrong; NULL: it is not, so far */
    /* scan state */
    struct json_skip skip;
    struct json_string_decoder string; /* of the string being read */
    uint64_t number;                   /* value of the digits read; UINT64_MAX: not a count */
    char key[24];
    uint8_t n_key; /* bytes of the key; greater than the size of `key`: an unknown key */
    uint8_t state; /* enum state of prompt_scan.c */
    uint8_t value; /* enum meaning: of the current or next value */
    uint8_t depth; /* number of open objects and lists in `frames` */
    uint8_t frames[PROMPT_SCAN_MAX_DEPTH]; /* enum meaning */
    bool in_system;
    bool system_seen;
    bool in_required, has_required, is_true;
    size_t image_bytes, video_bytes; /* of the text that stands for one */
    bool has_media;                  /* a message has a picture, sound or video */
    uint64_t media_seed;             /* of the hashes of media */
    /* With `lists_items`: the hashes of the pictures, sounds and videos, each once, by their URL or
     * data alone. In the texts' arena. */
    bool lists_items;
    uint32_t n_items, items_cap;
    uint64_t *items;
    uint8_t *item_kinds; /* enum prompt_media of each, where it was found first */
    uint8_t n_role;
    char role[32]; /* of the open message */
    /* Of the string being read, and the sum over those of the open part. */
    uint64_t media, media_word, n_media, media_sum, item_sum;
    bool is_aside;      /* it says something about the picture: its detail, or its type */
    uint8_t media_kind; /* enum prompt_media: of the open part, or of the open list of hashes */
};

/* Starts. The texts grow in `arena`, which must outlive the scan. */
void prompt_scan_init(struct prompt_scan *scan, struct arena *arena, size_t max_bytes);
/* Scans the next bytes. Returns: scan->result; once that is not PROMPT_SCAN_MORE, further bytes
 * are ignored. */
enum prompt_scan_result prompt_scan_feed(struct prompt_scan *scan, struct str chunk);
/* Adds to the other text: of a body in another form. */
void prompt_scan_add_text(struct prompt_scan *scan, struct str bytes);
void prompt_scan_add_token(struct prompt_scan *scan, uint32_t id);
/* The next bytes of a hash of a picture; `ended`: these are its last ones. */
void prompt_scan_add_hash(struct prompt_scan *scan, struct str bytes, bool ended);
/* The error for a client, of a body that has ended or of which further bytes are read otherwise.
 * Returns: ST_BAD_JSON, ST_BAD_FIELD. */
enum status prompt_scan_check(const struct prompt_scan *scan, bool ended,
                              struct error *err) SLUICE_MUST_USE;
/* The bytes of the system text, or of the other text, that were not taken before. The buffer is
 * empty then: the view is valid until the next bytes are scanned. */
struct str prompt_scan_take(struct prompt_scan *scan, bool system);
/* First bytes of the texts, taken or not. */
static inline size_t prompt_scan_text_bytes(const struct prompt_scan *scan) {
    return scan->n_text + scan->text.len;
}
static inline size_t prompt_scan_system_bytes(const struct prompt_scan *scan) {
    return scan->n_system + scan->system.len;
}
/* The first bytes are known: further ones only change the counts. */
static inline bool prompt_scan_is_full(const struct prompt_scan *scan) {
    return prompt_scan_system_bytes(scan) == scan->max_bytes ||
           (prompt_scan_text_bytes(scan) == scan->max_bytes &&
            (!scan->may_have_system || scan->system_seen));
}

#endif
