/* The life of a worker: start, batches, its end, and the next start after a pause that grows while
 * it keeps ending. */
#include "python/instance.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"

enum {
    LOCK_POLL_MS = 1,        /* while another thread sends */
    SEND_POLL_MS = 100,      /* until it is seen that what is sent need not wait any more */
    SEND_TIMEOUT_MS = 30000, /* that a worker may take to read what it asked for */
    POLL_MS = 1000,          /* at most until it is seen that a worker has ended */
    FINALIZE_POLL_MS = 20,
    DOWN_WAIT_MS = 3000, /* that a batch waits for a worker that is being started again */
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 30000,
    STABLE_MS = 60000, /* a worker that lived for so long ends the growth of the pause */
    READ_BYTES = 65536,
    MOST_SMALL_REQUESTS = 64, /* a message of more may not fit into the socket */
};

/* ---- time ------------------------------------------------------------------------------------ */

/* Waits for a change until `until_ns`. The lock is held. */
static void wait_until(sluice_instance *instance, uint64_t until_ns) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&instance->changed, &instance->lock, &until);
}

static uint64_t after_ms(uint64_t ms) {
    return clock_ns() + ms * 1000000u;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void close_fds(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static int is_closing(sluice_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    int closing = instance->closing;
    pthread_mutex_unlock(&instance->lock);
    return closing;
}

/* Whether execute takes longer than it may. */
static int is_overdue(sluice_instance *instance) {
    uint64_t limit_s = (uint64_t)instance->model->options.execute_timeout_s;
    pthread_mutex_lock(&instance->lock);
    uint64_t since_ns = instance->executing ? instance->sent_ns : 0;
    pthread_mutex_unlock(&instance->lock);
    return limit_s > 0 && since_ns > 0 && clock_ns() - since_ns > limit_s * 1000000000u;
}

/* Whether what is sent before `until_ns` may wait for the worker to read. */
static int may_wait(sluice_instance *instance, uint64_t until_ns) {
    return clock_ns() < until_ns && !is_closing(instance) && !is_overdue(instance);
}

/* Waits until the socket has room. Returns: 0 when it has none and may not be waited for. */
static int wait_for_room(sluice_instance *instance, uint64_t until_ns) {
    struct pollfd fd = {.fd = instance->process.socket, .events = POLLOUT};
    while (poll(&fd, 1, SEND_POLL_MS) <= 0) {
        if (!may_wait(instance, until_ns)) {
            return 0;
        }
    }
    return 1;
}

/* `until_ns` 0: it waits as long as the socket is open, as a batch does. Returns: 0 when the worker
 * is gone, or does not read before `until_ns`. Holds send_lock. */
static int send_all(sluice_instance *instance, const struct wire_buf *buf, int *fds, size_t n_fds,
                    uint64_t until_ns) {
    const unsigned char *bytes = buf->bytes;
    size_t n_bytes = buf->n_bytes;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(POOL_MAX_FDS * sizeof(int))];
    } control;
    while (n_bytes > 0) {
        struct iovec part = {(void *)bytes, n_bytes};
        struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
        if (n_fds > 0) { /* with the first bytes */
            head.msg_control = control.space;
            head.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
            struct cmsghdr *item = CMSG_FIRSTHDR(&head);
            item->cmsg_level = SOL_SOCKET;
            item->cmsg_type = SCM_RIGHTS;
            item->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
            memcpy(CMSG_DATA(item), fds, n_fds * sizeof(int));
        }
        ssize_t sent =
            sendmsg(instance->process.socket, &head, MSG_NOSIGNAL | (until_ns ? MSG_DONTWAIT : 0));
        if (sent < 0 &&
            (errno == EINTR || (errno == EAGAIN && wait_for_room(instance, until_ns)))) {
            continue;
        }
        if (sent <= 0) {
            return 0;
        }
        n_fds = 0;
        bytes += sent;
        n_bytes -= (size_t)sent;
    }
    return 1;
}

static int send_locked(sluice_instance *instance, const struct wire_buf *buf, int *fds,
                       size_t n_fds, uint64_t until_ns) {
    int sent = instance->process.socket >= 0 && send_all(instance, buf, fds, n_fds, until_ns);
    close_fds(fds, n_fds);
    return sent;
}

int instance_has_room(const sluice_instance *instance) {
    struct pollfd fd = {.fd = instance->process.socket, .events = POLLOUT};
    return poll(&fd, 1, 0) > 0;
}

int instance_send_locked(sluice_instance *instance, const struct wire_buf *buf, int *fds,
                         size_t n_fds) {
    return send_locked(instance, buf, fds, n_fds, 0);
}

/* Takes send_lock, which a thread holds while the worker does not read its batch. Returns: 0 when
 * it is not to be had before `until_ns`. */
static int lock_to_send(sluice_instance *instance, uint64_t until_ns) {
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)SEND_POLL_MS * 1000000u;
        until.tv_sec += (time_t)(ns / 1000000000u);
        until.tv_nsec = (long)(ns % 1000000000u);
        if (pthread_mutex_timedlock(&instance->send_lock, &until) == 0) {
            return 1;
        }
        if (!may_wait(instance, until_ns)) {
            return 0;
        }
    }
}

/* Sends reply_buf. A worker that asks and does not read must not hold the thread: the server could
 * not end it. Returns: 0 when it is gone, or does not read for `timeout_ms`. */
static int send_reply(sluice_instance *instance, uint64_t timeout_ms) {
    uint64_t until_ns = after_ms(timeout_ms);
    if (!wire_end(&instance->reply_buf) || !lock_to_send(instance, until_ns)) {
        return 0;
    }
    int sent = send_locked(instance, &instance->reply_buf, NULL, 0, until_ns);
    pthread_mutex_unlock(&instance->send_lock);
    return sent;
}

/* ---- messages of the worker ------------------------------------------------------------------ */

