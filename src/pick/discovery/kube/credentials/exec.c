/* Reads `exec` of a kubeconfig, and prints and parses the object ExecCredential. */
#include "pick/discovery/kube/credentials/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/grpc/text.h"
#include "codec/kube/stream.h"
#include "core/base/json_writer.h"
#include "pick/discovery/kube/credentials/config.h"
#include "pick/discovery/kube/time.h"

static const char *const VERSIONS[] = {"client.authentication.k8s.io/v1",
                                       "client.authentication.k8s.io/v1beta1"};

/* ---- kubeconfig ------------------------------------------------------------------------------ */

static enum status read_version(const struct doc_node *node, struct kube_exec *exec,
                                struct error *err) {
    struct doc_node member = doc_get(node, "apiVersion");
    enum status status = kube_config_text(node, "apiVersion", &exec->version, err);
    if (status != ST_OK) {
        return status;
    }
    for (size_t i = 0; exec->version && i < sizeof(VERSIONS) / sizeof(VERSIONS[0]); i++) {
        if (strcmp(exec->version, VERSIONS[i]) == 0) {
            return ST_OK;
        }
    }
    return doc_error(member.val ? &member : node, err, "expected the apiVersion %s or %s",
                     VERSIONS[0], VERSIONS[1]);
}

/* A program that needs a terminal is rejected. */
static enum status check_mode(const struct doc_node *node, struct error *err) {
    struct doc_node member = doc_get(node, "interactiveMode");
    struct str mode = STR("IfAvailable");
    enum status status = doc_is_present(&member) ? doc_read_str(&member, &mode, err) : ST_OK;
    if (status == ST_OK && str_is(mode, "Always")) {
        status = doc_error(&member, err, "a program that needs a terminal can't be used here");
    } else if (status == ST_OK && !str_is(mode, "Never") && !str_is(mode, "IfAvailable")) {
        status = doc_error(&member, err, "expected Never, IfAvailable or Always, got \"%.*s\"",
                           STR_ARG(mode));
    }
    return status;
}

/* A path is relative to the kubeconfig; a name without a slash is searched in $PATH. */
static enum status read_command(const struct doc_node *node, const char *folder, char **out,
                                struct error *err) {
    char *command = NULL;
    enum status status = kube_config_text(node, "command", &command, err);
    if (status == ST_OK && !command) {
        status = doc_error(node, err, "expected the name of a program (command)");
    }
    if (status == ST_OK && command && strchr(command, '/')) {
        *out = kube_config_path(folder, str_of(command));
        status = *out ? ST_OK : error_no_memory(err, "an exec program");
        free(command);
        return status;
    }
    *out = command;
    return status;
}

static enum status read_argv(const struct doc_node *node, const char *folder,
                             struct kube_exec *exec, struct error *err) {
    struct doc_node args = doc_get(node, "args"), item = {0};
    size_t n = 1;
    exec->argv = calloc(doc_count(&args) + 2, sizeof(*exec->argv));
    if (!exec->argv) {
        return error_no_memory(err, "an exec program");
    }
    enum status status = read_command(node, folder, &exec->argv[0], err);
    while (status == ST_OK && doc_is_present(&args) && doc_next(&args, &item)) {
        struct str text;
        if (!json_get_string(item.val, &text)) {
            return doc_error(&item, err, "expected text"); /* it may be secret */
        }
        exec->argv[n++] = str_dup(text);
        status = exec->argv[n - 1] ? ST_OK : error_no_memory(err, "an exec program");
    }
    return status;
}

static enum status add_variable(const struct doc_node *item, char **out, struct error *err) {
    struct str name = {NULL, 0}, value = STR("");
    enum status status = kube_config_secret(item, "name", &name, err);
    status = status == ST_OK ? kube_config_secret(item, "value", &value, err) : status;
    if (status != ST_OK) {
        return status;
    }
    if (name.len == 0 || memchr(name.ptr, '=', name.len)) {
        return doc_error(item, err, "expected the name of a variable");
    }
    size_t n_bytes = name.len + value.len + 2;
    *out = malloc(n_bytes);
    if (!*out) {
        return error_no_memory(err, "an exec program");
    }
    snprintf(*out, n_bytes, "%.*s=%.*s", STR_ARG(name), STR_ARG(value));
    return ST_OK;
}

