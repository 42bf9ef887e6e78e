/* Reads `exec` of a kubeconfig, and prints and parses the object ExecCredential. */
#include "pick/discovery/kube/credentials/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/kube/stream.h"
#include "core/base/base64.h"
#include "core/base/json_writer.h"
#include "pick/discovery/kube/credentials/config.h"
#include "pick/discovery/kube/time.h"

static const char *const VERSIONS[] = {"client.authentication.k8s.io/v1",
                                       "client.authentication.k8s.io/v1beta1"};

/* ---- kubeconfig ------------------------------------------------------------------------------ */

static void read_version(struct doc_reader *reader, const struct doc_node *node, void *out) {
    char **version = out;
    kube_config_read_text(reader, node, version);
    for (size_t i = 0; *version && i < sizeof(VERSIONS) / sizeof(VERSIONS[0]); i++) {
        if (strcmp(*version, VERSIONS[i]) == 0) {
            return;
        }
    }
    doc_reader_fail(reader, node->val ? node : node->parent, "expected the apiVersion %s or %s",
                    VERSIONS[0], VERSIONS[1]);
}

/* A program that needs a terminal is rejected. */
static void check_mode(struct doc_reader *reader, const struct doc_node *node, void *unused) {
    struct str mode = STR("IfAvailable");
    (void)unused;
    if (doc_is_present(node)) {
        doc_reader_view(reader, node, &mode);
    }
    if (str_is(mode, "Always")) {
        doc_reader_fail(reader, node, "a program that needs a terminal can't be used here");
    } else if (!str_is(mode, "Never") && !str_is(mode, "IfAvailable")) {
        doc_reader_fail(reader, node, "expected Never, IfAvailable or Always, got \"%.*s\"",
                        STR_ARG(mode));
    }
}

/* Reads `command`, and `args` beside it. A path is relative to the kubeconfig; a name without a
 * slash is searched in $PATH. */
static void read_argv(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct doc_node args = doc_get(node->parent, "args"), item = {0};
    struct kube_exec *exec = object;
    char *command = NULL;
    kube_config_read_text(reader, node, &command);
    if (!command) {
        doc_reader_fail(reader, node->parent, "expected the name of a program (command)");
        return;
    }
    exec->argv = doc_reader_calloc(reader, doc_count(&args) + 2, sizeof(*exec->argv));
    if (!exec->argv) {
        return;
    }
    exec->argv[0] = strchr(command, '/') ? kube_config_path(reader, str_of(command)) : command;
    for (size_t n = 1; doc_is_present(&args) && doc_reader_next(reader, &args, &item); n++) {
        struct str text = {NULL, 0}, copy = {NULL, 0};
        if (!json_get_string(item.val, &text)) {
            doc_reader_fail(reader, &item, "expected text"); /* it may be secret */
        }
        doc_reader_dup(reader, text, &copy);
        exec->argv[n] = (char *)(uintptr_t)copy.ptr;
    }
}

static void read_env(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct kube_exec *exec = object;
    struct doc_node item = {0};
    exec->env = doc_reader_calloc(reader, doc_count(list) + 1, sizeof(*exec->env));
    for (size_t n = 0; doc_is_present(list) && doc_reader_next(reader, list, &item); n++) {
        struct doc_node name_node = doc_get(&item, "name"), value_node = doc_get(&item, "value");
        struct str name = {NULL, 0}, value = STR("");
        kube_config_read_secret(reader, &name_node, &name);
        kube_config_read_secret(reader, &value_node, &value);
        if (name.len == 0 || memchr(name.ptr, '=', name.len)) {
            doc_reader_fail(reader, &item, "expected the name of a variable");
            return;
        }
        struct str text = arena_printf(reader->arena, "%.*s=%.*s", STR_ARG(name), STR_ARG(value));
        exec->env[n] = (char *)(uintptr_t)text.ptr;
    }
}

static const struct doc_member EXEC[] = {
    {"apiVersion", MEMBER_CUSTOM_FIELD(struct kube_exec, version, char *, read_version)},
    {"interactiveMode", MEMBER_CUSTOM(check_mode)},
    {"command", MEMBER_CUSTOM(read_argv)},
    {"env", MEMBER_CUSTOM(read_env)},
    {"installHint", MEMBER_CUSTOM_FIELD(struct kube_exec, hint, char *, kube_config_read_text)},
    {"provideClusterInfo", MEMBER_BOOL(struct kube_exec, provide_cluster_info)},
    {0}};

void kube_exec_read(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct kube_exec **exec = out;
    if (doc_is_present(node)) {
        *exec = doc_reader_calloc(reader, 1, sizeof(**exec));
        doc_reader_members(reader, node, EXEC, *exec);
    }
}

