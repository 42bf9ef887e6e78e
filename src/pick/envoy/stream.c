/* Parts are read from Envoy, the session decides, and its response is applied. Memory that a part
 * needs is the stream's, except for lists of pieces of a body, of which there may be many. */
#include "pick/envoy/stream.h"

#include <stdlib.h>
#include <string.h>

#include "codec/ext_proc/parts.h"
#include "codec/grpc/text.h"
#include "core/base/buf.h"
#include "core/base/compiler.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"
#include "core/event/clock.h"

/* As many headers, or pieces of a body, need no memory. */
enum { FEW = 48 };
/* Of a body that a client has sent before it sees a reply, most likely. */
enum { SMALL_BODY_BYTES = 1 << 16 };
/* What Envoy's buffer takes beyond the body itself. */
enum { BUFFER_SPARE_BYTES = 1 << 16 };

/* A body is read for so long, and so much of it is scanned, before others have a turn; the time is
 * looked at after each piece, from some bytes on. */
enum { TURN_BYTES = 128 << 10, UNTIMED_BYTES = 16 << 10 };
static const uint64_t TURN_NS = 200000;

struct envoy_reply {
    uint32_t http_status, grpc_status; /* grpc_status 0: the client does not speak gRPC */
    struct envoy_header *headers;
    size_t n_headers;
    struct str body, details;
};

static struct str str_of_envoy(struct envoy_text text) {
    return str_make(text.ptr ? text.ptr : "", text.n_bytes);
}

static struct envoy_text envoy_of_str(struct str text) {
    return (struct envoy_text){text.ptr ? text.ptr : "", text.len};
}

/* ---- replies --------------------------------------------------------------------------------- */

static struct str dup_text(struct arena *arena, struct str text) {
    struct str copy = arena_dup(arena, text.ptr ? text : STR(""));
    return copy.ptr ? copy : STR("");
}

/* Without memory the reply has fewer headers and texts. */
static void set_reply(struct envoy_stream *stream, const struct ext_proc_immediate *immediate) {
    struct arena *arena = stream->arena;
    static struct envoy_reply no_memory = {.http_status = 503, .body = {"", 0}, .details = {"", 0}};
    struct envoy_reply *reply = arena_calloc(arena, 1, sizeof(*reply));
    size_t n = immediate->headers.n_set;
    stream->reply = reply ? reply : &no_memory;
    if (!reply) {
        return;
    }
    reply->http_status = immediate->http_status;
    reply->grpc_status = immediate->grpc_status;
    reply->headers = arena_calloc(arena, n, sizeof(*reply->headers));
    reply->n_headers = reply->headers ? n : 0;
    for (size_t i = 0; i < reply->n_headers; i++) {
        struct str key = dup_text(arena, immediate->headers.set[i].key);
        struct str value = dup_text(arena, immediate->headers.set[i].value);
        reply->headers[i] = (struct envoy_header){key.ptr, key.len, value.ptr, value.len};
    }
    reply->body = dup_text(arena, immediate->body);
    reply->details = dup_text(arena, immediate->details);
}

/* The session could not respond: out of memory. */
static void fail(struct envoy_stream *stream, const struct error *why) {
    struct ext_proc_header type = {STR("content-type"), STR("application/json")};
    struct buf body;
    struct json_writer json = {.out = &body};
    buf_init(&body, stream->arena, 0);
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "error", str_of(why->text));
    json_write_close(&json, '}');
    if (!stream->reply && !stream->has_response) {
        set_reply(stream,
                  &(struct ext_proc_immediate){.http_status = (uint32_t)status_http(why->status),
                                               .headers = {.set = &type, .n_set = 1},
                                               .body = buf_str(&body),
                                               .details = STR("sluice")});
    }
}

static struct envoy_header text_header(const char *key, struct str value) {
    return (struct envoy_header){key, strlen(key), value.ptr, value.len};
}

/* Envoy would make another grpc-status of the HTTP status. */
static bool send_grpc_reply(const struct envoy_stream *stream, const struct envoy_reply *reply) {
    size_t n = reply->n_headers + 4;
    struct envoy_header *headers = arena_calloc(stream->arena, n, sizeof(*headers));
    struct str status = arena_printf(stream->arena, "%u", reply->grpc_status);
    struct buf message;
    buf_init(&message, stream->arena, reply->body.len + 1);
    grpc_status_message_print(&message, reply->body);
    if (!headers || !status.ptr || message.failed) {
        return false;
    }
    headers[0] = text_header(":status", STR("200"));
    headers[1] = text_header("content-type", STR("application/grpc"));
    headers[2] = text_header("grpc-status", status);
    headers[3] = text_header("grpc-message", buf_str(&message));
    for (size_t i = 0; i < reply->n_headers; i++) {
        headers[4 + i] = reply->headers[i];
    }
    envoy_dynamic_module_callback_http_send_response_headers(stream->filter, headers, n, true);
    return true;
}

