/* Calls between whoever asks and the fetcher. What is shown to the server is looked at when a call
 * begins. libcurl must not be called from within a piece of an answer: what is begun or given up
 * there is done soon after. */
#include "pick/discovery/kube/client.h"

#include <stdlib.h>
#include <string.h>

#include "codec/kube/stream.h"
#include "core/event/clock.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/kube/credentials/auth.h"

static const uint64_t NS_PER_S = 1000000000;

enum { MOST_KEPT = 8, MOST_BYTES = 64 << 20, SAID_BYTES = 4096, MOST_FIELDS = 64 };
enum { UNAUTHORIZED = 401, ALIVE_S = 30 };
static const uint64_t TIMEOUT_NS = 30000000000;
static const uint64_t CONNECT_TIMEOUT_NS = 10000000000;

enum call_state {
    CALL_WAITING, /* to be asked */
    CALL_UNKNOWN, /* to be asked when it is known who we are */
    CALL_ASKED,   /* the fetcher has it */
    CALL_FAILED,  /* to be told of */
    CALL_LEFT,    /* nobody wants it any more */
};

struct kube_call {
    struct kube_client *client;
    struct kube_call *next, *prev;
    enum call_state state;
    struct arena *arena; /* of the texts */
    struct kube_request ask;
    char *url;
    struct http_fetch *fetch;
    unsigned generation; /* of what was shown */
    struct error error;  /* of one that failed */
    size_t n_said;       /* what is said instead of pieces */
    char said[SAID_BYTES];
};

