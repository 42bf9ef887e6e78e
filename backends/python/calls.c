/* References of a call: the supervisor's, until its last response is sent or it is dropped; and the
 * host's, until it has ended. What the host's threads touch is protected by the mailbox's lock. */
#include "python/calls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/text.h"
#include "python/instance.h"

enum {
    /* Without its tensors, which are WIRE_TAIL_BYTES at most: a message fits into a socket that can
     * be written to, whose buffer is three quarters free then. */
    MAX_HEAD_BYTES = 49152,
};

/* Where responses of the calls of a worker arrive. */
struct mailbox {
    pthread_mutex_t lock;
    atomic_size_t n_refs; /* the supervisor, and each call */
    int fd;               /* eventfd: a call is in `arrived` */
    TAILQ_HEAD(, call) arrived;
};

struct call {
    struct mailbox *mailbox;
    atomic_size_t n_refs;
    uint32_t tag;
    struct held *inputs;
    /* with the lock */
    sluice_call_response *first, *end; /* linked by `backend` */
    int is_arrived;
    int is_dropped; /* responses are not wanted */
    /* of a call that was not made, and of a change: what is sent in place of responses */
    int has_result;
    sluice_status result;
    char text[512];
    TAILQ_ENTRY(call) arrived_link;
    /* the supervisor's */
    const sluice_calls *table;
    sluice_call *host; /* NULL: not made, or a change */
    int is_change;
    int is_asked_for; /* one more response may be sent */
    LIST_ENTRY(call) link;
};

/* ---- mailbox --------------------------------------------------------------------------------- */

static void mailbox_unref(struct mailbox *mailbox) {
    if (atomic_fetch_sub_explicit(&mailbox->n_refs, 1, memory_order_acq_rel) == 1) {
        close(mailbox->fd);
        pthread_mutex_destroy(&mailbox->lock);
        free(mailbox);
    }
}

