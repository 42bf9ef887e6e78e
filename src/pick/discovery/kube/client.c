/* Calls to the API server over the HTTP fetcher. Credentials are read when a call starts. libcurl
 * must not be called within a body callback, so calls that start or are cancelled there are handled
 * by a timer in the next event-loop iteration. */
#include "pick/discovery/kube/client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "codec/kube/stream.h"
#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/kube/credentials/auth.h"

static const uint64_t NS_PER_S = 1000000000;

enum {
    MAX_IDLE_CONNECTIONS = 8,
    MAX_BODY_BYTES = 64 << 20,
    ERROR_BODY_BYTES = 4096,
    MAX_FIELDS = 64
};
enum { UNAUTHORIZED = 401, KEEPALIVE_S = 30 };
static const uint64_t TIMEOUT_NS = 30000000000;
static const uint64_t CONNECT_TIMEOUT_NS = 10000000000;

enum call_state {
    CALL_QUEUED,         /* to be started */
    CALL_AUTHENTICATING, /* to be started once credentials are known */
    CALL_RUNNING,        /* the fetcher has it */
    CALL_FAILED,         /* `done` is to be called with `error` */
    CALL_CANCELLED,      /* cancelled, to be freed without a callback */
};

struct kube_call {
    struct kube_client *client;
    LIST_ENTRY(kube_call) link;
    enum call_state state;
    struct arena *arena; /* for the texts */
    struct kube_request ask;
    char *url;
    struct http_fetch *fetch;
    unsigned generation;   /* of the credentials that were used */
    struct error error;    /* if the state is CALL_FAILED */
    size_t error_body_len; /* the body of an error response, which is not streamed */
    char error_body[ERROR_BODY_BYTES];
};

struct kube_client {
    struct worker *worker;
    struct kube_config *config;
    struct kube_auth login;
    struct http_fetcher *fetcher;
    LIST_HEAD(, kube_call) calls;
    struct timer pending_timer;
    bool in_piece;
    bool stopping;
    void (*done)(void *user);
    void *user;
};

void kube_query_print(struct buf *out, struct str text) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        if (plain) {
            buf_add_char(out, text.ptr[i]);
        } else {
            buf_add_char(out, '%');
            buf_add_char(out, digits[c >> 4]);
            buf_add_char(out, digits[c & 15]);
        }
    }
}

static void add_segment(struct buf *out, const char *segment) {
    buf_add_char(out, '/');
    kube_query_print(out, str_of(segment));
}

