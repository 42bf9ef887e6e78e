/* ProcessingResponse is written into one block, in the order of the field numbers. The body is not
 * copied: the block has a cut at its place, and the lengths around the cut include the body's
 * bytes. */
#include "codec/ext_proc/response.h"

#include <inttypes.h>

#include "codec/ext_proc/fields.h"

/* ---- the response with a pick ---------------------------------------------------------------- */

/* Most responses set headers and metadata for one pick and little else. Writing them directly takes
 * a third of the time of the general encoder. The message is written backwards, so each length is
 * known when it is written; no length is above 127, so each is one byte. */

/* Maximum: two fields with their heads. */
enum { MAX_SHORT_FIELD_BYTES = 127, MAX_PICK_RESPONSE_BYTES = 2 * (2 + MAX_SHORT_FIELD_BYTES) };

enum {
    HEADER_OVERHEAD_BYTES = 8,  /* bytes around a header: HeaderValueOption, HeaderValue, key,
                                   raw_value */
    HEADERS_OVERHEAD_BYTES = 6, /* around all headers: CommonResponse, HeaderMutation, and
                                   clear_route_cache */
    ENTRY_OVERHEAD_BYTES = 8,   /* around an entry: the entry, its key, its Value, the text in it */
    NAMESPACE_OVERHEAD_BYTES = 8, /* around a namespace: the entry, its key, its Value, the Struct
                                     in it */
};

/* ---- does it apply? -------------------------------------------------------------------------- */

static bool mutation_is_short(const struct ext_proc_mutation *headers) {
    size_t n_bytes = HEADERS_OVERHEAD_BYTES;
    for (size_t i = 0; i < headers->n_set && n_bytes <= MAX_SHORT_FIELD_BYTES; i++) {
        const struct ext_proc_header *header = &headers->set[i];
        if (header->key.len == 0 || header->value.len == 0 ||
            header->value.len > MAX_SHORT_FIELD_BYTES || header->key.len > MAX_SHORT_FIELD_BYTES) {
            return false;
        }
        n_bytes += HEADER_OVERHEAD_BYTES + header->key.len + header->value.len;
    }
    return headers->n_set > 0 && headers->n_remove == 0 && n_bytes <= MAX_SHORT_FIELD_BYTES;
}

static bool metadata_is_short(const struct ext_proc_namespace *space) {
    size_t n_bytes = NAMESPACE_OVERHEAD_BYTES;
    if (space->name.len > MAX_SHORT_FIELD_BYTES) {
        return false;
    }
    n_bytes += space->name.len;
    for (size_t i = 0; i < space->n_entries && n_bytes <= MAX_SHORT_FIELD_BYTES; i++) {
        const struct ext_proc_entry *entry = &space->entries[i];
        if (entry->list || entry->numbers || entry->key.len > MAX_SHORT_FIELD_BYTES ||
            entry->text.len > MAX_SHORT_FIELD_BYTES) {
            return false;
        }
        n_bytes += ENTRY_OVERHEAD_BYTES + entry->key.len + entry->text.len;
    }
    return n_bytes <= MAX_SHORT_FIELD_BYTES;
}

/* ---- writing --------------------------------------------------------------------------------- */

static char *prepend_tag(char *at, uint32_t number, size_t n_bytes) {
    *--at = (char)n_bytes;
    *--at = (char)(number << 3 | PB_BYTES);
    return at;
}

/* Makes the bytes from `at` to `end` the content of field `number`. */
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

static char *prepend_namespace(char *end, const struct ext_proc_namespace *space) {
    char *at = end;
    for (size_t i = space->n_entries; i > 0; i--) {
        const struct ext_proc_entry *entry = &space->entries[i - 1];
        const char *after = at;
        at = prepend_text(at, EXT_PROC_F_VALUE_STRING, entry->text);
        at = prepend_message_tag(at, after, EXT_PROC_F_MAP_VALUE);
        at = prepend_text(at, EXT_PROC_F_MAP_KEY, entry->key);
        at = prepend_message_tag(at, after, EXT_PROC_F_ENTRIES);
    }
    at = prepend_message_tag(at, end, EXT_PROC_F_VALUE_STRUCT);
    at = prepend_message_tag(at, end, EXT_PROC_F_MAP_VALUE);
    at = prepend_text(at, EXT_PROC_F_MAP_KEY, space->name);
    at = prepend_message_tag(at, end, EXT_PROC_F_ENTRIES);
    return prepend_message_tag(at, end, EXT_PROC_F_DYNAMIC_METADATA);
}

