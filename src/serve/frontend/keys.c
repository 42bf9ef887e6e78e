/* The keys file is parsed to digests of its keys: each check compares the digest of a request's key
 * with all of a group's in constant time, so that its duration does not depend on the keys. A
 * request reads one snapshot of the file. Replaced snapshots are freed only by keys_free, because a
 * worker may still read one; they are small and changes are rare. */
#include "serve/frontend/keys.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/doc/reader.h"
#include "core/base/hex.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/secret.h"
#include "core/os/watched_file.h"

/* ---- the file -------------------------------------------------------------------------------- */

enum { FIELD_BYTES = 64, MAX_KEY_BYTES = 4096 };

static const char HASHED[] = "sha256:"; /* prefix of a key that is given by its digest */

struct group {
    bool is_configured;
    bool is_open; /* the file says so */
    size_t n;
    struct secret_digest *keys;
};

struct keys_file {
    char field[FIELD_BYTES];
    bool raw_key;
    struct group groups[KEYS_GROUPS];
};

static const char *const GROUP_NAMES[KEYS_GROUPS] = {
    [KEYS_NO_GROUP] = "",     [KEYS_INFER] = "infer",     [KEYS_METADATA] = "metadata",
    [KEYS_HEALTH] = "health", [KEYS_CONTROL] = "control",
};

const char *keys_group_name(enum keys_group group) {
    return GROUP_NAMES[group];
}

/* ---- one key --------------------------------------------------------------------------------- */

/* The key can be sent as a field value: no controls, and no spaces at its ends, which a parser
 * would trim. */
static bool is_sendable(struct str key) {
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] <= ' ' || key.ptr[i] > '~') {
            return false;
        }
    }
    return key.len > 0 && key.len <= MAX_KEY_BYTES;
}