static enum status read_env(const struct doc_node *node, struct kube_exec *exec,
                            struct error *err) {
    struct doc_node env = doc_get(node, "env"), item = {0};
    enum status status = ST_OK;
    size_t n = 0;
    exec->env = calloc(doc_count(&env) + 1, sizeof(*exec->env));
    if (!exec->env) {
        return error_no_memory(err, "an exec program");
    }
    while (status == ST_OK && doc_is_present(&env) && doc_next(&env, &item)) {
        status = add_variable(&item, &exec->env[n++], err);
    }
    return status;
}

enum status kube_exec_read(const struct doc_node *node, const char *folder, struct kube_exec **out,
                           struct error *err) {
    struct doc_node wants = doc_get(node, "provideClusterInfo");
    struct kube_exec *exec = calloc(1, sizeof(*exec));
    if (!exec) {
        return error_no_memory(err, "an exec program");
    }
    enum status status = read_version(node, exec, err);
    status = status == ST_OK ? check_mode(node, err) : status;
    status = status == ST_OK ? read_argv(node, folder, exec, err) : status;
    status = status == ST_OK ? read_env(node, exec, err) : status;
    status = status == ST_OK ? kube_config_text(node, "installHint", &exec->hint, err) : status;
    if (status == ST_OK && doc_is_present(&wants)) {
        status = doc_read_bool(&wants, &exec->provide_cluster_info, err);
    }
    if (status != ST_OK) {
        kube_exec_free(exec);
        return status;
    }
    *out = exec;
    return ST_OK;
}

static void free_texts(char **texts) {
    for (size_t i = 0; texts && texts[i]; i++) {
        secret_wipe(texts[i], strlen(texts[i]));
        free(texts[i]);
    }
    free(texts);
}

void kube_exec_free(struct kube_exec *exec) {
    if (exec) {
        free_texts(exec->argv);
        free_texts(exec->env);
        free(exec->version);
        free(exec->hint);
        free(exec);
    }
}

/* ---- input of the program -------------------------------------------------------------------- */

static void add_base64(struct json_writer *json, const char *name, struct str bytes) {
    struct buf text;
    buf_init(&text, json->out->arena, bytes.len / 3 * 4 + 4);
    grpc_binary_metadata_print(&text, bytes);
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

static enum status read_end(const struct doc_node *status_node, int64_t *out, struct error *err) {
    struct str text = kube_member_text(status_node, "expirationTimestamp");
    *out = INT64_MAX;
    if (text.len > 0 && !kube_time_parse(text, out)) {
        return error_set(err, ST_BAD_ANSWER, "printed an expirationTimestamp that is no time");
    }
    return ST_OK;
}

static enum status take_credential(struct credential *datum, const struct doc_node *node,
                                   const char *key, struct error *err) {
    struct str text = kube_member_text(node, key);
    return text.len > 0 ? credential_set(datum, text, err) : ST_OK;
}

static enum status read_status(const struct doc_node *node, struct kube_credential *out,
                               struct error *err) {
    enum status status = read_end(node, &out->until_s, err);
    status = status == ST_OK ? take_credential(&out->token, node, "token", err) : status;
    status =
        status == ST_OK ? take_credential(&out->cert, node, "clientCertificateData", err) : status;
    status = status == ST_OK ? take_credential(&out->key, node, "clientKeyData", err) : status;
    if (status == ST_OK && !out->token.text && !out->cert.text) {
        status = error_set(err, ST_BAD_ANSWER, "printed neither a token nor a certificate");
    }
    if (status == ST_OK && !out->cert.text != !out->key.text) {
        status = error_set(err, ST_BAD_ANSWER, "printed a certificate or a key without the other");
    }
    return status;
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
