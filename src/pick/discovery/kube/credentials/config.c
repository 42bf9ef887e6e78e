/* Reads the configuration from kubeconfig files, or from a pod's service account. Unknown members
 * are ignored, as newer clients write more of them. Error texts contain no secrets. */
#include "pick/discovery/kube/credentials/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/kube/stream.h"
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/json_writer.h"
#include "core/must/must.h"

static const char WHAT[] = "the API server's configuration";

/* ---- values ---------------------------------------------------------------------------------- */

static struct kube_config_reader *reader_of(struct doc_reader *reader) {
    return (struct kube_config_reader *)(void *)reader;
}

void kube_config_read_secret(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str *text = out;
    if (!doc_is_present(node) || !doc_reader_ok(reader)) {
        return;
    }
    if (!json_get_string(node->val, text)) {
        doc_reader_fail(reader, node, "expected text (in quotes, where it looks like a number)");
    } else if (memchr(text->ptr, '\0', text->len)) {
        doc_reader_fail(reader, node, "expected text without a NUL");
    }
}

void kube_config_read_text(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0}, copy = {NULL, 0};
    if (doc_is_present(node)) {
        doc_reader_view(reader, node, &text);
    }
    if (text.len == 0) {
        return;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        doc_reader_fail(reader, node, "expected text without a NUL");
    }
    doc_reader_dup(reader, text, &copy);
    *(char **)out = (char *)(uintptr_t)copy.ptr;
}

char *kube_config_path(struct doc_reader *reader, struct str path) {
    bool absolute = path.ptr[0] == '/';
    struct str out =
        arena_printf(reader->arena, "%s%s%.*s", absolute ? "" : reader_of(reader)->folder,
                     absolute ? "" : "/", STR_ARG(path));
    return (char *)(uintptr_t)out.ptr;
}

/* Reads the path of a file. Without `even_beside_text` a text that was read before takes
 * precedence. */
static void read_file(struct doc_reader *reader, const struct doc_node *node,
                      struct credential *out, bool even_beside_text) {
    struct str path = {NULL, 0};
    kube_config_read_secret(reader, node, &path);
    if (!doc_reader_ok(reader) || path.len == 0 || (out->text && !even_beside_text)) {
        return;
    }
    out->path = must_dup(str_of(kube_config_path(reader, path)), WHAT);
}

/* ---- users ----------------------------------------------------------------------------------- */

static void read_token(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str token = {NULL, 0};
    kube_config_read_secret(reader, node, &token);
    if (doc_reader_ok(reader) && token.len > 0) {
        reader->status = credential_set(out, token, reader->err);
    }
}

static void read_token_file(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_file(reader, node, out, true);
}

static void read_pem_file(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_file(reader, node, out, false);
}

/* Decodes base64 that may contain line breaks. */
static void read_pem_data(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0}, bytes = {NULL, 0};
    struct buf dense;
    kube_config_read_secret(reader, node, &text);
    if (!doc_reader_ok(reader) || text.len == 0) {
        return;
    }
    buf_init(&dense, reader->arena, text.len + 1);
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] > ' ') {
            buf_add_char(&dense, text.ptr[i]);
        }
    }
    size_t bad;
    enum status status = base64_parse(reader->arena, buf_str(&dense), &bytes, &bad);
    if (status == ST_BAD_REQUEST || (status == ST_OK && bytes.len == 0)) {
        doc_reader_fail(reader, node, "expected base64 of a PEM file");
    } else if (status == ST_OK) {
        status = credential_set(out, bytes, reader->err);
    }
    reader->status = doc_reader_ok(reader) ? status : reader->status;
    if (bytes.ptr) {
        secret_wipe((void *)(uintptr_t)bytes.ptr, bytes.len);
    }
    secret_wipe(dense.data, dense.len);
}

/* Reads `username`, and `password` beside it. */
static void read_basic(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct doc_node password_node = doc_get(node->parent, "password");
    struct kube_config *config = object;
    struct str name = {NULL, 0}, password = {NULL, 0};
    struct buf plain, field;
    kube_config_read_secret(reader, node, &name);
    kube_config_read_secret(reader, &password_node, &password);
    if (!doc_reader_ok(reader) || (name.len == 0 && password.len == 0)) {
        return;
    }
    if (config->token.text || config->token.path) {
        doc_reader_fail(reader, node->parent, "expected a token or a password, there are both");
        return;
    }
    buf_init(&plain, reader->arena, name.len + password.len + 1);
    buf_init(&field, reader->arena, 2 * (name.len + password.len) + 64);
    buf_add_str(&plain, name);
    buf_add_char(&plain, ':');
    buf_add_str(&plain, password);
    buf_add_str(&field, STR("Authorization: Basic "));
    base64_print(&field, buf_str(&plain));
    /* The text before the base64 has one byte more than a multiple of four. */
    while (field.len % 4 != 1) {
        buf_add_char(&field, '=');
    }
    buf_add_char(&field, '\0');
    config->basic = field.data;
    secret_wipe(plain.data, plain.len);
}

