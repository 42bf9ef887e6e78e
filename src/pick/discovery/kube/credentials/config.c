/* Reads the configuration from kubeconfig files, or from a pod's service account. Unknown members
 * are ignored, as newer clients write more of them. Error texts contain no secrets. */
#include "pick/discovery/kube/credentials/config.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/grpc/text.h"
#include "codec/kube/stream.h"
#include "core/base/buf.h"
#include "core/base/json_writer.h"

enum { FIELD_BYTES = 2048 };

/* ---- users: members -------------------------------------------------------------------------- */

enum status kube_config_secret(const struct doc_node *node, const char *key, struct str *out,
                               struct error *err) {
    struct doc_node member = doc_get(node, key);
    if (!doc_is_present(&member)) {
        return ST_OK;
    }
    if (!json_get_string(member.val, out)) {
        return doc_error(&member, err, "expected text (in quotes, where it looks like a number)");
    }
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
    return *out ? ST_OK : error_no_memory(err, "a kubeconfig");
}

char *kube_config_path(const char *folder, struct str path) {
    size_t n_bytes = strlen(folder) + path.len + 2;
    char *out = path.ptr[0] == '/' ? NULL : malloc(n_bytes);
    if (out) {
        snprintf(out, n_bytes, "%s/%.*s", folder, STR_ARG(path));
    }
    return path.ptr[0] == '/' ? str_dup(path) : out;
}

/* Decodes base64 that may contain line breaks. */
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
                             : error_no_memory(err, "a kubeconfig");
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

static enum status kube_config_pem(const struct doc_node *node, const char *name,
                                   const char *folder, struct credential *out, struct error *err) {
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
        return out->path ? ST_OK : error_no_memory(err, "a kubeconfig");
    }
    return ST_OK;
}

/* ---- users: tokens and passwords ------------------------------------------------------------- */

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
        status = config->token.path ? ST_OK : error_no_memory(err, "a kubeconfig");
    }
    return status;
}