/* Envoy resets a request whose response has begun. The stream may be destroyed, but for its
 * memory. */
static void send_reply(struct envoy_stream *stream) {
    const struct envoy_reply *reply = stream->reply;
    if (stream->has_replied) {
        return;
    }
    stream->has_replied = true;
    if (reply->grpc_status > 0 && !stream->has_response && send_grpc_reply(stream, reply)) {
        return;
    }
    envoy_dynamic_module_callback_http_send_response(
        stream->filter, reply->http_status, reply->headers, reply->n_headers,
        envoy_of_str(reply->body), envoy_of_str(reply->details));
}

/* ---- callbacks of the session ---------------------------------------------------------------- */

static enum envoy_header_map map_of(enum ext_proc_kind kind) {
    switch (kind) {
    case EXT_PROC_RESPONSE_HEADERS:
    case EXT_PROC_RESPONSE_BODY:
        return ENVOY_RESPONSE_HEADERS;
    case EXT_PROC_REQUEST_TRAILERS:
        return ENVOY_REQUEST_TRAILERS;
    case EXT_PROC_RESPONSE_TRAILERS:
        return ENVOY_RESPONSE_TRAILERS;
    case EXT_PROC_NONE:
    case EXT_PROC_REQUEST_HEADERS:
    case EXT_PROC_REQUEST_BODY:
        break;
    }
    return ENVOY_REQUEST_HEADERS;
}

static void change_headers(void *filter, const struct ext_proc_response *response) {
    enum envoy_header_map map = map_of(response->kind);
    static const struct envoy_text nothing = {NULL, 0};
    for (size_t i = 0; i < response->headers.n_remove; i++) {
        (void)envoy_dynamic_module_callback_http_set_header(
            filter, map, envoy_of_str(response->headers.remove[i]), nothing);
    }
    for (size_t i = 0; i < response->headers.n_set; i++) {
        const struct ext_proc_header *header = &response->headers.set[i];
        (void)envoy_dynamic_module_callback_http_set_header(filter, map, envoy_of_str(header->key),
                                                            envoy_of_str(header->value));
    }
}

/* All entries of a namespace, where one is more than a text. Out of memory they are left out. */
static void set_struct(const struct envoy_stream *stream, const struct ext_proc_namespace *space) {
    struct str bytes = ext_proc_struct_make(stream->arena, space);
    if (bytes.ptr) {
        envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(
            stream->filter, envoy_of_str(space->name), envoy_of_str(bytes));
    }
}

static void set_metadata(const struct envoy_stream *stream,
                         const struct ext_proc_namespace *space) {
    for (size_t i = 0; i < space->n_entries; i++) {
        if (space->entries[i].list || space->entries[i].numbers) {
            set_struct(stream, space);
            return;
        }
    }
    for (size_t i = 0; i < space->n_entries; i++) {
        envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
            stream->filter, envoy_of_str(space->name), envoy_of_str(space->entries[i].key),
            envoy_of_str(space->entries[i].text));
    }
}

/* For a cluster with a list of hosts, which takes the endpoint; others use the header. An endpoint
 * that is not in the list is left to the cluster's policy. With a fallback that policy goes through
 * header and metadata, an address for each attempt: to set the first one here too would be one
 * attempt more at it. */
static void override_host(void *filter, const struct ext_proc_response *response) {
    const struct ext_proc_namespace *space = response->n_metadata > 0 ? response->metadata : NULL;
    if (response->kind != EXT_PROC_REQUEST_HEADERS || !space || space->n_entries == 0) {
        return;
    }
    struct str others = space->entries[0].text;
    struct str endpoint = str_cut(&others, ',');
    bool has_fallback = others.len > 0 || (space->n_entries > 1 && space->entries[1].text.ptr);
    if (!has_fallback && endpoint.len > 0) {
        (void)envoy_dynamic_module_callback_http_set_upstream_override_host(
            filter, envoy_of_str(endpoint), false);
    }
}