/* Adds a header field whose name is the text of the row. */
static void add_field(struct doc_reader *reader, struct kube_config *config, struct str value) {
    size_t n_bytes = config->n_fields * sizeof(*config->fields);
    char **longer =
        arena_realloc(reader->arena, config->fields, n_bytes, n_bytes + sizeof(*longer));
    struct str text = arena_printf(reader->arena, "%s: %.*s", reader->row->text, STR_ARG(value));
    longer[config->n_fields++] = (char *)(uintptr_t)text.ptr;
    config->fields = longer;
}

static void read_impersonated(struct doc_reader *reader, const struct doc_node *node,
                              void *config) {
    struct str text = {NULL, 0};
    kube_config_read_secret(reader, node, &text);
    if (doc_reader_ok(reader) && text.len > 0) {
        add_field(reader, config, text);
    }
}

static void read_groups(struct doc_reader *reader, const struct doc_node *list, void *config) {
    for (struct doc_node group = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &group);) {
        struct str text = {NULL, 0};
        doc_reader_view(reader, &group, &text);
        if (doc_reader_ok(reader)) {
            add_field(reader, config, text);
        }
    }
}

#define CONFIG struct kube_config
#define CREDENTIAL(field, function) MEMBER_CUSTOM_FIELD(CONFIG, field, struct credential, function)
static const struct doc_member USER[] = {
    {"token", CREDENTIAL(token, read_token)},
    {"tokenFile", CREDENTIAL(token, read_token_file)},
    {"username", MEMBER_CUSTOM(read_basic)},
    {"client-certificate-data", CREDENTIAL(cert, read_pem_data)},
    {"client-certificate", CREDENTIAL(cert, read_pem_file)},
    {"client-key-data", CREDENTIAL(key, read_pem_data)},
    {"client-key", CREDENTIAL(key, read_pem_file)},
    {"as", MEMBER_CUSTOM(read_impersonated), .text = "Impersonate-User"},
    {"as-uid", MEMBER_CUSTOM(read_impersonated), .text = "Impersonate-Uid"},
    {"as-groups", MEMBER_CUSTOM(read_groups), .text = "Impersonate-Group"},
    {"auth-provider", MEMBER_REFUSED("not supported: name a program for it under \"exec\"")},
    {"exec", MEMBER_CUSTOM_FIELD(CONFIG, exec, struct kube_exec *, kube_exec_read)},
    {0}};

/* ---- clusters -------------------------------------------------------------------------------- */

static void read_server(struct doc_reader *reader, const struct doc_node *node, void *out) {
    char *server = NULL;
    kube_config_read_text(reader, node, &server);
    if (!server) {
        doc_reader_fail(reader, node->parent, "expected the server's URL (server)");
        return;
    }
    size_t n = strlen(server), n_host = 0;
    bool tls = str_starts_with(str_of(server), STR("https://"));
    if (!tls && !str_starts_with(str_of(server), STR("http://"))) {
        doc_reader_fail(reader, node, "expected a URL that begins with https:// or http://");
        return;
    }
    const char *host = server + (tls ? 8 : 7);
    n_host = strcspn(host, "/");
    if (n_host == 0 || memchr(host, '@', n_host) || strpbrk(host, "?# \t\r\n")) {
        doc_reader_fail(reader, node, "expected a URL of a host, a port and a path, nothing else");
    }
    while (n > 0 && server[n - 1] == '/') {
        server[--n] = '\0';
    }
    *(char **)out = server;
}

/* Reads the cluster's extension for exec programs, as JSON. */
static void read_extension(struct doc_reader *reader, const struct doc_node *list, void *out) {
    for (struct doc_node item = {0};
         doc_is_present(list) && doc_reader_next(reader, list, &item);) {
        if (str_is(kube_member_text(&item, "name"), "client.authentication.k8s.io/exec")) {
            struct doc_node value = doc_get(&item, "extension");
            char *json = value.val ? json_value_print(value.val, NULL) : NULL;
            struct str copy = {NULL, 0};
            doc_reader_dup(reader, value.val ? str_of(must_have(json, WHAT)) : STR("null"), &copy);
            *(char **)out = (char *)(uintptr_t)copy.ptr;
            free(json);
            return;
        }
    }
}

