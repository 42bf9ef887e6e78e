/* What does a body ask a language model? A scan over the chunks of a JSON text, which may be cut
 * anywhere, for the text of the prompt: what model servers keep in their caches is found by how
 * prompts begin. No tree is made; what is kept is the text's first bytes and some numbers.
 *
 * It is the text of, in an object,
 *     "prompt"     of completions: a string, or a list of strings or of token ids
 *     "messages"   of chats: of each message its "role" and "content", a string or a list of parts,
 *                  of which those with a "text" count
 *     "system"     in Anthropic's interface: as a content. It comes before the messages, wherever
 *                  it stands, unless they fill the room that there is
 * with escapes decoded, so that blanks make no difference, nor how a character is written, nor
 * whether a text is a string or a part. Texts are put one behind the other, messages and texts of a
 * list with control characters between them. Pictures and calls of tools don't count.
 *
 * It refuses to be a parser, or to complain: of what is no such text nothing is known. */
#ifndef SLUICE_CODEC_PROMPT_PROMPT_SCAN_H
#define SLUICE_CODEC_PROMPT_PROMPT_SCAN_H

#include "codec/json/skip.h"
#include "codec/prompt/json_string_decoder.h"
#include "core/base/buf.h"

enum prompt_scan_result {
    PROMPT_SCAN_MORE,
    PROMPT_SCAN_END,  /* the object has ended: all of the prompt is known */
    PROMPT_SCAN_NONE, /* it is no JSON object, malformed, or ended too early; or out of memory */
};

/* A list of lists of tokens in a list is the deepest that is looked into. */
enum { PROMPT_SCAN_MAX_DEPTH = 6 };

struct prompt_scan {
    enum prompt_scan_result result;
    size_t max_bytes;    /* of each text that is kept */
    struct buf system;   /* the first bytes */
    struct buf text;     /* of all that is not `system` */
    uint64_t n_bytes;    /* of both, kept or not, as far as they were looked at, without tokens */
    uint64_t n_tokens;   /* token ids in lists, whose digits are in `text` */
    uint64_t max_tokens; /* "max_tokens", "max_completion_tokens": tokens to make; 0: not said */
    /* how far it is */
    struct json_skip skip;
    struct json_string_decoder string; /* of a string that is read */
    uint64_t number;                   /* of the digits so far; UINT64_MAX: it is no count */
    char key[24];
    uint8_t n_key; /* bytes of the key; more than `key` has: it is none of ours */
    uint8_t state; /* enum state of prompt_scan.c */
    uint8_t value; /* enum meaning: of the value that comes, or is being read */
    uint8_t depth; /* of the objects and lists that are looked into */
    uint8_t frames[PROMPT_SCAN_MAX_DEPTH]; /* enum meaning */
    bool in_system;
};

/* Starts. The texts grow in `arena`, which must outlive the scan. */
void prompt_scan_init(struct prompt_scan *scan, struct arena *arena, size_t max_bytes);
/* Looks at the next bytes. Returns: scan->result; once that is not PROMPT_SCAN_MORE, bytes make no
 * difference. */
enum prompt_scan_result prompt_scan_feed(struct prompt_scan *scan, struct str chunk);
/* As much of the text is kept as there is room for: more bytes only change the numbers. */
static inline bool prompt_scan_is_full(const struct prompt_scan *scan) {
    return scan->text.len == scan->max_bytes;
}

#endif