/* Asks for memory are answered at once: with a block, or with why there is none. */
static int answer_need(sluice_instance *instance, struct wire_reader *reader) {
    uint32_t tag = wire_read_u32(reader);
    uint64_t n_bytes = wire_read_u64(reader);
    uint64_t limit = instance->model->max_output_bytes;
    const char *reason = NULL;
    char text[160];
    struct block *block = NULL;
    if (limit > 0 && n_bytes > limit) {
        snprintf(text, sizeof(text),
                 "the outputs are %llu bytes together; at most %llu are allowed "
                 "(--max-output-size)",
                 (unsigned long long)n_bytes, (unsigned long long)limit);
        reason = text;
    } else {
        block = pool_take(instance->pool, n_bytes, BLOCK_GRANTED, &reason);
    }
    int fds[POOL_MAX_FDS];
    struct wire_buf *buf = &instance->reply_buf;
    uint64_t until_ns = after_ms(SEND_TIMEOUT_MS);
    if (!lock_to_send(instance, until_ns)) {
        return 0; /* the block goes with the pool */
    }
    wire_begin(buf, WIRE_GRANT);
    wire_add_u32(buf, tag);
    size_t n_fds = pool_announce(instance->pool, buf, fds);
    wire_add_u32(buf, block ? block->number : 0);
    if (!block) {
        wire_add_text(buf, reason, strlen(reason));
    }
    int sent = wire_end(buf) ? send_locked(instance, buf, fds, n_fds, until_ns)
                             : (close_fds(fds, n_fds), 0);
    pthread_mutex_unlock(&instance->send_lock);
    return sent;
}

static int answer_ask(sluice_instance *instance, struct wire_reader *reader) {
    uint32_t tag = wire_read_u32(reader);
    uint64_t token = wire_read_u64(reader);
    pthread_mutex_lock(&instance->lock);
    const sluice_request *request = slot_find(instance, token);
    pthread_mutex_unlock(&instance->lock);
    /* Only this thread sends final responses, so the request stays. */
    int cancelled = request && instance->model->host->is_cancelled(request);
    wire_begin(&instance->reply_buf, WIRE_STATE);
    wire_add_u32(&instance->reply_buf, tag);
    wire_add_u8(&instance->reply_buf, cancelled != 0);
    return send_reply(instance, SEND_TIMEOUT_MS);
}

static int take_freed(sluice_instance *instance, struct wire_reader *reader) {
    uint32_t n = wire_read_count(reader, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        if (!pool_give_back(instance->pool, wire_read_u32(reader), BLOCK_INPUT)) {
            return 0;
        }
    }
    return 1;
}

static void take_log(sluice_instance *instance, struct wire_reader *reader) {
    uint8_t level = wire_read_u8(reader);
    struct wire_text text = wire_read_text(reader);
    if (!reader->failed && level <= SLUICE_LOG_DEBUG) {
        lines_log(&instance->lines, (sluice_log_level)level, text.ptr, text.n_bytes);
    }
}

/* Answers FAMILY, SERIES and VALUE. */
static int answer_metric(sluice_instance *instance, enum wire_type type,
                         struct wire_reader *reader) {
    struct metrics *metrics = &instance->model->metrics;
    struct wire_buf *buf = &instance->reply_buf;
    uint32_t tag = wire_read_u32(reader);
    sluice_error error = {{0}};
    uint64_t number = 0;
    int ok;
    if (type == WIRE_VALUE) {
        double value;
        ok = metrics_take_value(metrics, reader, &value, &error);
        memcpy(&number, &value, sizeof(number));
    } else {
        number = type == WIRE_FAMILY ? metrics_take_family(metrics, reader, &error)
                                     : metrics_take_series(metrics, reader, &error);
        ok = number != 0;
    }
    if (reader->failed) {
        return 0;
    }
    wire_begin(buf, WIRE_TOLD);
    wire_add_u32(buf, tag);
    wire_add_u8(buf, (uint8_t)ok);
    if (ok) {
        wire_add_u64(buf, number);
    } else {
        wire_add_text(buf, error.text, strlen(error.text));
    }
    return send_reply(instance, SEND_TIMEOUT_MS);
}

/* ---- all messages ---------------------------------------------------------------------------- */

/* What became of a message. */
enum outcome { GO_ON, IS_READY, HAS_FAILED, BREAKS_RULE };