static void on_respond(void *user, const struct ext_proc_response *response,
                       const struct pick_edits *edits) {
    struct envoy_stream *stream = user;
    change_headers(stream->filter, response);
    for (size_t i = 0; i < response->n_metadata; i++) {
        set_metadata(stream, &response->metadata[i]);
    }
    if (response->clear_route_cache) {
        override_host(stream->filter, response);
        envoy_dynamic_module_callback_http_clear_route_cache(stream->filter);
    }
    if (edits) {
        stream->edits = *edits;
    }
}

static void on_respond_immediate(void *user, const struct ext_proc_immediate *response) {
    struct envoy_stream *stream = user;
    if (!stream->reply) {
        set_reply(stream, response);
    }
}

static void on_finish(void *user, const struct error *err) {
    struct envoy_stream *stream = user;
    if (err) {
        stream->code = status_grpc(err->status);
        fail(stream, err);
    }
}

/* The time in the queue has a metric of its own and does not count as the pick's. */
static void on_resumed(void *user) {
    struct envoy_stream *stream = user;
    stream->shared.message_ns = 0;
    envoy_stream_note_resumed(stream);
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Returns: ST_NO_MEMORY. */
static enum status read_headers(const struct envoy_stream *stream, enum envoy_header_map map,
                                struct ext_proc_headers *out, struct error *err) {
    size_t n = envoy_dynamic_module_callback_http_get_headers_size(stream->filter, map);
    struct envoy_header few_given[FEW], *given = few_given;
    struct ext_proc_header few_headers[FEW], *headers = few_headers;
    if (n > FEW) {
        given = arena_calloc(stream->arena, n, sizeof(*given));
        headers = arena_calloc(stream->arena, n, sizeof(*headers));
    }
    if (!given || !headers) {
        return error_no_memory(err, "a request's headers");
    }
    if (n > 0 && !envoy_dynamic_module_callback_http_get_headers(stream->filter, map, given)) {
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        headers[i] = (struct ext_proc_header){
            str_make(given[i].key ? given[i].key : "", given[i].n_key),
            str_make(given[i].value ? given[i].value : "", given[i].n_value)};
    }
    return ext_proc_headers_make(stream->arena, headers, n, out, err);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum status no_memory_for_metadata(struct error *err) {
    return error_no_memory(err, "a request's metadata");
}

/* A list of texts; items of other types are left out. */
static enum status read_list(const struct envoy_stream *stream, struct envoy_text space,
                             struct envoy_text key, size_t n, struct ext_proc_entry *out,
                             struct error *err) {
    struct str *items = arena_calloc(stream->arena, n + 1, sizeof(*items));
    if (!items) {
        return no_memory_for_metadata(err);
    }
    out->list = items;
    for (size_t i = 0; i < n; i++) {
        struct envoy_text text;
        if (envoy_dynamic_module_callback_http_get_metadata_list_string(
                stream->filter, ENVOY_METADATA_DYNAMIC, space, key, i, &text)) {
            items[out->n_list++] = str_of_envoy(text);
        }
    }
    return ST_OK;
}

/* Returns: whether the value has a type that the picker reads, in *has; ST_NO_MEMORY. */
static enum status read_entry(const struct envoy_stream *stream, struct envoy_text space,
                              struct envoy_text key, struct ext_proc_entry *out, bool *has,
                              struct error *err) {
    void *filter = stream->filter;
    struct envoy_text text;
    size_t n = 0;
    double number = 0;
    *out = (struct ext_proc_entry){.key = str_of_envoy(key)};
    *has = true;
    if (envoy_dynamic_module_callback_http_get_metadata_string(filter, ENVOY_METADATA_DYNAMIC,
                                                               space, key, &text)) {
        out->text = str_of_envoy(text);
        return ST_OK;
    }
    if (envoy_dynamic_module_callback_http_get_metadata_list_size(filter, ENVOY_METADATA_DYNAMIC,
                                                                  space, key, &n)) {
        return read_list(stream, space, key, n, out, err);
    }
    if (envoy_dynamic_module_callback_http_get_metadata_number(filter, ENVOY_METADATA_DYNAMIC,
                                                               space, key, &number)) {
        struct ext_proc_number *one = arena_calloc(stream->arena, 1, sizeof(*one));
        if (!one) {
            return no_memory_for_metadata(err);
        }
        one->number = number;
        out->numbers = one;
        out->n_list = 1;
        return ST_OK;
    }
    *has = false;
    return ST_OK;
}

static enum status read_namespace(const struct envoy_stream *stream, struct envoy_text name,
                                  struct ext_proc_namespace *out, struct error *err) {
    size_t n = envoy_dynamic_module_callback_http_get_metadata_keys_count(
        stream->filter, ENVOY_METADATA_DYNAMIC, name);
    struct envoy_text *keys = arena_calloc(stream->arena, n + 1, sizeof(*keys));
    struct ext_proc_entry *entries = arena_calloc(stream->arena, n + 1, sizeof(*entries));
    if (!keys || !entries) {
        return no_memory_for_metadata(err);
    }
    *out = (struct ext_proc_namespace){.name = str_of_envoy(name), .entries = entries};
    if (n > 0 && !envoy_dynamic_module_callback_http_get_metadata_keys(
                     stream->filter, ENVOY_METADATA_DYNAMIC, name, keys)) {
        n = 0;
    }
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        bool has;
        st = read_entry(stream, name, keys[i], &entries[out->n_entries], &has, err);
        out->n_entries += has;
    }
    return st;
}

/* All namespaces: the pools' configuration says which are used. Returns: ST_NO_MEMORY. */
static enum status read_metadata(const struct envoy_stream *stream, struct str *out,
                                 struct error *err) {
    size_t n = envoy_dynamic_module_callback_http_get_metadata_namespaces_count(
        stream->filter, ENVOY_METADATA_DYNAMIC);
    *out = STR("");
    if (n == 0) {
        return ST_OK;
    }
    struct envoy_text *names = arena_calloc(stream->arena, n, sizeof(*names));
    struct ext_proc_namespace *spaces = arena_calloc(stream->arena, n, sizeof(*spaces));
    if (!names || !spaces) {
        return no_memory_for_metadata(err);
    }
    if (!envoy_dynamic_module_callback_http_get_metadata_namespaces(
            stream->filter, ENVOY_METADATA_DYNAMIC, names)) {
        return ST_OK;
    }
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = read_namespace(stream, names[i], &spaces[i], err);
    }
    if (st == ST_OK) {
        *out = ext_proc_metadata_make(stream->arena, spaces, n);
        st = out->ptr ? ST_OK : no_memory_for_metadata(err);
    }
    return st;
}