void kube_path_print(struct buf *out, const struct kube_resource *resource, const char *object,
                     const char *sub) {
    bool core = resource->group[0] == '\0';
    add_segment(out, core ? "api" : "apis");
    if (!core) {
        add_segment(out, resource->group);
    }
    add_segment(out, resource->version);
    if (resource->name_space) {
        add_segment(out, "namespaces");
        add_segment(out, resource->name_space);
    }
    add_segment(out, resource->name);
    if (object) {
        add_segment(out, object);
    }
    if (sub) {
        add_segment(out, sub);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void call_free(struct kube_call *call) {
    LIST_REMOVE(call, link);
    arena_free(call->arena);
    free(call);
}

/* Frees the call and calls `done`, unless it was cancelled. */
static void call_end(struct kube_call *call, const struct kube_response *answer) {
    struct kube_request ask = call->ask;
    bool wanted = call->state != CALL_CANCELLED;
    call_free(call);
    if (wanted) {
        ask.done(ask.user, answer);
    }
}

static void call_fail(struct kube_call *call, const struct error *err) {
    struct kube_response answer = {.error = *err};
    call_end(call, &answer);
}

static void schedule_pending_calls(struct kube_client *client) {
    timer_start(worker_timers(client->worker), &client->pending_timer, clock_now_ns());
}

/* ---- responses ------------------------------------------------------------------------------- */

static void read_response(struct kube_response *answer, struct str body, struct doc **doc) {
    bool good = answer->status >= 200 && answer->status < 300;
    enum status status = body.len > 0 ? kube_object_parse(body, doc, &answer->error) : ST_OK;
    if (status == ST_OK && *doc) {
        answer->object = doc_root(*doc);
    }
    if (!good) {
        /* "the API server says 403: pods is forbidden: …" */
        struct str message = kube_member_text(&answer->object, "message");
        if (!answer->object.val) {
            message = str_cut(&body, '\n');
        }
        error_set(&answer->error, ST_REFUSED, "the API server says %d%s%.*s", answer->status,
                  message.len > 0 ? ": " : "", STR_ARG(message));
    } else if (status != ST_OK) {
        error_prefix(&answer->error, "the API server");
    }
}

static void on_done(void *user, const struct http_fetch_result *fetched) {
    struct kube_call *call = user;
    struct doc *doc = NULL;
    struct kube_response answer = {.error = fetched->error,
                                   .status = fetched->status,
                                   .retry_after_ns = fetched->retry_after_s < UINT32_MAX
                                                         ? fetched->retry_after_s * NS_PER_S
                                                         : 0};
    call->fetch = NULL;
    if (fetched->error.status == ST_OK) {
        struct str body =
            call->ask.piece ? str_make(call->error_body, call->error_body_len) : fetched->body;
        read_response(&answer, body, &doc);
        if (fetched->status == UNAUTHORIZED) {
            kube_auth_reject(&call->client->login, call->generation);
        }
    } else {
        error_prefix(&answer.error, "%s", call->client->config->server);
    }
    call_end(call, &answer);
    doc_free(doc);
}

static void on_piece(void *user, struct str bytes) {
    struct kube_call *call = user;
    int status = http_fetch_status(call->fetch);
    if (status < 200 || status > 299) {
        size_t space = ERROR_BODY_BYTES - call->error_body_len,
               n = bytes.len < space ? bytes.len : space;
        memcpy(call->error_body + call->error_body_len, bytes.ptr, n);
        call->error_body_len += n;
    } else if (call->state == CALL_RUNNING) {
        call->client->in_piece = true;
        call->ask.piece(call->ask.user, bytes);
        call->client->in_piece = false;
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t fill_header_fields(const struct kube_config *config, const char *fields[MAX_FIELDS]) {
    size_t n = 0;
    fields[n++] = "Accept: application/json";
    if (config->basic) {
        fields[n++] = config->basic;
    }
    for (size_t i = 0; i < config->n_fields && n < MAX_FIELDS; i++) {
        fields[n++] = config->fields[i];
    }
    return n;
}

static enum status start_fetch(struct kube_call *call, const struct kube_identity *identity,
                               struct error *err) {
    const struct kube_config *config = call->client->config;
    const struct kube_request *ask = &call->ask;
    const char *fields[MAX_FIELDS];
    struct http_fetch_tls tls = {.insecure = config->insecure,
                                 .ca_pem = identity->ca,
                                 .cert_pem = identity->cert,
                                 .key_pem = identity->key,
                                 .name = config->tls_name};
    struct http_fetch_request fetched = {
        .url = call->url,
        .method = ask->method,
        .timeout_ns = ask->timeout_ns > 0 ? ask->timeout_ns : TIMEOUT_NS,
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
        .body = ask->body,
        .content_type = ask->content_type ? ask->content_type : "application/json",
        .fields = fields,
        .n_fields = fill_header_fields(config, fields),
        .max_body_size = ask->piece           ? SIZE_MAX
                         : ask->max_bytes > 0 ? ask->max_bytes
                                              : MAX_BODY_BYTES,
        .bearer = identity->token,
        .tls = &tls,
        .keepalive_s = KEEPALIVE_S,
        .piece = ask->piece ? on_piece : NULL,
        .done = on_done,
        .user = call};
    return http_fetch_start(call->client->fetcher, &fetched, &call->fetch, err);
}

/* Returns: false if it failed; `done` is still to be called. */
static bool start_call(struct kube_call *call) {
    struct kube_identity identity;
    enum status status = kube_auth_get(&call->client->login, &identity, &call->error);
    if (status == ST_NOT_READY) {
        call->state = CALL_AUTHENTICATING;
        return true;
    }
    if (status == ST_OK) {
        call->generation = identity.generation;
        status = start_fetch(call, &identity, &call->error);
    }
    call->state = status == ST_OK ? CALL_RUNNING : CALL_FAILED;
    return status == ST_OK;
}

/* Handles one call that is not with the fetcher. Returns: false if there is none. */
static bool run_pending_call(struct kube_client *client) {
    struct kube_call *call = LIST_FIRST(&client->calls);
    while (call && (call->state == CALL_RUNNING || call->state == CALL_AUTHENTICATING)) {
        call = LIST_NEXT(call, link);
    }
    if (!call) {
        return false;
    }
    if (call->state == CALL_QUEUED) {
        return start_call(call) || true;
    }
    if (call->fetch) {
        http_fetch_cancel(call->fetch);
    }
    call_fail(call, &call->error);
    return true;
}

static void run_pending_calls(struct kube_client *client) {
    while (run_pending_call(client)) {
    }
}

static void on_timer_expired(struct timer *timer) {
    struct kube_client *client = CONTAINER_OF(timer, struct kube_client, pending_timer);
    run_pending_calls(client);
}

/* The credentials are known, or can't be had (`err`). */
static void on_credentials(struct kube_auth *login, const struct error *err) {
    struct kube_client *client = CONTAINER_OF(login, struct kube_client, login);
    struct kube_call *call;
    LIST_FOREACH(call, &client->calls, link) {
        if (call->state == CALL_AUTHENTICATING) {
            call->state = err ? CALL_FAILED : CALL_QUEUED;
            call->error = err ? *err : call->error;
        }
    }
    run_pending_calls(client);
}

static enum status copy_request(struct kube_call *call, const struct kube_request *ask) {
    const char *server = call->client->config->server;
    struct arena *arena = call->arena;
    struct str method = arena_dup(arena, str_of(ask->method ? ask->method : "GET"));
    struct str type = arena_dup(arena, str_of(ask->content_type ? ask->content_type : ""));
    struct str url = arena_printf(arena, "%s%.*s", server, STR_ARG(ask->path));
    call->ask = *ask;
    call->ask.method = ask->method ? method.ptr : NULL;
    call->ask.content_type = ask->content_type ? type.ptr : NULL;
    if (ask->body.ptr) {
        call->ask.body = arena_dup(arena, ask->body);
    }
    bool copied = method.ptr && type.ptr && url.ptr && (!ask->body.ptr || call->ask.body.ptr);
    call->url = (char *)(uintptr_t)url.ptr;
    return copied ? ST_OK : ST_NO_MEMORY;
}

enum status kube_call_start(struct kube_client *client, const struct kube_request *ask,
                            struct kube_call **out, struct error *err) {
    struct kube_call *call = client->stopping ? NULL : calloc(1, sizeof(*call));
    struct arena *arena = call ? arena_new(worker_arenas(client->worker), 0) : NULL;
    if (!arena) {
        free(call);
        return error_no_memory(err, "an API server request");
    }
    call->client = client;
    call->arena = arena;
    LIST_INSERT_HEAD(&call->client->calls, call, link);
    if (copy_request(call, ask) != ST_OK) {
        call_free(call);
        return error_no_memory(err, "an API server request");
    }
    if (client->in_piece || !start_call(call)) {
        schedule_pending_calls(client);
    }
    if (out) {
        *out = call;
    }
    return ST_OK;
}

int kube_call_status(const struct kube_call *call) {
    return call->fetch ? http_fetch_status(call->fetch) : 0;
}

void kube_call_cancel(struct kube_call *call) {
    struct kube_client *client = call->client;
    call->state = CALL_CANCELLED;
    if (client->in_piece) { /* the timer frees it, or kube_client_stop */
        schedule_pending_calls(client);
        return;
    }
    if (call->fetch) {
        http_fetch_cancel(call->fetch);
    }
    call_free(call);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status kube_client_new(struct worker *worker, struct kube_config *config,
                            struct kube_client **out, struct error *err) {
    struct kube_client *client = calloc(1, sizeof(*client));
    if (!client) {
        kube_config_free(config);
        return error_no_memory(err, "an API server request");
    }
    *client = (struct kube_client){
        .worker = worker, .config = config, .pending_timer.on_expire = on_timer_expired};
    client->login =
        (struct kube_auth){.worker = worker, .config = config, .on_credential = on_credentials};
    enum status status =
        http_fetcher_new(worker, NULL, MAX_IDLE_CONNECTIONS, &client->fetcher, err);
    if (status != ST_OK) {
        kube_config_free(config);
        free(client);
        return status;
    }
    *out = client;
    return ST_OK;
}

static void on_auth_stopped(void *user) {
    struct kube_client *client = user;
    http_fetcher_stop(client->fetcher, client->done, client->user);
}

void kube_client_stop(struct kube_client *client, void (*done)(void *user), void *user) {
    struct error cancelled;
    error_set(&cancelled, ST_CANCELLED, "given up");
    client->stopping = true;
    client->done = done;
    client->user = user;
    timer_stop(worker_timers(client->worker), &client->pending_timer);
    struct kube_call *call;
    while ((call = LIST_FIRST(&client->calls))) {
        if (call->fetch) {
            http_fetch_cancel(call->fetch);
        }
        call_fail(call, &cancelled);
    }
    kube_auth_stop(&client->login, on_auth_stopped, client);
}

void kube_client_free(struct kube_client *client) {
    if (client) {
        kube_auth_fini(&client->login);
        http_fetcher_free(client->fetcher);
        kube_config_free(client->config);
        free(client);
    }
}
