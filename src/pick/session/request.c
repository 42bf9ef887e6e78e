/* Header names are compared by their lengths first: most headers have a length that no wanted name
 * has. */
#include "pick/session/request.h"

#include "codec/http1/cookie.h"
#include "core/base/num.h"

/* Of several names the first one in the configuration counts that has a value, whatever the order
 * in the request. */
struct ranked_value {
    struct str value;
    size_t rank;
};

struct header_scan {
    struct pick_request *request;
    const struct protocol *protocol;
    struct ranked_value rewrite, objective, fairness_id, session;
    struct str selection, cookie, content_length;
};

/* ":path", ":method", "content-type", "content-length", "content-encoding", "cookie" */
static const uint64_t HTTP_NAME_LENGTHS = 1 << 5 | 1 << 7 | 1 << 12 | 1 << 14 | 1 << 16 | 1 << 6;

static void set_if_absent(struct str *slot, struct str value) {
    if (!slot->ptr) {
        *slot = value.ptr ? value : STR("");
    }
}

static bool match_ranked_header(const struct protocol_headers *names,
                                const struct ext_proc_header *header, struct ranked_value *out) {
    for (size_t i = 0; i < names->n; i++) {
        if (str_eq(names->names[i], header->key)) {
            bool is_better = out->value.len == 0 || (i < out->rank && header->value.len > 0);
            if (!out->value.ptr || is_better) {
                *out = (struct ranked_value){header->value.ptr ? header->value : STR(""), i};
            }
            return true;
        }
    }
    return false;
}

/* Standard HTTP headers. Returns: whether it is one. */
static bool match_http_header(struct header_scan *scan, const struct ext_proc_header *header) {
    struct pick_request *request = scan->request;
    struct str key = header->key;
    if (key.len == 5 && str_is(key, ":path")) {
        set_if_absent(&request->path, header->value);
    } else if (key.len == 7 && str_is(key, ":method")) {
        set_if_absent(&request->method, header->value);
    } else if (key.len == 12 && str_is(key, "content-type")) {
        set_if_absent(&request->content_type, header->value);
    } else if (key.len == 14 && str_is(key, "content-length")) {
        set_if_absent(&scan->content_length, header->value);
    } else if (key.len == 16 && str_is(key, "content-encoding")) {
        if (header->value.len > 0 && !str_eq_nocase(str_trim(header->value), STR("identity"))) {
            set_if_absent(&request->encoding, header->value);
        }
    } else {
        return false;
    }
    return true;
}

/* In HTTP/2 each cookie may have a header of its own. */
static void match_session_cookie(struct header_scan *scan, struct str value) {
    if (scan->protocol->session_cookie.len > 0 && !scan->cookie.ptr) {
        scan->cookie = cookie_find(value, scan->protocol->session_cookie);
    }
}

/* The configuration's lists of names; a session may be a fairness id as well. Returns: whether a
 * list contains it. */
static bool match_listed_header(struct header_scan *scan, const struct ext_proc_header *header) {
    const struct protocol *protocol = scan->protocol;
    bool is_fairness = match_ranked_header(&protocol->fairness_headers, header, &scan->fairness_id);
    bool is_session = match_ranked_header(&protocol->session_headers, header, &scan->session);
    return is_fairness || is_session ||
           match_ranked_header(&protocol->objective_headers, header, &scan->objective) ||
           match_ranked_header(&protocol->rewrite_headers, header, &scan->rewrite);
}

static void match_single_header(struct header_scan *scan, const struct ext_proc_header *header) {
    const struct protocol *protocol = scan->protocol;
    if (header->key.len == 6 && str_is(header->key, "cookie")) {
        match_session_cookie(scan, header->value);
    } else if (str_eq(protocol->model_header, header->key)) {
        set_if_absent(&scan->request->model, header->value);
    } else if (str_eq(protocol->request_id_header, header->key)) {
        set_if_absent(&scan->request->id, header->value);
    } else if (protocol->conformance && str_eq(protocol->selection_header, header->key)) {
        set_if_absent(&scan->selection, header->value);
    }
}

static void read_headers(struct header_scan *scan, const struct ext_proc_headers *fields) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    uint64_t listed = scan->protocol->listed_lengths;
    uint64_t single = scan->protocol->single_lengths | HTTP_NAME_LENGTHS;
    while (ext_proc_header_next(&walk, &header)) {
        uint64_t bit = protocol_length_bit(header.key.len);
        if (((bit & listed) == 0 || !match_listed_header(scan, &header)) && (bit & single) != 0 &&
            !match_http_header(scan, &header)) {
            match_single_header(scan, &header);
        }
    }
    scan->request->has_length = num_parse_u64(scan->content_length, &scan->request->n_body_bytes);
    scan->request->rewrite = scan->rewrite.value;
    scan->request->objective = scan->objective.value;
    scan->request->fairness_id = scan->fairness_id.value;
    scan->request->session = scan->session.value.ptr ? scan->session.value : scan->cookie;
}

/* Clause: "Endpoint Subset". A value that is neither a list nor a string, and an item that is not a
 * string, counts as a subset that matches no endpoint. */
enum status pick_request_read_subset(struct arena *arena, const struct protocol *protocol,
                                     const struct ext_proc_request *message,
                                     struct pick_request *out, struct error *err) {
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
    if (hint.kind != EXT_PROC_STRING && hint.kind != EXT_PROC_LIST) {
        out->hint.n_unreadable++; /* a number, for example */
    }
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
    struct header_scan scan = {.request = out, .protocol = protocol};
    *out = (struct pick_request){.fields = message->fields};
    read_headers(&scan, &message->fields);
    out->has_selection = scan.selection.ptr != NULL;
    enum status st = pick_request_read_subset(arena, protocol, message, out, err);
    if (st == ST_OK && out->has_selection) {
        subset_init(&out->selection, true);
        st = subset_add_list(&out->selection, arena, scan.selection, err);
    }
    return st;
}

enum status pick_request_find_model(struct arena *arena, const struct pool_spec *spec,
                                    struct str method, struct str path, struct model_location *out,
                                    struct error *err) {
    struct model_paths paths = {spec->model_paths, spec->n_model_paths, spec->parsers};
    bool is_default = !paths.items && paths.parsers == 0;
    return model_location_parse(arena, is_default ? NULL : &paths, method, path, out, err);
}

bool pick_request_is_grpc(const struct pick_request *request) {
    return str_starts_with(request->content_type, STR("application/grpc"));
}
