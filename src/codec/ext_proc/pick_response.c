/* Written from its end, so that each length is known when its turn comes; and none of them is over
 * 127, so that each is one byte. */
#include "codec/ext_proc/pick_response.h"

#include "codec/ext_proc/fields.h"
#include "codec/ext_proc/struct.h"

enum {
    HEADER_OVERHEAD_BYTES = 8,  /* of HeaderValueOption, HeaderValue, key, raw_value: bytes around a
                                  header */
    HEADERS_OVERHEAD_BYTES = 6, /* of CommonResponse, HeaderMutation, and clear_route_cache */
    ENTRY_OVERHEAD_BYTES = 8,   /* of an entry, its key, its Value, the text in it */
    NAMESPACE_OVERHEAD_BYTES = 8, /* of an entry, its key, its Value, the Struct in it */
};

/* ---- is it one? ------------------------------------------------------------------------------ */

static bool mutation_is_short(const struct ext_proc_mutation *headers) {
    size_t n_bytes = HEADERS_OVERHEAD_BYTES;
    for (size_t i = 0; i < headers->n_set && n_bytes <= EXT_PROC_MAX_SHORT_FIELD_BYTES; i++) {
        const struct ext_proc_header *header = &headers->set[i];
        if (header->key.len == 0 || header->value.len == 0 ||
            header->value.len > EXT_PROC_MAX_SHORT_FIELD_BYTES ||
            header->key.len > EXT_PROC_MAX_SHORT_FIELD_BYTES) {
            return false;
        }
        n_bytes += HEADER_OVERHEAD_BYTES + header->key.len + header->value.len;
    }
    return headers->n_set > 0 && headers->n_remove == 0 &&
           n_bytes <= EXT_PROC_MAX_SHORT_FIELD_BYTES;
}

static bool metadata_is_short(const struct ext_proc_namespace *space) {
    size_t n_bytes = NAMESPACE_OVERHEAD_BYTES;
    if (space->name.len > EXT_PROC_MAX_SHORT_FIELD_BYTES) {
        return false;
    }
    n_bytes += space->name.len;
    for (size_t i = 0; i < space->n_entries && n_bytes <= EXT_PROC_MAX_SHORT_FIELD_BYTES; i++) {
        const struct ext_proc_entry *entry = &space->entries[i];
        if (entry->list || entry->key.len > EXT_PROC_MAX_SHORT_FIELD_BYTES ||
            entry->text.len > EXT_PROC_MAX_SHORT_FIELD_BYTES) {
            return false;
        }
        n_bytes += ENTRY_OVERHEAD_BYTES + entry->key.len + entry->text.len;
    }
    return n_bytes <= EXT_PROC_MAX_SHORT_FIELD_BYTES;
}

static bool is_pick_response(const struct ext_proc_response *response) {
    return (response->kind == EXT_PROC_REQUEST_HEADERS ||
            response->kind == EXT_PROC_RESPONSE_HEADERS) &&
           response->clear_route_cache && !response->continue_and_replace &&
           !response->mode_override && response->body_mutation == EXT_PROC_BODY_UNCHANGED &&
           response->n_metadata == 1 && mutation_is_short(&response->headers) &&
           metadata_is_short(response->metadata);
}

/* ---- writing --------------------------------------------------------------------------------- */

static char *prepend_tag(char *at, uint32_t number, size_t n_bytes) {
    *--at = (char)n_bytes;
    *--at = (char)(number << 3 | PB_BYTES);
    return at;
}

/* What is between `at` and `end` becomes the content of that field. */
static char *prepend_message_tag(char *at, const char *end, uint32_t number) {
    return prepend_tag(at, number, (size_t)(end - at));
}

static char *prepend_text(char *at, uint32_t number, struct str text) {
    at -= text.len;
    if (text.len > 0) {
        memcpy(at, text.ptr, text.len);
    }
    return prepend_tag(at, number, text.len);
}

static char *prepend_entry(char *end, const struct ext_proc_entry *entry) {
    char *at = prepend_text(end, EXT_PROC_F_VALUE_STRING, entry->text);
    at = prepend_message_tag(at, end, EXT_PROC_F_MAP_VALUE);
    at = prepend_text(at, EXT_PROC_F_MAP_KEY, entry->key);
    return prepend_message_tag(at, end, EXT_PROC_F_ENTRIES);
}

static char *prepend_namespace(char *end, const struct ext_proc_namespace *space) {
    char *at = end;
    for (size_t i = space->n_entries; i > 0; i--) {
        at = prepend_entry(at, &space->entries[i - 1]);
    }
    at = prepend_message_tag(at, end, EXT_PROC_F_VALUE_STRUCT);
    at = prepend_message_tag(at, end, EXT_PROC_F_MAP_VALUE);
    at = prepend_text(at, EXT_PROC_F_MAP_KEY, space->name);
    at = prepend_message_tag(at, end, EXT_PROC_F_ENTRIES);
    return prepend_message_tag(at, end, EXT_PROC_F_DYNAMIC_METADATA);
}

static char *prepend_header(char *end, const struct ext_proc_header *header) {
    char *at = prepend_text(end, EXT_PROC_F_HEADER_RAW_VALUE, header->value);
    at = prepend_text(at, EXT_PROC_F_HEADER_KEY, header->key);
    at = prepend_message_tag(at, end, EXT_PROC_F_OPTION_HEADER);
    return prepend_message_tag(at, end, EXT_PROC_F_SET_HEADERS);
}

static char *prepend_headers(char *end, const struct ext_proc_response *response) {
    char *at = end;
    *--at = 1;
    *--at = (char)(EXT_PROC_F_CLEAR_ROUTE_CACHE << 3 | PB_VARINT);
    const char *behind = at;
    for (size_t i = response->headers.n_set; i > 0; i--) {
        at = prepend_header(at, &response->headers.set[i - 1]);
    }
    at = prepend_message_tag(at, behind, EXT_PROC_F_HEADER_MUTATION);
    at = prepend_message_tag(at, end, EXT_PROC_F_RESPONSE);
    return prepend_message_tag(at, end, (uint32_t)response->kind);
}

size_t ext_proc_pick_response_encode(const struct ext_proc_response *response, char *end) {
    if (!is_pick_response(response)) {
        return 0;
    }
    return (size_t)(end - prepend_headers(prepend_namespace(end, response->metadata), response));
}