/* `reason`: for HAS_FAILED and BREAKS_RULE, `n_bytes` long. */
static enum outcome take_message(sluice_instance *instance, struct message *message, char *reason,
                                 size_t n_bytes) {
    const char *broken = "a message is not well-formed";
    struct wire_head head;
    struct wire_reader reader;
    enum outcome outcome = GO_ON;
    int ok = wire_head_read(message->bytes, &head);
    wire_reader_init(&reader, message->bytes, message->n_bytes);
    switch ((enum wire_type)head.type) {
    case WIRE_READY:
        instance->readiness.checks = wire_read_u8(&reader) != 0;
        outcome = IS_READY;
        break;
    case WIRE_CHECKED:
        readiness_take(instance, &reader);
        break;
    case WIRE_FAILED: {
        struct wire_text text = wire_read_text(&reader);
        lines_copy_text(text.ptr, text.n_bytes, reason, n_bytes);
        return HAS_FAILED;
    }
    case WIRE_DESCRIBED:
        ok = instance->describes && description_read(&instance->model->description, &reader);
        outcome = IS_READY;
        break;
    case WIRE_RESULT:
        ok = !instance->describes && answers_take(instance, message, &broken);
        break;
    case WIRE_NEED:
        ok = answer_need(instance, &reader);
        broken = "it does not read what it asked for";
        break;
    case WIRE_ASK:
        ok = answer_ask(instance, &reader);
        broken = "it does not read what it asked for";
        break;
    case WIRE_FAMILY:
    case WIRE_SERIES:
    case WIRE_VALUE:
        ok = answer_metric(instance, (enum wire_type)head.type, &reader);
        broken = "a metric is not there, or its message is not well-formed";
        break;
    case WIRE_CHANGE:
        metrics_take_change(&instance->model->metrics, &reader);
        broken = "a metric is not there, or is changed as its kind is not";
        break;
    case WIRE_LOG:
        take_log(instance, &reader);
        break;
    case WIRE_FREED:
        ok = take_freed(instance, &reader);
        break;
    case WIRE_CALL:
    case WIRE_NEXT:
    case WIRE_DROP:
    case WIRE_MANAGE:
        ok = calls_take(instance, message, &broken);
        break;
    case WIRE_INIT:
    case WIRE_EXECUTE:
    case WIRE_GRANT:
    case WIRE_STATE:
    case WIRE_FINALIZE:
    case WIRE_CHECK:
    case WIRE_TOLD:
    case WIRE_CALLED:
    default:
        ok = 0;
        break;
    }
    if (!ok || reader.failed) {
        snprintf(reason, n_bytes, "broke the protocol: %s", broken);
        return BREAKS_RULE;
    }
    return outcome;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct message *message_new(size_t n_bytes) {
    struct message *message = malloc(sizeof(*message) + n_bytes);
    if (message) {
        atomic_init(&message->n_refs, 1);
        message->n_bytes = n_bytes;
    }
    return message;
}

static void drop_incoming(sluice_instance *instance) {
    message_unref(instance->incoming);
    instance->incoming = NULL;
    instance->n_incoming = instance->n_head = 0;
}

/* Adds bytes to the message that is incomplete. Returns: how many were used; 0: the message cannot
 * be taken. */
static size_t add_bytes(sluice_instance *instance, const unsigned char *bytes, size_t n_bytes,
                        char *reason, size_t reason_bytes) {
    size_t used = 0;
    if (!instance->incoming) {
        while (instance->n_head < WIRE_HEAD_BYTES && used < n_bytes) {
            instance->head[instance->n_head++] = bytes[used++];
        }
        if (instance->n_head < WIRE_HEAD_BYTES) {
            return used;
        }
        struct wire_head head;
        int possible = wire_head_read(instance->head, &head);
        instance->incoming = possible ? message_new(head.n_bytes) : NULL;
        if (!instance->incoming) {
            snprintf(reason, reason_bytes, "%s",
                     possible ? "sent a message for which memory is out"
                              : "broke the protocol: a message's length is not possible");
            return 0;
        }
        memcpy(instance->incoming->bytes, instance->head, WIRE_HEAD_BYTES);
        instance->n_incoming = WIRE_HEAD_BYTES;
    }
    size_t rest = instance->incoming->n_bytes - instance->n_incoming;
    size_t n = n_bytes - used < rest ? n_bytes - used : rest;
    memcpy(instance->incoming->bytes + instance->n_incoming, bytes + used, n);
    instance->n_incoming += n;
    return used + n;
}

/* Reads what the socket has. */
static enum outcome receive(sluice_instance *instance, char *reason, size_t reason_bytes) {
    unsigned char bytes[READ_BYTES];
    ssize_t got = recv(instance->process.socket, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return GO_ON;
    }
    if (got <= 0) {
        reason[0] = '\0'; /* it has ended: why is known later */
        return BREAKS_RULE;
    }
    enum outcome outcome = GO_ON;
    for (size_t at = 0; at < (size_t)got && outcome != HAS_FAILED && outcome != BREAKS_RULE;) {
        size_t used = add_bytes(instance, bytes + at, (size_t)got - at, reason, reason_bytes);
        if (used == 0) {
            return BREAKS_RULE;
        }
        at += used;
        struct message *message = instance->incoming;
        if (message && instance->n_incoming == message->n_bytes) {
            instance->incoming = NULL;
            instance->n_incoming = instance->n_head = 0;
            enum outcome of_message = take_message(instance, message, reason, reason_bytes);
            message_unref(message);
            outcome = of_message == GO_ON ? outcome : of_message;
        }
    }
    return outcome;
}

/* Reads what is in the pipe; stops after some of it, so that the socket has its turn. Returns: 0 at
 * its end. */
static int read_lines(sluice_instance *instance) {
    char bytes[4096];
    for (int i = 0; i < 16; i++) {
        ssize_t got = read(instance->process.lines, bytes, sizeof(bytes));
        if (got <= 0) {
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        }
        lines_add(&instance->lines, bytes, (size_t)got);
    }
    return 1;
}

/* ---- start ----------------------------------------------------------------------------------- */

static void add_pair(struct wire_buf *buf, const char *name, const char *value) {
    wire_add_text(buf, name, strlen(name));
    wire_add_text(buf, value, strlen(value));
}

static int send_init(sluice_instance *instance) {
    const struct sluice_model *model = instance->model;
    struct wire_buf *buf = &instance->reply_buf;
    char version[24], limit[24], index[24];
    snprintf(version, sizeof(version), "%llu", (unsigned long long)model->version);
    snprintf(limit, sizeof(limit), "%llu",
             (unsigned long long)model->options.memory_limit_mb << 20);
    snprintf(index, sizeof(index), "%u", (unsigned)instance->index);
    const char *const pairs[][2] = {
        {"model_name", model->name},
        {"model_version", version},
        {"model_repository", model->directory},
        {"model_file", model->file},
        {"model_config", model->config},
        {"instance", index},
        {"model_instance_kind", "CPU"},
        {"model_instance_device_id", "0"},
        {"memory_limit", limit},
        {"describe", instance->describes ? "1" : ""},
    };
    size_t n = sizeof(pairs) / sizeof(pairs[0]);
    wire_begin(buf, WIRE_INIT);
    wire_add_u32(buf, WIRE_VERSION);
    wire_add_u32(buf, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        add_pair(buf, pairs[i][0], pairs[i][1]);
    }
    return send_reply(instance, (uint64_t)model->options.start_timeout_s * 1000u);
}

/* What the supervisor waits for. */
enum source { FROM_SOCKET, FROM_LINES, FROM_CALLS, FROM_CLOSING, N_SOURCES };

static int watch(const sluice_instance *instance, int operation, int fd, enum source source,
                 uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = source};
    return epoll_ctl(instance->events, operation, fd, &event) == 0;
}

