/* The methods of checking an endpoint: HTTP GET with a status of 200 to 299, grpc.health.v1 on a
 * connection of its own, and a TCP connection. */
#include "pick/discovery/probe/probe_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "codec/grpc/status.h"
#include "codec/protobuf/pb.h"
#include "net/server/grpc/health.h"

/* The status decides: a body that does not end, or a connection that is lost in it, is no answer
 * to the check. */
static void on_fetched(void *user, const struct http_fetch_result *fetched) {
    struct probe_check *check = user;
    char why[40];
    if (fetched->error.status != ST_OK && fetched->status == 0) {
        probe_check_fail(check, &fetched->error, fetched->refused);
    } else if (fetched->status >= 200 && fetched->status < 300) {
        probe_check_finish(check, PROBE_OK, NULL);
    } else {
        snprintf(why, sizeof(why), "answered %d", fetched->status);
        probe_check_finish(check, PROBE_STATUS, why);
    }
}

static enum status http_check_begin(struct probe_check *check, const struct pool_health *health,
                                    struct error *err) {
    char *url = NULL;
    if (!check->fetcher ||
        asprintf(&url, "http://%s%.*s", check->target, STR_ARG(health->path)) < 0) {
        return error_no_memory(err, "a check");
    }
    struct http_fetch_request ask = {
        .url = url,
        .timeout_ns = check->timeout_ns,
        .own_connection = !check->keep_alive,
        .done = on_fetched,
        .user = check,
    };
    enum status st = http_fetch_start(check->fetcher, &ask, &check->io.fetch, err);
    free(url);
    return st;
}

static void http_check_cancel(struct probe_check *check) {
    http_fetch_cancel(check->io.fetch);
    probe_check_finish(check, PROBE_BROKEN, "given up");
}

const struct probe_method PROBE_HTTP = {http_check_begin, http_check_cancel};

enum { MOST_ANSWER_BYTES = 4 << 10, WINDOW_BYTES = 64 << 10 };

static void on_grpc_client_stopped(void *user) {
    struct probe_check *check = user;
    grpc_client_free(check->io.client);
    probe_check_finish(check, check->grpc.result, check->grpc.why.text);
}

/* Reads HealthCheckResponse (grpc.health.v1), whose field 1 is the status. Returns: below 0 if the
 * message is invalid. */
static int parse_health_state(struct str message) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    int state = GRPC_HEALTH_UNKNOWN;
    while (pb_next(&reader, &field)) {
        if (field.number == 1 && field.type == PB_VARINT) {
            state =
                field.value <= GRPC_HEALTH_SERVICE_UNKNOWN ? (int)field.value : GRPC_HEALTH_UNKNOWN;
        }
    }
    return reader.error_text ? -1 : state;
}

static void take_grpc_end(struct probe_check *check, const struct grpc_client_call *call) {
    if (call->error.status == ST_OK) {
        static const char *const states[] = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                             "SERVICE_UNKNOWN"};
        int state = check->grpc.state;
        check->grpc.result = state == GRPC_HEALTH_SERVING ? PROBE_OK : PROBE_STATUS;
        error_set(&check->grpc.why, ST_REFUSED, "answered %s",
                  state < 0 ? "with something that is no HealthCheckResponse" : states[state]);
    } else if (call->error.status == ST_REFUSED) {
        check->grpc.result = PROBE_STATUS;
        error_set(&check->grpc.why, ST_REFUSED, "answered %s: %s", grpc_code_name(call->code),
                  call->error.text);
    } else {
        check->grpc.result = probe_result_of(&call->error, false);
        check->grpc.why = call->error;
    }
}

static void on_grpc_event(struct grpc_client_call *call, enum grpc_client_event event) {
    struct probe_check *check = call->user;
    switch (event) {
    case GRPC_CLIENT_MESSAGE:
        check->grpc.state = parse_health_state(call->message->data);
        grpc_message_free(call->message);
        break;
    case GRPC_CLIENT_END:
        take_grpc_end(check, call);
        if (check->grpc.call) {
            check->grpc.call = NULL;
            grpc_client_stop(check->io.client, on_grpc_client_stopped, check);
        }
        break;
    case GRPC_CLIENT_HEAD:
    case GRPC_CLIENT_WRITABLE:
        break;
    }
}

static enum status grpc_check_begin(struct probe_check *check, const struct pool_health *health,
                                    struct error *err) {
    struct grpc_client_options options = {
        .worker = check->worker,
        .target = str_of(check->target),
        .limits = {.max_message_bytes = MOST_ANSWER_BYTES,
                   .connect_timeout_ns = check->timeout_ns,
                   .stream_window_bytes = WINDOW_BYTES,
                   .connection_window_bytes = WINDOW_BYTES},
    };
    struct grpc_client_call_options what = {.path = STR(GRPC_HEALTH_CHECK),
                                            .timeout_ns = check->timeout_ns,
                                            .on_event = on_grpc_event,
                                            .user = check};
    enum status st = grpc_client_new(&options, &check->io.client, err);
    if (st != ST_OK) {
        return st;
    }
    check->grpc.state = GRPC_HEALTH_UNKNOWN;
    if (grpc_client_start_call(check->io.client, &what, &check->grpc.call, &check->grpc.why) ==
        ST_OK) {
        struct buf out; /* HealthCheckRequest */
        buf_init(&out, check->grpc.call->arena, health->service.len + 8);
        pb_add_string(&out, 1, health->service);
        struct piece piece = {out.data, out.len};
        grpc_client_send(check->grpc.call, &piece, 1, NULL, NULL);
    } else {
        check->grpc.result = PROBE_BROKEN;
        grpc_client_stop(check->io.client, on_grpc_client_stopped, check);
    }
    return ST_OK;
}

static void grpc_check_cancel(struct probe_check *check) {
    if (check->grpc.call) { /* otherwise the client is stopping */
        check->grpc.call = NULL;
        grpc_client_stop(check->io.client, on_grpc_client_stopped, check);
    }
}

const struct probe_method PROBE_GRPC = {grpc_check_begin, grpc_check_cancel};

static void on_dialed(void *user, const struct dial_result *dialed) {
    struct probe_check *check = user;
    if (dialed->error.status == ST_OK) {
        probe_check_finish(check, PROBE_OK, NULL);
    } else {
        probe_check_fail(check, &dialed->error, dialed->refused);
    }
}

static enum status tcp_check_begin(struct probe_check *check, const struct pool_health *health,
                                   struct error *err) {
    (void)health;
    return dial_start(check->worker, str_of(check->target), check->timeout_ns, on_dialed, check,
                      &check->io.dial, err);
}

static void tcp_check_cancel(struct probe_check *check) {
    dial_cancel(check->io.dial);
    probe_check_finish(check, PROBE_BROKEN, "given up");
}

const struct probe_method PROBE_TCP = {tcp_check_begin, tcp_check_cancel};
