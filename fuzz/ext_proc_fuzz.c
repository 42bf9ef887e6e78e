/* Messages of ext-proc, decoded as the proxy's and as the picker's: a valid one is iterated to
 * its end, and encoding it again gives the same meaning. Nothing is read past the input. */
#include <stdlib.h>

#include "lib/ext_proc/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_HEADERS = 64 }; /* headers that are encoded again */

static const struct str NAMESPACE = {"envoy.lb.subset_hint", 20};
static const struct str KEY = {"x-gateway-destination-endpoint-subset", 37};

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static bool is_inside(struct str part, struct str whole) {
    return part.len == 0 || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void check_value(struct ext_proc_value value, struct str message) {
    struct ext_proc_value item;
    check(value.kind != EXT_PROC_STRING || is_inside(value.text, message));
    if (value.kind == EXT_PROC_LIST) {
        struct pb_reader list = pb_read(value.list);
        check(is_inside(value.list, message));
        while (ext_proc_list_next(&list, &item)) {
            check(item.kind != EXT_PROC_ABSENT && is_inside(item.text, message));
        }
        check(!list.error_text);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t read_headers(const struct ext_proc_headers *fields, struct str message,
                           struct ext_proc_header out[MAX_HEADERS]) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct pb_reader any = walk.reader;
    struct ext_proc_header header, same;
    size_t n = 0;
    while (ext_proc_header_next(&walk, &header)) {
        check(ext_proc_header_next_any(&any, &same) && any.at == walk.reader.at);
        check(str_eq(header.key, same.key) && str_eq(header.value, same.value));
        check(is_inside(header.key, message) && is_inside(header.value, message));
        check(ext_proc_header_find(fields, header.key).ptr != NULL);
        if (n < MAX_HEADERS) {
            out[n++] = header;
        }
    }
    check(!walk.reader.error_text && !ext_proc_header_next_any(&any, &same));
    return n;
}

static void reencode_request(struct arena *arena, const struct ext_proc_request *request,
                             const struct ext_proc_header *headers, size_t n) {
    struct ext_proc_client_request question = {.kind = request->kind,
                                               .headers = headers,
                                               .n_headers = n,
                                               .body = request->body,
                                               .end_of_stream = request->end_of_stream,
                                               .end_without_message = request->end_without_message,
                                               .is_compressed = request->is_compressed,
                                               .observability_mode = request->observability_mode,
                                               .config =
                                                   request->has_config ? &request->config : NULL};
    struct ext_proc_request again;
    struct ext_proc_header copies[MAX_HEADERS];
    struct buf out;
    buf_init(&out, arena, 0);
    ext_proc_client_request_encode(&out, &question);
    check(ext_proc_request_decode(buf_str(&out), &again, NULL) == ST_OK);
    check(again.kind == request->kind && str_eq(again.body, request->body));
    check(again.end_of_stream == request->end_of_stream);
    check(again.end_without_message == request->end_without_message);
    check(again.is_compressed == request->is_compressed &&
          again.observability_mode == request->observability_mode);
    check(again.has_config == request->has_config);
    check(again.config.request_body == request->config.request_body);
    check(again.config.response_body == request->config.response_body);
    check(read_headers(&again.fields, buf_str(&out), copies) == n);
    for (size_t i = 0; i < n; i++) {
        check(str_eq(copies[i].key, headers[i].key) && str_eq(copies[i].value, headers[i].value));
    }
}

static void check_request(struct str message) {
    struct ext_proc_request request;
    struct ext_proc_header headers[MAX_HEADERS];
    struct error err = {0};
    enum status status = ext_proc_request_decode(message, &request, &err);
    check(status == err.status && (status == ST_OK) == (err.text[0] == '\0'));
    if (status != ST_OK) {
        check(status == ST_BAD_REQUEST || status == ST_BAD_FIELD || status == ST_TOO_DEEP);
        return;
    }
    struct arena *arena = arena_new(NULL, 0);
    check_value(ext_proc_metadata_find(&request, NAMESPACE, KEY), message);
    check_value(ext_proc_attribute_find(&request, NAMESPACE, KEY), message);
    check(is_inside(request.body, message));
    reencode_request(arena, &request, headers, read_headers(&request.fields, message, headers));
    arena_free(arena);
}

/* ---- answers --------------------------------------------------------------------------------- */

static size_t read_mutation(const struct ext_proc_client_response *reply,
                            struct ext_proc_header set[MAX_HEADERS],
                            struct str removed[MAX_HEADERS], struct ext_proc_mutation *out) {
    struct pb_reader reader = pb_read(reply->mutation);
    *out = (struct ext_proc_mutation){.set = set, .remove = removed};
    while (out->n_set < MAX_HEADERS && ext_proc_set_header_next(&reader, &set[out->n_set])) {
        out->n_set++;
    }
    reader = pb_read(reply->mutation);
    while (out->n_remove < MAX_HEADERS &&
           ext_proc_removed_header_next(&reader, &removed[out->n_remove])) {
        out->n_remove++;
    }
    return out->n_set + out->n_remove;
}

static enum status encode_response(struct arena *arena,
                                   const struct ext_proc_client_response *reply,
                                   const struct ext_proc_mutation *mutation,
                                   struct ext_proc_message *out) {
    struct piece piece = {reply->body.ptr, reply->body.len};
    struct ext_proc_response answer = {.kind = reply->kind,
                                       .headers = *mutation,
                                       .clear_route_cache = reply->clear_route_cache,
                                       .continue_and_replace = reply->continue_and_replace,
                                       .body_mutation = reply->body_mutation,
                                       .body = &piece,
                                       .n_body = 1,
                                       .end_of_stream = reply->end_of_stream,
                                       .end_without_message = reply->end_without_message,
                                       .is_compressed = reply->is_compressed,
                                       .mode_override =
                                           reply->has_mode_override ? &reply->mode_override : NULL};
    struct ext_proc_immediate immediate = {.http_status = reply->http_status,
                                           .grpc_status = reply->grpc_status,
                                           .headers = *mutation,
                                           .body = reply->body,
                                           .details = reply->details};
    return reply->is_immediate ? ext_proc_immediate_encode(arena, &immediate, out, NULL)
                               : ext_proc_response_encode(arena, &answer, out, NULL);
}

static void reencode_response(struct arena *arena, const struct ext_proc_client_response *reply) {
    struct ext_proc_header set[MAX_HEADERS], set_again[MAX_HEADERS];
    struct str removed[MAX_HEADERS], removed_again[MAX_HEADERS];
    struct ext_proc_mutation mutation, mutation_again;
    struct ext_proc_message bytes;
    struct ext_proc_client_response again;
    struct buf all;
    size_t n = read_mutation(reply, set, removed, &mutation);
    buf_init(&all, arena, 0);
    check(encode_response(arena, reply, &mutation, &bytes) == ST_OK);
    for (size_t i = 0; i < bytes.n_pieces; i++) {
        buf_add(&all, bytes.pieces[i].data, bytes.pieces[i].n_bytes);
    }
    check(all.len == bytes.n_bytes);
    check(ext_proc_client_response_decode(buf_str(&all), &again, NULL) == ST_OK);
    check(again.kind == reply->kind && again.is_immediate == reply->is_immediate);
    check(again.clear_route_cache == reply->clear_route_cache);
    check(again.body_mutation == reply->body_mutation && str_eq(again.body, reply->body));
    check(again.end_of_stream == reply->end_of_stream);
    check(again.http_status == reply->http_status && again.grpc_status == reply->grpc_status);
    check(str_eq(again.details, reply->details));
    check(read_mutation(&again, set_again, removed_again, &mutation_again) == n);
    for (size_t i = 0; i < mutation.n_set; i++) {
        check(str_eq(set[i].key, set_again[i].key) && str_eq(set[i].value, set_again[i].value));
    }
}

static void check_reply(struct str message) {
    struct ext_proc_client_response reply;
    struct error err = {0};
    enum status status = ext_proc_client_response_decode(message, &reply, &err);
    check(status == err.status && (status == ST_OK) == (err.text[0] == '\0'));
    if (status != ST_OK) {
        return;
    }
    check_value(ext_proc_client_response_metadata_find(&reply, NAMESPACE, KEY), message);
    if (reply.kind != EXT_PROC_NONE || reply.is_immediate) {
        struct arena *arena = arena_new(NULL, 0);
        reencode_response(arena, &reply);
        arena_free(arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *exact = malloc(size + (size == 0));
    memcpy(exact, data, size);
    check_request(str_make(exact, size));
    check_reply(str_make(exact, size));
    free(exact);
    return 0;
}