/* Holds read_lock. */
static short wanted_of(const sluice_instance *instance) {
    return (short)(POLLIN | (instance->calls.blocked == CALLS_WAIT_FOR_ROOM ? POLLOUT : 0));
}

/* The supervisor waits for these events of the socket; for none, and for no responses of calls,
 * while another thread does. Holds read_lock. */
static void watch_socket(sluice_instance *instance, short wanted) {
    if (wanted != instance->wanted) {
        if ((wanted == 0) != (instance->wanted == 0)) {
            (void)watch(instance, EPOLL_CTL_MOD, calls_descriptor(instance), FROM_CALLS,
                        wanted ? EPOLLIN : 0);
        }
        (void)watch(instance, EPOLL_CTL_MOD, instance->process.socket, FROM_SOCKET,
                    (uint32_t)wanted);
        instance->wanted = wanted;
    }
}

static int open_events(sluice_instance *instance) {
    instance->wanted = POLLIN;
    instance->broken[0] = '\0';
    instance->events = epoll_create1(EPOLL_CLOEXEC);
    return instance->events >= 0 &&
           watch(instance, EPOLL_CTL_ADD, instance->process.socket, FROM_SOCKET, EPOLLIN) &&
           watch(instance, EPOLL_CTL_ADD, instance->process.lines, FROM_LINES, EPOLLIN) &&
           watch(instance, EPOLL_CTL_ADD, calls_descriptor(instance), FROM_CALLS, EPOLLIN) &&
           watch(instance, EPOLL_CTL_ADD, instance->wake, FROM_CLOSING, EPOLLIN);
}

/* Sends responses of calls, and reads what the socket has. Holds read_lock. */
static enum outcome handle(sluice_instance *instance, uint32_t of_socket, int has_calls,
                           char *reason, size_t reason_bytes) {
    int may_send =
        has_calls || (of_socket & POLLOUT) || instance->calls.blocked == CALLS_WAIT_FOR_LOCK;
    if (may_send && !calls_send(instance)) {
        reason[0] = '\0'; /* it has ended: why is known later */
        return BREAKS_RULE;
    }
    return of_socket & ~(uint32_t)POLLOUT ? receive(instance, reason, reason_bytes) : GO_ON;
}

/* What is done once a second. Children of the worker may keep the socket open, and write lines all
 * the time. Returns: whether it has ended, and all of its messages are read. */
static int look_after_worker(sluice_instance *instance) {
    struct pollfd fd = {.fd = instance->process.socket, .events = POLLIN};
    uint64_t now_ns = clock_ns();
    if (now_ns - instance->looked_ns < (uint64_t)POLL_MS * 1000000u) {
        return 0;
    }
    instance->looked_ns = now_ns;
    pool_trim(instance->pool);
    return process_has_ended(&instance->process) && poll(&fd, 1, 0) == 0;
}

/* Waits for something to read from the worker, and reads it, unless the thread that executes does.
 * Thread: supervisor. */
static enum outcome step(sluice_instance *instance, int timeout_ms, char *reason,
                         size_t reason_bytes) {
    struct epoll_event events[N_SOURCES];
    uint32_t of[N_SOURCES] = {0};
    pthread_mutex_lock(&instance->read_lock);
    if (!instance->executor_reads) {
        watch_socket(instance, wanted_of(instance));
        timeout_ms = instance->calls.blocked == CALLS_WAIT_FOR_LOCK ? LOCK_POLL_MS : timeout_ms;
    }
    pthread_mutex_unlock(&instance->read_lock);
    int n = epoll_wait(instance->events, events, N_SOURCES, timeout_ms);
    for (int i = 0; i < n; i++) {
        of[events[i].data.u32] = events[i].events;
    }
    enum outcome outcome = GO_ON;
    pthread_mutex_lock(&instance->read_lock);
    if (of[FROM_LINES] && !read_lines(instance)) {
        close(instance->process.lines);
        instance->process.lines = -1;
    }
    if (instance->broken[0]) {
        snprintf(reason, reason_bytes, "%s", instance->broken);
        outcome = BREAKS_RULE;
    } else if (!instance->executor_reads) {
        outcome = handle(instance, of[FROM_SOCKET], of[FROM_CALLS] != 0, reason, reason_bytes);
    }
    pthread_mutex_unlock(&instance->read_lock);
    if (outcome == GO_ON &&
        (n == 0 ? process_has_ended(&instance->process) : look_after_worker(instance))) {
        reason[0] = '\0';
        return BREAKS_RULE;
    }
    return outcome;
}