static char *prepend_headers(char *end, const struct ext_proc_response *response) {
    char *at = end;
    *--at = 1;
    *--at = (char)(EXT_PROC_F_CLEAR_ROUTE_CACHE << 3 | PB_VARINT);
    const char *after = at;
    for (size_t i = response->headers.n_set; i > 0; i--) {
        const struct ext_proc_header *header = &response->headers.set[i - 1];
        const char *end_of_header = at;
        at = prepend_text(at, EXT_PROC_F_HEADER_RAW_VALUE, header->value);
        at = prepend_text(at, EXT_PROC_F_HEADER_KEY, header->key);
        at = prepend_message_tag(at, end_of_header, EXT_PROC_F_OPTION_HEADER);
        at = prepend_message_tag(at, end_of_header, EXT_PROC_F_SET_HEADERS);
    }
    at = prepend_message_tag(at, after, EXT_PROC_F_HEADER_MUTATION);
    at = prepend_message_tag(at, end, EXT_PROC_F_RESPONSE);
    return prepend_message_tag(at, end, (uint32_t)response->kind);
}

/* Writes the bytes that the general encoder gives, ending at `end`, if the response is one to
 * headers that sets headers and clears the route cache, with metadata of one namespace, each
 * below 128 bytes. Returns: number of bytes; 0: the response is of another form. */
static size_t pick_response_encode(const struct ext_proc_response *response, char *end) {
    bool is_of_headers =
        response->kind == EXT_PROC_REQUEST_HEADERS || response->kind == EXT_PROC_RESPONSE_HEADERS;
    if (!is_of_headers || !response->clear_route_cache || response->continue_and_replace ||
        response->mode_override || response->body_mutation != EXT_PROC_BODY_UNCHANGED ||
        response->n_metadata != 1 || !mutation_is_short(&response->headers) ||
        !metadata_is_short(response->metadata)) {
        return 0;
    }
    return (size_t)(end - prepend_headers(prepend_namespace(end, response->metadata), response));
}

enum {
    FIRST_BYTES = 256, /* a pick fits */
    /* protobuf's own limit: larger messages can't be parsed */
    MOST_MESSAGE_BYTES = INT32_MAX,
};

/* ---- parts of several messages --------------------------------------------------------------- */

static void add_true(struct buf *out, uint32_t number, bool value) {
    if (value) {
        pb_add_varint(out, number, 1);
    }
}

/* HeaderMutation; omitted if empty. */
static void add_mutation(struct buf *out, uint32_t number,
                         const struct ext_proc_mutation *mutation) {
    if (mutation->n_set == 0 && mutation->n_remove == 0) {
        return;
    }
    size_t start = pb_begin(out, number);
    for (size_t i = 0; i < mutation->n_set; i++) {
        size_t option = pb_begin(out, EXT_PROC_F_SET_HEADERS);
        size_t header = pb_begin(out, EXT_PROC_F_OPTION_HEADER);
        pb_add_string(out, EXT_PROC_F_HEADER_KEY, mutation->set[i].key);
        pb_add_string(out, EXT_PROC_F_HEADER_RAW_VALUE, mutation->set[i].value);
        pb_end(out, header);
        pb_end(out, option);
    }
    for (size_t i = 0; i < mutation->n_remove; i++) {
        pb_add_bytes(out, EXT_PROC_F_REMOVE_HEADERS, mutation->remove[i]);
    }
    pb_end(out, start);
}

/* Clause: "Destination Endpoint", 2: wrapped in the namespace's key. */
static void add_metadata(struct buf *out, const struct ext_proc_namespace *spaces, size_t n) {
    if (n == 0) {
        return;
    }
    size_t start = pb_begin(out, EXT_PROC_F_DYNAMIC_METADATA);
    ext_proc_struct_add(out, EXT_PROC_F_ENTRIES, spaces, n, true);
    pb_end(out, start);
}