struct kube_client {
    struct worker *worker;
    struct kube_config *config;
    struct kube_auth login;
    struct http_fetcher *fetcher;
    struct kube_call *calls;
    struct timer soon;
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

static void link_call(struct kube_call *call) {
    struct kube_client *client = call->client;
    call->next = client->calls;
    if (call->next) {
        call->next->prev = call;
    }
    client->calls = call;
}

static void call_free(struct kube_call *call) {
    *(call->prev ? &call->prev->next : &call->client->calls) = call->next;
    if (call->next) {
        call->next->prev = call->prev;
    }
    arena_free(call->arena);
    free(call);
}

/* Tells what came of it, unless nobody wants to know. */
static void call_end(struct kube_call *call, const struct kube_response *answer) {
    struct kube_request ask = call->ask;
    bool wanted = call->state != CALL_LEFT;
    call_free(call);
    if (wanted) {
        ask.done(ask.user, answer);
    }
}

static void call_fail(struct kube_call *call, const struct error *err) {
    struct kube_response answer = {.error = *err};
    call_end(call, &answer);
}

static bool do_soon(struct kube_client *client) {
    return timer_start(worker_timers(client->worker), &client->soon, clock_now_ns());
}

/* ---- answers --------------------------------------------------------------------------------- */

/* "the API server says 403: pods is forbidden: …" */
static void explain_refusal(struct kube_response *answer, struct str body) {
    struct str message = kube_member_text(&answer->object, "message");
    if (!answer->object.val) {
        message = str_cut(&body, '\n');
    }
    error_set(&answer->error, ST_REFUSED, "the API server says %d%s%.*s", answer->status,
              message.len > 0 ? ": " : "", STR_ARG(message));
}

static void read_answer(struct kube_response *answer, struct str body, struct doc **doc) {
    bool good = answer->status >= 200 && answer->status < 300;
    enum status status = body.len > 0 ? kube_object_parse(body, doc, &answer->error) : ST_OK;
    if (status == ST_OK && *doc) {
        answer->object = doc_root(*doc);
    }
    if (!good) {
        explain_refusal(answer, body);
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
        struct str body = call->ask.piece ? str_make(call->said, call->n_said) : fetched->body;
        read_answer(&answer, body, &doc);
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
        size_t room = SAID_BYTES - call->n_said, n = bytes.len < room ? bytes.len : room;
        memcpy(call->said + call->n_said, bytes.ptr, n);
        call->n_said += n;
    } else if (call->state == CALL_ASKED) {
        call->client->in_piece = true;
        call->ask.piece(call->ask.user, bytes);
        call->client->in_piece = false;
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static size_t fill_fields(const struct kube_config *config, const char *fields[MOST_FIELDS]) {
    size_t n = 0;
    fields[n++] = "Accept: application/json";
    if (config->basic) {
        fields[n++] = config->basic;
    }
    for (size_t i = 0; i < config->n_fields && n < MOST_FIELDS; i++) {
        fields[n++] = config->fields[i];
    }
    return n;
}

static enum status fetch(struct kube_call *call, const struct kube_identity *identity,
                         struct error *err) {
    const struct kube_config *config = call->client->config;
    const struct kube_request *ask = &call->ask;
    const char *fields[MOST_FIELDS];
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
        .n_fields = fill_fields(config, fields),
        .max_body_size = ask->piece           ? SIZE_MAX
                         : ask->max_bytes > 0 ? ask->max_bytes
                                              : MOST_BYTES,
        .bearer = identity->token,
        .tls = &tls,
        .keepalive_s = ALIVE_S,
        .piece = ask->piece ? on_piece : NULL,
        .done = on_done,
        .user = call};
    return http_fetch_start(call->client->fetcher, &fetched, &call->fetch, err);
}

/* Returns: false: it has failed, and is to be told of. */
static bool start_call(struct kube_call *call) {
    struct kube_identity identity;
    enum status status = kube_auth_get(&call->client->login, &identity, &call->error);
    if (status == ST_NOT_READY) {
        call->state = CALL_UNKNOWN;
        return true;
    }
    if (status == ST_OK) {
        call->generation = identity.generation;
        status = fetch(call, &identity, &call->error);
    }
    call->state = status == ST_OK ? CALL_ASKED : CALL_FAILED;
    return status == ST_OK;
}

/* One thing that was put off. Returns: false: there is none. */
static bool run_pending_call(struct kube_client *client) {
    struct kube_call *call = client->calls;
    while (call && (call->state == CALL_ASKED || call->state == CALL_UNKNOWN)) {
        call = call->next;
    }
    if (!call) {
        return false;
    }
    if (call->state == CALL_WAITING) {
        return start_call(call) || true;
    }
    if (call->fetch) {
        http_fetch_cancel(call->fetch);
    }
    call_fail(call, &call->error);
    return true;
}

static void act_all(struct kube_client *client) {
    while (run_pending_call(client)) {
    }
}

static void on_timer_expired(struct timer *timer) {
    struct kube_client *client =
        (struct kube_client *)(void *)((char *)timer - offsetof(struct kube_client, soon));
    act_all(client);
}

/* It is known who we are, or why not. */
static void on_known(struct kube_auth *login, const struct error *err) {
    struct kube_client *client =
        (struct kube_client *)(void *)((char *)login - offsetof(struct kube_client, login));
    for (struct kube_call *call = client->calls; call; call = call->next) {
        if (call->state == CALL_UNKNOWN) {
            call->state = err ? CALL_FAILED : CALL_WAITING;
            call->error = err ? *err : call->error;
        }
    }
    act_all(client);
}

static enum status copy_ask(struct kube_call *call, const struct kube_request *ask) {
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
        return error_set(err, ST_NO_MEMORY, "no memory for asking the API server");
    }
    call->client = client;
    call->arena = arena;
    link_call(call);
    bool good = copy_ask(call, ask) == ST_OK;
    if (good && (client->in_piece || !start_call(call))) {
        good = do_soon(client);
    }
    if (!good) {
        call_free(call);
        return error_set(err, ST_NO_MEMORY, "no memory for asking the API server");
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
    call->state = CALL_LEFT;
    if (client->in_piece && do_soon(client)) {
        return;
    }
    if (client->in_piece) { /* it ends by itself, or with the client */
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
        return error_set(err, ST_NO_MEMORY, "no memory for asking the API server");
    }
    *client = (struct kube_client){
        .worker = worker, .config = config, .soon.on_expire = on_timer_expired};
    client->login =
        (struct kube_auth){.worker = worker, .config = config, .on_credential = on_known};
    enum status status = http_fetcher_new(worker, NULL, MOST_KEPT, &client->fetcher, err);
    if (status != ST_OK) {
        kube_config_free(config);
        free(client);
        return status;
    }
    *out = client;
    return ST_OK;
}

const struct kube_config *kube_client_config(const struct kube_client *client) {
    return client->config;
}

static void on_logged_out(void *user) {
    struct kube_client *client = user;
    http_fetcher_stop(client->fetcher, client->done, client->user);
}

void kube_client_stop(struct kube_client *client, void (*done)(void *user), void *user) {
    struct error cancelled;
    error_set(&cancelled, ST_CANCELLED, "given up");
    client->stopping = true;
    client->done = done;
    client->user = user;
    timer_stop(worker_timers(client->worker), &client->soon);
    while (client->calls) {
        struct kube_call *call = client->calls;
        if (call->fetch) {
            http_fetch_cancel(call->fetch);
        }
        call_fail(call, &cancelled);
    }
    kube_auth_stop(&client->login, on_logged_out, client);
}

void kube_client_free(struct kube_client *client) {
    if (client) {
        kube_auth_fini(&client->login);
        http_fetcher_free(client->fetcher);
        kube_config_free(client->config);
        free(client);
    }
}
