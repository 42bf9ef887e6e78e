/* Who we are, as a kubeconfig says it. What is secret is in no sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/protobuf/grpc_text.h"
#include "core/base/buf.h"
#include "pick/discovery/kube/credentials/config_state.h"

enum { FIELD_BYTES = 2048 };

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a kubeconfig");
}

/* ---- members --------------------------------------------------------------------------------- */

enum status kube_config_secret(const struct doc_node *node, const char *key, struct str *out,
                               struct error *err) {
    struct doc_node member = doc_get(node, key);
    if (!doc_is_present(&member)) {
        return ST_OK;
    }
    if (!yyjson_is_str(member.val)) {
        return doc_error(&member, err, "expected text (in quotes, where it looks like a number)");
    }
    *out = str_make(yyjson_get_str(member.val), yyjson_get_len(member.val));
    if (memchr(out->ptr, '\0', out->len)) {
        return doc_error(&member, err, "expected text without a NUL");
    }
    return ST_OK;
}

enum status kube_config_text(const struct doc_node *node, const char *key, char **out,
                             struct error *err) {
    struct doc_node member = doc_get(node, key);
    struct str text = {NULL, 0};
    enum status status = doc_is_present(&member) ? doc_read_str(&member, &text, err) : ST_OK;
    if (status != ST_OK || text.len == 0) {
        return status;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        return doc_error(&member, err, "expected text without a NUL");
    }
    *out = str_dup(text);
    return *out ? ST_OK : no_memory(err);
}

char *kube_config_path(const char *folder, struct str path) {
    size_t n_bytes = strlen(folder) + path.len + 2;
    char *out = path.ptr[0] == '/' ? NULL : malloc(n_bytes);
    if (out) {
        snprintf(out, n_bytes, "%s/%.*s", folder, STR_ARG(path));
    }
    return path.ptr[0] == '/' ? str_dup(path) : out;
}

/* base64 in which there may be line breaks. */
static enum status decode_base64(const struct doc_node *node, struct str text,
                                 struct credential *out, struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf dense;
    struct str bytes = {NULL, 0};
    buf_init(&dense, arena, arena ? text.len + 1 : 0);
    for (size_t i = 0; arena && i < text.len; i++) {
        if ((unsigned char)text.ptr[i] > ' ') {
            buf_add_char(&dense, text.ptr[i]);
        }
    }
    enum status status = arena && !dense.failed
                             ? grpc_binary_metadata_parse(arena, buf_str(&dense), &bytes, err)
                             : no_memory(err);
    if (status == ST_BAD_REQUEST || (status == ST_OK && bytes.len == 0)) {
        status = doc_error(node, err, "expected base64 of a PEM file");
    }
    status = status == ST_OK ? credential_set(out, bytes, err) : status;
    if (arena && bytes.ptr) {
        secret_wipe((void *)(uintptr_t)bytes.ptr, bytes.len);
        secret_wipe(dense.data, dense.len);
    }
    arena_free(arena);
    return status;
}

enum status kube_config_pem(const struct doc_node *node, const char *name, const char *folder,
                            struct credential *out, struct error *err) {
    char data_name[64];
    struct str data = {NULL, 0}, path = {NULL, 0};
    snprintf(data_name, sizeof(data_name), "%s-data", name);
    struct doc_node data_node = doc_get(node, data_name);
    enum status status = kube_config_secret(node, data_name, &data, err);
    status = status == ST_OK ? kube_config_secret(node, name, &path, err) : status;
    if (status != ST_OK) {
        return status;
    }
    if (data.len > 0) {
        return decode_base64(&data_node, data, out, err);
    }
    if (path.len > 0) {
        out->path = kube_config_path(folder, path);
        return out->path ? ST_OK : no_memory(err);
    }
    return ST_OK;
}

/* ---- tokens and passwords -------------------------------------------------------------------- */

static enum status read_token(struct kube_config *config, const struct doc_node *user,
                              const char *folder, struct error *err) {
    struct str token = {NULL, 0}, file = {NULL, 0};
    enum status status = kube_config_secret(user, "token", &token, err);
    status = status == ST_OK ? kube_config_secret(user, "tokenFile", &file, err) : status;
    if (status == ST_OK && token.len > 0) {
        status = credential_set(&config->token, token, err);
    }
    if (status == ST_OK && file.len > 0) {
        config->token.path = kube_config_path(folder, file);
        status = config->token.path ? ST_OK : no_memory(err);
    }
    return status;
}