static enum status print_basic(struct kube_config *config, struct str name, struct str password,
                               struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf plain, field;
    if (!arena) {
        return error_no_memory(err, "a kubeconfig");
    }
    buf_init(&plain, arena, name.len + password.len + 1);
    buf_init(&field, arena, 2 * (name.len + password.len) + 64);
    buf_add_str(&plain, name);
    buf_add_char(&plain, ':');
    buf_add_str(&plain, password);
    buf_add_str(&field, STR("Authorization: Basic "));
    grpc_binary_metadata_print(&field, buf_str(&plain));
    /* The text before the base64 has one byte more than a multiple of four. */
    while (field.len % 4 != 1) {
        buf_add_char(&field, '=');
    }
    config->basic = plain.failed || field.failed ? NULL : str_dup(buf_str(&field));
    secret_wipe(plain.data, plain.len);
    secret_wipe(field.data, field.len);
    arena_free(arena);
    return config->basic ? ST_OK : error_no_memory(err, "a kubeconfig");
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

/* ---- users: impersonation -------------------------------------------------------------------- */

static enum status add_field(struct kube_config *config, const char *name, struct str value,
                             struct error *err) {
    char text[FIELD_BYTES];
    char **longer = realloc(config->fields, (config->n_fields + 1) * sizeof(*longer));
    if (!longer) {
        return error_no_memory(err, "a kubeconfig");
    }
    config->fields = longer;
    snprintf(text, sizeof(text), "%s: %.*s", name, STR_ARG(value));
    config->fields[config->n_fields] = strdup(text);
    return config->fields[config->n_fields++] ? ST_OK : error_no_memory(err, "a kubeconfig");
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

/* ---- users ----------------------------------------------------------------------------------- */

static enum status kube_config_read_user(struct kube_config *config, const struct doc_node *user,
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

enum { MOST_FILES = 16 };

struct files {
    struct doc *docs[MOST_FILES];
    char *folders[MOST_FILES]; /* paths in a file are relative to its folder */
    size_t n;
};

/* A named entry of one of the files. */
struct found {
    struct doc_node root, list, item, value;
    const char *folder;
};

/* ---- kubeconfig files ------------------------------------------------------------------------ */

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? str_dup(str_make(path, (size_t)(slash - path))) : strdup(".");
}

static enum status add_file(struct files *files, const char *path, struct error *err) {
    enum status status = doc_load(DOC_YAML, path, &files->docs[files->n], err);
    if (status != ST_OK) {
        return status;
    }
    files->folders[files->n] = folder_of(path);
    files->n++;
    return files->folders[files->n - 1] ? ST_OK : error_no_memory(err, "a kubeconfig");
}

static enum status add_files(struct files *files, const char *paths, struct error *err) {
    struct str rest = str_of(paths);
    enum status status = ST_OK;
    while (status == ST_OK && rest.ptr) {
        struct str path = str_cut(&rest, ':');
        char *copy = str_dup(path);
        if (!copy) {
            return error_no_memory(err, "a kubeconfig");
        }
        if (path.len > 0 && (access(copy, F_OK) == 0 || errno != ENOENT)) {
            status = files->n < MOST_FILES
                         ? add_file(files, copy, err)
                         : error_set(err, ST_BAD_CONFIG, "$KUBECONFIG: expected at most %d files",
                                     MOST_FILES);
        }
        free(copy);
    }
    if (status == ST_OK && files->n == 0) {
        status = error_set(err, ST_IO, "$KUBECONFIG: none of the files exists: %s", paths);
    }
    return status;
}

/* Overwrites the values of the tree, which may be secret; they lie one after the other. */
static void wipe_values(const struct doc *doc) {
    yyjson_val *at = doc_root(doc).val, *end = at ? json_next(at) : NULL;
    struct str text;
    for (; at && at < end; at++) {
        if (json_get_string(at, &text)) {
            secret_wipe((void *)(uintptr_t)text.ptr, text.len);
        }
    }
}

static void files_fini(struct files *files) {
    for (size_t i = 0; i < files->n; i++) {
        wipe_values(files->docs[i]);
        doc_free(files->docs[i]);
        free(files->folders[i]);
    }
}

/* ---- named entries --------------------------------------------------------------------------- */

/* Finds the first file with an entry of this name in its list, and the entry's member `value`.
 * Returns: false if no file has it. */
static bool find_named(const struct files *files, const char *list, const char *name,
                       const char *value, struct found *out) {
    for (size_t i = 0; i < files->n; i++) {
        out->root = doc_root(files->docs[i]);
        out->list = doc_get(&out->root, list);
        out->item = (struct doc_node){0};
        out->folder = files->folders[i];
        while (doc_next(&out->list, &out->item)) {
            if (str_is(kube_member_text(&out->item, "name"), name)) {
                out->value = doc_get(&out->item, value);
                return true;
            }
        }
    }
    return false;
}

static enum status current_context(const struct files *files, char **out, struct error *err) {
    enum status status = ST_OK;
    for (size_t i = 0; status == ST_OK && !*out && i < files->n; i++) {
        struct doc_node root = doc_root(files->docs[i]);
        status = doc_expect_object(&root, err);
        status = status == ST_OK ? kube_config_text(&root, "current-context", out, err) : status;
    }
    if (status == ST_OK && !*out) {
        struct doc_node root = doc_root(files->docs[0]);
        status = doc_error(&root, err, "there is no current-context: expected one, or a context");
    }
    return status;
}

/* ---- clusters -------------------------------------------------------------------------------- */

static enum status check_server(const struct doc_node *node, char *server, struct error *err) {
    assert(server); /* it was read */
    size_t n = strlen(server), n_host = 0;
    bool tls = str_starts_with(str_of(server), STR("https://"));
    if (!tls && !str_starts_with(str_of(server), STR("http://"))) {
        return doc_error(node, err, "expected a URL that begins with https:// or http://");
    }
    const char *host = server + (tls ? 8 : 7);
    n_host = strcspn(host, "/");
    if (n_host == 0 || memchr(host, '@', n_host) || strpbrk(host, "?# \t\r\n")) {
        return doc_error(node, err, "expected a URL of a host, a port and a path, nothing else");
    }
    while (n > 0 && server[n - 1] == '/') {
        server[--n] = '\0';
    }
    return ST_OK;
}

/* Reads the cluster's extension for exec programs, as JSON. */
static enum status read_extension(struct kube_config *config, const struct doc_node *cluster,
                                  struct error *err) {
    struct doc_node list = doc_get(cluster, "extensions"), item = {0};
    while (!config->extension && doc_is_present(&list) && doc_next(&list, &item)) {
        if (str_is(kube_member_text(&item, "name"), "client.authentication.k8s.io/exec")) {
            struct doc_node value = doc_get(&item, "extension");
            config->extension = value.val ? json_value_print(value.val, NULL) : strdup("null");
            if (!config->extension) {
                return error_no_memory(err, "a kubeconfig");
            }
        }
    }
    return ST_OK;
}

static enum status read_cluster(struct kube_config *config, const struct found *cluster,
                                struct error *err) {
    const struct doc_node *node = &cluster->value;
    struct doc_node server = doc_get(node, "server"), proxy = doc_get(node, "proxy-url"),
                    insecure = doc_get(node, "insecure-skip-tls-verify");
    enum status status = kube_config_text(node, "server", &config->server, err);
    if (status == ST_OK && !config->server) {
        status = doc_error(node, err, "expected the server's URL (server)");
    }
    status = status == ST_OK ? check_server(&server, config->server, err) : status;
    if (status == ST_OK && doc_is_present(&proxy) && !json_text_is(proxy.val, "")) {
        status = doc_error(&proxy, err, "an API server behind a proxy is not supported");
    }
    status = status == ST_OK ? doc_read_bool(&insecure, &config->insecure, err) : status;
    status = status == ST_OK ? kube_config_text(node, "tls-server-name", &config->tls_name, err)
                             : status;
    status = status == ST_OK ? read_extension(config, node, err) : status;
    return status == ST_OK
               ? kube_config_pem(node, "certificate-authority", cluster->folder, &config->ca, err)
               : status;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* Finds the entry that the context names under `key`, in the list of that kind. */
static enum status find_referenced(const struct files *files, const struct found *context,
                                   const char *key, const char *list, struct found *out,
                                   struct error *err) {
    char *name = NULL;
    enum status status = kube_config_text(&context->value, key, &name, err);
    if (status == ST_OK && !name) {
        status = doc_error(&context->value, err, "expected the name of a %s", key);
    }
    if (status == ST_OK && !find_named(files, list, name, key, out)) {
        status = doc_error(&context->value, err, "there is no %s of the name \"%s\"", key, name);
    }
    if (status == ST_OK && !doc_is_object(&out->value)) {
        status = doc_error(&out->item, err, "expected an object \"%s\" in it", key);
    }
    free(name);
    return status;
}

static enum status read_context(struct kube_config *config, const struct files *files,
                                const char *name, struct error *err) {
    struct found context, cluster, user;
    if (!find_named(files, "contexts", name, "context", &context)) {
        struct doc_node root = doc_root(files->docs[0]);
        return doc_error(&root, err, "there is no context of the name \"%s\"", name);
    }
    enum status status = find_referenced(files, &context, "cluster", "clusters", &cluster, err);
    status = status == ST_OK
                 ? kube_config_text(&context.value, "namespace", &config->name_space, err)
                 : status;
    status = status == ST_OK ? read_cluster(config, &cluster, err) : status;
    status =
        status == ST_OK ? find_referenced(files, &context, "user", "users", &user, err) : status;
    return status == ST_OK ? kube_config_read_user(config, &user.value, user.folder, err) : status;
}

static enum status kube_config_read_files(struct kube_config *config, const char *paths, bool many,
                                          const char *context, struct error *err) {
    struct files files = {.n = 0};
    char *name = context && *context != '\0' ? strdup(context) : NULL;
    enum status status = many ? add_files(&files, paths, err) : add_file(&files, paths, err);
    if (status == ST_OK && !name) {
        status = current_context(&files, &name, err);
    }
    status = status == ST_OK ? read_context(config, &files, name, err) : status;
    free(name);
    files_fini(&files);
    return status;
}

static const char FOLDER[] = "/var/run/secrets/kubernetes.io/serviceaccount";

enum { PATH_BYTES = 4096, URL_BYTES = 600 };

/* ---- the service account of a pod ------------------------------------------------------------ */

static enum status take_path(struct credential *datum, const char *folder, const char *name,
                             struct error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    datum->path = strdup(path);
    return datum->path ? ST_OK : error_no_memory(err, "the API server's configuration");
}

/* If the namespace can't be read, none is set: it has to be configured. */
static enum status take_namespace(struct kube_config *config, const char *folder,
                                  struct error *err) {
    struct credential file = {.path = NULL};
    struct error ignored;
    enum status status = take_path(&file, folder, "namespace", err);
    if (status == ST_OK && credential_refresh(&file, true, &ignored) == ST_OK) {
        config->name_space = strdup(file.text);
        status =
            config->name_space ? ST_OK : error_no_memory(err, "the API server's configuration");
    }
    credential_fini(&file);
    return status;
}

static enum status read_pod(struct kube_config *config, const char *folder, struct error *err) {
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    char url[URL_BYTES];
    if (!host || !port || *host == '\0' || *port == '\0') {
        return error_set(err, ST_BAD_CONFIG,
                         "expected a kubeconfig (--kubeconfig, $KUBECONFIG), or to run in a pod, "
                         "where $KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT are set");
    }
    bool v6 = strchr(host, ':') != NULL;
    snprintf(url, sizeof(url), "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    config->server = strdup(url);
    enum status status = config->server ? take_path(&config->token, folder, "token", err)
                                        : error_no_memory(err, "the API server's configuration");
    status = status == ST_OK ? take_path(&config->ca, folder, "ca.crt", err) : status;
    status = status == ST_OK ? credential_refresh(&config->token, true, err) : status;
    status = status == ST_OK ? credential_refresh(&config->ca, false, err) : status;
    return status == ST_OK ? take_namespace(config, folder, err) : status;
}

/* ---- load and free --------------------------------------------------------------------------- */

enum status kube_config_load(const struct kube_config_options *ask, struct kube_config **out,
                             struct error *err) {
    struct kube_config *config = calloc(1, sizeof(*config));
    bool by_default = !ask->kubeconfig && !ask->service_account;
    const char *files =
        by_default ? getenv("KUBECONFIG") : ask->kubeconfig; /* no other thread sets it */
    enum status status;
    if (!config) {
        return error_no_memory(err, "the API server's configuration");
    }
    if (files && *files != '\0') {
        status = kube_config_read_files(config, files, !ask->kubeconfig, ask->kube_context, err);
    } else {
        status = read_pod(config, ask->service_account ? ask->service_account : FOLDER, err);
    }
    if (status != ST_OK) {
        kube_config_free(config);
        return status;
    }
    *out = config;
    return ST_OK;
}

void kube_config_free(struct kube_config *config) {
    if (!config) {
        return;
    }
    credential_fini(&config->ca);
    credential_fini(&config->cert);
    credential_fini(&config->key);
    credential_fini(&config->token);
    kube_exec_free(config->exec);
    if (config->basic) {
        secret_wipe(config->basic, strlen(config->basic));
    }
    for (size_t i = 0; i < config->n_fields; i++) {
        free(config->fields[i]);
    }
    free(config->fields);
    free(config->basic);
    free(config->server);
    free(config->name_space);
    free(config->tls_name);
    free(config->extension);
    free(config);
}

const char *kube_config_server(const struct kube_config *config) {
    return config->server;
}

const char *kube_config_namespace(const struct kube_config *config) {
    return config->name_space;
}
