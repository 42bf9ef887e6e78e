/* A check over gRPC: grpc.health.v1.Health/Check, on a connection of its own, which shows that new
 * ones are taken. The check ends when the connection is closed. */
#include "codec/protobuf/grpc_status.h"
#include "codec/protobuf/pb.h"
#include "net/server/grpc/health.h"
#include "pick/discovery/probe/probe_check.h"

enum { MOST_ANSWER_BYTES = 4 << 10, WINDOW_BYTES = 64 << 10 };

static void on_gone(void *user) {
    struct probe_check *check = user;
    grpc_client_free(check->io.client);
    probe_check_finish(check, check->grpc.result, check->grpc.why.text);
}

/* grpc.health.v1, HealthCheckResponse: field 1 is the status. Returns: below 0 when it is no such
 * message. */
static int state_of(struct str message) {
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

static void take_answer(struct probe_check *check) {
    static const char *const states[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
    int state = check->grpc.state;
    check->grpc.result = state == GRPC_HEALTH_SERVING ? PROBE_OK : PROBE_STATUS;
    error_set(&check->grpc.why, ST_REFUSED, "answered %s",
              state < 0 ? "with something that is no HealthCheckResponse" : states[state]);
}

static void take_end(struct probe_check *check, const struct grpc_client_call *call) {
    if (call->error.status == ST_OK) {
        take_answer(check);
    } else if (call->error.status == ST_REFUSED) {
        check->grpc.result = PROBE_STATUS;
        error_set(&check->grpc.why, ST_REFUSED, "answered %s: %s", grpc_code_name(call->code),
                  call->error.text);
    } else {
        check->grpc.result = probe_result_of(&call->error, false);
        check->grpc.why = call->error;
    }
}

static void step(struct grpc_client_call *call, enum grpc_client_event event) {
    struct probe_check *check = call->user;
    switch (event) {
    case GRPC_CLIENT_MESSAGE:
        check->grpc.state = state_of(call->message->data);
        grpc_message_free(call->message);
        break;
    case GRPC_CLIENT_END:
        take_end(check, call);
        if (check->grpc.call) {
            check->grpc.call = NULL;
            grpc_client_stop(check->io.client, on_gone, check);
        }
        break;
    case GRPC_CLIENT_HEAD:
    case GRPC_CLIENT_WRITABLE:
        break;
    }
}

/* HealthCheckRequest: field 1 is the service. */
static void send_health_request(struct grpc_client_call *call, struct str service) {
    struct buf out;
    buf_init(&out, call->arena, service.len + 8);
    pb_add_string(&out, 1, service);
    struct piece piece = {out.data, out.len};
    grpc_client_send(call, &piece, 1, NULL, NULL);
}

static enum status begin(struct probe_check *check, const struct pool_health *health,
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
                                            .on_event = step,
                                            .user = check};
    enum status st = grpc_client_new(&options, &check->io.client, err);
    if (st != ST_OK) {
        return st;
    }
    check->grpc.state = GRPC_HEALTH_UNKNOWN;
    if (grpc_client_start_call(check->io.client, &what, &check->grpc.call, &check->grpc.why) ==
        ST_OK) {
        send_health_request(check->grpc.call, health->service);
    } else {
        check->grpc.result = PROBE_BROKEN;
        grpc_client_stop(check->io.client, on_gone, check);
    }
    return ST_OK;
}

static void cancel(struct probe_check *check) {
    if (check->grpc.call) { /* otherwise it is being stopped already */
        check->grpc.call = NULL;
        grpc_client_stop(check->io.client, on_gone, check);
    }
}

const struct probe_method PROBE_GRPC = {begin, cancel};
