/* A growing block that is compacted before it grows. */
#include "net/transport/grpc/stash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"

enum { LEAST_BYTES = 1024 };

static enum status grow(struct grpc_stash *stash, struct net_budget *budget, size_t wanted,
                        struct error *err) {
    size_t cap = stash->cap < LEAST_BYTES ? LEAST_BYTES : stash->cap;
    while (cap < wanted) {
        cap = cap <= SIZE_MAX / 2 ? cap * 2 : wanted;
    }
    if (!net_budget_take(budget, cap - stash->cap)) {
        return error_set(err, ST_OVERLOADED,
                         "the bodies in flight fill the %llu bytes that they may take "
                         "(--body-memory)",
                         (unsigned long long)budget->body_memory_bytes);
    }
    char *data = realloc(stash->data, cap);
    if (!data) {
        net_budget_give(budget, cap - stash->cap);
        return error_set(err, ST_NO_MEMORY, "no memory for %zu bytes of messages", cap);
    }
    stash->data = data;
    stash->cap = cap;
    return ST_OK;
}

enum status grpc_stash_add_copy(struct grpc_stash *stash, struct net_budget *budget,
                                struct str data, struct error *err) {
    size_t wanted;
    if (!checked_add(stash->len - stash->at, data.len, &wanted)) {
        return error_set(err, ST_NO_MEMORY, "no memory for a message");
    }
    if (stash->at > 0 && data.len > stash->cap - stash->len) {
        memmove(stash->data, stash->data + stash->at, stash->len - stash->at);
        stash->len -= stash->at;
        stash->at = 0;
    }
    enum status st = ST_OK;
    if (data.len > stash->cap - stash->len) {
        st = grow(stash, budget, wanted, err);
    }
    if (st == ST_OK && data.len > 0) {
        memcpy(stash->data + stash->len, data.ptr, data.len);
        stash->len += data.len;
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)data.len);
    }
    return st;
}

void grpc_stash_cut(struct grpc_stash *stash, struct net_budget *budget, size_t n_bytes) {
    assert(n_bytes <= stash->len - stash->at);
    stash->at += n_bytes;
    if (stash->at == stash->len && stash->data) {
        free(stash->data);
        net_budget_give(budget, stash->cap);
        *stash = (struct grpc_stash){0};
    }
}
