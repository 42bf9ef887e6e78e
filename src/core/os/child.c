/* A process with two pipes and an alarm. What it has written by its end is read then, whoever else
 * still holds the other ends of the pipes. */
#include "core/os/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/event/clock.h"

enum { READ_BYTES = 4096, COMPLAINT_BYTES = 2048, PIPES = 2, HANDLES = PIPES + 1 };

/* What is read of a pipe. */
struct stream {
    struct child *child;
    uv_pipe_t pipe;
    bool open;
    char *data;
    size_t len, cap, most;
    bool keeps_last; /* of what is too much, the end; else that is an error */
};

struct child {
    struct worker *worker;
    uv_process_t process;
    struct stream output, complaint;
    struct alarm alarm;
    void (*done)(void *user, const struct child_result *result);
    void *user;
    struct error error; /* why it was ended; ST_OK: it was not */
    int64_t code;
    int signal;
    unsigned n_handles; /* that are not closed */
    char room[READ_BYTES];
};

/* ---- its end --------------------------------------------------------------------------------- */

/* It is the first of its own group. */
static void end(struct child *child, enum status status, const char *why) {
    if (child->error.status == ST_OK) {
        error_set(&child->error, status, "%s", why);
        kill(-child->process.pid, SIGKILL);
    }
}

static struct str last_line(struct str text) {
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    const char *line = text.len > 0 ? memrchr(text.ptr, '\n', text.len) : NULL;
    return line ? str_make(line + 1, (size_t)(text.ptr + text.len - line - 1)) : text;
}

static void tell(struct child *child) {
    struct child_result result = {
        .error = child->error,
        .output = str_make(child->output.data, child->output.len),
        .complaint = last_line(str_make(child->complaint.data, child->complaint.len))};
    if (result.error.status == ST_OK && child->signal != 0) {
        error_set(&result.error, ST_IO, "was ended by signal %d", child->signal);
    } else if (result.error.status == ST_OK && child->code != 0) {
        error_set(&result.error, ST_IO, "ended with code %d", (int)child->code);
    }
    child->done(child->user, &result);
}

/* What it printed may be secret. */
static void stream_free(struct stream *stream) {
    if (stream->data) {
        explicit_bzero(stream->data, stream->cap);
    }
    free(stream->data);
}

static void on_closed(uv_handle_t *handle) {
    struct child *child = handle->data;
    if (--child->n_handles > 0) {
        return;
    }
    explicit_bzero(child->room, sizeof(child->room));
    tell(child);
    stream_free(&child->output);
    stream_free(&child->complaint);
    free(child);
}

/* ---- what it says ---------------------------------------------------------------------------- */

static bool grow(struct stream *stream, size_t n_bytes) {
    size_t cap = stream->cap > 0 ? 2 * stream->cap : READ_BYTES;
    while (cap - stream->len < n_bytes) {
        cap *= 2;
    }
    char *larger = malloc(cap);
    if (!larger) {
        return false;
    }
    if (stream->len > 0) {
        memcpy(larger, stream->data, stream->len);
    }
    stream_free(stream);
    stream->data = larger;
    stream->cap = cap;
    return true;
}

/* Leaves room for `n` bytes behind the last of what is there. */
static void drop_first(struct stream *stream, size_t n) {
    size_t n_kept = stream->most - n < stream->len ? stream->most - n : stream->len;
    if (n_kept < stream->len) {
        memmove(stream->data, stream->data + stream->len - n_kept, n_kept);
        stream->len = n_kept;
    }
}

