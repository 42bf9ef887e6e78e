/* Assembles messages: the prefix, the first bytes, which decide the alignment, and the body; and
 * buffers the input after a complete message. */
#include "net/transport/grpc/receiver.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum { MIN_CAPACITY = 1024 };

static enum status grow_buffer(struct grpc_pending_input *pending, struct net_budget *budget,
                               size_t wanted, struct error *err) {
    size_t cap = pending->cap < MIN_CAPACITY ? MIN_CAPACITY : pending->cap;
    while (cap < wanted) {
        cap = cap <= SIZE_MAX / 2 ? cap * 2 : wanted;
    }
    if (!net_budget_reserve(budget, NET_BODY_GRPC, cap - pending->cap)) {
        return net_budget_error(budget, err);
    }
    char *data = realloc(pending->data, cap);
    if (!data) {
        net_budget_release(budget, NET_BODY_GRPC, cap - pending->cap);
        return error_no_memory(err, "%zu bytes of messages", cap);
    }
    pending->data = data;
    pending->cap = cap;
    return ST_OK;
}

/* Appends a copy. Returns: ST_OVERLOADED, ST_NO_MEMORY; nothing was added then. */
static enum status grpc_pending_input_add_copy(struct grpc_pending_input *pending,
                                               struct net_budget *budget, struct str data,
                                               struct error *err) {
    size_t wanted;
    if (!checked_add(pending->len - pending->at, data.len, &wanted)) {
        return error_no_memory(err, "a message");
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

/* Removes bytes from the front; frees the buffer when it is empty. */
static void grpc_pending_input_consume(struct grpc_pending_input *pending,
                                       struct net_budget *budget, size_t n_bytes) {
    assert(n_bytes <= pending->len - pending->at);
    pending->at += n_bytes;
    if (pending->at == pending->len && pending->data) {
        free(pending->data);
        net_budget_release(budget, NET_BODY_GRPC, pending->cap);
        *pending = (struct grpc_pending_input){0};
    }
}

enum { FIRST_BYTES = 1024 }; /* enough of a message to find its large field */

/* A message while it is received, and until its owner frees it. */
struct grpc_incoming_message {
    struct grpc_message message;
    struct body body;
    char *first_bytes; /* received before the body is allocated */
    size_t n_first_bytes;
    bool own_arena;
};

static struct grpc_incoming_message *incoming_message_new(const struct grpc_receiver *receiver) {
    const struct grpc_receiver_options *means = receiver->receiver_options;
    bool own = !receiver->arena;
    struct arena *arena =
        own ? arena_new(means->arenas, (size_t)means->message_memory_bytes) : receiver->arena;
    struct grpc_incoming_message *in = arena ? arena_calloc(arena, 1, sizeof(*in)) : NULL;
    if (in && own && means->budget) {
        arena_set_budget(arena, &means->budget->arena);
    }
    if (in) {
        in->message.arena = arena;
        in->own_arena = own;
    } else if (own) {
        arena_free(arena);
    }
    return in;
}

void grpc_message_free(struct grpc_message *message) {
    struct grpc_incoming_message *in = (struct grpc_incoming_message *)message;
    if (!message) {
        return;
    }
    body_fini(&in->body, in->body.block ? clock_now_ns() : 0);
    if (in->own_arena) {
        arena_free(message->arena); /* the message lives in it */
    }
}

/* ---- placing the body ------------------------------------------------------------------------ */

static enum status check_prefix(const struct grpc_receiver *receiver, struct grpc_prefix *prefix,
                                struct error *err) {
    const struct grpc_receiver_options *means = receiver->receiver_options;
    enum status st = grpc_prefix_decode(receiver->prefix, prefix, err);
    if (st != ST_OK) {
        return st;
    }
    if (prefix->compressed && receiver->coding == HTTP_IDENTITY) {
        return error_set(err, ST_BAD_REQUEST,
                         "a message is marked as compressed, but grpc-encoding names no coding");
    }
    if (prefix->n_bytes > means->max_message_bytes) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a message of at most %llu bytes (%s), got one of %lu announced",
                         (unsigned long long)means->max_message_bytes, means->setting,
                         (unsigned long)prefix->n_bytes);
    }
    return body_check_budget(means->budget, prefix->n_bytes, err);
}

