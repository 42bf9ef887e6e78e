/* Written from its end, so that each length is known when its turn comes; and none of them is over
 * 127, so that each is one byte. */
#include "codec/ext_proc/pick.h"

#include "codec/ext_proc/fields.h"
#include "codec/ext_proc/struct.h"

enum {
    HEADER_HEADS = 8, /* of HeaderValueOption, HeaderValue, key, raw_value: bytes around a header */
    HEADERS_HEADS = 6, /* of CommonResponse, HeaderMutation, and clear_route_cache */
    ENTRY_HEADS = 8,   /* of an entry, its key, its Value, the text in it */
    SPACE_HEADS = 8,   /* of an entry, its key, its Value, the Struct in it */
};

/* ---- is it one? ------------------------------------------------------------------------------ */

static bool sets_a_little(const struct ext_proc_mutation *headers) {
    size_t n_bytes = HEADERS_HEADS;
    for (size_t i = 0; i < headers->n_set && n_bytes <= EXT_PROC_MOST_PART_BYTES; i++) {
        const struct ext_proc_header *header = &headers->set[i];
        if (header->key.len == 0 || header->value.len == 0 ||
            header->value.len > EXT_PROC_MOST_PART_BYTES ||
            header->key.len > EXT_PROC_MOST_PART_BYTES) {
            return false;
        }
        n_bytes += HEADER_HEADS + header->key.len + header->value.len;
    }
    return headers->n_set > 0 && headers->n_remove == 0 && n_bytes <= EXT_PROC_MOST_PART_BYTES;
}

static bool tells_a_little(const struct ext_proc_space *space) {
    size_t n_bytes = SPACE_HEADS;
    if (space->name.len > EXT_PROC_MOST_PART_BYTES) {
        return false;
    }
    n_bytes += space->name.len;
    for (size_t i = 0; i < space->n_entries && n_bytes <= EXT_PROC_MOST_PART_BYTES; i++) {
        const struct ext_proc_entry *entry = &space->entries[i];
        if (entry->list || entry->key.len > EXT_PROC_MOST_PART_BYTES ||
            entry->text.len > EXT_PROC_MOST_PART_BYTES) {
            return false;
        }
        n_bytes += ENTRY_HEADS + entry->key.len + entry->text.len;
    }
    return n_bytes <= EXT_PROC_MOST_PART_BYTES;
}

static bool is_plain(const struct ext_proc_answer *answer) {
    return (answer->kind == EXT_PROC_REQUEST_HEADERS ||
            answer->kind == EXT_PROC_RESPONSE_HEADERS) &&
           answer->clear_route_cache && !answer->replaces && !answer->mode_override &&
           answer->body_change == EXT_PROC_BODY_KEPT && answer->n_metadata == 1 &&
           sets_a_little(&answer->headers) && tells_a_little(answer->metadata);
}

/* ---- writing --------------------------------------------------------------------------------- */

static char *put_before(char *at, uint32_t number, size_t n_bytes) {
    *--at = (char)n_bytes;
    *--at = (char)(number << 3 | PB_BYTES);
    return at;
}

/* What is between `at` and `end` becomes the content of that field. */
static char *wrap(char *at, const char *end, uint32_t number) {
    return put_before(at, number, (size_t)(end - at));
}

static char *put_text(char *at, uint32_t number, struct str text) {
    at -= text.len;
    if (text.len > 0) {
        memcpy(at, text.ptr, text.len);
    }
    return put_before(at, number, text.len);
}

static char *put_entry(char *end, const struct ext_proc_entry *entry) {
    char *at = put_text(end, EXT_PROC_F_VALUE_STRING, entry->text);
    at = wrap(at, end, EXT_PROC_F_MAP_VALUE);
    at = put_text(at, EXT_PROC_F_MAP_KEY, entry->key);
    return wrap(at, end, EXT_PROC_F_ENTRIES);
}

static char *put_space(char *end, const struct ext_proc_space *space) {
    char *at = end;
    for (size_t i = space->n_entries; i > 0; i--) {
        at = put_entry(at, &space->entries[i - 1]);
    }
    at = wrap(at, end, EXT_PROC_F_VALUE_STRUCT);
    at = wrap(at, end, EXT_PROC_F_MAP_VALUE);
    at = put_text(at, EXT_PROC_F_MAP_KEY, space->name);
    at = wrap(at, end, EXT_PROC_F_ENTRIES);
    return wrap(at, end, EXT_PROC_F_DYNAMIC_METADATA);
}

static char *put_header(char *end, const struct ext_proc_header *header) {
    char *at = put_text(end, EXT_PROC_F_HEADER_RAW_VALUE, header->value);
    at = put_text(at, EXT_PROC_F_HEADER_KEY, header->key);
    at = wrap(at, end, EXT_PROC_F_OPTION_HEADER);
    return wrap(at, end, EXT_PROC_F_SET_HEADERS);
}

static char *put_headers(char *end, const struct ext_proc_answer *answer) {
    char *at = end;
    *--at = 1;
    *--at = (char)(EXT_PROC_F_CLEAR_ROUTE_CACHE << 3 | PB_VARINT);
    const char *behind = at;
    for (size_t i = answer->headers.n_set; i > 0; i--) {
        at = put_header(at, &answer->headers.set[i - 1]);
    }
    at = wrap(at, behind, EXT_PROC_F_HEADER_MUTATION);
    at = wrap(at, end, EXT_PROC_F_RESPONSE);
    return wrap(at, end, (uint32_t)answer->kind);
}

size_t ext_proc_pick_print(const struct ext_proc_answer *answer, char *end) {
    if (!is_plain(answer)) {
        return 0;
    }
    return (size_t)(end - put_headers(put_space(end, answer->metadata), answer));
}
