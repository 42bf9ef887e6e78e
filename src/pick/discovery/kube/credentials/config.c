/* Where a configuration comes from, and what a pod is given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pick/discovery/kube/credentials/config_state.h"

static const char FOLDER[] = "/var/run/secrets/kubernetes.io/serviceaccount";

enum { PATH_BYTES = 4096, URL_BYTES = 600 };

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for how to reach the API server");
}

/* ---- the service account of a pod ------------------------------------------------------------ */

static enum status take_path(struct credential *datum, const char *folder, const char *name,
                             struct error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    datum->path = strdup(path);
    return datum->path ? ST_OK : no_memory(err);
}

/* One that can't be read is none: whoever is asked for objects has to say where. */
static enum status take_namespace(struct kube_config *config, const char *folder,
                                  struct error *err) {
    struct credential file = {.path = NULL};
    struct error ignored;
    enum status status = take_path(&file, folder, "namespace", err);
    if (status == ST_OK && credential_refresh(&file, true, &ignored) == ST_OK) {
        config->name_space = strdup(file.text);
        status = config->name_space ? ST_OK : no_memory(err);
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
    enum status status =
        config->server ? take_path(&config->token, folder, "token", err) : no_memory(err);
    status = status == ST_OK ? take_path(&config->ca, folder, "ca.crt", err) : status;
    status = status == ST_OK ? credential_refresh(&config->token, true, err) : status;
    status = status == ST_OK ? credential_refresh(&config->ca, false, err) : status;
    return status == ST_OK ? take_namespace(config, folder, err) : status;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status kube_config_load(const struct kube_config_options *ask, struct kube_config **out,
                             struct error *err) {
    struct kube_config *config = calloc(1, sizeof(*config));
    bool by_default = !ask->file && !ask->folder;
    const char *files = by_default ? getenv("KUBECONFIG") : ask->file; /* no thread sets it */
    enum status status;
    if (!config) {
        return no_memory(err);
    }
    if (files && *files != '\0') {
        status = kube_config_read_files(config, files, !ask->file, ask->context, err);
    } else {
        status = read_pod(config, ask->folder ? ask->folder : FOLDER, err);
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
