/* A process with two pipes and a timer. At its exit the output written so far is read from the
 * pipes, even if other processes still have them open. */
#include "core/os/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"

enum { READ_BYTES = 4096, STDERR_TAIL_BYTES = 2048, N_PIPES = 2, N_HANDLES = N_PIPES + 1 };

/* The output of one pipe. */
struct child_stream {
    struct child *child;
    uv_pipe_t pipe;
    bool open;
    char *data;
    size_t len, cap, max_bytes;
    bool keep_tail; /* output over the limit: keep its last bytes; else it is an error */
};

struct child {
    struct worker *worker;
    uv_process_t process;
    struct child_stream output, stderr_tail;
    struct timer timer;
    void (*done)(void *user, const struct child_result *result);
    void *user;
    struct error error; /* why it was killed; ST_OK: it was not */
    int64_t code;
    int signal;
    unsigned n_handles; /* handles that are not closed yet */
    char read_buffer[READ_BYTES];
};

/* ---- exit ------------------------------------------------------------------------------------ */

/* The child leads a process group of its own. */
static void child_kill(struct child *child, enum status status, const char *why) {
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

static void child_report(struct child *child) {
    struct child_result result = {
        .error = child->error,
        .output = str_make(child->output.data, child->output.len),
        .stderr_tail = last_line(str_make(child->stderr_tail.data, child->stderr_tail.len))};
    if (result.error.status == ST_OK && child->signal != 0) {
        error_set(&result.error, ST_IO, "was killed by signal %d", child->signal);
    } else if (result.error.status == ST_OK && child->code != 0) {
        error_set(&result.error, ST_IO, "exited with code %d", (int)child->code);
    }
    child->done(child->user, &result);
}

/* The output may be secret. */
static void stream_free(struct child_stream *stream) {
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
    explicit_bzero(child->read_buffer, sizeof(child->read_buffer));
    child_report(child);
    stream_free(&child->output);
    stream_free(&child->stderr_tail);
    free(child);
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool stream_grow(struct child_stream *stream, size_t n_bytes) {
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

/* Drops the oldest bytes so that `n` more fit below the limit. */
static void stream_drop_oldest(struct child_stream *stream, size_t n) {
    size_t n_kept = stream->max_bytes - n < stream->len ? stream->max_bytes - n : stream->len;
    if (n_kept < stream->len) {
        memmove(stream->data, stream->data + stream->len - n_kept, n_kept);
        stream->len = n_kept;
    }
}

static void stream_append(struct child_stream *stream, const char *data, size_t n) {
    struct child *child = stream->child;
    if (stream->keep_tail) {
        size_t n_over = n > stream->max_bytes ? n - stream->max_bytes : 0;
        data += n_over;
        n -= n_over;
        stream_drop_oldest(stream, n);
    }
    if (n > stream->max_bytes - stream->len) {
        child_kill(child, ST_BODY_TOO_LARGE, "printed more output than the limit");
    } else if (stream->cap - stream->len < n && !stream_grow(stream, n)) {
        child_kill(child, ST_NO_MEMORY, "could not run on: out of memory for its output");
    } else if (n > 0) {
        memcpy(stream->data + stream->len, data, n);
        stream->len += n;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct child *child = handle->data;
    (void)suggested;
    *out = uv_buf_init(child->read_buffer, sizeof(child->read_buffer));
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf) {
    struct child *child = handle->data;
    struct child_stream *stream =
        handle == (uv_stream_t *)&child->output.pipe ? &child->output : &child->stderr_tail;
    if (n > 0) {
        stream_append(stream, buf->base, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(handle);
        stream->open = false;
    }
}

/* Reads what is in the pipe without waiting. */
static void stream_drain(struct child_stream *stream) {
    uv_os_fd_t fd;
    if (!stream->open || uv_fileno((uv_handle_t *)&stream->pipe, &fd) != 0) {
        return;
    }
    for (;;) {
        char *read_buffer = stream->child->read_buffer;
        ssize_t n = read(fd, read_buffer, READ_BYTES);
        if (n > 0) {
            stream_append(stream, read_buffer, (size_t)n);
        } else if (n == 0 || errno != EINTR) {
            return;
        }
    }
}

/* ---- start and stop -------------------------------------------------------------------------- */

static void on_process_exit(uv_process_t *process, int64_t code, int signal) {
    struct child *child = process->data;
    child->code = code;
    child->signal = signal;
    stream_drain(&child->output);
    stream_drain(&child->stderr_tail);
    timer_stop(worker_timers(child->worker), &child->timer);
    uv_close((uv_handle_t *)&child->output.pipe, on_closed);
    uv_close((uv_handle_t *)&child->stderr_tail.pipe, on_closed);
    uv_close((uv_handle_t *)&child->process, on_closed);
}

static void on_timeout(struct timer *timer) {
    struct child *child = CONTAINER_OF(timer, struct child, timer);
    child_kill(child, ST_DEADLINE_EXCEEDED, "timed out");
}

void child_cancel(struct child *child) {
    child_kill(child, ST_CANCELLED, "was cancelled");
}

static bool is_replaced(const char *variable, const char *const *env) {
    size_t n = strcspn(variable, "=") + 1;
    while (*env && strncmp(*env, variable, n) != 0) {
        env++;
    }
    return *env != NULL;
}

char **child_environment(const char *const *env) {
    size_t n = 0, n_here = 0, n_more = 0;
    /* Not `environ`: the portable build is linked against symbols alone, and has a copy of that,
     * which nothing sets. */
    while (__environ[n_here]) {
        n_here++;
    }
    while (env[n_more]) {
        n_more++;
    }
    char **out = calloc(n_here + n_more + 1, sizeof(*out));
    for (size_t i = 0; out && i < n_here; i++) {
        if (!is_replaced(__environ[i], env)) {
            out[n++] = __environ[i];
        }
    }
    for (size_t i = 0; out && i < n_more; i++) {
        out[n++] = (char *)(uintptr_t)env[i]; /* libuv does not change it */
    }
    return out;
}

static int stream_init(struct child *child, struct child_stream *stream, size_t max_bytes,
                       bool keep_tail) {
    *stream = (struct child_stream){
        .child = child, .open = true, .max_bytes = max_bytes, .keep_tail = keep_tail};
    int rc = uv_pipe_init(worker_loop(child->worker), &stream->pipe, 0);
    stream->pipe.data = child;
    return rc;
}

static int child_spawn(struct child *child, const struct child_spec *spec, char **env) {
    uv_stdio_container_t stdio[N_HANDLES] = {
        {.flags = UV_IGNORE},
        {.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *)&child->output.pipe},
        {.flags = (uv_stdio_flags)(UV_CREATE_PIPE | UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *)&child->stderr_tail.pipe}};
    uv_process_options_t options = {.exit_cb = on_process_exit,
                                    .file = spec->argv[0],
                                    .args = (char **)(uintptr_t)spec->argv,
                                    .env = env,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = N_HANDLES};
    return uv_spawn(worker_loop(child->worker), &child->process, &options);
}

static void on_unstarted_closed(uv_handle_t *handle) {
    struct child *child = handle->data;
    if (--child->n_handles == 0) {
        free(child);
    }
}

enum status child_start(struct worker *worker, const struct child_spec *spec, struct child **out,
                        struct error *err) {
    struct child *child = calloc(1, sizeof(*child));
    char **env = child_environment(spec->env);
    if (!child || !env) {
        free(child);
        free(env);
        return error_no_memory(err, "running %s", spec->argv[0]);
    }
    *child = (struct child){.worker = worker,
                            .timer.on_expire = on_timeout,
                            .done = spec->done,
                            .user = spec->user,
                            .n_handles = N_HANDLES};
    child->process.data = child;
    int rc = stream_init(child, &child->output, spec->max_output_bytes, false);
    rc = rc == 0 ? stream_init(child, &child->stderr_tail, STDERR_TAIL_BYTES, true) : rc;
    rc = rc == 0 ? child_spawn(child, spec, env) : rc;
    free(env);
    if (rc != 0) { /* the handles are on the loop until they are closed */
        uv_close((uv_handle_t *)&child->output.pipe, on_unstarted_closed);
        uv_close((uv_handle_t *)&child->stderr_tail.pipe, on_unstarted_closed);
        uv_close((uv_handle_t *)&child->process, on_unstarted_closed);
        return error_set(err, ST_IO, "%s can't be run: %s", spec->argv[0], uv_strerror(rc));
    }
    uv_read_start((uv_stream_t *)&child->output.pipe, on_alloc, on_read);
    uv_read_start((uv_stream_t *)&child->stderr_tail.pipe, on_alloc, on_read);
    timer_start(worker_timers(worker), &child->timer, clock_now_ns() + spec->timeout_ns);
    *out = child;
    return ST_OK;
}
