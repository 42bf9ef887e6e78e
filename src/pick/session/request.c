/* Headers are looked at by their lengths first: most of them have one that none has which is asked
 * for. */
#include "pick/session/request.h"

#include "codec/http1/cookie.h"

/* Of several names the one that comes first in the configuration counts, wherever it stands. */
struct ranked_value {
    struct str value;
    size_t rank;
};

struct found {
    struct pick_request *request;
    const struct protocol *protocol;
    struct ranked_value rewrite, objective, fairness, session;
    struct str selection, cookie;
};

/* ":path", ":method", "content-type", "content-length", "content-encoding", "cookie" */
static const uint64_t OWN_LENGTHS = 1 << 5 | 1 << 7 | 1 << 12 | 1 << 14 | 1 << 16 | 1 << 6;

static void take_first(struct str *slot, struct str value) {
    if (!slot->ptr) {
        *slot = value.ptr ? value : STR("");
    }
}

static bool take_ranked(const struct protocol_headers *names, const struct ext_proc_header *header,
                        struct ranked_value *out) {
    for (size_t i = 0; i < names->n; i++) {
        if (str_eq(names->names[i], header->key)) {
            if (!out->value.ptr || i < out->rank) {
                *out = (struct ranked_value){header->value.ptr ? header->value : STR(""), i};
            }
            return true;
        }
    }
    return false;
}

/* The names that HTTP has. Returns: it was one. */
static bool take_own(struct pick_request *request, const struct ext_proc_header *header) {
    struct str key = header->key;
    if (key.len == 5 && str_is(key, ":path")) {
        take_first(&request->path, header->value);
    } else if (key.len == 7 && str_is(key, ":method")) {
        take_first(&request->method, header->value);
    } else if (key.len == 12 && str_is(key, "content-type")) {
        take_first(&request->content_type, header->value);
    } else if (key.len == 14 && str_is(key, "content-length")) {
        take_first(&request->content_length, header->value);
    } else if (key.len == 16 && str_is(key, "content-encoding")) {
        if (header->value.len > 0 && !str_eq_nocase(str_trim(header->value), STR("identity"))) {
            take_first(&request->encoding, header->value);
        }
    } else {
        return false;
    }
    return true;
}

/* HTTP/2 may have each of them in a header of its own. */
static void take_cookie(struct found *found, struct str value) {
    if (found->protocol->session_cookie.len > 0 && !found->cookie.ptr) {
        found->cookie = cookie_find(value, found->protocol->session_cookie);
    }
}

/* The names of the configuration: lists of them. Returns: it was in one. */
static bool take_listed(struct found *found, const struct ext_proc_header *header) {
    const struct protocol *protocol = found->protocol;
    return take_ranked(&protocol->objective_headers, header, &found->objective) ||
           take_ranked(&protocol->rewrite_headers, header, &found->rewrite) ||
           take_ranked(&protocol->fairness_headers, header, &found->fairness) ||
           take_ranked(&protocol->session_headers, header, &found->session);
}

static void take_single(struct found *found, const struct ext_proc_header *header) {
    const struct protocol *protocol = found->protocol;
    if (header->key.len == 6 && str_is(header->key, "cookie")) {
        take_cookie(found, header->value);
    } else if (str_eq(protocol->model_header, header->key)) {
        take_first(&found->request->model, header->value);
    } else if (str_eq(protocol->request_id_header, header->key)) {
        take_first(&found->request->id, header->value);
    } else if (protocol->conformance && str_eq(protocol->selection_header, header->key)) {
        take_first(&found->selection, header->value);
    }
}

static void read_headers(struct found *found, const struct ext_proc_headers *fields) {
    struct ext_proc_walk walk = ext_proc_walk(fields);
    struct ext_proc_header header;
    uint64_t listed = found->protocol->listed_lengths;
    uint64_t single = found->protocol->single_lengths | OWN_LENGTHS;
    while (ext_proc_header_next(&walk, &header)) {
        uint64_t bit = protocol_length(header.key.len);
        if (((bit & listed) == 0 || !take_listed(found, &header)) && (bit & single) != 0 &&
            !take_own(found->request, &header)) {
            take_single(found, &header);
        }
    }
    found->request->rewrite = found->rewrite.value;
    found->request->objective = found->objective.value;
    found->request->fairness = found->fairness.value;
    found->request->session = found->session.value.ptr ? found->session.value : found->cookie;
}

/* Clause: "Endpoint Subset". A key with a value that is neither a list nor a text is there all the
 * same, and nothing can be picked from it; so is an item that is no text. */
enum status pick_request_hint(struct arena *arena, const struct protocol *protocol,
                              const struct ext_proc_request *message, struct pick_request *out,
                              struct error *err) {
    struct ext_proc_value item, hint = {.kind = EXT_PROC_ABSENT};
    enum status st = ST_OK;
    if (message->metadata.len > 0) {
        hint = ext_proc_metadata_find(message, protocol->subset_namespace, protocol->subset_key);
    }
    if (hint.kind == EXT_PROC_ABSENT) {
        return ST_OK;
    }
    struct pb_reader list = pb_read(hint.list);
    subset_init(&out->hint, false);
    out->has_hint = true;
    if (hint.kind == EXT_PROC_STRING) {
        st = subset_add_list(&out->hint, arena, hint.text, err);
    }
    while (hint.kind == EXT_PROC_LIST && st == ST_OK && ext_proc_list_next(&list, &item)) {
        struct str text = item.kind == EXT_PROC_STRING ? str_trim(item.text) : STR("");
        st = subset_add(&out->hint, arena, text, err);
    }
    return st;
}

enum status pick_request_read(struct arena *arena, const struct protocol *protocol,
                              const struct ext_proc_request *message, struct pick_request *out,
                              struct error *err) {
    struct found found = {.request = out, .protocol = protocol};
    *out = (struct pick_request){.fields = message->fields};
    read_headers(&found, &message->fields);
    subset_init(&out->selection, true);
    out->has_selection = found.selection.ptr != NULL;
    enum status st = pick_request_hint(arena, protocol, message, out, err);
    if (st == ST_OK && out->has_selection) {
        st = subset_add_list(&out->selection, arena, found.selection, err);
    }
    return st;
}

bool pick_request_is_grpc(const struct pick_request *request) {
    return str_starts(request->content_type, STR("application/grpc"));
}
