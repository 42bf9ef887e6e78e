/* Parsing of the keys file, and the comparison of digests. */
#include "serve/frontend/keys_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/doc/reader.h"
#include "core/base/hex.h"
#include "core/os/secret.h"

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

static bool digest_parse(struct str hex, struct secret_digest *out) {
    return hex.len == 2 * sizeof(out->bytes) &&
           hex_decode_lower(hex.ptr, out->bytes, sizeof(out->bytes));
}

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
        if (!digest_parse(hex, out)) {
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
    for (size_t i = 0; fits && i < text.len; i++) {
        char c = text.ptr[i];
        file->field[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
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

static void add_name(char names[KEYS_NAMES_BYTES], const char *name) {
    size_t n = strlen(names);
    snprintf(names + n, KEYS_NAMES_BYTES - n, "%s%s", n > 0 ? ", " : "", name);
}

enum status keys_file_keep(struct keys_file *file, const struct keys_file *previous,
                           char kept[KEYS_NAMES_BYTES], char opened[KEYS_NAMES_BYTES],
                           struct error *err) {
    kept[0] = opened[0] = '\0';
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
    return ST_OK;
}

void keys_file_free(struct keys_file *file) {
    if (file) {
        for (int i = 0; i < KEYS_GROUPS; i++) {
            free(file->groups[i].keys);
        }
        free(file);
    }
}

/* ---- authorization --------------------------------------------------------------------------- */

const char *keys_file_field(const struct keys_file *file) {
    return file->field;
}

bool keys_file_has_raw_key(const struct keys_file *file) {
    return file->raw_key;
}

bool keys_file_requires_key(const struct keys_file *file, enum keys_group group) {
    return file->groups[group].is_configured || group == KEYS_CONTROL || group == KEYS_NO_GROUP;
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
    if (!keys_file_requires_key(file, group)) {
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