static void wipe_texts(char **texts) {
    for (size_t i = 0; texts && texts[i]; i++) {
        secret_wipe(texts[i], strlen(texts[i]));
    }
}

void kube_exec_wipe(struct kube_exec *exec) {
    if (exec) {
        wipe_texts(exec->argv);
        wipe_texts(exec->env);
    }
}

/* ---- input of the program -------------------------------------------------------------------- */

static void add_base64(struct json_writer *json, const char *name, struct str bytes) {
    struct buf text;
    buf_init(&text, json->out->arena, bytes.len / 3 * 4 + 4);
    base64_print(&text, bytes);
    while (text.len % 4 != 0 && !text.failed) {
        buf_add_char(&text, '=');
    }
    json_write_string(json, name, buf_str(&text));
    json->out->failed = json->out->failed || text.failed;
}

static void add_cluster(const struct kube_exec_cluster *cluster, struct json_writer *json) {
    json_write_open(json, "cluster", '{');
    json_write_string(json, "server", str_of(cluster->server));
    if (cluster->tls_name) {
        json_write_string(json, "tls-server-name", str_of(cluster->tls_name));
    }
    if (cluster->insecure) {
        json_write_bool(json, "insecure-skip-tls-verify", true);
    }
    if (cluster->ca.len > 0) {
        add_base64(json, "certificate-authority-data", cluster->ca);
    }
    json_write_raw(json, "config", str_of(cluster->extension ? cluster->extension : "null"));
    json_write_close(json, '}');
}

void kube_exec_print_info(const struct kube_exec *exec, const struct kube_exec_cluster *cluster,
                          struct buf *out) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "kind", STR("ExecCredential"));
    json_write_string(&json, "apiVersion", str_of(exec->version));
    json_write_open(&json, "spec", '{');
    json_write_bool(&json, "interactive", false);
    if (exec->provide_cluster_info) {
        add_cluster(cluster, &json);
    }
    json_write_close(&json, '}');
    json_write_close(&json, '}');
}

/* ---- output of the program ------------------------------------------------------------------- */

static enum status check_kind(const struct kube_exec *exec, const struct doc_node *root,
                              struct error *err) {
    if (!str_is(kube_member_text(root, "kind"), "ExecCredential")) {
        return error_set(err, ST_BAD_ANSWER, "printed something that is no ExecCredential");
    }
    if (!str_is(kube_member_text(root, "apiVersion"), exec->version)) {
        return error_set(err, ST_BAD_ANSWER,
                         "printed an ExecCredential of another apiVersion than %s", exec->version);
    }
    return ST_OK;
}

/* Reads `status` of the output. */
static enum status read_status(const struct doc_node *node, struct kube_credential *out,
                               struct error *err) {
    const struct {
        const char *key;
        struct credential *into;
    } texts[] = {{"token", &out->token},
                 {"clientCertificateData", &out->cert},
                 {"clientKeyData", &out->key}};
    struct str end = kube_member_text(node, "expirationTimestamp");
    out->until_s = INT64_MAX;
    if (end.len > 0 && !kube_time_parse(end, &out->until_s)) {
        return error_set(err, ST_BAD_ANSWER, "printed an expirationTimestamp that is no time");
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct str text = kube_member_text(node, texts[i].key);
        if (text.len > 0 && credential_set(texts[i].into, text, err) != ST_OK) {
            return err->status;
        }
    }
    if (!out->token.text && !out->cert.text) {
        return error_set(err, ST_BAD_ANSWER, "printed neither a token nor a certificate");
    }
    if (!out->cert.text != !out->key.text) {
        return error_set(err, ST_BAD_ANSWER, "printed a certificate or a key without the other");
    }
    return ST_OK;
}

enum status kube_exec_parse(const struct kube_exec *exec, struct str output,
                            struct kube_credential *out, struct error *err) {
    struct kube_credential read = {.until_s = 0};
    struct doc *doc = NULL;
    if (kube_object_parse(output, &doc, err) != ST_OK) {
        return err->status == ST_NO_MEMORY
                   ? ST_NO_MEMORY
                   : error_set(err, ST_BAD_ANSWER, "printed something that is no JSON object");
    }
    struct doc_node root = doc_root(doc), node = doc_get(&root, "status");
    enum status status = check_kind(exec, &root, err);
    status = status == ST_OK ? read_status(&node, &read, err) : status;
    doc_free(doc);
    if (status != ST_OK) {
        kube_credential_fini(&read);
        return status;
    }
    kube_credential_fini(out);
    *out = read;
    return ST_OK;
}

void kube_credential_fini(struct kube_credential *credential) {
    credential_fini(&credential->token);
    credential_fini(&credential->cert);
    credential_fini(&credential->key);
    *credential = (struct kube_credential){.until_s = 0};
}