static void take(struct stream *stream, const char *data, size_t n) {
    struct child *child = stream->child;
    if (stream->keeps_last) {
        size_t n_over = n > stream->most ? n - stream->most : 0;
        data += n_over;
        n -= n_over;
        drop_first(stream, n);
    }
    if (n > stream->most - stream->len) {
        end(child, ST_BODY_TOO_LARGE, "printed more than is read");
    } else if (stream->cap - stream->len < n && !grow(stream, n)) {
        end(child, ST_NO_MEMORY, "printed what there is no memory for");
    } else if (n > 0) {
        memcpy(stream->data + stream->len, data, n);
        stream->len += n;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct child *child = handle->data;
    (void)suggested;
    *out = uv_buf_init(child->room, sizeof(child->room));
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf) {
    struct child *child = handle->data;
    struct stream *stream =
        handle == (uv_stream_t *)&child->output.pipe ? &child->output : &child->complaint;
    if (n > 0) {
        take(stream, buf->base, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(handle);
        stream->open = false;
    }
}

/* What is in the pipe yet. */
static void drain(struct stream *stream) {
    uv_os_fd_t fd;
    if (!stream->open || uv_fileno((uv_handle_t *)&stream->pipe, &fd) != 0) {
        return;
    }
    for (;;) {
        char *room = stream->child->room;
        ssize_t n = read(fd, room, READ_BYTES);
        if (n > 0) {
            take(stream, room, (size_t)n);
        } else if (n == 0 || errno != EINTR) {
            return;
        }
    }
}

/* ---- its life -------------------------------------------------------------------------------- */

static void close_all(struct child *child) {
    alarm_clear(worker_alarms(child->worker), &child->alarm);
    uv_close((uv_handle_t *)&child->output.pipe, on_closed);
    uv_close((uv_handle_t *)&child->complaint.pipe, on_closed);
    uv_close((uv_handle_t *)&child->process, on_closed);
}

static void on_exit_of(uv_process_t *process, int64_t code, int signal) {
    struct child *child = process->data;
    child->code = code;
    child->signal = signal;
    drain(&child->output);
    drain(&child->complaint);
    close_all(child);
}

static void ring(struct alarm *alarm) {
    struct child *child = (struct child *)(void *)((char *)alarm - offsetof(struct child, alarm));
    end(child, ST_DEADLINE_EXCEEDED, "took too long");
}

void child_cancel(struct child *child) {
    end(child, ST_CANCELLED, "was given up");
}

static bool is_replaced(const char *variable, const char *const *env) {
    size_t n = strcspn(variable, "=") + 1;
    while (*env && strncmp(*env, variable, n) != 0) {
        env++;
    }
    return *env != NULL;
}

/* Returns: NULL when out of memory. Owns: the caller, the array alone. */
static char **environment(const char *const *env) {
    size_t n = 0, n_here = 0, n_more = 0;
    while (environ[n_here]) {
        n_here++;
    }
    while (env[n_more]) {
        n_more++;
    }
    char **out = calloc(n_here + n_more + 1, sizeof(*out));
    for (size_t i = 0; out && i < n_here; i++) {
        if (!is_replaced(environ[i], env)) {
            out[n++] = environ[i];
        }
    }
    for (size_t i = 0; out && i < n_more; i++) {
        out[n++] = (char *)(uintptr_t)env[i]; /* libuv does not change it */
    }
    return out;
}

static int init_stream(struct child *child, struct stream *stream, size_t most, bool keeps_last) {
    *stream = (struct stream){.child = child, .open = true, .most = most, .keeps_last = keeps_last};
    int rc = uv_pipe_init(worker_loop(child->worker), &stream->pipe, 0);
    stream->pipe.data = child;
    return rc;
}

static int spawn(struct child *child, const struct child_ask *ask, char **env) {
    uv_stdio_container_t stdio[HANDLES] = {
        {.flags = UV_IGNORE},
        {.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *)&child->output.pipe},
        {.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *)&child->complaint.pipe}};
    uv_process_options_t options = {.exit_cb = on_exit_of,
                                    .file = ask->argv[0],
                                    .args = (char **)(uintptr_t)ask->argv,
                                    .env = env,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = HANDLES};
    return uv_spawn(worker_loop(child->worker), &child->process, &options);
}

static void on_never_ran(uv_handle_t *handle) {
    struct child *child = handle->data;
    if (--child->n_handles == 0) {
        free(child);
    }
}

/* It did not begin. Its handles are on the loop for a moment. */
static void abandon(struct child *child) {
    uv_close((uv_handle_t *)&child->output.pipe, on_never_ran);
    uv_close((uv_handle_t *)&child->complaint.pipe, on_never_ran);
    uv_close((uv_handle_t *)&child->process, on_never_ran);
}

enum status child_start(struct worker *worker, const struct child_ask *ask, struct child **out,
                        struct error *err) {
    struct child *child = calloc(1, sizeof(*child));
    char **env = environment(ask->env);
    if (!child || !env) {
        free(child);
        free(env);
        return error_set(err, ST_NO_MEMORY, "no memory for running %s", ask->argv[0]);
    }
    *child = (struct child){.worker = worker,
                            .alarm.ring = ring,
                            .done = ask->done,
                            .user = ask->user,
                            .n_handles = HANDLES};
    child->process.data = child;
    int rc = init_stream(child, &child->output, ask->most_bytes, false);
    rc = rc == 0 ? init_stream(child, &child->complaint, COMPLAINT_BYTES, true) : rc;
    rc = rc == 0 ? spawn(child, ask, env) : rc;
    free(env);
    if (rc != 0) {
        abandon(child);
        return error_set(err, ST_IO, "%s can't be run: %s", ask->argv[0], uv_strerror(rc));
    }
    uv_read_start((uv_stream_t *)&child->output.pipe, on_alloc, on_read);
    uv_read_start((uv_stream_t *)&child->complaint.pipe, on_alloc, on_read);
    if (!alarm_set(worker_alarms(worker), &child->alarm, clock_now_ns() + ask->timeout_ns)) {
        end(child, ST_NO_MEMORY, "there is no memory for its time");
    }
    *out = child;
    return ST_OK;
}
