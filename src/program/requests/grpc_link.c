/* The gRPC client of the commands. Its libuv loop runs without blocking; the caller waits on the
 * loop's file descriptor. */
#include "program/requests/grpc_link.h"

#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "client/v2_grpc.h"
#include "codec/protobuf/grpc_status.h"
#include "net/transport/address.h"

/* Short reconnect delays, because a user waits for each response. */
enum { FIRST_PAUSE_NS = 1000 * 1000, LONGEST_PAUSE_NS = 50 * 1000 * 1000 };

struct grpc_link {
    struct worker *worker;
    struct grpc_client *client;
    struct grpc_field fields[GRPC_CLIENT_MAX_FIELDS];
    size_t n_fields;
    bool stopped;
};

/* ---- the loop -------------------------------------------------------------------------------- */

/* libuv writes raise SIGPIPE when the peer has closed; here that must be an error of the write. The
 * signal is blocked meanwhile, so that the process's handling of it does not change. */
void grpc_link_run(struct grpc_link *link) {
    static const struct timespec AT_ONCE = {0, 0};
    sigset_t pipes, before;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, &before);
    uv_run(worker_loop(link->worker), UV_RUN_NOWAIT);
    if (sigismember(&before, SIGPIPE) == 0) {
        while (sigtimedwait(&pipes, NULL, &AT_ONCE) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
}

void grpc_link_wait(const struct grpc_link *link, struct client_waiting *out) {
    int ms = uv_backend_timeout(worker_loop(link->worker));
    *out = (struct client_waiting){
        .fd = uv_backend_fd(worker_loop(link->worker)),
        .read = true,
        .timeout_ns = ms < 0 ? UINT64_MAX : (uint64_t)ms * 1000000,
    };
}

static void wait_and_run(struct grpc_link *link) {
    struct pollfd fd = {.fd = uv_backend_fd(worker_loop(link->worker)), .events = POLLIN};
    (void)poll(&fd, 1, uv_backend_timeout(worker_loop(link->worker)));
    grpc_link_run(link);
}

/* ---- open and close -------------------------------------------------------------------------- */

static enum status set_fields(struct grpc_link *link, const struct option_texts *texts,
                              struct error *err) {
    for (size_t i = 0; texts && i < texts->n; i++) {
        struct str value = str_of(texts->items[i]);
        struct str name = str_cut(&value, '=');
        if (!value.ptr || name.len == 0) {
            return error_set(err, ST_BAD_CONFIG, "--metadata %s: expected NAME=VALUE",
                             texts->items[i]);
        }
        if (link->n_fields == GRPC_CLIENT_MAX_FIELDS) {
            return error_set(err, ST_BAD_CONFIG, "--metadata: expected at most %d",
                             (int)GRPC_CLIENT_MAX_FIELDS);
        }
        link->fields[link->n_fields++] = (struct grpc_field){name, value};
    }
    return ST_OK;
}

static enum status make_client(struct grpc_link *link, const struct grpc_link_options *options,
                               struct error *err) {
    const struct client_url *server = options->server;
    struct grpc_client_tls tls = {.files = tls_client_files(options->tls)};
    char path[ADDRESS_TEXT_BYTES];
    struct grpc_client_options of_client = {
        .worker = link->worker,
        .target = server->authority,
        .tls = server->is_tls ? &tls : NULL,
        .limits = {.max_message_bytes = options->max_answer_bytes,
                   .setting = "--max-answer-size",
                   .connect_timeout_ns = options->connect_timeout_ns,
                   .initial_backoff_ns = FIRST_PAUSE_NS,
                   .max_backoff_ns = LONGEST_PAUSE_NS,
                   .n_connections = options->n_connections},
    };
    if (server->is_unix) {
        int n = snprintf(path, sizeof(path), "unix:%s", server->path.ptr);
        of_client.target = str_make(path, (size_t)n);
    }
    return grpc_client_new(&of_client, &link->client, err);
}

enum status grpc_link_open(const struct grpc_link_options *options, struct grpc_link **out,
                           struct error *err) {
    struct grpc_link *link = calloc(1, sizeof(*link));
    *out = NULL;
    if (!link) {
        return error_no_memory(err, "a client");
    }
    enum status status = set_fields(link, options->metadata, err);
    if (status == ST_OK) {
        status = worker_new("grpc", &link->worker, err);
    }
    if (status == ST_OK) {
        status = make_client(link, options, err);
    }
    if (status != ST_OK) {
        grpc_link_close(link);
        return status;
    }
    *out = link;
    return ST_OK;
}

static void on_stopped(void *user) {
    struct grpc_link *link = user;
    link->stopped = true;
}

void grpc_link_close(struct grpc_link *link) {
    if (!link) {
        return;
    }
    if (link->client) {
        grpc_client_stop(link->client, on_stopped, link);
        while (!link->stopped) {
            wait_and_run(link);
        }
        grpc_client_free(link->client);
    }
    worker_free(link->worker);
    free(link);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void on_event(struct grpc_client_call *client_call, enum grpc_client_event event) {
    struct grpc_link_call *call = client_call->user;
    if (event == GRPC_CLIENT_MESSAGE) {
        call->message = client_call->message;
    }
    if (event != GRPC_CLIENT_END) {
        return;
    }
    call->error = client_call->error;
    call->code = client_call->code;
    call->call = NULL;
    if (call->on_done) {
        call->on_done(call);
    }
}

static void drop_answer(struct grpc_link_call *call) {
    if (call->message) {
        grpc_message_free(call->message);
        call->message = NULL;
    }
}

enum status grpc_link_call_start(struct grpc_link *link, struct grpc_link_call *call,
                                 struct str path, const struct piece *pieces, size_t n_pieces,
                                 uint64_t timeout_ns, struct error *err) {
    struct grpc_client_call_options ask = {.path = path,
                                           .fields = link->fields,
                                           .n_fields = link->n_fields,
                                           .timeout_ns = timeout_ns,
                                           .on_event = on_event,
                                           .user = call};
    assert(!call->call);
    drop_answer(call);
    call->link = link;
    enum status status = grpc_client_start_call(link->client, &ask, &call->call, err);
    if (status == ST_OK) {
        grpc_client_send(call->call, pieces, n_pieces, NULL, NULL);
    } else if (status == ST_BAD_FIELD) {
        err->status = status = ST_BAD_CONFIG;
    }
    return status;
}

enum status grpc_link_call_error(const struct grpc_link_call *call, struct error *err) {
    *err = call->error;
    return call->error.status == ST_REFUSED && call->code >= 0
               ? error_prefix(err, "%s", grpc_code_name(call->code))
               : err->status;
}

enum status grpc_link_call_wait(struct grpc_link_call *call, struct error *err) {
    while (call->call) {
        wait_and_run(call->link);
    }
    return grpc_link_call_error(call, err);
}

void grpc_link_call_fini(struct grpc_link_call *call) {
    if (call->call) {
        call->on_done = NULL;
        grpc_client_cancel(call->call);
        while (call->call) {
            wait_and_run(call->link);
        }
    }
    drop_answer(call);
}

/* ---- metadata -------------------------------------------------------------------------------- */

static enum status read_model(struct arena *arena, struct str message, struct model_spec *out,
                              struct error *err) {
    struct str copy = arena_dup(arena, message); /* the specification has views of the copy */
    return copy.ptr ? client_grpc_model_decode(arena, copy, out, err)
                    : error_no_memory(err, "the model's metadata");
}

enum status grpc_link_get_model(struct grpc_link *link, struct arena *arena, struct str model,
                                struct str version, uint64_t timeout_ns, struct model_spec *out,
                                struct error *err) {
    struct grpc_link_call call = {0};
    struct buf request;
    buf_init(&request, arena, 0);
    v2_grpc_named_encode(&request, model, version.ptr ? version : STR(""));
    struct piece piece = {request.data, request.len};
    if (request.failed) {
        return error_no_memory(err, "a question");
    }
    enum status status = grpc_link_call_start(link, &call, CLIENT_GRPC_PATH("ModelMetadata"),
                                              &piece, 1, timeout_ns, err);
    if (status == ST_OK) {
        status = grpc_link_call_wait(&call, err);
    }
    if (status == ST_OK) {
        status = read_model(arena, call.message->data, out, err);
    }
    grpc_link_call_fini(&call);
    return status;
}
