/* A growing block that is compacted before it grows. */
#include "net/transport/grpc/pending_input.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"

enum { MIN_CAPACITY = 1024 };

static enum status grow_buffer(struct grpc_pending_input *pending, struct net_budget *budget,
                               size_t wanted, struct error *err) {
    size_t cap = pending->cap < MIN_CAPACITY ? MIN_CAPACITY : pending->cap;
    while (cap < wanted) {
        cap = cap <= SIZE_MAX / 2 ? cap * 2 : wanted;
    }
    if (!net_budget_reserve(budget, cap - pending->cap)) {
        return error_set(err, ST_OVERLOADED,
                         "the bodies in flight fill the %llu bytes that they may take "
                         "(--body-memory)",
                         (unsigned long long)budget->body_memory);
    }
    char *data = realloc(pending->data, cap);
    if (!data) {
        net_budget_release(budget, cap - pending->cap);
        return error_set(err, ST_NO_MEMORY, "no memory for %zu bytes of messages", cap);
    }
    pending->data = data;
    pending->cap = cap;
    return ST_OK;
}

enum status grpc_pending_input_add_copy(struct grpc_pending_input *pending,
                                        struct net_budget *budget, struct str data,
                                        struct error *err) {
    size_t wanted;
    if (!checked_add(pending->len - pending->at, data.len, &wanted)) {
        return error_set(err, ST_NO_MEMORY, "no memory for a message");
    }
    if (pending->at > 0 && data.len > pending->cap - pending->len) {
        memmove(pending->data, pending->data + pending->at, pending->len - pending->at);
        pending->len -= pending->at;
        pending->at = 0;
    }
    enum status st = ST_OK;
    if (data.len > pending->cap - pending->len) {
        st = grow_buffer(pending, budget, wanted, err);
    }
    if (st == ST_OK && data.len > 0) {
        memcpy(pending->data + pending->len, data.ptr, data.len);
        pending->len += data.len;
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)data.len);
    }
    return st;
}

void grpc_pending_input_consume(struct grpc_pending_input *pending, struct net_budget *budget,
                                size_t n_bytes) {
    assert(n_bytes <= pending->len - pending->at);
    pending->at += n_bytes;
    if (pending->at == pending->len && pending->data) {
        free(pending->data);
        net_budget_release(budget, pending->cap);
        *pending = (struct grpc_pending_input){0};
    }
}
