/* Fixture for the gRPC client tests: calls that record their events. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_CALLS_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_CALLS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/client/grpc_session/call.h"

enum { MAX_CALL_RECORDS = 1024 };

/* A call as its caller sees it. */
struct call_record {
    struct grpc_client_call *call; /* NULL: ended */
    unsigned n_heads, n_messages, n_writable, n_ended, n_released;
    bool eager;   /* requests the next message as soon as one arrived */
    bool cancels; /* in its first event */
    char *in;     /* all messages concatenated */
    size_t in_len;
    struct error error;
    int code;
    bool not_processed;
    /* Whether the byte after the first 'x' of the last message is aligned. */
    bool aligned;
    char field[64], trailer[64]; /* "test", "test-bin" of head and trailers */
};

static inline void call_record_on_message(struct call_record *record,
                                          struct grpc_client_call *call) {
    struct str data = call->message->data;
    const char *x = memchr(data.ptr, 'x', data.len);
    record->n_messages++;
    record->in = realloc(record->in, record->in_len + data.len + 1);
    memcpy(record->in + record->in_len, data.ptr, data.len);
    record->in_len += data.len;
    record->aligned = x && (uintptr_t)(x + 1) % 64 == 0;
    grpc_message_free(call->message);
    if (record->eager) {
        grpc_client_read(call);
    }
}

static inline void call_record_on_end(struct call_record *record, struct grpc_client_call *call) {
    struct str value = grpc_client_find(call->trailers, call->n_trailers, "reason-bin", NULL);
    assert_int_equal(record->n_ended, 1);
    if (value.len > 0) {
        memcpy(record->trailer, value.ptr, value.len < 64 ? value.len : 64);
    }
    record->error = call->error;
    record->code = call->code;
    record->not_processed = call->not_processed;
    record->call = NULL;
}

static inline void call_record_on_event(struct grpc_client_call *call,
                                        enum grpc_client_event event) {
    struct call_record *record = call->user;
    record->n_heads += event == GRPC_CLIENT_HEAD;
    record->n_writable += event == GRPC_CLIENT_WRITABLE;
    record->n_ended += event == GRPC_CLIENT_END;
    if (event == GRPC_CLIENT_HEAD) {
        struct str value = grpc_client_find(call->fields, call->n_fields, "test", NULL);
        snprintf(record->field, sizeof(record->field), "%.*s", STR_ARG(value));
    }
    if (event == GRPC_CLIENT_MESSAGE) {
        call_record_on_message(record, call);
    }
    if (record->cancels && event != GRPC_CLIENT_END) {
        grpc_client_cancel(call);
    }
    if (event == GRPC_CLIENT_END) {
        call_record_on_end(record, call);
    }
}

static inline void call_record_release(void *user) {
    struct call_record *record = user;
    record->n_released++;
}

/* Sends a message without copying it. */
static inline void call_record_send(struct call_record *record, struct str text) {
    struct piece piece = {text.ptr, text.len};
    grpc_client_send(record->call, &piece, 1, call_record_release, record);
}

static inline void assert_call_ended(const struct call_record *record, enum status status, int code,
                                     const char *part) {
    assert_int_equal(record->n_ended, 1);
    if (record->error.status != status || record->code != code ||
        !strstr(record->error.text, part)) {
        fail_msg("expected %s, %d, \"%s\"; got %s, %d, \"%s\"", status_name(status), code, part,
                 status_name(record->error.status), record->code, record->error.text);
    }
}

static inline void assert_call_ok(const struct call_record *record) {
    if (record->error.status != ST_OK) {
        fail_msg("%s", record->error.text);
    }
    assert_int_equal(record->n_ended, 1);
    assert_int_equal(record->code, 0);
}

#endif