static const struct doc_member CLUSTER[] = {
    {"server", MEMBER_CUSTOM_FIELD(CONFIG, server, char *, read_server)},
    {"proxy-url", MEMBER_REFUSED("an API server behind a proxy is not supported")},
    {"insecure-skip-tls-verify", MEMBER_BOOL(CONFIG, insecure)},
    {"tls-server-name", MEMBER_CUSTOM_FIELD(CONFIG, tls_name, char *, kube_config_read_text)},
    {"extensions", MEMBER_CUSTOM_FIELD(CONFIG, extension, char *, read_extension)},
    {"certificate-authority-data", CREDENTIAL(ca, read_pem_data)},
    {"certificate-authority", CREDENTIAL(ca, read_pem_file)},
    {0}};

static const struct doc_member CONTEXT[] = {
    {"namespace", MEMBER_CUSTOM_FIELD(CONFIG, name_space, char *, kube_config_read_text)}, {0}};
#undef CREDENTIAL
#undef CONFIG

/* ---- kubeconfig files ------------------------------------------------------------------------ */

enum { MOST_FILES = 16 };

struct files {
    struct doc *docs[MOST_FILES];
    const char *folders[MOST_FILES]; /* paths in a file are relative to its folder */
    size_t n;
};

/* A named entry of one of the files. */
struct found {
    struct doc_node root, list, item, value;
    const char *folder;
};

static void add_file(struct doc_reader *reader, struct files *files, const char *path) {
    const char *slash = strrchr(path, '/');
    struct str folder = {NULL, 0};
    doc_reader_dup(reader, slash ? str_make(path, (size_t)(slash - path)) : STR("."), &folder);
    if (doc_reader_ok(reader)) {
        reader->status = doc_load(DOC_YAML, path, &files->docs[files->n], reader->err);
    }
    if (doc_reader_ok(reader)) {
        files->folders[files->n++] = folder.ptr;
    }
}