/* Starts a worker and waits until the model is initialized. */
static sluice_status start_worker(sluice_instance *instance, sluice_error *error) {
    const struct options *options = &instance->model->options;
    char reason[sizeof(error->text)] = "";
    lines_init(&instance->lines, instance->model->host, instance->model->name);
    instance->readiness = (struct readiness){0};
    instance->pool = pool_new();
    if (!instance->pool || !calls_open(&instance->calls)) {
        return error_no_memory(error, "a worker");
    }
    struct process process;
    sluice_status status = process_start(&process, &instance->model->python, instance->model->name,
                                         options->n_threads, error);
    if (status != SLUICE_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->send_lock);
    instance->process = process;
    pthread_mutex_unlock(&instance->send_lock);
    if (!open_events(instance)) {
        return error_set(error, SLUICE_UNAVAILABLE, "no descriptor for a worker");
    }
    (void)send_init(instance); /* where it fails, the worker has ended */
    uint64_t until_ns = after_ms((uint64_t)options->start_timeout_s * 1000u);
    while (!is_closing(instance)) {
        enum outcome outcome = step(instance, POLL_MS, reason, sizeof(reason));
        if (outcome == IS_READY) {
            return SLUICE_OK;
        }
        if (outcome != GO_ON) {
            break;
        }
        if (clock_ns() > until_ns) {
            snprintf(reason, sizeof(reason),
                     "initialize has not returned after %d s (parameter start_timeout_s)",
                     options->start_timeout_s);
            break;
        }
    }
    return error_set(error, SLUICE_INVALID_ARGUMENT, "%s", reason);
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Ends the process, and says what is known of its end in `reason` unless that was known before. */
static void end_worker(sluice_instance *instance, char *reason, size_t n_bytes) {
    int has_worker = instance->process.pid > 0;
    if (instance->process.socket >= 0) { /* a thread that sends goes on with an error */
        shutdown(instance->process.socket, SHUT_RDWR);
    }
    pthread_mutex_lock(&instance->lock);
    while (instance->executor_reads) { /* it uses the descriptors, and sees the end at once */
        pthread_cond_wait(&instance->changed, &instance->lock);
    }
    pthread_mutex_unlock(&instance->lock);
    /* It may be about to end by itself, with lines and a code that say more. */
    uint64_t until_ns = after_ms(reason[0] ? 0 : 500);
    while (has_worker && !process_has_ended(&instance->process) && clock_ns() < until_ns) {
        poll(NULL, 0, 5);
    }
    int status = process_kill(&instance->process);
    while (instance->process.lines >= 0 && clock_ns() < until_ns + 1000000000u) {
        char bytes[4096];
        ssize_t got = read(instance->process.lines, bytes, sizeof(bytes));
        if (got <= 0) {
            break;
        }
        lines_add(&instance->lines, bytes, (size_t)got);
    }
    lines_flush(&instance->lines);
    if (has_worker && !reason[0]) {
        char how[80], last[400];
        process_describe_end(status, how, sizeof(how));
        lines_print_last(&instance->lines, last, sizeof(last));
        snprintf(reason, n_bytes, "%s%s%s", how, last[0] ? ": " : "", last);
    }
    pthread_mutex_lock(&instance->send_lock);
    process_close(&instance->process);
    pthread_mutex_unlock(&instance->send_lock);
    if (instance->events >= 0) {
        close(instance->events);
        instance->events = -1;
    }
    drop_incoming(instance);
    calls_close(instance);
    pool_unref(instance->pool);
    instance->pool = NULL;
}

/* The worker has ended: its requests fail, and `reason` is what later ones are told. */
static void set_down(sluice_instance *instance, const char *reason) {
    pthread_mutex_lock(&instance->lock);
    instance->state = WORKER_DOWN;
    instance->granted = 0;
    lines_copy_text(reason, strlen(reason), instance->why_down, sizeof(instance->why_down));
    pthread_mutex_unlock(&instance->lock);
}

static void fail_requests(sluice_instance *instance) {
    char text[sizeof(instance->why_down) + 160];
    snprintf(text, sizeof(text), "the Python worker of model %.100s %s", instance->model->name,
             instance->why_down);
    answers_fail(instance, 0, SLUICE_UNAVAILABLE, text);
    pthread_mutex_lock(&instance->lock);
    instance->executing = 0;
    pthread_cond_broadcast(&instance->changed);
    pthread_mutex_unlock(&instance->lock);
}

/* Lets the model finalize. */
static void finalize_worker(sluice_instance *instance) {
    char reason[512] = "";
    uint64_t until_ns = after_ms((uint64_t)instance->model->options.finalize_timeout_s * 1000u);
    wire_begin(&instance->reply_buf, WIRE_FINALIZE);
    while (!send_reply(instance, 0) && !process_has_ended(&instance->process) &&
           clock_ns() < until_ns) {
    }
    (void)epoll_ctl(instance->events, EPOLL_CTL_DEL, instance->wake, NULL);
    for (;;) {
        uint64_t now_ns = clock_ns();
        if (now_ns >= until_ns) {
            char text[160];
            snprintf(text, sizeof(text),
                     "finalize has not returned after %d s (parameter finalize_timeout_s): the "
                     "worker was ended",
                     instance->model->options.finalize_timeout_s);
            instance->model->host->log(SLUICE_LOG_WARNING, instance->model->name, text);
            break;
        }
        if (step(instance, FINALIZE_POLL_MS, reason, sizeof(reason)) == BREAKS_RULE ||
            process_has_ended(&instance->process)) {
            break;
        }
    }
    snprintf(reason, sizeof(reason), "was closed");
    end_worker(instance, reason, sizeof(reason));
}

/* ---- supervisor ------------------------------------------------------------------------------ */

/* Serves until the worker ends or the instance is closed. `reason`: why it ended. */
static void serve(sluice_instance *instance, char *reason, size_t n_bytes) {
    while (!is_closing(instance) && !reason[0]) {
        int check_ms = readiness_check(instance);
        int wait_ms = check_ms >= 0 && check_ms < POLL_MS ? check_ms : POLL_MS;
        if (step(instance, wait_ms, reason, n_bytes) != GO_ON) {
            return;
        }
        if (is_overdue(instance)) {
            snprintf(reason, n_bytes,
                     "was ended: execute has not returned after %d s (parameter "
                     "execute_timeout_s)",
                     instance->model->options.execute_timeout_s);
            return;
        }
    }
}

static void pause_ms(sluice_instance *instance, uint64_t ms) {
    uint64_t until_ns = after_ms(ms);
    pthread_mutex_lock(&instance->lock);
    while (!instance->closing && clock_ns() < until_ns) {
        wait_until(instance, until_ns);
    }
    pthread_mutex_unlock(&instance->lock);
}

static void set_first(sluice_instance *instance, sluice_status status, const sluice_error *error) {
    pthread_mutex_lock(&instance->lock);
    instance->opened = 1;
    instance->first_status = status;
    instance->first_error = *error;
    instance->state = status == SLUICE_OK ? WORKER_READY : WORKER_DOWN;
    pthread_cond_broadcast(&instance->changed);
    pthread_mutex_unlock(&instance->lock);
}

static void log_end(sluice_instance *instance, uint64_t next_ms) {
    char text[sizeof(instance->why_down) + 96];
    snprintf(text, sizeof(text), "worker of instance %u %s; it is started again in %llu ms",
             (unsigned)instance->index, instance->why_down, (unsigned long long)next_ms);
    instance->model->host->log(SLUICE_LOG_ERROR, instance->model->name, text);
}

/* Waits for the first answer of is_ready, so that the model is not ready before it. `reason`: the
 * worker has ended. */
static void wait_checked(sluice_instance *instance, char *reason, size_t n_bytes) {
    uint64_t until_ns = after_ms(READINESS_TIMEOUT_MS);
    (void)readiness_check(instance);
    while (instance->readiness.in_flight && !is_closing(instance) && clock_ns() < until_ns) {
        if (step(instance, POLL_MS, reason, n_bytes) != GO_ON) {
            if (!reason[0]) {
                snprintf(reason, n_bytes, "has ended while is_ready was called");
            }
            return;
        }
    }
}

/* One worker from its start to its end. Returns: whether it lived for long. */
static int run_worker(sluice_instance *instance, uint64_t next_ms, int is_first) {
    char reason[512] = "";
    sluice_error error = {{0}};
    sluice_status status = start_worker(instance, &error);
    snprintf(reason, sizeof(reason), "%s", error.text);
    uint64_t began_ns = clock_ns();
    if (status != SLUICE_OK) {
        end_worker(instance, reason, sizeof(reason));
        if (is_first && error.text[0] == '\0') {
            snprintf(error.text, sizeof(error.text), "the Python worker %.480s", reason);
        } else if (!is_first) {
            snprintf(reason, sizeof(reason), "could not be started again: %.450s", error.text);
        }
    }
    if (status == SLUICE_OK && !instance->readiness.checks) {
        readiness_set(instance, 1);
    } else if (status == SLUICE_OK) {
        wait_checked(instance, reason, sizeof(reason));
    }
    if (is_first) {
        set_first(instance, status, &error);
    }
    if (status == SLUICE_OK) {
        pthread_mutex_lock(&instance->lock);
        instance->state = WORKER_READY;
        pthread_cond_broadcast(&instance->changed);
        pthread_mutex_unlock(&instance->lock);
        serve(instance, reason, sizeof(reason));
        readiness_set(instance, 0);
        if (is_closing(instance) && !reason[0]) {
            finalize_worker(instance);
        } else {
            set_down(instance, "has ended");
            end_worker(instance, reason, sizeof(reason));
        }
    }
    set_down(instance, reason);
    if (!is_closing(instance) && !(is_first && status != SLUICE_OK)) {
        log_end(instance, next_ms);
    }
    fail_requests(instance);
    return status == SLUICE_OK && clock_ns() - began_ns > (uint64_t)STABLE_MS * 1000000u;
}

static void *supervise(void *user) {
    sluice_instance *instance = user;
    uint64_t next_ms = FIRST_PAUSE_MS;
    int is_first = 1;
    while (!is_closing(instance)) {
        int was_stable = run_worker(instance, next_ms, is_first);
        if (is_first && instance->first_status != SLUICE_OK) {
            break;
        }
        is_first = 0;
        next_ms = was_stable ? FIRST_PAUSE_MS : next_ms;
        pause_ms(instance, next_ms);
        next_ms = next_ms * 2 < LONGEST_PAUSE_MS ? next_ms * 2 : LONGEST_PAUSE_MS;
    }
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void instance_free(sluice_instance *instance) {
    if (instance->wake >= 0) {
        close(instance->wake);
    }
    wire_buf_fini(&instance->batch_buf);
    wire_buf_fini(&instance->reply_buf);
    answers_fini(instance);
    pthread_cond_destroy(&instance->changed);
    pthread_mutex_destroy(&instance->lock);
    pthread_mutex_destroy(&instance->send_lock);
    pthread_mutex_destroy(&instance->read_lock);
    free(instance);
}

/* Returns: NULL with the error. */
static sluice_instance *instance_new(sluice_model *model, uint32_t index, sluice_error *error) {
    struct sluice_instance *instance = calloc(1, sizeof(*instance));
    if (!instance) {
        error_no_memory(error, "instance %u", (unsigned)index);
        return NULL;
    }
    instance->model = model;
    instance->index = index;
    instance->process = (struct process){.socket = -1, .lines = -1};
    instance->events = -1;
    instance->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&instance->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&instance->lock, NULL);
    pthread_mutex_init(&instance->send_lock, NULL);
    pthread_mutex_init(&instance->read_lock, NULL);
    return instance;
}

sluice_status python_describe(sluice_model *model, sluice_error *error) {
    sluice_instance *instance = instance_new(model, 0, error);
    char reason[512];
    if (!instance) {
        return SLUICE_NO_MEMORY;
    }
    instance->describes = 1;
    sluice_status status = start_worker(instance, error);
    snprintf(reason, sizeof(reason), "%s", status == SLUICE_OK ? "has ended" : error->text);
    end_worker(instance, reason, sizeof(reason));
    if (status != SLUICE_OK && error->text[0] == '\0') {
        error_set(error, status, "auto_complete_config: the Python worker %.450s", reason);
    }
    instance_free(instance);
    return status;
}

sluice_status python_instance_open(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error) {
    *instance = NULL;
    if (!model->is_configured) {
        return error_set(error, SLUICE_UNSUPPORTED,
                         "the host has not given the model's configuration (model_configured)");
    }
    sluice_instance *opened = instance_new(model, index, error);
    if (!opened) {
        return SLUICE_NO_MEMORY;
    }
    if (opened->wake < 0 || pthread_create(&opened->supervisor, NULL, supervise, opened) != 0) {
        instance_free(opened);
        return error_set(error, SLUICE_UNAVAILABLE, "no thread or descriptor for instance %u",
                         (unsigned)index);
    }
    pthread_mutex_lock(&opened->lock);
    while (!opened->opened) {
        pthread_cond_wait(&opened->changed, &opened->lock);
    }
    sluice_status status = opened->first_status;
    pthread_mutex_unlock(&opened->lock);
    if (status != SLUICE_OK) {
        pthread_join(opened->supervisor, NULL);
        *error = opened->first_error;
        instance_free(opened);
        return status;
    }
    *instance = opened;
    return SLUICE_OK;
}

void python_instance_close(sluice_instance *instance) {
    uint64_t one = 1;
    pthread_mutex_lock(&instance->lock);
    instance->closing = 1;
    pthread_cond_broadcast(&instance->changed);
    pthread_mutex_unlock(&instance->lock);
    while (write(instance->wake, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(instance->supervisor, NULL);
    instance_free(instance);
}

/* ---- executing ------------------------------------------------------------------------------- */

/* Bytes that the inputs take, each aligned. */
static size_t input_bytes(const sluice_request *const *requests, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum = wire_tensors_end(requests[i]->inputs, requests[i]->n_inputs, sum);
    }
    return sum;
}

static void add_request(struct wire_buf *buf, const sluice_request *request, uint64_t token,
                        size_t *offset) {
    wire_add_u64(buf, token);
    wire_add_u64(buf, request->sequence_id);
    wire_add_u32(buf, request->sequence_flags);
    wire_add_u64(buf, request->priority);
    wire_add_u64(buf, request->timeout_us);
    wire_add_u32(buf, (uint32_t)request->n_params);
    wire_add_u32(buf, (uint32_t)request->n_wanted);
    wire_add_u32(buf, (uint32_t)request->n_inputs);
    wire_add_text(buf, request->id, request->id_bytes);
    wire_add_text(buf, request->sequence_name ? request->sequence_name : "",
                  request->sequence_name_bytes);
    for (size_t i = 0; i < request->n_params; i++) {
        wire_add_param(buf, &request->params[i]);
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        wire_add_u32(buf, request->wanted[i]);
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        wire_add_tensor(buf, &request->inputs[i], offset);
    }
}

/* A batch on its way. */
struct batch {
    sluice_instance *instance;
    const sluice_request *const *requests;
    size_t n;
    uint64_t *tokens;
    size_t n_bytes;       /* of inputs */
    struct block *inputs; /* NULL: they are in the message */
    struct block *outputs;
};

/* Writes the message with the inputs. Returns: the number of descriptors in `fds`; buf->failed when
 * memory is out. */
static size_t write_batch(const struct batch *batch, struct wire_buf *buf, int fds[POOL_MAX_FDS]) {
    wire_begin(buf, WIRE_EXECUTE);
    size_t n_fds = pool_announce(batch->instance->pool, buf, fds);
    wire_add_u32(buf, batch->instance->batch);
    wire_add_u32(buf, (uint32_t)batch->n);
    size_t tail_at = buf->n_bytes, offset = 0;
    wire_add_u32(buf, 0);
    wire_add_u32(buf, batch->inputs ? batch->inputs->number : 0);
    wire_add_u32(buf, batch->outputs ? batch->outputs->number : 0);
    for (size_t i = 0; i < batch->n; i++) {
        add_request(buf, batch->requests[i], batch->tokens[i], &offset);
    }
    unsigned char *to =
        batch->inputs ? batch->inputs->bytes : wire_add_tail(buf, tail_at, batch->n_bytes);
    offset = 0;
    for (size_t i = 0; to && i < batch->n; i++) {
        offset =
            wire_copy_tensors(batch->requests[i]->inputs, batch->requests[i]->n_inputs, offset, to);
    }
    return n_fds;
}

/* Takes the blocks of a batch. Returns: 0 with the reason. */
static int take_blocks(struct batch *batch, uint64_t output_bytes, const char **reason) {
    struct block_pool *pool = batch->instance->pool;
    if (batch->n_bytes > WIRE_TAIL_BYTES) {
        batch->inputs = pool_take(pool, batch->n_bytes, BLOCK_INPUT, reason);
        if (!batch->inputs) {
            return 0;
        }
    }
    if (output_bytes > WIRE_TAIL_BYTES) { /* so many were needed the last time */
        const char *unused;
        batch->outputs = pool_take(pool, output_bytes, BLOCK_GRANTED, &unused);
        pthread_mutex_lock(&batch->instance->lock);
        batch->instance->granted = batch->outputs ? batch->outputs->number : 0;
        pthread_mutex_unlock(&batch->instance->lock);
    }
    return 1;
}

static void reject_all(sluice_instance *instance, const sluice_request *const *requests, size_t n,
                       sluice_status status, const char *text) {
    sluice_response response = {
        .size = sizeof(response), .status = status, .error = text, .final = 1};
    for (size_t i = 0; i < n; i++) {
        instance->model->host->respond(requests[i], &response);
    }
}

/* Waits for a worker that is being started again: an instance that refused at once would take the
 * requests of those that work. The lock is held. Returns: whether there is one. */
static int wait_ready(sluice_instance *instance) {
    uint64_t until_ns = after_ms(DOWN_WAIT_MS);
    while (instance->state != WORKER_READY && !instance->closing && clock_ns() < until_ns) {
        wait_until(instance, until_ns);
    }
    return instance->state == WORKER_READY;
}

/* Makes the requests the worker's. The lock is held. Returns: 0 when memory is out. */
static int begin_batch(sluice_instance *instance, struct batch *batch) {
    instance->batch = instance->batch == UINT32_MAX ? 1 : instance->batch + 1;
    for (size_t i = 0; i < batch->n; i++) {
        batch->tokens[i] = slot_take(instance, batch->requests[i]);
        if (batch->tokens[i] == 0) {
            while (i > 0) {
                slot_release(instance, batch->tokens[--i]);
            }
            return 0;
        }
    }
    instance->executing = 1;
    instance->requests = batch->requests;
    instance->n_requests = batch->n;
    instance->sent_ns = clock_ns();
    return 1;
}

static int is_executing(sluice_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    int executing = instance->executing;
    pthread_mutex_unlock(&instance->lock);
    return executing;
}

/* Sends the batch. The worker may end meanwhile: then the supervisor fails its requests. Returns: 0
 * with the reason, when nothing was sent for want of memory. */
static int send_batch(struct batch *batch, uint64_t output_bytes, const char **reason) {
    sluice_instance *instance = batch->instance;
    int fds[POOL_MAX_FDS], ok = 1;
    pthread_mutex_lock(&instance->send_lock);
    /* The pool and the requests stay until the lock is released; the worker that has the batch may
     * have ended, and another have been started. */
    if (instance->process.socket >= 0 && is_executing(instance)) {
        ok = take_blocks(batch, output_bytes, reason);
        size_t n_fds = ok ? write_batch(batch, &instance->batch_buf, fds) : 0;
        if (ok && !wire_end(&instance->batch_buf)) {
            close_fds(fds, n_fds);
            /* The worker does not hear of its new blocks: it cannot go on. */
            shutdown(instance->process.socket, SHUT_RDWR);
        } else if (ok) {
            (void)instance_send_locked(instance, &instance->batch_buf, fds, n_fds);
        }
    }
    pthread_mutex_unlock(&instance->send_lock);
    wire_buf_trim(&instance->batch_buf);
    return ok;
}

/* ---- reading while a batch is executed ------------------------------------------------------- */

/* Makes this thread the one that reads, unless the batch is done already. Returns: whether it is.
 */
static int begin_reading(sluice_instance *instance) {
    pthread_mutex_lock(&instance->read_lock);
    pthread_mutex_lock(&instance->lock);
    int reads = instance->executing && instance->state == WORKER_READY;
    instance->executor_reads = reads;
    pthread_mutex_unlock(&instance->lock);
    if (reads) {
        watch_socket(instance, 0);
    }
    pthread_mutex_unlock(&instance->read_lock);
    return reads;
}

/* The supervisor reads again. `broken`: it ends the worker, for this reason. */
static void end_reading(sluice_instance *instance, const char *broken) {
    pthread_mutex_lock(&instance->read_lock);
    if (broken[0] && !instance->broken[0]) { /* the first reason counts */
        snprintf(instance->broken, sizeof(instance->broken), "%s", broken);
        shutdown(instance->process.socket, SHUT_RDWR); /* which the supervisor sees */
    }
    watch_socket(instance, wanted_of(instance));
    pthread_mutex_lock(&instance->lock);
    instance->executor_reads = 0;
    pthread_cond_broadcast(&instance->changed);
    pthread_mutex_unlock(&instance->lock);
    pthread_mutex_unlock(&instance->read_lock);
}

/* Reads until the batch is done, or the worker has ended or breaks a rule. */
static void read_answers(sluice_instance *instance) {
    char reason[sizeof(instance->broken)] = "";
    struct pollfd fds[] = {{.fd = instance->process.socket},
                           {.fd = calls_descriptor(instance), .events = POLLIN}};
    enum outcome outcome = GO_ON;
    while (outcome == GO_ON && is_executing(instance)) {
        pthread_mutex_lock(&instance->read_lock);
        fds[0].events = wanted_of(instance);
        int timeout_ms = instance->calls.blocked == CALLS_WAIT_FOR_LOCK ? LOCK_POLL_MS : -1;
        pthread_mutex_unlock(&instance->read_lock);
        fds[0].revents = fds[1].revents = 0;
        (void)poll(fds, 2, timeout_ms);
        pthread_mutex_lock(&instance->read_lock);
        outcome =
            handle(instance, (uint32_t)fds[0].revents, fds[1].revents != 0, reason, sizeof(reason));
        pthread_mutex_unlock(&instance->read_lock);
    }
    end_reading(instance, outcome == GO_ON ? "" : reason);
}

/* Sends the batch, and reads. A small message fits into the socket; while a large one is sent, the
 * worker may wait until something of its own is read. */
static void execute_begun(struct batch *batch, uint64_t output_bytes) {
    sluice_instance *instance = batch->instance;
    const char *reason = "out of memory for the batch";
    batch->n_bytes = input_bytes(batch->requests, batch->n);
    int is_small = batch->n_bytes <= WIRE_TAIL_BYTES && batch->n <= MOST_SMALL_REQUESTS;
    int reads = is_small && begin_reading(instance);
    int sent = send_batch(batch, output_bytes, &reason);
    if (!sent) {
        pthread_mutex_lock(&instance->read_lock);
        answers_fail(instance, instance->batch, SLUICE_NO_MEMORY, reason);
        pthread_mutex_unlock(&instance->read_lock);
        pthread_mutex_lock(&instance->lock);
        instance->executing = 0;
        pthread_mutex_unlock(&instance->lock);
    }
    if (reads || begin_reading(instance)) {
        read_answers(instance);
    }
}

void python_execute(sluice_instance *instance, const sluice_request *const *requests, size_t n) {
    struct batch batch = {.instance = instance, .requests = requests, .n = n};
    uint64_t few[16];
    const char *reason = "out of memory for the batch";
    batch.tokens = n <= 16 ? few : malloc(n * sizeof(*batch.tokens));
    pthread_mutex_lock(&instance->lock);
    int ready = wait_ready(instance);
    int begun = ready && batch.tokens && begin_batch(instance, &batch);
    uint64_t output_bytes = instance->granted ? 0 : instance->last_output_bytes;
    char down[sizeof(instance->why_down) + 160];
    snprintf(down, sizeof(down), "the Python worker of model %.100s is not there: it %s",
             instance->model->name, instance->why_down);
    pthread_mutex_unlock(&instance->lock);
    if (!begun) {
        reject_all(instance, requests, n, ready ? SLUICE_NO_MEMORY : SLUICE_UNAVAILABLE,
                   ready ? reason : down);
    } else {
        execute_begun(&batch, output_bytes);
        pthread_mutex_lock(&instance->lock);
        while (instance->executing) {
            pthread_cond_wait(&instance->changed, &instance->lock);
        }
        pthread_mutex_unlock(&instance->lock);
    }
    if (batch.tokens != few) {
        free(batch.tokens);
    }
}
