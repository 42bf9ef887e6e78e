/* Reads the endpoints file, and keeps its text for pools that are made again. */
#include "pick/discovery/file/endpoints_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/num.h"
#include "core/must/must.h"
#include "pick/config/reader.h"

enum { MAX_ENDPOINTS_BYTES = 1 << 20 /* upstream's */, MOST_LOGGED = 10 };

void endpoints_file_clear(struct endpoints_file *self) {
    watched_file_clear(&self->file);
    free((char *)self->file.path);
    free(self->text);
    *self = (struct endpoints_file){.text = NULL};
}

void endpoints_file_dup(struct endpoints_file *self, const struct endpoints_file *from) {
    *self = *from;
    if (from->file.path) {
        self->file.path = must_dup(str_of(from->file.path), "the endpoints file");
    }
    if (from->text) {
        self->text = must_dup(str_make(from->text, from->text_len), "the endpoints file");
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

struct entry {
    struct str address;
    struct pool_spec_endpoint endpoint;
};

static void read_port(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct entry *entry = object;
    struct str text = {NULL, 0};
    uint64_t port = 0;
    if (doc_is_whole(node)) { /* upstream has texts only */
        doc_reader_u64(reader, node, 1, UINT16_MAX, &port);
    } else {
        doc_reader_view(reader, node, &text);
        if (doc_reader_ok(reader) &&
            (!num_parse_u64(text, &port) || port < 1 || port > UINT16_MAX)) {
            doc_reader_fail(reader, node, "expected a port from 1 to 65535, got \"%.*s\"",
                            STR_ARG(text));
        }
    }
    entry->endpoint.address.port = (uint16_t)port;
}

static void read_address(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct entry *entry = object;
    struct endpoint_address address;
    doc_reader_view(reader, node, &entry->address);
    if (!doc_reader_ok(reader)) {
        return;
    }
    if (!endpoint_address_parse_ip(entry->address, &address)) {
        doc_reader_fail(reader, node, "expected an IP address, got \"%.*s\"",
                        STR_ARG(entry->address));
        return;
    }
    address.port = entry->endpoint.address.port;
    entry->endpoint.address = address;
}

/* As upstream an empty text is as none. */
static void read_name(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (text.len > 0) {
        pool_config_read_name(reader, node, out);
    }
}

/* The port before the address, which keeps it. */
static const struct doc_member ENTRY[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct entry, endpoint.name.pod, struct str, read_name)},
    {"namespace",
     MEMBER_CUSTOM_FIELD(struct entry, endpoint.name.name_space, struct str, read_name)},
    {"port", MEMBER_CUSTOM(read_port)},
    {"address", MEMBER_CUSTOM(read_address)},
    {"labels", MEMBER_CUSTOM_FIELD(struct entry, endpoint.labels, struct pool_labels,
                                   pool_config_read_labels)},
    {0}};

/* Returns: the entry was added; otherwise `*err` says why it is left out. */
static bool add_entry(struct pool_spec *spec, const char *file, const struct doc_node *node,
                      struct arena *arena, struct error *err) {
    struct pool_config_reader reader;
    struct entry entry = {.endpoint.name.name_space = STR("default")};
    pool_config_reader_init(&reader, file, spec, arena, err);
    doc_reader_expect_object(&reader.doc, node);
    doc_reader_members(&reader.doc, node, ENTRY, &entry);
    if (doc_reader_ok(&reader.doc)) {
        entry.endpoint.name.text = entry.endpoint.name.pod;
        pool_spec_add_endpoint(spec, &entry.endpoint);
    }
    return doc_reader_ok(&reader.doc);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Not to be moved: nodes point to their parents. */
struct parsed {
    struct doc *doc;
    struct doc_node root, endpoints;
};

static enum status parse(const char *file, struct str text, struct parsed *out, struct error *err) {
    if (text.len > MAX_ENDPOINTS_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "%s: expected at most 1 MiB, got %zu bytes", file,
                         text.len);
    }
    enum status st = doc_parse(DOC_YAML, file, text, &out->doc, err);
    if (st != ST_OK) {
        return st;
    }
    out->root = doc_root(out->doc);
    out->endpoints = doc_get(&out->root, "endpoints");
    if (!out->endpoints.val || (doc_is_present(&out->endpoints) && !doc_is_list(&out->endpoints))) {
        doc_free(out->doc);
        return error_set(err, ST_BAD_CONFIG, "%s: expected `endpoints` with a list", file);
    }
    return ST_OK;
}

static enum status add_text(struct pool_spec *spec, const char *file, struct str text, bool logs,
                            struct error *err) {
    struct parsed parsed = {.doc = NULL};
    struct doc_node item = {0};
    uint64_t n_wrong = 0;
    enum status st = parse(file, text, &parsed, err);
    if (st != ST_OK) {
        return st;
    }
    struct arena *arena = must_arena_new("the endpoints file");
    while (doc_is_present(&parsed.endpoints) && doc_next(&parsed.endpoints, &item)) {
        struct error why;
        if (!add_entry(spec, file, &item, arena, &why) && logs && n_wrong++ < MOST_LOGGED) {
            log_event(LOG_WARNING, "endpoint left out", LOG_CSTR("reason", why.text));
        }
    }
    if (n_wrong > MOST_LOGGED) {
        log_event(LOG_WARNING, "endpoints left out", LOG_CSTR("file", file),
                  LOG_U64("number", n_wrong));
    }
    spec->is_empty_on_purpose = true; /* the file has its list, if only an empty one */
    arena_free(arena);
    doc_free(parsed.doc);
    return ST_OK;
}

/* Keeps the text that was read. */
static void keep_text(struct endpoints_file *self) {
    struct str text = watched_file_text(&self->file);
    free(self->text);
    self->text = must_dup(text.len > 0 ? text : STR(""), "the endpoints file");
    self->text_len = text.len;
}

static enum status read_first(struct endpoints_file *self, struct str path, struct error *err) {
    bool changed;
    endpoints_file_clear(self);
    self->file.path = must_dup(path, "the endpoints file");
    enum status st = watched_file_read(&self->file, &changed, err);
    if (st == ST_OK) {
        keep_text(self);
    } else {
        st = error_prefix(err, "%s", self->file.path);
    }
    watched_file_clear(&self->file);
    return st;
}

enum status endpoints_file_add_to(struct endpoints_file *self, struct pool_spec *spec, bool logs,
                                  struct error *err) {
    struct str path = spec->endpoints_file.path;
    enum status st = ST_OK;
    if (path.len == 0) {
        endpoints_file_clear(self);
        return ST_OK;
    }
    if (!self->text || !str_eq(str_of(self->file.path), path)) {
        st = read_first(self, path, err);
    }
    self->is_watched = spec->endpoints_file.is_watched;
    return st == ST_OK
               ? add_text(spec, self->file.path, str_make(self->text, self->text_len), logs, err)
               : st;
}

enum status endpoints_file_check(struct endpoints_file *self, bool now, bool *changed,
                                 struct error *err) {
    struct parsed parsed = {.doc = NULL};
    *changed = false;
    if (!self->text || !self->is_watched) {
        return ST_OK;
    }
    enum status st = now ? watched_file_read(&self->file, changed, err)
                         : watched_file_read_settled(&self->file, changed, err);
    if (st != ST_OK) {
        st = error_prefix(err, "%s", self->file.path);
    } else if (*changed) {
        st = parse(self->file.path, watched_file_text(&self->file), &parsed, err);
        if (st == ST_OK) {
            doc_free(parsed.doc);
            keep_text(self);
        }
    }
    watched_file_clear(&self->file);
    return st;
}
