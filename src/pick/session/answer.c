/* The pick. The header and the metadata are one text, so they can't differ. */
#include "pick/session/answer.h"

/* "A:1,B:2" */
static struct str join(struct arena *arena, const struct pool_pick *pick) {
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

enum status pick_choice_print(struct arena *arena, const struct pool_pick *pick,
                              enum protocol_fallback fallback, struct pick_choice *out,
                              struct error *err) {
    *out = (struct pick_choice){.endpoint = endpoint_text(pick->ticket.endpoint)};
    if (pick->n_endpoints < 2 || fallback == FALLBACK_NONE) {
        return ST_OK;
    }
    struct str *slot = fallback == FALLBACK_LIST ? &out->endpoint : &out->fallback;
    *slot = fallback == FALLBACK_LIST ? join(arena, pick)
                                      : arena_dup(arena, endpoint_text(pick->endpoints[1]));
    return slot->ptr ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for the fallback endpoint");
}

/* Clause: "Destination Endpoint", 2, and "Destination endpoint fallback". Returns: how many. */
static size_t list_entries(const struct protocol *protocol, const struct pick_choice *choice,
                           struct ext_proc_entry out[2]) {
    size_t n = 0;
    out[n++] = (struct ext_proc_entry){.key = protocol->destination_key, .text = choice->endpoint};
    if (choice->fallback.ptr) {
        out[n++] = (struct ext_proc_entry){.key = protocol->fallback_key, .text = choice->fallback};
    }
    return n;
}

enum status pick_tell(struct pick_outbox *outbox, const struct protocol *protocol,
                      const struct pick_news *news, struct error *err) {
    struct ext_proc_header set[3];
    struct ext_proc_entry entries[2];
    struct ext_proc_space space = {.name = protocol->destination_namespace, .entries = entries};
    struct ext_proc_answer answer = {.kind = news->kind,
                                     .headers = {.set = set},
                                     .clear_route_cache = news->choice || news->path.ptr,
                                     .body = news->body,
                                     .n_body = news->n_body,
                                     .mode_override = news->modes};
    size_t n = 0;
    if (news->choice) { /* Clause: "Destination Endpoint", 1 */
        set[n++] = (struct ext_proc_header){protocol->destination_header, news->choice->endpoint};
        space.n_entries = list_entries(protocol, news->choice, entries);
        answer.metadata = &space;
        answer.n_metadata = 1;
    }
    if (news->path.ptr) {
        set[n++] = (struct ext_proc_header){STR(":path"), news->path};
    }
    if (news->content_length.ptr) {
        set[n++] = (struct ext_proc_header){STR("content-length"), news->content_length};
    }
    answer.headers.n_set = n;
    answer.body_change = news->body ? EXT_PROC_BODY_REPLACED : EXT_PROC_BODY_KEPT;
    return pick_outbox_answer(outbox, &answer, news->of, err);
}

enum status pick_tell_nothing(struct pick_outbox *outbox, enum ext_proc_kind kind,
                              struct error *err) {
    struct ext_proc_answer answer = {.kind = kind};
    return pick_outbox_answer(outbox, &answer, NULL, err);
}