static void add_modes(struct buf *out, const struct ext_proc_processing_mode *modes) {
    size_t start = pb_begin(out, EXT_PROC_F_MODE_OVERRIDE);
    pb_add_number(out, EXT_PROC_F_REQUEST_HEADER_MODE, modes->request_headers);
    pb_add_number(out, EXT_PROC_F_RESPONSE_HEADER_MODE, modes->response_headers);
    pb_add_number(out, EXT_PROC_F_MODE_REQUEST_BODY, modes->request_body);
    pb_add_number(out, EXT_PROC_F_MODE_RESPONSE_BODY, modes->response_body);
    pb_add_number(out, EXT_PROC_F_REQUEST_TRAILER_MODE, modes->request_trailers);
    pb_add_number(out, EXT_PROC_F_RESPONSE_TRAILER_MODE, modes->response_trailers);
    pb_end(out, start);
}

/* ---- a message around a body ----------------------------------------------------------------- */

struct message {
    struct buf block;
    size_t cut;      /* offset of the body in the message */
    uint64_t n_body; /* size of the body */
};

static void end_field(struct message *message, size_t start) {
    pb_end_scattered(&message->block, start, &message->cut, message->n_body);
}

static void add_body_mutation(struct message *message, const struct ext_proc_response *response) {
    struct buf *out = &message->block;
    size_t start = pb_begin(out, EXT_PROC_F_BODY_MUTATION), streamed;
    switch (response->body_mutation) {
    case EXT_PROC_BODY_UNCHANGED:
        break;
    case EXT_PROC_BODY_REPLACED: /* member of a oneof: written even if empty */
        pb_add_head(out, EXT_PROC_F_MUTATION_BODY, message->n_body);
        message->cut = out->len;
        break;
    case EXT_PROC_BODY_CLEARED:
        add_true(out, EXT_PROC_F_MUTATION_CLEAR, true);
        break;
    case EXT_PROC_BODY_STREAMED_RESPONSE:
        streamed = pb_begin(out, EXT_PROC_F_MUTATION_STREAMED);
        if (message->n_body > 0) {
            pb_add_head(out, EXT_PROC_F_BODY, message->n_body);
            message->cut = out->len;
        }
        add_true(out, EXT_PROC_F_BODY_END, response->end_of_stream);
        add_true(out, EXT_PROC_F_BODY_END_WITHOUT_MESSAGE, response->end_without_message);
        add_true(out, EXT_PROC_F_BODY_COMPRESSED, response->is_compressed);
        end_field(message, streamed);
        break;
    }
    end_field(message, start);
}

static void add_common(struct message *message, const struct ext_proc_response *response) {
    struct buf *out = &message->block;
    size_t start = pb_begin(out, EXT_PROC_F_RESPONSE);
    add_true(out, EXT_PROC_F_STATUS, response->continue_and_replace);
    add_mutation(out, EXT_PROC_F_HEADER_MUTATION, &response->headers);
    if (response->body_mutation != EXT_PROC_BODY_UNCHANGED) {
        add_body_mutation(message, response);
    }
    add_true(out, EXT_PROC_F_CLEAR_ROUTE_CACHE, response->clear_route_cache);
    end_field(message, start);
}