/* The lock is held. */
static void arrive(struct call *call) {
    uint64_t one = 1;
    if (!call->is_arrived) {
        call->is_arrived = 1;
        TAILQ_INSERT_TAIL(&call->mailbox->arrived, call, arrived_link);
        while (write(call->mailbox->fd, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }
}

static void call_unref(struct call *call) {
    if (atomic_fetch_sub_explicit(&call->n_refs, 1, memory_order_acq_rel) == 1) {
        if (call->inputs) {
            held_release(call->inputs);
        }
        mailbox_unref(call->mailbox);
        free(call);
    }
}

/* ---- what the host calls --------------------------------------------------------------------- */

static void on_response(void *user, sluice_call_response *response) {
    struct call *call = user;
    response->backend = NULL;
    pthread_mutex_lock(&call->mailbox->lock);
    int is_dropped = call->is_dropped;
    if (!is_dropped) {
        if (call->end) {
            call->end->backend = response;
        } else {
            call->first = response;
        }
        call->end = response;
        arrive(call);
    }
    pthread_mutex_unlock(&call->mailbox->lock);
    if (is_dropped) {
        call->table->release(response);
    }
}

static void on_ended(void *user) {
    call_unref(user);
}

/* Thread: any. */
static void set_result(struct call *call, sluice_status status, const char *text) {
    pthread_mutex_lock(&call->mailbox->lock);
    call->has_result = 1;
    call->result = status;
    snprintf(call->text, sizeof(call->text), "%s", text ? text : "");
    if (!call->is_dropped) {
        arrive(call);
    }
    pthread_mutex_unlock(&call->mailbox->lock);
}

static void on_changed(void *user, sluice_status status, const char *error) {
    set_result(user, status, error);
    call_unref(user);
}

/* ---- open calls ------------------------------------------------------------------------------ */

int calls_open(struct calls *calls) {
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (!mailbox) {
        return 0;
    }
    mailbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->fd < 0) {
        free(mailbox);
        return 0;
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    atomic_init(&mailbox->n_refs, 1);
    TAILQ_INIT(&mailbox->arrived);
    *calls = (struct calls){.mailbox = mailbox};
    return 1;
}

int calls_descriptor(const sluice_instance *instance) {
    return instance->calls.mailbox ? instance->calls.mailbox->fd : -1;
}

/* Returns: NULL when out of memory. Of its references one is the caller's, until drop. */
static struct call *call_new(sluice_instance *instance, uint32_t tag) {
    struct call *call = calloc(1, sizeof(*call));
    if (call) {
        call->mailbox = instance->calls.mailbox;
        atomic_fetch_add_explicit(&call->mailbox->n_refs, 1, memory_order_relaxed);
        atomic_init(&call->n_refs, 1);
        call->tag = tag;
        call->table = instance->model->calls;
        call->is_asked_for = 1;
        LIST_INSERT_HEAD(&instance->calls.open, call, link);
        instance->calls.n_open++;
    }
    return call;
}

static struct call *find(const sluice_instance *instance, uint32_t tag) {
    struct call *call;
    LIST_FOREACH(call, &instance->calls.open, link) {
        if (call->tag == tag) {
            return call;
        }
    }
    return NULL;
}

/* Nothing more is sent of it. */
static void drop(sluice_instance *instance, struct call *call, int cancel) {
    pthread_mutex_lock(&call->mailbox->lock);
    sluice_call_response *response = call->first;
    call->first = call->end = NULL;
    call->is_dropped = 1;
    if (call->is_arrived) {
        call->is_arrived = 0;
        TAILQ_REMOVE(&call->mailbox->arrived, call, arrived_link);
    }
    pthread_mutex_unlock(&call->mailbox->lock);
    if (call->host && cancel) {
        call->table->cancel(call->host);
    }
    while (response) {
        sluice_call_response *next = response->backend;
        call->table->release(response);
        response = next;
    }
    if (call->host) {
        call->table->unref(call->host);
        call->host = NULL;
    }
    LIST_REMOVE(call, link);
    instance->calls.n_open--;
    instance->calls.n_changes -= call->is_change ? 1 : 0;
    call_unref(call);
}

void calls_close(sluice_instance *instance) {
    struct calls *calls = &instance->calls;
    struct call *call;
    if (!calls->mailbox) {
        return;
    }
    while ((call = LIST_FIRST(&calls->open))) {
        drop(instance, call, 1);
    }
    mailbox_unref(calls->mailbox);
    calls->mailbox = NULL;
}

/* ---- CALL ------------------------------------------------------------------------------------ */

/* What a call is made of, in memory of its own. */
struct parts {
    struct wire_call head;
    struct held *held;
    sluice_input *inputs;
    sluice_piece *pieces;
    int64_t *dims; /* WIRE_MAX_RANK of each input */
    char **texts;  /* NULL-terminated: those that args refers to */
    size_t n_texts;
    const char **wanted;
    sluice_param *params;
    size_t copied_bytes;
};

static void parts_fini(struct parts *parts) {
    for (size_t i = 0; i < parts->n_texts; i++) {
        free(parts->texts[i]);
    }
    free(parts->texts);
    free(parts->inputs);
    free(parts->pieces);
    free(parts->dims);
    free(parts->wanted);
    free(parts->params);
    if (parts->held) {
        held_release(parts->held);
    }
}

/* Returns: a copy that ends in NUL, which `parts` has; NULL when out of memory. There are at most
 * as many as parts->texts has places. */
static const char *keep_text(struct parts *parts, struct wire_text text) {
    char *copy = wire_text_copy(text);
    if (copy) {
        parts->texts[parts->n_texts++] = copy;
    }
    return copy;
}

/* The worker can write to its blocks at any time: bytes whose values were checked are copied. */
static int is_copied(const struct parts *parts, const sluice_input *input) {
    return parts->held->block &&
           (input->datatype == SLUICE_BYTES || input->datatype == SLUICE_BOOL);
}

/* Returns: 0 when memory is out, or the reader has failed. */
static int read_input(struct parts *parts, struct wire_reader *reader, size_t i) {
    struct wire_text name = wire_read_text(reader);
    struct wire_output tensor;
    wire_read_output(reader, &tensor);
    const unsigned char *data = reader->failed ? NULL
                                               : place_of(parts->held->message, parts->head.tail,
                                                          parts->held->block, &tensor);
    if (!data) {
        reader->failed = 1;
        return 0;
    }
    int64_t *dims = parts->dims + i * WIRE_MAX_RANK;
    wire_copy_dims(reader, &tensor, dims);
    parts->pieces[i] = (sluice_piece){data, tensor.n_bytes};
    parts->inputs[i] = (sluice_input){.datatype = tensor.datatype,
                                      .name = keep_text(parts, name),
                                      .dims = dims,
                                      .rank = tensor.rank,
                                      .n_bytes = tensor.n_bytes,
                                      .pieces = &parts->pieces[i],
                                      .n_pieces = 1};
    if (is_copied(parts, &parts->inputs[i])) {
        parts->copied_bytes += tensor.n_bytes;
        if (parts->copied_bytes > parts->held->block->n_bytes) { /* they overlap */
            reader->failed = 1;
        }
    }
    return !reader->failed && parts->inputs[i].name;
}

/* Returns: 0 when memory is out. */
static int copy_checked(struct parts *parts) {
    struct held *held = parts->held;
    held->copies = parts->copied_bytes ? malloc(parts->copied_bytes) : NULL;
    unsigned char *to = held->copies;
    for (uint32_t i = 0; to && i < parts->head.n_inputs; i++) {
        if (is_copied(parts, &parts->inputs[i])) {
            memcpy(to, parts->pieces[i].data, parts->pieces[i].n_bytes);
            parts->pieces[i].data = to;
            to += parts->pieces[i].n_bytes;
        }
    }
    return held->copies || parts->copied_bytes == 0;
}

/* Reads inputs, names of outputs and parameters. Returns: 0 when memory is out, or the reader has
 * failed. */
static int read_parts(struct parts *parts, struct wire_reader *reader) {
    size_t n_inputs = parts->head.n_inputs, n_wanted = parts->head.n_wanted;
    parts->texts = calloc(n_inputs + n_wanted + 4, sizeof(*parts->texts));
    parts->inputs = calloc(n_inputs + 1, sizeof(*parts->inputs));
    parts->pieces = calloc(n_inputs + 1, sizeof(*parts->pieces));
    parts->dims = calloc(n_inputs * WIRE_MAX_RANK + 1, sizeof(*parts->dims));
    parts->wanted = calloc(n_wanted + 1, sizeof(*parts->wanted));
    parts->params = calloc(parts->head.n_params + 1, sizeof(*parts->params));
    if (!parts->texts || !parts->inputs || !parts->pieces || !parts->dims || !parts->wanted ||
        !parts->params) {
        return 0;
    }
    for (size_t i = 0; i < n_inputs; i++) {
        if (!read_input(parts, reader, i)) {
            return 0;
        }
    }
    for (size_t i = 0; i < n_wanted; i++) {
        parts->wanted[i] = keep_text(parts, wire_read_text(reader));
        if (!parts->wanted[i]) {
            return 0;
        }
    }
    for (size_t i = 0; i < parts->head.n_params; i++) {
        wire_read_param(reader, &parts->params[i]);
    }
    return !reader->failed && copy_checked(parts);
}

/* Returns: the status with `error`. */
static sluice_status start(sluice_instance *instance, struct call *call, struct parts *parts,
                           sluice_error *error) {
    const struct wire_call *head = &parts->head;
    sluice_call_args args = {
        .size = sizeof(args),
        .model = keep_text(parts, head->model),
        .version = keep_text(parts, head->version),
        .id = keep_text(parts, head->id),
        .inputs = parts->inputs,
        .n_inputs = head->n_inputs,
        .wanted = parts->wanted,
        .n_wanted = head->n_wanted,
        .params = parts->params,
        .n_params = head->n_params,
        .sequence_id = head->sequence,
        .sequence_name = keep_text(parts, head->sequence_name),
        .sequence_flags = head->sequence_flags,
        .priority = head->priority,
        .timeout_us = head->timeout_us,
        .takes_many = head->takes_many,
        .waits = head->waits,
        .why = "exec and async_exec return one: call it with decoupled=True",
        .respond = on_response,
        .ended = on_ended,
        .user = call,
    };
    if (!args.model || !args.version || !args.id || !args.sequence_name) {
        return error_no_memory(error, "the call of a model");
    }
    call->inputs = parts->held;
    parts->held = NULL;
    atomic_fetch_add_explicit(&call->n_refs, 1, memory_order_relaxed);
    /* With the lock, so that a final response to the parent comes after it. A parent that has
     * ended is none. */
    pthread_mutex_lock(&instance->lock);
    args.parent = head->parent ? slot_find(instance, head->parent) : NULL;
    sluice_status status = call->table->start(call->table, &args, &call->host, error);
    pthread_mutex_unlock(&instance->lock);
    if (status != SLUICE_OK) {
        call_unref(call);
    }
    return status;
}

/* Takes the block that the inputs are in. Returns: 0 when it is not the worker's. */
static int hold_inputs(sluice_instance *instance, struct message *message, struct parts *parts) {
    struct block *block = NULL;
    if (parts->head.block != 0) {
        block = pool_accept(instance->pool, parts->head.block);
        if (!block) {
            return 0;
        }
    }
    parts->held = calloc(1, sizeof(*parts->held));
    if (!parts->held) {
        if (block) {
            block_release(block);
        }
        return 1;
    }
    *parts->held = (struct held){.message = message, .block = block};
    atomic_fetch_add_explicit(&message->n_refs, 1, memory_order_relaxed);
    return 1;
}

/* Returns: why calls are not possible; NULL: they are. */
static const char *unavailable(const sluice_instance *instance, size_t n, size_t max) {
    if (!instance->model->calls) {
        return "models cannot be called here: the server is older than the python backend, or it "
               "only "
               "checks its models (--check)";
    }
    if (instance->describes) {
        return "auto_complete_config cannot call models";
    }
    return n > max ? "too many calls of models at a time: wait for those that were made" : NULL;
}

static int take_call(sluice_instance *instance, struct message *message, struct wire_reader *reader,
                     const char **reason) {
    struct parts parts = {0};
    sluice_error error = {{0}};
    wire_read_call(reader, &parts.head);
    *reason = "a call is not well-formed";
    if (reader->failed || message->n_bytes > CALLS_MAX_MESSAGE) {
        return 0;
    }
    if (!hold_inputs(instance, message, &parts)) {
        *reason = "inputs of a call are in a block that it does not have";
        return 0;
    }
    struct call *call = call_new(instance, parts.head.tag);
    const char *why = unavailable(instance, instance->calls.n_open, CALLS_MAX);
    sluice_status status = why ? SLUICE_UNAVAILABLE : SLUICE_NO_MEMORY;
    snprintf(error.text, sizeof(error.text), "%s", why ? why : "out of memory for the call");
    if (call && !why && parts.held && read_parts(&parts, reader)) {
        status = start(instance, call, &parts, &error);
    }
    parts_fini(&parts);
    if (call && status != SLUICE_OK) {
        set_result(call, status, error.text);
    }
    return call && !(reader->failed && !why);
}

/* ---- NEXT, DROP, MANAGE ---------------------------------------------------------------------- */

static void take_next(sluice_instance *instance, uint32_t tag) {
    struct call *call = find(instance, tag);
    if (!call) { /* it has ended */
        return;
    }
    call->is_asked_for = 1;
    pthread_mutex_lock(&call->mailbox->lock);
    if (call->first) {
        arrive(call);
    }
    pthread_mutex_unlock(&call->mailbox->lock);
}

static void take_drop(sluice_instance *instance, uint32_t tag) {
    struct call *call = find(instance, tag);
    if (call) {
        drop(instance, call, 1);
    }
}

/* Returns: the status with `error`. */
static sluice_status change(struct call *call, const struct wire_manage *manage,
                            struct wire_reader *reader, sluice_error *error) {
    char *model = wire_text_copy(manage->model);
    char *config = wire_text_copy(manage->config);
    sluice_model_file *files = calloc((size_t)manage->n_files + 1, sizeof(*files));
    sluice_status status = SLUICE_NO_MEMORY;
    int ok = model && config && files;
    error_no_memory(error, "the change of a model");
    for (uint32_t i = 0; ok && i < manage->n_files; i++) {
        struct wire_text path = wire_read_text(reader), content = wire_read_text(reader);
        files[i].path = wire_text_copy(path);
        files[i].data = content.ptr;
        files[i].n_bytes = content.n_bytes;
        ok = files[i].path != NULL;
    }
    if (ok && !reader->failed) {
        int has_config = manage->action == WIRE_LOAD && manage->flag;
        const sluice_model_change asked = {
            .size = sizeof(asked),
            .action = manage->action == WIRE_LOAD ? SLUICE_MODEL_LOAD : SLUICE_MODEL_UNLOAD,
            .model = model,
            .config = has_config ? config : NULL,
            .files = files,
            .n_files = has_config ? manage->n_files : 0,
            .unload_dependents = manage->action == WIRE_UNLOAD && manage->flag,
            .done = on_changed,
            .user = call};
        atomic_fetch_add_explicit(&call->n_refs, 1, memory_order_relaxed);
        status = call->table->change(call->table, &asked, error);
        if (status != SLUICE_OK) {
            call_unref(call);
        }
    }
    for (uint32_t i = 0; files && i < manage->n_files; i++) {
        free((void *)files[i].path);
    }
    free(files);
    free(config);
    free(model);
    return status;
}

static int take_manage(sluice_instance *instance, struct wire_reader *reader) {
    struct wire_manage manage;
    sluice_error error = {{0}};
    wire_read_manage(reader, &manage);
    struct call *call = reader->failed ? NULL : call_new(instance, manage.tag);
    if (!call) {
        return 0;
    }
    call->is_change = 1;
    instance->calls.n_changes++;
    const char *why = unavailable(instance, instance->calls.n_changes, CALLS_MAX_CHANGES);
    if (why) {
        set_result(call, SLUICE_UNAVAILABLE, why);
        return 1;
    }
    if (manage.action == WIRE_IS_READY) {
        char model[512], version[32];
        snprintf(model, sizeof(model), "%.*s", (int)manage.model.n_bytes, manage.model.ptr);
        snprintf(version, sizeof(version), "%.*s", (int)manage.version.n_bytes, manage.version.ptr);
        int is_ready = call->table->is_ready(call->table, model, version);
        set_result(call, is_ready ? SLUICE_OK : SLUICE_UNAVAILABLE, "it is not ready");
        return 1;
    }
    sluice_status status = change(call, &manage, reader, &error);
    if (status != SLUICE_OK) {
        set_result(call, status, error.text);
    }
    return !reader->failed;
}

int calls_take(sluice_instance *instance, struct message *message, const char **reason) {
    struct wire_head head;
    struct wire_reader reader;
    (void)wire_head_read(message->bytes, &head);
    wire_reader_init(&reader, message->bytes, message->n_bytes);
    if (!instance->calls.mailbox || instance->calls.n_open >= (size_t)2 * CALLS_MAX) {
        *reason = "it makes calls and does not read their responses";
        return 0;
    }
    *reason = "a call is not well-formed";
    if (head.type == WIRE_CALL) {
        return take_call(instance, message, &reader, reason);
    }
    if (head.type == WIRE_MANAGE) {
        return take_manage(instance, &reader);
    }
    uint32_t tag = wire_read_u32(&reader);
    if (reader.failed) {
        return 0;
    }
    if (head.type == WIRE_NEXT) {
        take_next(instance, tag);
    } else {
        take_drop(instance, tag);
    }
    return 1;
}

/* ---- CALLED ---------------------------------------------------------------------------------- */

/* Returns: whether the message without its tensors is of a usual size. */
static int has_usual_head(const sluice_call_response *response) {
    size_t sum = 0;
    for (size_t i = 0; i < response->n_outputs; i++) {
        sum += strlen(response->outputs[i].name) + 32 + response->outputs[i].rank * sizeof(int64_t);
    }
    for (size_t i = 0; i < response->n_params; i++) {
        sum += response->params[i].name_bytes + response->params[i].string_bytes + 24;
    }
    return sum <= MAX_HEAD_BYTES;
}

/* Writes what follows the blocks. `block` NULL: the outputs are in the message. */
static void write_outputs(struct wire_buf *buf, const sluice_call_response *response,
                          struct block *block, size_t n_bytes) {
    size_t offset = 0;
    wire_add_u32(buf, block ? block->number : 0);
    size_t tail_at = buf->n_bytes;
    wire_add_u32(buf, 0);
    wire_add_u32(buf, (uint32_t)response->n_outputs);
    wire_add_u32(buf, (uint32_t)response->n_params);
    for (size_t i = 0; i < response->n_outputs; i++) {
        wire_add_tensor(buf, &response->outputs[i], &offset);
    }
    for (size_t i = 0; i < response->n_params; i++) {
        wire_add_param(buf, &response->params[i]);
    }
    unsigned char *to = block ? block->bytes : wire_add_tail(buf, tail_at, n_bytes);
    if (to) {
        (void)wire_copy_tensors(response->outputs, response->n_outputs, 0, to);
    }
}

/* Checks the response, and takes a block for its outputs where they need one. Returns: the status
 * that is sent, with `text` where it is an error. */
static sluice_status prepare(sluice_instance *instance, const sluice_call_response *response,
                             size_t n_bytes, struct block **block, const char **text) {
    *text = response->error ? response->error : "";
    if (response->status != SLUICE_OK) {
        return response->status;
    }
    if (!has_usual_head(response)) {
        *text = "the response has more parameters than a model that calls can get";
        return SLUICE_TOO_LARGE;
    }
    if (n_bytes > WIRE_TAIL_BYTES) {
        *block = pool_take(instance->pool, n_bytes, BLOCK_INPUT, text);
        return *block ? SLUICE_OK : SLUICE_NO_MEMORY;
    }
    return SLUICE_OK;
}

enum sent { WORKER_IS_GONE, SENT_ONE, SENT_LAST };

/* Sends a response; NULL: the call's result. send_lock is held, and the socket has room. */
static enum sent send_response(sluice_instance *instance, const struct call *call,
                               const sluice_call_response *response) {
    struct wire_buf *buf = &instance->reply_buf;
    struct block *block = NULL;
    const char *text = call->text;
    int fds[POOL_MAX_FDS];
    size_t n_bytes = response ? wire_tensors_end(response->outputs, response->n_outputs, 0) : 0;
    sluice_status status =
        response ? prepare(instance, response, n_bytes, &block, &text) : call->result;
    int last = !response || response->final || status != SLUICE_OK;
    wire_begin(buf, WIRE_CALLED);
    wire_add_u32(buf, call->tag);
    size_t n_fds = pool_announce(instance->pool, buf, fds);
    wire_add_u8(buf, last ? 1 : 0);
    wire_add_u8(buf, (uint8_t)status);
    if (status != SLUICE_OK || !response) {
        wire_add_text(buf, text, strlen(text));
    } else {
        write_outputs(buf, response, block, n_bytes);
    }
    if (!wire_end(buf)) { /* the worker does not hear of its new blocks: it cannot go on */
        for (size_t i = 0; i < n_fds; i++) {
            close(fds[i]);
        }
        shutdown(instance->process.socket, SHUT_RDWR);
        return WORKER_IS_GONE;
    }
    int sent = instance_send_locked(instance, buf, fds, n_fds);
    return !sent ? WORKER_IS_GONE : last ? SENT_LAST : SENT_ONE;
}

/* The next call of which something may be sent. Returns: NULL when there is none. */
static struct call *next_call(struct mailbox *mailbox, sluice_call_response **response) {
    struct call *call;
    *response = NULL;
    pthread_mutex_lock(&mailbox->lock);
    while ((call = TAILQ_FIRST(&mailbox->arrived))) {
        TAILQ_REMOVE(&mailbox->arrived, call, arrived_link);
        call->is_arrived = 0;
        if (call->is_asked_for && (call->first || call->has_result)) {
            *response = call->first;
            if (call->first) {
                call->first = call->first->backend;
                call->end = call->first ? call->end : NULL;
            }
            break;
        } /* else NEXT brings it back */
    }
    pthread_mutex_unlock(&mailbox->lock);
    return call;
}

/* Sends one response. Returns: WORKER_IS_GONE; SENT_ONE where others may follow; SENT_LAST where
 * nothing more can be sent now. */
static enum sent send_next(sluice_instance *instance) {
    struct calls *calls = &instance->calls;
    sluice_call_response *response = NULL;
    /* The thread that executes may hold the lock and wait for the worker to read. */
    if (pthread_mutex_trylock(&instance->send_lock) != 0) {
        calls->blocked = CALLS_WAIT_FOR_LOCK;
        return SENT_LAST;
    }
    if (!instance_has_room(instance)) {
        pthread_mutex_unlock(&instance->send_lock);
        calls->blocked = CALLS_WAIT_FOR_ROOM;
        return SENT_LAST;
    }
    struct call *call = next_call(calls->mailbox, &response);
    enum sent sent = call ? send_response(instance, call, response) : SENT_LAST;
    pthread_mutex_unlock(&instance->send_lock);
    if (!call) {
        return SENT_LAST;
    }
    int is_over = !response || response->final;
    call->is_asked_for = 0;
    if (response) {
        call->table->release(response);
    }
    if (sent != SENT_ONE) {
        drop(instance, call, !is_over);
    }
    return sent == WORKER_IS_GONE ? WORKER_IS_GONE : SENT_ONE;
}

int calls_send(sluice_instance *instance) {
    uint64_t count;
    enum sent sent = SENT_ONE;
    while (read(instance->calls.mailbox->fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    instance->calls.blocked = CALLS_NOT_BLOCKED;
    while (sent == SENT_ONE) {
        sent = send_next(instance);
    }
    wire_buf_trim(&instance->reply_buf);
    return sent != WORKER_IS_GONE;
}