static enum status print_basic(struct kube_config *config, struct str name, struct str password,
                               struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf plain, field;
    if (!arena) {
        return no_memory(err);
    }
    buf_init(&plain, arena, name.len + password.len + 1);
    buf_init(&field, arena, 2 * (name.len + password.len) + 64);
    buf_add_str(&plain, name);
    buf_add_char(&plain, ':');
    buf_add_str(&plain, password);
    buf_add_str(&field, STR("Authorization: Basic "));
    grpc_binary_metadata_print(&field, buf_str(&plain));
    while (field.len % 4 != 1) { /* its beginning has one byte more than a multiple of four */
        buf_add_char(&field, '=');
    }
    config->basic = plain.failed || field.failed ? NULL : str_dup(buf_str(&field));
    secret_wipe(plain.data, plain.len);
    secret_wipe(field.data, field.len);
    arena_free(arena);
    return config->basic ? ST_OK : no_memory(err);
}

static enum status read_basic(struct kube_config *config, const struct doc_node *user,
                              struct error *err) {
    struct str name = {NULL, 0}, password = {NULL, 0};
    enum status status = kube_config_secret(user, "username", &name, err);
    status = status == ST_OK ? kube_config_secret(user, "password", &password, err) : status;
    if (status != ST_OK || (name.len == 0 && password.len == 0)) {
        return status;
    }
    if (config->token.text || config->token.path) {
        return doc_error(user, err, "expected a token or a password, there are both");
    }
    return print_basic(config, name, password, err);
}

/* ---- as whom to act -------------------------------------------------------------------------- */

static enum status add_field(struct kube_config *config, const char *name, struct str value,
                             struct error *err) {
    char text[FIELD_BYTES];
    char **longer = realloc(config->fields, (config->n_fields + 1) * sizeof(*longer));
    if (!longer) {
        return no_memory(err);
    }
    config->fields = longer;
    snprintf(text, sizeof(text), "%s: %.*s", name, STR_ARG(value));
    config->fields[config->n_fields] = strdup(text);
    return config->fields[config->n_fields++] ? ST_OK : no_memory(err);
}

static enum status read_impersonation(struct kube_config *config, const struct doc_node *user,
                                      struct error *err) {
    struct doc_node groups = doc_get(user, "as-groups"), group = {0};
    struct str name = {NULL, 0}, uid = {NULL, 0}, text = {NULL, 0};
    enum status status = kube_config_secret(user, "as", &name, err);
    status = status == ST_OK ? kube_config_secret(user, "as-uid", &uid, err) : status;
    if (status == ST_OK && name.len > 0) {
        status = add_field(config, "Impersonate-User", name, err);
    }
    if (status == ST_OK && uid.len > 0) {
        status = add_field(config, "Impersonate-Uid", uid, err);
    }
    while (status == ST_OK && doc_is_present(&groups) && doc_next(&groups, &group)) {
        status = doc_read_str(&group, &text, err);
        status = status == ST_OK ? add_field(config, "Impersonate-Group", text, err) : status;
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum status kube_config_read_user(struct kube_config *config, const struct doc_node *user,
                                  const char *folder, struct error *err) {
    struct doc_node provider = doc_get(user, "auth-provider"), exec = doc_get(user, "exec");
    enum status status = read_token(config, user, folder, err);
    status = status == ST_OK ? read_basic(config, user, err) : status;
    status = status == ST_OK
                 ? kube_config_pem(user, "client-certificate", folder, &config->cert, err)
                 : status;
    status =
        status == ST_OK ? kube_config_pem(user, "client-key", folder, &config->key, err) : status;
    status = status == ST_OK ? read_impersonation(config, user, err) : status;
    if (status == ST_OK && doc_is_present(&provider)) {
        status = doc_error(&provider, err, "not supported: name a program for it under \"exec\"");
    }
    if (status == ST_OK && doc_is_present(&exec)) {
        status = kube_exec_read(&exec, folder, &config->exec, err);
    }
    return status;
}
