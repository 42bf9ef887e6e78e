/* Credential files are read again for each request; the program runs again when its credential has
 * expired or was rejected. */
#include "pick/discovery/kube/credentials/auth.h"

#include <stdlib.h>
#include <time.h>

#include "core/event/clock.h"

enum { MOST_PRINTED_BYTES = 1 << 20, MOST_ENV = 256 };
static const uint64_t RUN_TIMEOUT_NS = 60000000000;
/* Wait after a failed run. */
static const uint64_t RETRY_NS = 1000000000;
static const char INFO[] = "KUBERNETES_EXEC_INFO=";

/* ---- the exec program ------------------------------------------------------------------------ */

static bool is_valid(const struct kube_auth *login) {
    bool over = (int64_t)time(NULL) >= login->credential.until_s;
    return login->generation > 0 && !login->refused && (login->just_issued || !over);
}

static void on_ended(void *user, const struct child_result *result) {
    struct kube_auth *login = user;
    struct error *err = &login->error;
    enum status status = result->error.status;
    login->child = NULL;
    if (login->stopped) {
        login->stopped(login->user);
        return;
    }
    if (status != ST_OK) {
        const struct kube_exec *exec = login->config->exec;
        error_set(err, result->error.status, "the program %s %s%s%.*s", exec->argv[0],
                  result->error.text, result->stderr_tail.len > 0 ? ": " : "",
                  STR_ARG(result->stderr_tail));
    } else {
        status = kube_exec_parse(login->config->exec, result->output, &login->credential, err);
        if (status != ST_OK) {
            error_prefix(err, "the program %s", login->config->exec->argv[0]);
        }
    }
    if (status == ST_OK) {
        login->generation++;
        login->refused = false;
    } else {
        login->again_ns = clock_now_ns() + RETRY_NS;
    }
    login->just_issued = status == ST_OK;
    login->on_credential(login, status == ST_OK ? NULL : err);
    login->just_issued = false;
}

static enum status start_program(struct kube_auth *login, struct buf *info, struct error *err) {
    const struct kube_exec *exec = login->config->exec;
    const char *env[MOST_ENV];
    size_t n = 0;
    if (info->failed) {
        return error_no_memory(err, "running %s", exec->argv[0]);
    }
    env[n++] = info->data;
    for (size_t i = 0; exec->env[i] && n < MOST_ENV - 1; i++) {
        env[n++] = exec->env[i];
    }
    env[n] = NULL;
    struct child_spec spec = {.argv = (const char *const *)exec->argv,
                              .env = env,
                              .timeout_ns = RUN_TIMEOUT_NS,
                              .max_output_bytes = MOST_PRINTED_BYTES,
                              .done = on_ended,
                              .user = login};
    enum status status = child_start(login->worker, &spec, &login->child, err);
    if (status == ST_IO && exec->hint) {
        struct error why = *err;
        error_set(err, status, "%s. %s", why.text, exec->hint);
    }
    return status;
}

static enum status run_program(struct kube_auth *login, struct error *err) {
    const struct kube_config *config = login->config;
    struct kube_exec_cluster cluster = {.server = config->server,
                                        .tls_name = config->tls_name,
                                        .ca = credential_text(&config->ca),
                                        .insecure = config->insecure,
                                        .extension = config->extension};
    struct arena *arena = arena_new(worker_arenas(login->worker), 0);
    struct buf info;
    if (!arena) {
        return error_no_memory(err, "running %s", config->exec->argv[0]);
    }
    buf_init(&info, arena, 4096);
    buf_add_str(&info, STR(INFO));
    kube_exec_print_info(config->exec, &cluster, &info);
    buf_add_char(&info, '\0');
    enum status status = start_program(login, &info, err);
    arena_free(arena);
    return status;
}

/* Returns: ST_OK if the program's credential is valid. */
static enum status get_program_credential(struct kube_auth *login, struct error *err) {
    if (is_valid(login)) {
        return ST_OK;
    }
    if (!login->child && clock_now_ns() < login->again_ns) {
        *err = login->error;
        return err->status;
    }
    enum status status = login->child ? ST_OK : run_program(login, err);
    if (status != ST_OK) {
        return status;
    }
    return error_set(err, ST_NOT_READY, "the program %s runs", login->config->exec->argv[0]);
}

/* ---- credentials ----------------------------------------------------------------------------- */

enum status kube_auth_get(struct kube_auth *login, struct kube_identity *out, struct error *err) {
    struct kube_config *config = login->config;
    struct credential *files[] = {&config->ca, &config->cert, &config->key, &config->token};
    enum status status = ST_OK;
    for (size_t i = 0; status == ST_OK && i < sizeof(files) / sizeof(files[0]); i++) {
        status = credential_refresh(files[i], files[i] == &config->token, err);
    }
    if (status == ST_OK && config->exec) {
        status = get_program_credential(login, err);
    }
    if (status != ST_OK) {
        return status;
    }
    const struct kube_credential *said = &login->credential;
    bool by_cert = said->cert.text != NULL;
    *out =
        (struct kube_identity){.token = config->token.text ? config->token.text : said->token.text,
                               .ca = credential_text(&config->ca),
                               .cert = credential_text(by_cert ? &said->cert : &config->cert),
                               .key = credential_text(by_cert ? &said->key : &config->key),
                               .generation = login->generation};
    return ST_OK;
}

void kube_auth_reject(struct kube_auth *login, unsigned generation) {
    login->refused = login->refused || generation == login->generation;
}

void kube_auth_stop(struct kube_auth *login, void (*stopped)(void *user), void *user) {
    login->stopped = stopped;
    login->user = user;
    if (login->child) {
        child_cancel(login->child);
    } else {
        stopped(user);
    }
}

void kube_auth_fini(struct kube_auth *login) {
    kube_credential_fini(&login->credential);
}
