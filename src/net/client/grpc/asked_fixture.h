/* For the tests of the gRPC client: calls that keep what they are told. */
#ifndef SLUICE_NET_CLIENT_GRPC_ASKED_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_ASKED_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/client/grpc/grpc_client.h"

enum { MOST_ASKED = 1024 };

/* A call as its caller sees it. */
struct asked {
    struct grpc_client_call *call; /* NULL: over */
    unsigned n_heads, n_messages, n_writable, n_ended, n_released;
    bool eager;   /* asks for the next message as soon as there is one */
    bool cancels; /* in its first event */
    char *in;     /* all messages in one */
    size_t in_len;
    struct error error;
    int code;
    bool untouched;
    bool aligned;                /* the byte behind the first 'x', in the last message */
    char field[64], trailer[64]; /* "test", "test-bin" of head and trailers */
};

static inline void asked_message(struct asked *asked, struct grpc_client_call *call) {
    struct str data = call->message->data;
    const char *x = memchr(data.ptr, 'x', data.len);
    asked->n_messages++;
    asked->in = realloc(asked->in, asked->in_len + data.len + 1);
    memcpy(asked->in + asked->in_len, data.ptr, data.len);
    asked->in_len += data.len;
    asked->aligned = x && (uintptr_t)(x + 1) % 64 == 0;
    grpc_message_free(call->message);
    if (asked->eager) {
        grpc_client_read(call);
    }
}

static inline void asked_end(struct asked *asked, struct grpc_client_call *call) {
    struct str value = grpc_client_find(call->trailers, call->n_trailers, "reason-bin", NULL);
    assert_int_equal(asked->n_ended, 1);
    if (value.len > 0) {
        memcpy(asked->trailer, value.ptr, value.len < 64 ? value.len : 64);
    }
    asked->error = call->error;
    asked->code = call->code;
    asked->untouched = call->untouched;
    asked->call = NULL;
}

static inline void asked_step(struct grpc_client_call *call, enum grpc_client_event event) {
    struct asked *asked = call->user;
    asked->n_heads += event == GRPC_CLIENT_HEAD;
    asked->n_writable += event == GRPC_CLIENT_WRITABLE;
    asked->n_ended += event == GRPC_CLIENT_END;
    if (event == GRPC_CLIENT_HEAD) {
        struct str value = grpc_client_find(call->fields, call->n_fields, "test", NULL);
        snprintf(asked->field, sizeof(asked->field), "%.*s", STR_ARG(value));
    }
    if (event == GRPC_CLIENT_MESSAGE) {
        asked_message(asked, call);
    }
    if (asked->cancels && event != GRPC_CLIENT_END) {
        grpc_client_cancel(call);
    }
    if (event == GRPC_CLIENT_END) {
        asked_end(asked, call);
    }
}

static inline void asked_release(void *cookie) {
    struct asked *asked = cookie;
    asked->n_released++;
}

/* Sends a message from where it lies. */
static inline void asked_send(struct asked *asked, struct str text) {
    struct piece piece = {text.ptr, text.len};
    grpc_client_send(asked->call, &piece, 1, asked_release, asked);
}

#endif
