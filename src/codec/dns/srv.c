/* Decodes the answer section of a message, record by record. Name pointers must point backwards, so
 * that following them ends; every read is bounds-checked. */
#include "codec/dns/srv.h"

#include <stdlib.h>

enum {
    HEADER_BYTES = 12,
    RECORD_BYTES = 10, /* after the name: type, class, time to live, length */
    SRV_BYTES = 6,     /* before the target: priority, weight, port */
    MAX_LABEL_BYTES = 63,
    MAX_NAME_BYTES = 253,
    TYPE_CNAME = 5,
    CLASS_IN = 1,
};

static const uint32_t MAX_TTL_S = INT32_MAX; /* higher values are invalid: RFC 2181, 8 */

static enum status malformed_error(struct error *err) {
    return error_set(err, ST_BAD_ANSWER, "answered with something that is no DNS");
}

/* ---- numbers and names ----------------------------------------------------------------------- */

static uint32_t get_u8(struct str message, size_t at) {
    return (unsigned char)message.ptr[at];
}

static uint16_t get_u16(struct str message, size_t at) {
    return (uint16_t)(get_u8(message, at) << 8 | get_u8(message, at + 1));
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

bool dns_name_is_valid(struct str name) {
    if (name.len > 0 && name.ptr[name.len - 1] == '.') {
        name.len--;
    }
    bool good = name.len > 0 && name.len <= MAX_NAME_BYTES, digits = true;
    while (good && name.ptr) {
        struct str label = str_cut(&name, '.');
        good = label.len > 0 && label.len <= MAX_LABEL_BYTES;
        digits = true; /* of the last label */
        for (size_t i = 0; i < label.len; i++) {
            good = good && is_name_byte(label.ptr[i]);
            digits = digits && label.ptr[i] >= '0' && label.ptr[i] <= '9';
        }
    }
    return good && !digits;
}

/* A name while it is read. */
struct name {
    char text[DNS_NAME_BYTES];
    size_t len;
    bool invalid; /* it contains a byte that host names cannot have; `text` is not valid then */
};

/* Returns: false when the name is too long. */
static bool add_label(struct name *name, struct str label) {
    if (name->len + 1 + label.len > MAX_NAME_BYTES + 1) {
        return false;
    }
    for (size_t i = 0; i < label.len; i++) {
        name->invalid = name->invalid || !is_name_byte(label.ptr[i]);
    }
    memcpy(name->text + name->len, label.ptr, label.len);
    name->len += label.len;
    name->text[name->len++] = '.'; /* the new label is the last one */
    return true;
}

/* Reads the name at `*at` and advances `*at` past it. A pointer must lead to before the labels that
 * it ends. Returns: false when it is malformed. */
static bool read_name(struct str message, size_t *at, struct name *out) {
    size_t begin = *at, pos = begin;
    bool jumped = false;
    out->len = 0;
    out->invalid = false;
    while (pos < message.len) {
        uint32_t n = get_u8(message, pos);
        if (n == 0) {
            *at = jumped ? *at : pos + 1;
            out->len -= out->len > 0;
            out->text[out->len] = '\0';
            return true;
        }
        if (n > MAX_LABEL_BYTES) {
            if (n < 0xc0 || message.len - pos < 2) {
                return false;
            }
            *at = jumped ? *at : pos + 2;
            jumped = true;
            pos = get_u16(message, pos) & 0x3fffu;
            if (pos >= begin) {
                return false;
            }
            begin = pos;
        } else if (n >= message.len - pos || !add_label(out, str_make(message.ptr + pos + 1, n))) {
            return false;
        } else {
            pos += 1 + n;
        }
    }
    return false;
}

/* ---- records --------------------------------------------------------------------------------- */

struct record {
    uint16_t type, class;
    uint32_t ttl_s;
    size_t at, end; /* range of its data */
};

static bool read_record(struct str message, size_t *at, struct record *out) {
    struct name owner;
    if (!read_name(message, at, &owner) || message.len - *at < RECORD_BYTES) {
        return false;
    }
    out->type = get_u16(message, *at);
    out->class = get_u16(message, *at + 2);
    out->ttl_s = (uint32_t)get_u16(message, *at + 4) << 16 | get_u16(message, *at + 6);
    size_t n = get_u16(message, *at + 8);
    out->at = *at + RECORD_BYTES;
    out->end = out->at + n;
    *at = out->end;
    if (out->ttl_s > MAX_TTL_S) {
        out->ttl_s = 0;
    }
    return n <= message.len - out->at;
}

static enum status add_srv(struct arena *arena, struct str message, const struct record *record,
                           struct dns_srv_list *list, struct error *err) {
    struct dns_srv *srv = &list->items[list->n];
    struct name target;
    size_t at = record->at + SRV_BYTES;
    if (record->end < at || !read_name(message, &at, &target) || at != record->end) {
        return malformed_error(err);
    }
    *srv = (struct dns_srv){.priority = get_u16(message, record->at),
                            .weight = get_u16(message, record->at + 2),
                            .port = get_u16(message, record->at + 4)};
    if (target.len == 0) {
        return ST_OK;
    }
    if (target.invalid || srv->port == 0 || !dns_name_is_valid(str_make(target.text, target.len))) {
        list->n_invalid++;
        return ST_OK;
    }
    srv->target = arena_dup(arena, str_make(target.text, target.len));
    if (!srv->target.ptr) {
        return error_no_memory(err, "the answer");
    }
    list->n++;
    return ST_OK;
}

static int compare_priority(const void *a, const void *b) {
    const struct dns_srv *left = a, *right = b;
    return left->priority - right->priority;
}

static enum status read_answers(struct arena *arena, struct str message, size_t at, unsigned n,
                                struct dns_srv_list *list, struct error *err) {
    enum status st = ST_OK;
    uint32_t ttl_s = UINT32_MAX;
    for (unsigned i = 0; st == ST_OK && i < n; i++) {
        struct record record;
        if (!read_record(message, &at, &record)) {
            return malformed_error(err);
        }
        bool srv = record.class == CLASS_IN && record.type == DNS_TYPE_SRV;
        if (srv || (record.class == CLASS_IN && record.type == TYPE_CNAME)) {
            ttl_s = record.ttl_s < ttl_s ? record.ttl_s : ttl_s;
        }
        if (srv) {
            st = add_srv(arena, message, &record, list, err);
        }
    }
    list->ttl_s = ttl_s == UINT32_MAX ? 0 : ttl_s;
    return st;
}

enum status dns_srv_decode(struct arena *arena, struct str message, struct dns_srv_list *out,
                           struct error *err) {
    size_t at = HEADER_BYTES;
    *out = (struct dns_srv_list){.items = NULL};
    if (message.len < HEADER_BYTES) {
        return malformed_error(err);
    }
    unsigned n_questions = get_u16(message, 4), n_answers = get_u16(message, 6);
    for (unsigned i = 0; i < n_questions; i++) {
        struct name question;
        if (!read_name(message, &at, &question) || message.len - at < 4) {
            return malformed_error(err);
        }
        at += 4;
    }
    /* At most as many as fit: a record takes at least a byte for its name, and its head. */
    if (n_answers > (message.len - at) / (1 + RECORD_BYTES)) {
        return malformed_error(err);
    }
    out->items = arena_calloc(arena, n_answers + 1u, sizeof(*out->items));
    if (!out->items) {
        return error_no_memory(err, "the answer");
    }
    enum status st = read_answers(arena, message, at, n_answers, out, err);
    qsort(out->items, out->n, sizeof(*out->items), compare_priority);
    return st;
}