static void add_response(struct message *message, const struct ext_proc_response *response) {
    struct buf *out = &message->block;
    size_t start = pb_begin(out, (uint32_t)response->kind);
    if (response->kind == EXT_PROC_REQUEST_TRAILERS ||
        response->kind == EXT_PROC_RESPONSE_TRAILERS) {
        add_mutation(out, EXT_PROC_F_RESPONSE, &response->headers);
        pb_end(out, start);
    } else {
        add_common(message, response);
        end_field(message, start);
    }
    add_metadata(out, response->metadata, response->n_metadata);
    if (response->mode_override) {
        add_modes(out, response->mode_override);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Lists the pieces: the block, and in its cut the body. */
static enum status gather_pieces(struct arena *arena, const struct message *message,
                                 const struct piece *body, size_t n_body,
                                 struct ext_proc_message *out, struct error *err) {
    const struct buf *block = &message->block;
    uint64_t n_bytes = message->n_body + block->len;
    struct piece *pieces = arena_alloc(arena, (n_body + 2) * sizeof(*pieces));
    size_t n = 0;
    if (n_bytes > MOST_MESSAGE_BYTES) {
        return error_set(err, ST_BAD_OUTPUT,
                         "the answer has %" PRIu64 " bytes, a gRPC message at most %d", n_bytes,
                         (int)MOST_MESSAGE_BYTES);
    }
    if (!pieces || block->failed) {
        return error_no_memory(err, "the answer");
    }
    if (message->n_body > 0) {
        pieces[n++] = (struct piece){block->data, message->cut};
        for (size_t i = 0; i < n_body; i++) {
            pieces[n++] = body[i];
        }
    }
    if (block->len > message->cut) {
        pieces[n++] = (struct piece){block->data + message->cut, block->len - message->cut};
    }
    *out = (struct ext_proc_message){pieces, n, n_bytes};
    return ST_OK;
}

/* Encodes a pick with one allocation. Returns: false if the response is of another form, or out
 * of memory. */
static bool encode_pick(struct arena *arena, const struct ext_proc_response *response,
                        struct ext_proc_message *out) {
    struct block {
        struct piece piece;
        char bytes[MAX_PICK_RESPONSE_BYTES];
    } *block = arena_alloc(arena, sizeof(*block));
    char *end = block ? block->bytes + sizeof(block->bytes) : NULL;
    size_t n = block ? pick_response_encode(response, end) : 0;
    if (n > 0) {
        block->piece = (struct piece){end - n, n};
        *out = (struct ext_proc_message){&block->piece, 1, n};
    }
    return n > 0;
}

enum status ext_proc_response_encode(struct arena *arena, const struct ext_proc_response *response,
                                     struct ext_proc_message *out, struct error *err) {
    struct message message = {.cut = 0};
    if (response->n_metadata > 0 && encode_pick(arena, response, out)) {
        return ST_OK;
    }
    bool has_body = response->body_mutation == EXT_PROC_BODY_REPLACED ||
                    response->body_mutation == EXT_PROC_BODY_STREAMED_RESPONSE;
    buf_init(&message.block, arena, FIRST_BYTES);
    for (size_t i = 0; has_body && i < response->n_body; i++) {
        message.n_body += response->body[i].n_bytes;
    }
    add_response(&message, response);
    if (message.n_body == 0) {
        message.cut = 0;
    }
    return gather_pieces(arena, &message, response->body, response->n_body, out, err);
}

enum status ext_proc_immediate_encode(struct arena *arena,
                                      const struct ext_proc_immediate *response,
                                      struct ext_proc_message *out, struct error *err) {
    struct message message = {.cut = 0};
    struct buf *block = &message.block;
    buf_init(block, arena, FIRST_BYTES);
    size_t start = pb_begin(block, EXT_PROC_F_IMMEDIATE);
    size_t status = pb_begin(block, EXT_PROC_F_IMMEDIATE_STATUS);
    pb_add_number(block, EXT_PROC_F_CODE, response->http_status);
    pb_end(block, status);
    add_mutation(block, EXT_PROC_F_IMMEDIATE_HEADERS, &response->headers);
    pb_add_string(block, EXT_PROC_F_IMMEDIATE_BODY, response->body);
    if (response->grpc_status != 0) {
        size_t grpc = pb_begin(block, EXT_PROC_F_IMMEDIATE_GRPC_STATUS);
        pb_add_number(block, EXT_PROC_F_CODE, response->grpc_status);
        pb_end(block, grpc);
    }
    pb_add_string(block, EXT_PROC_F_IMMEDIATE_DETAILS, response->details);
    pb_end(block, start);
    add_metadata(block, response->metadata, response->n_metadata);
    return gather_pieces(arena, &message, NULL, 0, out, err);
}