/* No error text contains the key. */
static void read_key(struct doc_reader *reader, const struct doc_node *node,
                     struct secret_digest *out) {
    struct str text = {NULL, 0};
    if (!doc_is_text(node)) {
        doc_reader_fail(reader, node,
                        "expected text; a key that looks like something else goes in quotes");
    }
    doc_reader_view(reader, node, &text);
    if (str_starts_with(text, str_of(HASHED))) {
        struct str hex = str_make(text.ptr + sizeof(HASHED) - 1, text.len - sizeof(HASHED) + 1);
        if (hex.len != 2 * sizeof(out->bytes) ||
            !hex_decode_lower(hex.ptr, out->bytes, sizeof(out->bytes))) {
            doc_reader_fail(reader, node,
                            "expected sha256: and 64 digits in lower case, as `sha256sum` writes "
                            "them");
        }
    } else if (!is_sendable(text)) {
        doc_reader_fail(reader, node,
                        "expected a key of 1 to %d visible ASCII characters without spaces",
                        MAX_KEY_BYTES);
    } else {
        *out = secret_digest_of(text);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void read_keys(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct group *group = out;
    if (!node->val) {
        return;
    }
    size_t n = doc_is_present(node) ? doc_count(node) : 0;
    if (n == 0) {
        doc_reader_fail(reader, node, "expected at least one key, or the word open");
        return;
    }
    group->keys = calloc(n, sizeof(*group->keys));
    if (!group->keys) {
        doc_reader_no_memory(reader);
    }
    group->is_configured = true;
    group->n = n;
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        read_key(reader, &item, &group->keys[i]);
    }
}

static void read_keys_or_open(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct group *group = out;
    group->is_open = json_text_is(node->val, "open");
    if (!group->is_open) {
        read_keys(reader, node, out);
    }
}

static bool is_token(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void read_header(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct keys_file *file = out;
    struct str text = STR("authorization");
    doc_reader_view(reader, node, &text);
    bool fits = text.len > 0 && text.len < FIELD_BYTES;
    if (fits) {
        str_copy_lower(file->field, text);
    }
    for (size_t i = 0; fits && i < text.len; i++) {
        fits = is_token(file->field[i]);
    }
    if (!fits || str_ends_with(str_of(file->field), STR("-bin"))) {
        doc_reader_fail(reader, node,
                        "expected the name of a header (X-Api-Key), at most %d characters, which "
                        "does not end in -bin",
                        FIELD_BYTES - 1);
    }
    file->raw_key = strcmp(file->field, "authorization") != 0;
}

static const struct doc_member MEMBERS[] = {
    {"header", MEMBER_CUSTOM(read_header)},
    {"infer",
     MEMBER_CUSTOM_FIELD(struct keys_file, groups[KEYS_INFER], struct group, read_keys_or_open)},
    {"metadata",
     MEMBER_CUSTOM_FIELD(struct keys_file, groups[KEYS_METADATA], struct group, read_keys_or_open)},
    {"health",
     MEMBER_CUSTOM_FIELD(struct keys_file, groups[KEYS_HEALTH], struct group, read_keys_or_open)},
    {"control",
     MEMBER_CUSTOM_FIELD(struct keys_file, groups[KEYS_CONTROL], struct group, read_keys)},
    {0}};

static void read_file(struct doc_reader *reader, const struct doc_node *root,
                      struct keys_file *file) {
    bool any = false;
    doc_reader_object(reader, root, MEMBERS, file);
    for (int i = KEYS_INFER; i < KEYS_GROUPS; i++) {
        any = any || file->groups[i].is_configured;
    }
    if (!any) {
        doc_reader_fail(reader, root,
                        "expected keys for at least one of infer, metadata, health and control");
    }
}

void keys_file_free(struct keys_file *file) {
    if (file) {
        for (int i = 0; i < KEYS_GROUPS; i++) {
            free(file->groups[i].keys);
        }
        free(file);
    }
}

enum status keys_file_parse(const char *name, struct str text, struct keys_file **out,
                            struct error *err) {
    struct doc *doc;
    enum status st = doc_parse(DOC_YAML, name, text, &doc, err);
    if (st != ST_OK) {
        return st;
    }
    struct keys_file *file = calloc(1, sizeof(*file));
    struct doc_reader reader = {.what = "the keys", .err = err};
    struct doc_node root = doc_root(doc);
    if (file) {
        read_file(&reader, &root, file);
    } else {
        doc_reader_no_memory(&reader);
    }
    doc_free(doc);
    if (!doc_reader_ok(&reader)) {
        keys_file_free(file);
        return reader.status;
    }
    *out = file;
    return ST_OK;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* One snapshot of the file. */
struct keys_snapshot {
    struct keys_file *file;
    struct keys_snapshot *prev;
};

struct keys {
    struct watched_file watched;
    struct keys_snapshot *_Atomic current; /* head of the list of all snapshots */
};

static const struct keys_file *current_file(const struct keys *keys) {
    return atomic_load_explicit(&keys->current, memory_order_acquire)->file;
}

enum { NAMES_BYTES = 64 };

static void add_name(char names[NAMES_BYTES], const char *name) {
    size_t n = strlen(names);
    snprintf(names + n, NAMES_BYTES - n, "%s%s", n > 0 ? ", " : "", name);
}

/* A file may lack groups because it is cut, or by mistake: what they guarded stays closed, with the
 * keys that `previous` has. */
static enum status keep_groups(struct keys_file *file, const struct keys_file *previous,
                               struct error *err) {
    char kept[NAMES_BYTES] = "", opened[NAMES_BYTES] = "";
    for (int i = KEYS_INFER; i < KEYS_CONTROL; i++) { /* without keys, control is closed */
        struct group *group = &file->groups[i];
        const struct group *before = &previous->groups[i];
        if (!before->is_configured || group->is_configured) {
            continue;
        }
        if (group->is_open) {
            add_name(opened, GROUP_NAMES[i]);
            continue;
        }
        group->keys = calloc(before->n, sizeof(*group->keys));
        if (!group->keys) {
            return error_no_memory(err, "the keys");
        }
        memcpy(group->keys, before->keys, before->n * sizeof(*group->keys));
        group->n = before->n;
        group->is_configured = true;
        add_name(kept, GROUP_NAMES[i]);
    }
    if (kept[0]) {
        log_event(LOG_WARNING,
                  "keys file lacks groups that had keys: their keys stay in use; `GROUP: open` "
                  "opens a group",
                  LOG_CSTR("groups", kept));
    }
    if (opened[0]) {
        log_event(LOG_WARNING, "keys file opens groups to all", LOG_CSTR("groups", opened));
    }
    return ST_OK;
}

/* Parses the bytes just read and publishes them as the current snapshot. */
static enum status publish_snapshot(struct keys *keys, struct error *err) {
    struct keys_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (!snapshot) {
        return error_no_memory(err, "the keys");
    }
    snapshot->prev = atomic_load_explicit(&keys->current, memory_order_relaxed);
    enum status st = keys_file_parse(keys->watched.path, watched_file_text(&keys->watched),
                                     &snapshot->file, err);
    if (st == ST_OK && snapshot->prev) {
        st = keep_groups(snapshot->file, snapshot->prev->file, err);
    }
    if (st != ST_OK) {
        keys_file_free(snapshot->file);
        free(snapshot);
        return st;
    }
    atomic_store_explicit(&keys->current, snapshot, memory_order_release);
    return ST_OK;
}

static enum status read_if_changed(struct keys *keys, bool now, bool *changed, struct error *err) {
    enum status st = now ? watched_file_read(&keys->watched, changed, err)
                         : watched_file_read_settled(&keys->watched, changed, err);
    if (st != ST_OK) {
        return error_prefix(err, "%s", keys->watched.path);
    }
    return *changed ? publish_snapshot(keys, err) : ST_OK;
}

enum status keys_new(const char *path, struct keys **out, struct error *err) {
    struct keys *keys = calloc(1, sizeof(*keys));
    bool changed = false;
    if (!keys) {
        return error_no_memory(err, "the keys");
    }
    keys->watched.path = path;
    enum status st = read_if_changed(keys, true, &changed, err);
    watched_file_clear(&keys->watched);
    if (st != ST_OK) {
        keys_free(keys);
        return st;
    }
    *out = keys;
    return ST_OK;
}

void keys_free(struct keys *keys) {
    struct keys_snapshot *snapshot = keys ? atomic_load(&keys->current) : NULL;
    while (snapshot) {
        struct keys_snapshot *prev = snapshot->prev;
        keys_file_free(snapshot->file);
        free(snapshot);
        snapshot = prev;
    }
    free(keys);
}

bool keys_reload(struct keys *keys, bool now) {
    bool changed = false;
    struct error err;
    enum status st = read_if_changed(keys, now, &changed, &err);
    watched_file_clear(&keys->watched);
    if (changed && st == ST_OK) {
        metric_add(METRIC_RELOADS_KEYS, 1);
        log_event(LOG_INFO, "keys file reloaded", LOG_CSTR("file", keys->watched.path));
    } else if (changed) {
        metric_add(METRIC_RELOAD_FAILURES_KEYS, 1);
        log_event(LOG_ERROR, "keys file invalid: the previous keys stay in use",
                  LOG_CSTR("reason", err.text));
    }
    return changed && st == ST_OK;
}

/* ---- authorization --------------------------------------------------------------------------- */

static bool requires_key(const struct keys_file *file, enum keys_group group) {
    return file->groups[group].is_configured || group == KEYS_CONTROL || group == KEYS_NO_GROUP;
}

bool keys_are_required(const struct keys *keys, enum keys_group group) {
    return requires_key(current_file(keys), group);
}

bool keys_read_field(const struct keys *keys, struct str name) {
    return keys && str_is(name, current_file(keys)->field);
}

/* The key in the field's value; empty: none. The scheme is case-insensitive (RFC 6750, 2.1; RFC
 * 9110, 11.1). */
static struct str key_from_value(const struct keys_file *file, struct str value) {
    struct str rest = str_trim(value);
    if (file->raw_key) {
        return rest;
    }
    struct str scheme = str_cut(&rest, ' ');
    return rest.ptr && str_eq_nocase(scheme, STR("Bearer")) ? str_trim(rest) : STR("");
}

enum status keys_file_authorize(const struct keys_file *file, enum keys_group group,
                                size_t n_values, struct str value, struct error *err) {
    const struct group *keys = &file->groups[group];
    if (!requires_key(file, group)) {
        return ST_OK;
    }
    if (keys->n == 0) {
        return error_set(err, ST_UNAUTHENTICATED, "closed: the server has no keys for this");
    }
    struct str key = n_values == 1 ? key_from_value(file, value) : STR("");
    struct secret_digest digest = secret_digest_of(key);
    bool known = false;
    for (size_t i = 0; i < keys->n; i++) { /* always all keys: constant time */
        known = secret_digest_equal(&digest, &keys->keys[i]) || known;
    }
    if (key.len == 0) {
        return error_set(err, ST_UNAUTHENTICATED, "expected a key for %s: \"%s: %sKEY\"",
                         GROUP_NAMES[group], file->field, file->raw_key ? "" : "Bearer ");
    }
    return known ? ST_OK
                 : error_set(err, ST_UNAUTHENTICATED, "the key in %s is none of those for %s",
                             file->field, GROUP_NAMES[group]);
}

/* Checks a request against one state of the file. */
static enum status authorize(const struct keys_file *file, enum keys_group group,
                             keys_field_find *find, const void *request, struct error *err) {
    struct str value = STR("");
    size_t n = find(request, file->field, &value);
    enum status st = keys_file_authorize(file, group, n, value, err);
    if (st != ST_OK) {
        metric_add(METRIC_KEYS_REFUSED_TOTAL, 1);
    }
    return st;
}

enum status keys_authorize(const struct keys *keys, enum keys_group group, keys_field_find *find,
                           const void *request, struct error *err) {
    return keys ? authorize(current_file(keys), group, find, request, err) : ST_OK;
}

size_t keys_find_http_field(const void *head, const char *name, struct str *value) {
    return http_head_find(head, str_of(name), value);
}

enum status keys_authorize_http(const struct keys *keys, enum keys_group group,
                                const struct http_head *head, char challenge[KEYS_CHALLENGE_BYTES],
                                struct error *err) {
    if (!keys) {
        return ST_OK;
    }
    const struct keys_file *file = current_file(keys);
    enum status st = authorize(file, group, keys_find_http_field, head, err);
    if (file->raw_key) {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "ApiKey realm=\"sluice\", header=\"%s\"",
                 file->field);
    } else {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "Bearer realm=\"sluice\"");
    }
    return st;
}