/* Allocates the body, once the first bytes are known. */
static enum status begin_body(struct grpc_receiver *receiver, struct str first_bytes,
                              struct error *err) {
    const struct grpc_receiver_options *means = receiver->receiver_options;
    struct grpc_prefix prefix;
    enum status st = grpc_prefix_decode(receiver->prefix, &prefix, err);
    if (st != ST_OK) {
        return st;
    }
    struct body_allocator body = {.arena = receiver->message->message.arena,
                                  .pool = means->pool,
                                  .budget = means->budget,
                                  .owner = NET_BODY_GRPC};
    struct body_plan plan = {.length = prefix.n_bytes,
                             .max_bytes = means->max_message_bytes,
                             .setting = means->setting,
                             .coding = prefix.compressed ? receiver->coding : HTTP_IDENTITY};
    if (receiver->align_at && !prefix.compressed) {
        first_bytes.len = first_bytes.len < prefix.n_bytes ? first_bytes.len : prefix.n_bytes;
        size_t at = receiver->align_at(first_bytes);
        plan.align_at = at <= prefix.n_bytes ? at : 0;
    }
    receiver->state = GRPC_RECEIVING_BODY;
    return body_init(&receiver->message->body, &body, &plan, err);
}

/* The prefix is complete. */
static enum status begin_message(struct grpc_receiver *receiver, struct str data,
                                 struct error *err) {
    struct grpc_prefix prefix;
    enum status st = check_prefix(receiver, &prefix, err);
    if (st != ST_OK) {
        return st;
    }
    struct grpc_incoming_message *in = receiver->message = incoming_message_new(receiver);
    if (!in) {
        return error_no_memory(err, "a message");
    }
    size_t wanted = prefix.n_bytes < FIRST_BYTES ? prefix.n_bytes : FIRST_BYTES;
    if (!receiver->align_at || prefix.compressed || data.len >= wanted) {
        return begin_body(receiver, data, err);
    }
    in->first_bytes = arena_alloc(in->message.arena, wanted);
    in->body.left = wanted;
    receiver->state = GRPC_RECEIVING_FIRST_BYTES;
    return in->first_bytes ? ST_OK : error_no_memory(err, "a message");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static struct str split_front(struct str *data, uint64_t most) {
    struct str head = str_make(data->ptr, data->len < most ? data->len : (size_t)most);
    *data = str_make(data->ptr + head.len, data->len - head.len);
    return head;
}

static enum status add_prefix(struct grpc_receiver *receiver, struct str *data, struct error *err) {
    struct str part = split_front(data, GRPC_PREFIX_BYTES - receiver->prefix_len);
    if (part.len > 0 && part.ptr) {
        memcpy(receiver->prefix + receiver->prefix_len, part.ptr, part.len);
    }
    receiver->prefix_len += part.len;
    return receiver->prefix_len == GRPC_PREFIX_BYTES ? begin_message(receiver, *data, err) : ST_OK;
}

static enum status add_first_bytes(struct grpc_receiver *receiver, struct str *data,
                                   struct error *err) {
    struct grpc_incoming_message *in = receiver->message;
    struct str part = split_front(data, in->body.left);
    if (part.len > 0 && part.ptr) {
        memcpy(in->first_bytes + in->n_first_bytes, part.ptr, part.len);
    }
    in->n_first_bytes += part.len;
    in->body.left -= part.len;
    if (in->body.left > 0) {
        return ST_OK;
    }
    struct str first_bytes = str_make(in->first_bytes, in->n_first_bytes);
    enum status st = begin_body(receiver, first_bytes, err);
    return st == ST_OK ? body_add(&in->body, first_bytes, err) : st;
}

static enum status finish_body(struct grpc_receiver *receiver, struct error *err) {
    struct body *body = &receiver->message->body;
    enum status st = body_finish(body, err);
    receiver->message->message.data = str_make(body->data, body->len);
    receiver->state = GRPC_RECEIVED;
    return st;
}

static enum status add_body(struct grpc_receiver *receiver, struct str *data, struct error *err) {
    struct body *body = &receiver->message->body;
    struct str part = split_front(data, body->left);
    size_t before = body->len;
    enum status st = part.len > 0 ? body_add(body, part, err) : ST_OK;
    receiver->n_inflated += body->inflate ? body->len - before : 0;
    if (st != ST_OK || body->left > 0) {
        return st;
    }
    return finish_body(receiver, err);
}

enum status grpc_receiver_add(struct grpc_receiver *receiver, struct str *data, struct error *err) {
    enum status st = ST_OK;
    assert(grpc_receiver_may_add(receiver));
    if (receiver->state == GRPC_RECEIVING_PREFIX) {
        st = add_prefix(receiver, data, err);
    }
    if (st == ST_OK && receiver->state == GRPC_RECEIVING_FIRST_BYTES) {
        st = add_first_bytes(receiver, data, err);
    }
    if (st == ST_OK && receiver->state == GRPC_RECEIVING_BODY) {
        st = add_body(receiver, data, err);
    }
    return st;
}

/* ---- unframed messages ----------------------------------------------------------------------- */

enum status grpc_receiver_begin_unframed(struct grpc_receiver *receiver,
                                         const struct body_plan *plan, enum net_body_owner owner,
                                         struct error *err) {
    const struct grpc_receiver_options *means = receiver->receiver_options;
    assert(receiver->arena && grpc_receiver_is_at_boundary(receiver));
    struct body_allocator body = {
        .arena = receiver->arena, .pool = means->pool, .budget = means->budget, .owner = owner};
    receiver->message = incoming_message_new(receiver);
    if (!receiver->message) {
        return error_no_memory(err, "the body");
    }
    receiver->coding = plan->coding;
    receiver->n_reads_wanted = 1;
    receiver->state = GRPC_RECEIVING_BODY;
    return body_init(&receiver->message->body, &body, plan, err);
}

enum status grpc_receiver_end_unframed(struct grpc_receiver *receiver, struct error *err) {
    return receiver->state == GRPC_RECEIVING_BODY ? finish_body(receiver, err) : ST_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

struct grpc_message *grpc_receiver_take(struct grpc_receiver *receiver) {
    assert(receiver->state == GRPC_RECEIVED && receiver->n_reads_wanted > 0);
    struct grpc_message *message = &receiver->message->message;
    receiver->message = NULL;
    receiver->prefix_len = 0;
    receiver->n_reads_wanted--;
    receiver->state = GRPC_RECEIVING_PREFIX;
    return message;
}

enum status grpc_receiver_buffer_copy(struct grpc_receiver *receiver, struct str data,
                                      struct error *err) {
    return grpc_pending_input_add_copy(&receiver->pending_input, receiver->receiver_options->budget,
                                       data, err);
}

enum status grpc_receiver_resume(struct grpc_receiver *receiver, uint64_t max_inflated,
                                 size_t *n_used, struct error *err) {
    enum status st = ST_OK;
    struct str data = grpc_pending_input_bytes(&receiver->pending_input);
    size_t before = data.len;
    bool sliced = receiver->coding != HTTP_IDENTITY && max_inflated < UINT64_MAX;
    struct inflate_slice slice = inflate_slice_start(max_inflated);
    while (st == ST_OK && data.len > 0 && slice.left > 0 && grpc_receiver_may_add(receiver)) {
        size_t most = sliced ? inflate_slice_input(&slice) : data.len;
        struct str part = str_make(data.ptr, data.len < most ? data.len : most);
        size_t n_part = part.len;
        uint64_t n_inflated = receiver->n_inflated;
        st = grpc_receiver_add(receiver, &part, err);
        data = str_make(part.ptr, data.len - (n_part - part.len));
        if (sliced) {
            inflate_slice_count(&slice, n_part - part.len, receiver->n_inflated - n_inflated);
        }
    }
    *n_used = before - data.len;
    grpc_pending_input_consume(&receiver->pending_input, receiver->receiver_options->budget,
                               *n_used);
    return st;
}

char *grpc_receiver_read_buffer(struct grpc_receiver *receiver, size_t *n_bytes) {
    bool is_plain = receiver->state == GRPC_RECEIVING_BODY && receiver->coding == HTTP_IDENTITY &&
                    !receiver->pending_input.data;
    struct body *body = is_plain ? &receiver->message->body : NULL;
    return body && body->in_place && body->left > 0 ? body_read_buffer(body, n_bytes) : NULL;
}

uint64_t grpc_receiver_n_left(const struct grpc_receiver *receiver) {
    bool known = receiver->state == GRPC_RECEIVING_BODY &&
                 receiver->message->body.length != UINT64_MAX; /* of an unframed message */
    return known ? receiver->message->body.left : 0;
}

uint64_t grpc_receiver_reserved_bytes(const struct grpc_receiver *receiver) {
    const struct grpc_incoming_message *message = receiver->message;
    return receiver->pending_input.cap + (message ? body_reserved_bytes(&message->body) : 0);
}

size_t grpc_receiver_stop(struct grpc_receiver *receiver) {
    size_t n_kept = grpc_pending_input_bytes(&receiver->pending_input).len;
    receiver->state = GRPC_RECEIVING_STOPPED;
    grpc_pending_input_consume(&receiver->pending_input, receiver->receiver_options->budget,
                               n_kept);
    if (receiver->message) {
        grpc_message_free(&receiver->message->message);
        receiver->message = NULL;
    }
    return n_kept;
}