static void add_files(struct doc_reader *reader, struct files *files, const char *paths) {
    struct str rest = str_of(paths);
    while (doc_reader_ok(reader) && rest.ptr) {
        struct str path = {NULL, 0};
        doc_reader_dup(reader, str_cut(&rest, ':'), &path);
        if (path.len == 0 || (access(path.ptr, F_OK) != 0 && errno == ENOENT)) {
            continue;
        }
        if (files->n < MOST_FILES) {
            add_file(reader, files, path.ptr);
        } else {
            reader->status = error_set(reader->err, ST_BAD_CONFIG,
                                       "$KUBECONFIG: expected at most %d files", MOST_FILES);
        }
    }
    if (doc_reader_ok(reader) && files->n == 0) {
        reader->status =
            error_set(reader->err, ST_IO, "$KUBECONFIG: none of the files exists: %s", paths);
    }
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

/* Returns: the name of the first file's context that has one; NULL after an error. */
static const char *current_context(struct doc_reader *reader, const struct files *files) {
    char *name = NULL;
    struct doc_node root = {0};
    for (size_t i = 0; !name && i < files->n; i++) {
        root = doc_root(files->docs[i]);
        struct doc_node member = doc_get(&root, "current-context");
        doc_reader_expect_object(reader, &root);
        kube_config_read_text(reader, &member, &name);
    }
    if (!name) {
        root = files->n > 0 ? doc_root(files->docs[0]) : root;
        doc_reader_fail(reader, &root, "there is no current-context: expected one, or a context");
    }
    return name;
}

/* Reads the entry that the context names under `key`, in the list of that kind. */
static void read_referenced(struct doc_reader *reader, const struct files *files,
                            const struct found *context, const char *key, const char *list,
                            const struct doc_member *members, struct kube_config *config) {
    struct doc_node name_node = doc_get(&context->value, key);
    struct found found = {.folder = NULL};
    char *name = NULL;
    kube_config_read_text(reader, &name_node, &name);
    if (!name) {
        doc_reader_fail(reader, &context->value, "expected the name of a %s", key);
    } else if (!find_named(files, list, name, key, &found)) {
        doc_reader_fail(reader, &context->value, "there is no %s of the name \"%s\"", key, name);
    } else if (!doc_is_object(&found.value)) {
        doc_reader_fail(reader, &found.item, "expected an object \"%s\" in it", key);
    }
    reader_of(reader)->folder = found.folder;
    doc_reader_members(reader, &found.value, members, config);
}

static void read_context(struct doc_reader *reader, const struct files *files, const char *name,
                         struct kube_config *config) {
    struct found context;
    if (!find_named(files, "contexts", name, "context", &context)) {
        struct doc_node root = doc_root(files->docs[0]);
        doc_reader_fail(reader, &root, "there is no context of the name \"%s\"", name);
        return;
    }
    doc_reader_members(reader, &context.value, CONTEXT, config);
    read_referenced(reader, files, &context, "cluster", "clusters", CLUSTER, config);
    read_referenced(reader, files, &context, "user", "users", USER, config);
}

static void read_files(struct doc_reader *reader, const char *paths, bool many, const char *name,
                       struct kube_config *config) {
    struct files files = {.n = 0};
    if (many) {
        add_files(reader, &files, paths);
    } else {
        add_file(reader, &files, paths);
    }
    if (doc_reader_ok(reader) && (!name || *name == '\0')) {
        name = current_context(reader, &files);
    }
    if (doc_reader_ok(reader)) {
        read_context(reader, &files, name, config);
    }
    files_fini(&files);
}

/* ---- the service account of a pod ------------------------------------------------------------ */

static const char FOLDER[] = "/var/run/secrets/kubernetes.io/serviceaccount";

static void use_file(struct doc_reader *reader, const char *folder, const char *name, bool trim,
                     struct credential *out) {
    struct str path = arena_printf(reader->arena, "%s/%s", folder, name);
    out->path = must_dup(path, WHAT);
    if (doc_reader_ok(reader)) {
        reader->status = credential_refresh(out, trim, reader->err);
    }
}

static void read_pod(struct doc_reader *reader, const char *folder, struct kube_config *config) {
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !port || *host == '\0' || *port == '\0') {
        reader->status =
            error_set(reader->err, ST_BAD_CONFIG,
                      "expected a kubeconfig (--kubeconfig, $KUBECONFIG), or to run in a pod, "
                      "where $KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT are set");
        return;
    }
    bool v6 = strchr(host, ':') != NULL;
    struct str url =
        arena_printf(reader->arena, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    config->server = (char *)(uintptr_t)url.ptr;
    use_file(reader, folder, "token", true, &config->token);
    use_file(reader, folder, "ca.crt", false, &config->ca);
    /* If the namespace can't be read, none is set: it has to be configured. */
    struct error ignored = {.status = ST_OK};
    struct doc_reader attempt = *reader;
    struct credential file = {.path = NULL};
    struct str name_space = {NULL, 0};
    attempt.err = &ignored;
    use_file(&attempt, folder, "namespace", true, &file);
    if (doc_reader_ok(&attempt)) {
        doc_reader_dup(reader, credential_text(&file), &name_space);
        config->name_space = (char *)(uintptr_t)name_space.ptr;
    }
    credential_fini(&file);
}

/* ---- load and free --------------------------------------------------------------------------- */

enum status kube_config_load(const struct kube_config_options *ask, struct kube_config **out,
                             struct error *err) {
    struct arena *arena = must_arena_new(WHAT);
    struct kube_config *config = arena_calloc(arena, 1, sizeof(*config));
    bool by_default = !ask->kubeconfig && !ask->service_account;
    const char *files =
        by_default ? getenv("KUBECONFIG") : ask->kubeconfig; /* no other thread sets it */
    struct kube_config_reader reader = {.doc = {.arena = arena, .err = err}};
    config->arena = arena;
    if (files && *files != '\0') {
        read_files(&reader.doc, files, !ask->kubeconfig, ask->kube_context, config);
    } else {
        read_pod(&reader.doc, ask->service_account ? ask->service_account : FOLDER, config);
    }
    if (!doc_reader_ok(&reader.doc)) {
        kube_config_free(config);
        return reader.doc.status;
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
    kube_exec_wipe(config->exec);
    if (config->basic) {
        secret_wipe(config->basic, strlen(config->basic));
    }
    arena_free(config->arena);
}

const char *kube_config_server(const struct kube_config *config) {
    return config->server;
}

const char *kube_config_namespace(const struct kube_config *config) {
    return config->name_space;
}
