/* The pick. The header and the metadata are one text, so they can't differ. */
#include "pick/session/processing_response.h"

/* "A:1,B:2" */
static struct str join_endpoints(struct arena *arena, const struct pool_pick *pick) {
    struct buf out;
    buf_init(&out, arena, pick->n_endpoints * ENDPOINT_TEXT_BYTES);
    for (size_t i = 0; i < pick->n_endpoints; i++) {
        if (i > 0) {
            buf_add_char(&out, ',');
        }
        buf_add_str(&out, endpoint_text(pick->endpoints[i]));
    }
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

enum status pick_destination_print(struct arena *arena, const struct pool_pick *pick,
                                   enum protocol_fallback fallback, struct pick_destination *out,
                                   struct error *err) {
    *out = (struct pick_destination){.endpoint = endpoint_text(pick->ticket.endpoint)};
    if (pick->n_endpoints < 2 || fallback == FALLBACK_NONE) {
        return ST_OK;
    }
    struct str *slot = fallback == FALLBACK_LIST ? &out->endpoint : &out->fallback;
    *slot = fallback == FALLBACK_LIST ? join_endpoints(arena, pick)
                                      : arena_dup(arena, endpoint_text(pick->endpoints[1]));
    return slot->ptr ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for the fallback endpoint");
}

/* Clause: "Destination Endpoint", 2, and "Destination endpoint fallback". Returns: how many. */
static size_t metadata_entries(const struct protocol *protocol,
                               const struct pick_destination *destination,
                               struct ext_proc_entry out[2]) {
    size_t n = 0;
    out[n++] =
        (struct ext_proc_entry){.key = protocol->destination_key, .text = destination->endpoint};
    if (destination->fallback.ptr) {
        out[n++] =
            (struct ext_proc_entry){.key = protocol->fallback_key, .text = destination->fallback};
    }
    return n;
}

enum status pick_send_mutation(struct pick_send_queue *send_queue, const struct protocol *protocol,
                               const struct pick_mutation *mutation, struct error *err) {
    struct ext_proc_header set[3];
    struct ext_proc_entry entries[2];
    struct ext_proc_namespace space = {.name = protocol->destination_namespace, .entries = entries};
    struct ext_proc_response answer = {.kind = mutation->kind,
                                       .headers = {.set = set},
                                       .clear_route_cache =
                                           mutation->destination || mutation->path.ptr,
                                       .body = mutation->body,
                                       .n_body = mutation->n_body,
                                       .mode_override = mutation->modes};
    size_t n = 0;
    if (mutation->destination) { /* Clause: "Destination Endpoint", 1 */
        set[n++] =
            (struct ext_proc_header){protocol->destination_header, mutation->destination->endpoint};
        space.n_entries = metadata_entries(protocol, mutation->destination, entries);
        answer.metadata = &space;
        answer.n_metadata = 1;
    }
    if (mutation->path.ptr) {
        set[n++] = (struct ext_proc_header){STR(":path"), mutation->path};
    }
    if (mutation->content_length.ptr) {
        set[n++] = (struct ext_proc_header){STR("content-length"), mutation->content_length};
    }
    answer.headers.n_set = n;
    answer.body_mutation = mutation->body ? EXT_PROC_BODY_REPLACED : EXT_PROC_BODY_UNCHANGED;
    return pick_send_queue_push(send_queue, &answer, mutation->ref, err);
}

enum status pick_send_continue(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                               struct error *err) {
    struct ext_proc_response answer = {.kind = kind};
    return pick_send_queue_push(send_queue, &answer, NULL, err);
}
