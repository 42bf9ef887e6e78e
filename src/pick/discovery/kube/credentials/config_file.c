/* Kubeconfig files: which context is meant, and the cluster and the user that it names. Members
 * that are not known are left alone, as newer clients have more of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/kube/stream.h"
#include "pick/discovery/kube/credentials/config_state.h"

enum { MOST_FILES = 16 };

struct files {
    struct doc *docs[MOST_FILES];
    char *folders[MOST_FILES]; /* paths in a file are relative to where it is */
    size_t n;
};

/* A named thing of one of the files. */
struct found {
    struct doc_node root, list, item, value;
    const char *folder;
};

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a kubeconfig");
}

/* ---- files ----------------------------------------------------------------------------------- */

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
    return files->folders[files->n - 1] ? ST_OK : no_memory(err);
}

static enum status add_files(struct files *files, const char *paths, struct error *err) {
    struct str rest = str_of(paths);
    enum status status = ST_OK;
    while (status == ST_OK && rest.ptr) {
        struct str path = str_cut(&rest, ':');
        char *copy = str_dup(path);
        if (!copy) {
            return no_memory(err);
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
        status = error_set(err, ST_IO, "$KUBECONFIG: none of the files is there: %s", paths);
    }
    return status;
}

/* What is secret in them was in the tree: in its values, which lie one behind the other. */
static void wipe_values(const struct doc *doc) {
    yyjson_val *at = doc_root(doc).val, *end = at ? unsafe_yyjson_get_next(at) : NULL;
    for (; at && at < end; at++) {
        if (yyjson_is_str(at)) {
            secret_wipe((void *)(uintptr_t)yyjson_get_str(at), yyjson_get_len(at));
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

/* ---- what they name -------------------------------------------------------------------------- */

/* The first of them with this name in its list: its member `value`. Returns: false: none has it. */
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

/* ---- the cluster ----------------------------------------------------------------------------- */

static enum status check_server(const struct doc_node *node, char *server, struct error *err) {
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

/* What a cluster says to programs, as JSON. */
static enum status read_extension(struct kube_config *config, const struct doc_node *cluster,
                                  struct error *err) {
    struct doc_node list = doc_get(cluster, "extensions"), item = {0};
    while (!config->extension && doc_is_present(&list) && doc_next(&list, &item)) {
        if (str_is(kube_member_text(&item, "name"), "client.authentication.k8s.io/exec")) {
            struct doc_node value = doc_get(&item, "extension");
            config->extension = value.val ? yyjson_val_write(value.val, 0, NULL) : strdup("null");
            if (!config->extension) {
                return no_memory(err);
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
    if (status == ST_OK && doc_is_present(&proxy) && !yyjson_equals_str(proxy.val, "")) {
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

/* ---- the context ----------------------------------------------------------------------------- */

/* What the context names under `key`, in the list of that. */
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
    if (status == ST_OK && !yyjson_is_obj(out->value.val)) {
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

enum status kube_config_read_files(struct kube_config *config, const char *paths, bool many,
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