struct attributes {
    struct ext_proc_namespace space; /* of these entries */
    struct ext_proc_entry entries[4];
    struct ext_proc_number numbers[4];
    size_t n;
};

static void add_text_attribute(struct attributes *out, const struct envoy_stream *stream,
                               enum envoy_attribute attribute, struct str key) {
    struct envoy_text text;
    if (envoy_dynamic_module_callback_http_filter_get_attribute_string(stream->filter, attribute,
                                                                       &text)) {
        out->entries[out->n++] = (struct ext_proc_entry){.key = key, .text = str_of_envoy(text)};
    }
}

static void add_number_attribute(struct attributes *out, const struct envoy_stream *stream,
                                 enum envoy_attribute attribute, struct str key) {
    uint64_t number;
    if (envoy_dynamic_module_callback_http_filter_get_attribute_int(stream->filter, attribute,
                                                                    &number)) {
        out->numbers[out->n] = (struct ext_proc_number){.number = (double)number};
        out->entries[out->n] =
            (struct ext_proc_entry){.key = key, .numbers = &out->numbers[out->n], .n_list = 1};
        out->n++;
    }
}

/* What became of the request at its endpoint; those that Envoy does not know are left out. */
static void read_attributes(const struct envoy_stream *stream, struct attributes *out) {
    out->n = 0;
    add_text_attribute(out, stream, ENVOY_ATTRIBUTE_RESPONSE_DETAILS, STR("response.code_details"));
    add_text_attribute(out, stream, ENVOY_ATTRIBUTE_UPSTREAM_ADDRESS, STR("upstream.address"));
    add_number_attribute(out, stream, ENVOY_ATTRIBUTE_RESPONSE_FLAGS, STR("response.flags"));
    add_number_attribute(out, stream, ENVOY_ATTRIBUTE_UPSTREAM_ATTEMPTS,
                         STR("upstream.request_attempt_count"));
    out->space = (struct ext_proc_namespace){
        .name = STR("envoy.filters.http.ext_proc"), .entries = out->entries, .n_entries = out->n};
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void pass(struct envoy_stream *stream, const struct ext_proc_request *part) {
    struct pick_message message = {.data = part->fields.bytes};
    pick_stream_begin_step(&stream->shared, clock_now_ns());
    pick_session_on_part(stream->shared.session, part, &message);
    pick_stream_end_step(&stream->shared);
}

/* Headers or trailers. */
static void pass_fields(struct envoy_stream *stream, enum ext_proc_kind kind, bool is_end) {
    struct ext_proc_request part = {
        .kind = kind,
        .body = STR(""),
        .metadata = STR(""),
        .message = STR(""),
        .end_of_stream = is_end,
        .has_config = true,
        .config = {.request_body = EXT_PROC_BODY_FULL_DUPLEX,
                   .response_body = EXT_PROC_BODY_STREAMED},
    };
    struct attributes attributes;
    struct error err;
    if (read_headers(stream, map_of(kind), &part.fields, &err) != ST_OK ||
        (kind != EXT_PROC_RESPONSE_TRAILERS && /* which say nothing more */
         read_metadata(stream, &part.metadata, &err) != ST_OK)) {
        fail(stream, &err);
        return;
    }
    if (kind == EXT_PROC_RESPONSE_HEADERS) {
        read_attributes(stream, &attributes);
        part.attributes = &attributes.space;
    } else if (kind == EXT_PROC_REQUEST_HEADERS) {
        (void)num_parse_u64(ext_proc_header_find(&part.fields, STR("content-length")),
                            &stream->n_expected);
    }
    pass(stream, &part);
}

static void pass_body(struct envoy_stream *stream, enum ext_proc_kind kind, struct str bytes,
                      bool is_end) {
    pass(stream, &(struct ext_proc_request){.kind = kind,
                                            .fields = {.bytes = STR("")},
                                            .body = bytes,
                                            .metadata = STR(""),
                                            .message = STR(""),
                                            .end_of_stream = is_end});
}

/* The pieces of a body. `few`: an array of FEW. Returns: NULL when out of memory. Owns: the caller,
 * by free_pieces. */
static struct envoy_text *get_pieces(const struct envoy_stream *stream, enum envoy_body body,
                                     struct envoy_text *few, size_t *n) {
    *n = envoy_dynamic_module_callback_http_get_body_chunks_size(stream->filter, body);
    struct envoy_text *pieces = *n <= FEW ? few : calloc(*n, sizeof(*pieces));
    if (pieces && *n > 0 &&
        !envoy_dynamic_module_callback_http_get_body_chunks(stream->filter, body, pieces)) {
        *n = 0;
    }
    return pieces;
}

static void free_pieces(struct envoy_text *pieces, const struct envoy_text *few) {
    if (pieces != few) {
        free(pieces);
    }
}

/* Without memory for it the request waits for its next part. */
static bool has_scheduler(struct envoy_stream *stream) {
    if (!stream->scheduler) {
        stream->scheduler = envoy_dynamic_module_callback_http_filter_scheduler_new(stream->filter);
    }
    return stream->scheduler != NULL;
}

/* Before the next piece of the request's body. `begun_ns`: 0 until the time counts. */
static bool is_turn_over(struct envoy_stream *stream, uint64_t *begun_ns) {
    if (stream->turn_bytes < UNTIMED_BYTES || !pick_session_scans_body(stream->shared.session)) {
        return false;
    }
    uint64_t now_ns = clock_now_ns();
    *begun_ns = *begun_ns > 0 ? *begun_ns : now_ns;
    bool is_over =
        stream->turn_bytes >= TURN_BYTES || stream->turn_ns + now_ns - *begun_ns >= TURN_NS;
    return is_over && has_scheduler(stream);
}

static bool is_put_off(const struct envoy_stream *stream) {
    return stream->waits_for_turn || pick_session_is_queued(stream->shared.session);
}

/* Passes what follows the first `n_skipped` bytes of it, until the session needs no more, or others
 * have a turn. Returns: the number of bytes that were passed. */
static uint64_t pass_pieces(struct envoy_stream *stream, enum ext_proc_kind kind,
                            enum envoy_body body, uint64_t n_skipped, bool is_end) {
    struct envoy_text few[FEW];
    struct error err;
    uint64_t n_passed = 0, begun_ns = 0;
    size_t n;
    struct envoy_text *pieces = get_pieces(stream, body, few, &n);
    if (!pieces) {
        (void)error_no_memory(&err, "a part of a body");
        fail(stream, &err);
        return 0;
    }
    for (size_t i = 0; i < n && !stream->reply; i++) {
        struct str bytes = str_of_envoy(pieces[i]);
        size_t n_cut = bytes.len < n_skipped ? bytes.len : (size_t)n_skipped;
        n_skipped -= n_cut;
        bytes = str_make(bytes.ptr + n_cut, bytes.len - n_cut);
        if (bytes.len > 0 && kind == EXT_PROC_REQUEST_BODY && !is_put_off(stream)) {
            stream->waits_for_turn = is_turn_over(stream, &begun_ns);
            stream->turn_bytes += bytes.len;
        }
        if (bytes.len > 0 && !is_put_off(stream)) {
            pass_body(stream, kind, bytes, is_end && i + 1 == n);
            n_passed += bytes.len;
            is_end = is_end && i + 1 < n;
        }
    }
    if (is_end && !stream->reply && !is_put_off(stream)) {
        pass_body(stream, kind, STR(""), true);
        is_end = false;
    }
    free_pieces(pieces, few);
    if (kind == EXT_PROC_REQUEST_BODY) {
        stream->is_body_ended = is_end;
        stream->turn_ns += begun_ns > 0 ? clock_now_ns() - begun_ns : 0;
    }
    return n_passed;
}

/* ---- edits ----------------------------------------------------------------------------------- */

static void add_pieces(const struct envoy_stream *stream, enum envoy_body body, struct buf *out) {
    struct envoy_text few[FEW];
    size_t n;
    struct envoy_text *pieces = get_pieces(stream, body, few, &n);
    out->failed = out->failed || !pieces;
    for (size_t i = 0; pieces && i < n; i++) {
        buf_add(out, pieces[i].ptr, pieces[i].n_bytes);
    }
    free_pieces(pieces, few);
}

static void drain(const struct envoy_stream *stream, enum envoy_body body) {
    size_t n = envoy_dynamic_module_callback_http_get_body_size(stream->filter, body);
    if (n > 0) {
        (void)envoy_dynamic_module_callback_http_drain_body(stream->filter, body, n);
    }
}

static void append(const struct envoy_stream *stream, enum envoy_body body, struct str bytes) {
    if (bytes.len > 0) {
        (void)envoy_dynamic_module_callback_http_append_body(stream->filter, body,
                                                             envoy_of_str(bytes));
    }
}

/* Writes the body that Envoy has so far anew: it has functions for both ends of a body only.
 * `is_received`: a part of it came with the present call. */
static void edit_body(struct envoy_stream *stream, bool is_received) {
    enum envoy_body last = is_received ? ENVOY_RECEIVED_REQUEST_BODY : ENVOY_BUFFERED_REQUEST_BODY;
    struct pick_edits edits = stream->edits;
    struct arena *arena = edits.n > 0 ? arena_new(NULL, 0) : NULL;
    struct error err;
    struct buf body;
    stream->edits.n = 0;
    if (edits.n == 0) {
        return;
    }
    if (!arena) {
        (void)error_no_memory(&err, "the model's new name");
        fail(stream, &err);
        return;
    }
    buf_init(&body, arena, 0);
    add_pieces(stream, ENVOY_BUFFERED_REQUEST_BODY, &body);
    if (is_received) {
        add_pieces(stream, ENVOY_RECEIVED_REQUEST_BODY, &body);
    }
    if (body.failed) {
        (void)error_no_memory(&err, "the model's new name");
        fail(stream, &err);
    } else {
        uint64_t at = 0;
        drain(stream, ENVOY_BUFFERED_REQUEST_BODY);
        drain(stream, last);
        for (size_t i = 0; i < edits.n; i++) {
            append(stream, last, str_make(body.data + at, (size_t)(edits.items[i].at - at)));
            append(stream, last, edits.items[i].with);
            at = edits.items[i].at + edits.items[i].n_bytes;
        }
        append(stream, last, str_make(body.data + at, body.len - (size_t)at));
    }
    arena_free(arena);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Requests that the session continues on its own, or has a time for, or whose body waits to be
 * read. */
static void update_waiting(struct envoy_stream *stream) {
    bool waits = !stream->has_replied &&
                 (stream->waits_for_turn || pick_session_may_resume(stream->shared.session)) &&
                 has_scheduler(stream);
    if (waits != stream->is_waiting) {
        stream->is_waiting = waits;
        if (waits) {
            envoy_worker_add_waiting(stream->worker, stream);
        } else {
            envoy_worker_remove_waiting(stream->worker, stream);
        }
    }
    if (stream->waits_for_turn && !stream->has_turn) {
        stream->has_turn = true;
        envoy_worker_add_turn(stream->worker, stream);
    }
}

static void forget_turn(struct envoy_stream *stream) {
    if (stream->has_turn) {
        stream->has_turn = false;
        TAILQ_REMOVE(&stream->worker->turns, stream, turn_link);
    }
}

void envoy_stream_note_resumed(struct envoy_stream *stream) {
    if (!stream->is_resumed) {
        stream->is_resumed = true;
        TAILQ_INSERT_TAIL(&stream->worker->resumed, stream, resumed_link);
    }
}

static void forget_resumed(struct envoy_stream *stream) {
    if (stream->is_resumed) {
        TAILQ_REMOVE(&stream->worker->resumed, stream, resumed_link);
        stream->is_resumed = false;
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void free_stream(struct envoy_stream *stream) {
    forget_resumed(stream);
    forget_turn(stream);
    pick_stream_close(&stream->shared, stream->code, clock_now_ns());
    if (stream->is_waiting) {
        envoy_worker_remove_waiting(stream->worker, stream);
    }
    if (stream->scheduler) {
        envoy_dynamic_module_callback_http_filter_scheduler_delete(stream->scheduler);
    }
    arena_free(stream->arena);
}

/* Each function that Envoy calls is between these two. `leave` may free the stream. */
static void enter(struct envoy_stream *stream) {
    stream->depth++;
}

static void leave(struct envoy_stream *stream) {
    if (--stream->depth == 0 && stream->is_destroyed) {
        free_stream(stream);
    }
}

/* After the session's step. Returns: whether the picker has replied itself. */
static bool settle(struct envoy_stream *stream) {
    update_waiting(stream);
    if (stream->reply) {
        send_reply(stream);
        return true;
    }
    return false;
}

/* A reply waits for the end of a small body: before it, Envoy closes the connection of HTTP/1 and
 * resets the stream of HTTP/2, which some clients take for a failure. */
static bool is_reply_early(const struct envoy_stream *stream, bool is_end) {
    return stream->reply && !is_end && stream->n_expected > 0 &&
           stream->n_expected <= SMALL_BODY_BYTES && stream->n_received <= stream->n_expected;
}

/* The body stays in Envoy's buffer until the pick. */
static bool is_held(struct envoy_stream *stream) {
    bool held = pick_session_is_response_pending(stream->shared.session);
    uint64_t n_bytes = stream->worker->shared.context.limits.max_body_size + BUFFER_SPARE_BYTES;
    if (held && envoy_dynamic_module_callback_http_get_buffer_limit(stream->filter) < n_bytes) {
        envoy_dynamic_module_callback_http_set_buffer_limit(stream->filter, n_bytes);
    }
    return held;
}

enum envoy_headers_status envoy_stream_on_request_headers(struct envoy_stream *stream,
                                                          bool is_end) {
    enum envoy_headers_status status = ENVOY_HEADERS_CONTINUE;
    enter(stream);
    pass_fields(stream, EXT_PROC_REQUEST_HEADERS, is_end);
    bool queued = pick_session_is_queued(stream->shared.session);
    stream->is_stopped = queued || is_held(stream);
    stream->is_stopped_all = queued;
    if (stream->is_stopped) {
        status = queued ? ENVOY_HEADERS_STOP_ALL : ENVOY_HEADERS_STOP;
    }
    if (is_reply_early(stream, is_end) || settle(stream)) {
        status = ENVOY_HEADERS_STOP;
    }
    leave(stream);
    return status;
}

/* A part that comes while the request is queued is read when it goes on. */
enum envoy_body_status envoy_stream_on_request_body(struct envoy_stream *stream, bool is_end) {
    enum envoy_body_status status = ENVOY_BODY_CONTINUE;
    enter(stream);
    stream->n_received += envoy_dynamic_module_callback_http_get_body_size(
        stream->filter, ENVOY_RECEIVED_REQUEST_BODY);
    if (stream->has_replied || is_reply_early(stream, is_end)) {
        leave(stream);
        return ENVOY_BODY_STOP;
    }
    if (is_put_off(stream)) {
        stream->is_body_ended = is_end;
    } else if (!stream->reply) {
        stream->n_passed +=
            pass_pieces(stream, EXT_PROC_REQUEST_BODY, ENVOY_RECEIVED_REQUEST_BODY, 0, is_end);
    }
    stream->is_stopped = is_held(stream) || is_put_off(stream);
    if (stream->is_stopped) {
        status = ENVOY_BODY_STOP;
    } else if (!stream->reply) {
        edit_body(stream, true);
    }
    if (is_reply_early(stream, is_end) || settle(stream)) {
        status = ENVOY_BODY_STOP;
    }
    stream->n_sent = status == ENVOY_BODY_CONTINUE ? stream->n_received : stream->n_sent;
    leave(stream);
    return status;
}

enum envoy_trailers_status envoy_stream_on_request_trailers(struct envoy_stream *stream) {
    enum envoy_trailers_status status = ENVOY_TRAILERS_CONTINUE;
    enter(stream);
    if (stream->has_replied) {
        leave(stream);
        return ENVOY_TRAILERS_STOP;
    }
    if (is_put_off(stream)) {
        stream->has_trailers = true;
    } else if (!stream->reply) {
        pass_fields(stream, EXT_PROC_REQUEST_TRAILERS, true);
    }
    stream->is_stopped = is_put_off(stream);
    if (stream->is_stopped) {
        status = ENVOY_TRAILERS_STOP;
    } else if (!stream->reply) {
        edit_body(stream, false);
    }
    if (settle(stream)) {
        status = ENVOY_TRAILERS_STOP;
    }
    leave(stream);
    return status;
}

/* What came while the request was queued, or waited for its turn. */
static void pass_kept(struct envoy_stream *stream) {
    bool is_end = stream->is_body_ended;
    stream->is_body_ended = false;
    stream->n_passed += pass_pieces(stream, EXT_PROC_REQUEST_BODY, ENVOY_BUFFERED_REQUEST_BODY,
                                    stream->n_passed - stream->n_sent, is_end);
    if (stream->has_trailers && !stream->reply && !is_put_off(stream)) {
        stream->has_trailers = false;
        pass_fields(stream, EXT_PROC_REQUEST_TRAILERS, true);
    }
}

void envoy_stream_continue(struct envoy_stream *stream) {
    enter(stream);
    forget_resumed(stream);
    if (!stream->reply && !stream->is_stopped_all && !is_put_off(stream)) {
        pass_kept(stream);
    }
    bool goes_on = stream->is_stopped && !stream->reply && !is_put_off(stream) && !is_held(stream);
    if (goes_on) {
        stream->is_stopped = false;
        stream->is_stopped_all = false;
        edit_body(stream, false);
        stream->n_sent = stream->n_received;
    }
    if (!settle(stream) && goes_on) {
        envoy_dynamic_module_callback_http_filter_continue_decoding(stream->filter);
    }
    leave(stream);
}

void envoy_stream_begin_turn(struct envoy_stream *stream) {
    forget_turn(stream);
    stream->waits_for_turn = false;
    stream->turn_bytes = 0;
    stream->turn_ns = 0;
    envoy_stream_continue(stream);
}

void envoy_stream_on_scheduled(struct envoy_stream *stream) {
    enter(stream);
    if (!stream->is_destroyed) {
        envoy_worker_on_woken(stream->worker);
    }
    leave(stream);
}

/* ---- the response ---------------------------------------------------------------------------- */

/* The picker's own reply passes here too. */
static bool begin_response(struct envoy_stream *stream) {
    enter(stream);
    if (stream->reply) {
        leave(stream);
        return false;
    }
    stream->has_response = true;
    return true;
}

static void end_response(struct envoy_stream *stream) {
    (void)settle(stream);
    leave(stream);
}

void envoy_stream_on_response_headers(struct envoy_stream *stream, bool is_end) {
    if (begin_response(stream)) {
        pass_fields(stream, EXT_PROC_RESPONSE_HEADERS, is_end);
        end_response(stream);
    }
}

void envoy_stream_on_response_body(struct envoy_stream *stream, bool is_end) {
    if (begin_response(stream)) {
        (void)pass_pieces(stream, EXT_PROC_RESPONSE_BODY, ENVOY_RECEIVED_RESPONSE_BODY, 0, is_end);
        end_response(stream);
    }
}

void envoy_stream_on_response_trailers(struct envoy_stream *stream) {
    if (begin_response(stream)) {
        pass_fields(stream, EXT_PROC_RESPONSE_TRAILERS, true);
        end_response(stream);
    }
}

/* ---- new, destroy ---------------------------------------------------------------------------- */

struct envoy_stream *envoy_stream_new(struct envoy_worker *worker, void *filter) {
    struct arena *arena = arena_new(worker->arenas, 0);
    struct envoy_stream *stream = arena ? arena_calloc(arena, 1, sizeof(*stream)) : NULL;
    struct pick_callbacks out = {.respond = on_respond,
                                 .respond_immediate = on_respond_immediate,
                                 .finish = on_finish,
                                 .on_resumed = on_resumed};
    if (!stream || !pick_stream_open(&stream->shared, &worker->shared, arena, &out)) {
        arena_free(arena);
        return NULL;
    }
    stream->worker = worker;
    stream->filter = filter;
    stream->arena = arena;
    return stream;
}

/* Within a call of the stream the session ends now: its filter is no more. */
void envoy_stream_destroy(struct envoy_stream *stream) {
    stream->is_destroyed = true;
    if (stream->depth == 0) {
        free_stream(stream);
    } else {
        pick_session_cancel(stream->shared.session, NULL);
    }
}
