/* Parsing of the keys file, and the comparison of digests. */
#include "serve/frontend/keys_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/doc/doc.h"
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

static enum status key_read(const struct doc_node *node, struct secret_digest *out,
                            struct error *err) {
    struct str text = {NULL, 0};
    if (doc_read_str(node, &text, NULL) != ST_OK) { /* its error text would contain the key */
        return doc_error(node, err,
                         "expected text; a key that looks like something else goes in quotes");
    }
    if (str_starts_with(text, str_of(HASHED))) {
        struct str hex = str_make(text.ptr + sizeof(HASHED) - 1, text.len - sizeof(HASHED) + 1);
        return digest_parse(hex, out)
                   ? ST_OK
                   : doc_error(node, err,
                               "expected sha256: and 64 digits in lower case, as "
                               "`sha256sum` writes them");
    }
    if (!is_sendable(text)) {
        return doc_error(node, err,
                         "expected a key of 1 to %d visible ASCII characters without spaces",
                         MAX_KEY_BYTES);
    }
    *out = secret_digest_of(text);
    return ST_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static enum status group_read(const struct doc_node *root, struct group *group, const char *name,
                              bool can_open, struct error *err) {
    struct doc_node list = doc_get(root, name);
    struct str word;
    if (!list.val) {
        return ST_OK;
    }
    if (can_open && !doc_is_list(&list) && doc_read_str(&list, &word, NULL) == ST_OK &&
        str_is(word, "open")) {
        group->is_open = true;
        return ST_OK;
    }
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    if (n == 0) {
        return doc_error(&list, err, "expected at least one key, or the word open");
    }
    group->keys = calloc(n, sizeof(*group->keys));
    if (!group->keys) {
        return error_no_memory(err, "the keys");
    }
    group->is_configured = true;
    group->n = n;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        struct doc_node node = doc_at(&list, i);
        st = key_read(&node, &group->keys[i], err);
    }
    return st;
}

static bool is_token(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static enum status field_read(const struct doc_node *root, struct keys_file *file,
                              struct error *err) {
    struct doc_node node = doc_get(root, "header");
    struct str text = STR("authorization");
    enum status st = doc_read_str(&node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    bool fits = text.len > 0 && text.len < FIELD_BYTES;
    for (size_t i = 0; fits && i < text.len; i++) {
        char c = text.ptr[i];
        file->field[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        fits = is_token(file->field[i]);
    }
    if (!fits || str_ends_with(str_of(file->field), STR("-bin"))) {
        return doc_error(&node, err,
                         "expected the name of a header (X-Api-Key), at most %d characters, which "
                         "does not end in -bin",
                         FIELD_BYTES - 1);
    }
    file->raw_key = strcmp(file->field, "authorization") != 0;
    return ST_OK;
}

static enum status file_read(const struct doc_node *root, struct keys_file *file,
                             struct error *err) {
    static const char *const NAMES[] = {"header", "infer", "metadata", "health", "control", NULL};
    enum status st = doc_expect_object(root, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(root, NAMES, err);
    }
    if (st == ST_OK) {
        st = field_read(root, file, err);
    }
    bool any = false;
    for (int i = KEYS_INFER; i < KEYS_GROUPS && st == ST_OK; i++) {
        st = group_read(root, &file->groups[i], GROUP_NAMES[i], i != KEYS_CONTROL, err);
        any = any || file->groups[i].is_configured;
    }
    if (st == ST_OK && !any) {
        st = doc_error(root, err,
                       "expected keys for at least one of infer, metadata, health and "
                       "control");
    }
    return st;
}

enum status keys_file_parse(const char *name, struct str text, struct keys_file **out,
                            struct error *err) {
    struct doc *doc;
    enum status st = doc_parse(DOC_YAML, name, text, &doc, err);
    if (st != ST_OK) {
        return st;
    }
    struct keys_file *file = calloc(1, sizeof(*file));
    struct doc_node root = doc_root(doc);
    st = file ? file_read(&root, file, err) : error_no_memory(err, "the keys");
    doc_free(doc);
    if (st != ST_OK) {
        keys_file_free(file);
        return st;
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
