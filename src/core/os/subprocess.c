/* libuv starts programs too, but offers no place between fork and exec, where PR_SET_PDEATHSIG has
 * to be set. */
#include "core/os/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/os/child.h"

enum { EXIT_NOT_STARTED = 127, N_HANDLES = 2 };

struct subprocess {
    void (*on_line)(void *user, struct str line);
    void (*on_exit)(void *user, int wait_status);
    void *user;
    pid_t pid;
    bool ended; /* it was waited for: the pid may be another process's */
    int wait_status;
    uv_signal_t child_signal;
    uv_pipe_t pipe;
    unsigned n_open; /* handles that are not closed yet */
    size_t len;      /* of the line that is not complete */
    char line[SUBPROCESS_LINE_BYTES];
};

pid_t subprocess_pid(const struct subprocess *subprocess) {
    return subprocess->pid;
}

void subprocess_signal(const struct subprocess *subprocess, int signum) {
    if (!subprocess->ended) {
        kill(subprocess->pid, signum);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void pass_line(struct subprocess *self, struct str line) {
    if (line.len > 0) {
        self->on_line(self->user, line);
    }
}

static void end_line(struct subprocess *self) {
    pass_line(self, str_make(self->line, self->len));
    self->len = 0;
}

/* `n` more bytes are in the buffer. */
static void take_bytes(struct subprocess *self, size_t n) {
    const char *begin = self->line, *end = self->line + self->len + n, *newline;
    while ((newline = memchr(begin, '\n', (size_t)(end - begin))) != NULL) {
        pass_line(self, str_make(begin, (size_t)(newline - begin)));
        begin = newline + 1;
    }
    self->len = (size_t)(end - begin);
    memmove(self->line, begin, self->len);
    if (self->len == sizeof(self->line)) {
        end_line(self);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct subprocess *self = handle->data;
    (void)suggested;
    *out = uv_buf_init(self->line + self->len, (unsigned)(sizeof(self->line) - self->len));
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf) {
    struct subprocess *self = handle->data;
    (void)buf;
    if (n > 0) {
        take_bytes(self, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(handle);
    }
}

/* Reads what is in the pipe without waiting: others may have it open still. */
static void drain_pipe(struct subprocess *self) {
    uv_os_fd_t fd;
    ssize_t n = -1;
    if (uv_fileno((uv_handle_t *)&self->pipe, &fd) != 0) {
        return;
    }
    do {
        n = read(fd, self->line + self->len, sizeof(self->line) - self->len);
        if (n > 0) {
            take_bytes(self, (size_t)n);
        }
    } while (n > 0 || (n < 0 && errno == EINTR));
    end_line(self);
}

/* ---- end ------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct subprocess *self = handle->data;
    if (--self->n_open == 0) {
        self->on_exit(self->user, self->wait_status);
        free(self);
    }
}

static void on_child_signal(uv_signal_t *handle, int signum) {
    struct subprocess *self = handle->data;
    (void)signum;
    if (self->ended || waitpid(self->pid, &self->wait_status, WNOHANG) != self->pid) {
        return;
    }
    self->ended = true;
    drain_pipe(self);
    uv_close((uv_handle_t *)&self->child_signal, on_closed);
    uv_close((uv_handle_t *)&self->pipe, on_closed);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* What the child process needs, made before the fork: it must not allocate. */
struct start {
    const struct subprocess_spec *spec;
    char **env;
    pid_t parent;
    int output[2];  /* of the pipe for standard error */
    int failure[2]; /* gets errno where the program can't be run */
};

static _Noreturn void run_program(const struct start *start) {
    sigset_t none;
    sigemptyset(&none);
    for (int signum = 1; signum < NSIG; signum++) {
        signal(signum, SIG_DFL); /* ignored ones would stay ignored */
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    int nowhere = open("/dev/null", O_RDONLY);
    bool ok = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
              getppid() == start->parent && nowhere >= 0 && dup2(nowhere, STDIN_FILENO) >= 0 &&
              dup2(start->output[1], STDERR_FILENO) >= 0;
    if (ok) {
        execve(start->spec->argv[0], (char **)(uintptr_t)start->spec->argv, start->env);
    }
    int why = errno;
    ssize_t n = write(start->failure[1], &why, sizeof(why));
    (void)n;
    _exit(EXIT_NOT_STARTED);
}

static void close_both(int fds[2]) {
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

/* Returns: 0, with *out; else errno. */
static int start_program(struct start *start, pid_t *out) {
    sigset_t all, before;
    int why = 0;
    if (pipe2(start->output, O_CLOEXEC) != 0 || pipe2(start->failure, O_CLOEXEC) != 0) {
        return errno;
    }
    start->parent = getpid();
    sigfillset(&all); /* the child must not run our handlers */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        run_program(start);
    }
    why = pid < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(start->failure[1]);
    start->failure[1] = -1;
    if (pid < 0) {
        return why;
    }
    ssize_t n;
    do {
        n = read(start->failure[0], &why, sizeof(why)); /* ends with the exec */
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(why)) {
        waitpid(pid, NULL, 0);
        return why != 0 ? why : ECHILD;
    }
    *out = pid;
    return 0;
}

/* Owns: takes the pipe's reading end. */
static int watch(struct subprocess *self, struct worker *worker, int output) {
    int rc = uv_signal_init(worker_loop(worker), &self->child_signal);
    if (rc != 0) {
        close(output);
        return rc;
    }
    self->n_open = 1;
    rc = uv_pipe_init(worker_loop(worker), &self->pipe, 0);
    self->n_open += rc == 0;
    fcntl(output, F_SETFL, O_NONBLOCK);
    int opened = rc == 0 ? uv_pipe_open(&self->pipe, output) : rc;
    if (opened != 0) {
        close(output);
        return opened;
    }
    self->child_signal.data = self->pipe.data = self;
    rc = uv_signal_start(&self->child_signal, on_child_signal, SIGCHLD);
    return rc == 0 ? uv_read_start((uv_stream_t *)&self->pipe, on_alloc, on_read) : rc;
}

static void on_unwatched_closed(uv_handle_t *handle) {
    struct subprocess *self = handle->data;
    if (--self->n_open == 0) {
        free(self);
    }
}

/* Ends a program that can't be watched. */
static void abandon(struct subprocess *self) {
    kill(self->pid, SIGKILL);
    waitpid(self->pid, NULL, 0);
    self->child_signal.data = self->pipe.data = self;
    unsigned n_open = self->n_open;
    if (n_open == 0) {
        free(self);
        return;
    }
    uv_close((uv_handle_t *)&self->child_signal, on_unwatched_closed);
    if (n_open == N_HANDLES) {
        uv_close((uv_handle_t *)&self->pipe, on_unwatched_closed);
    }
}

enum status subprocess_start(struct worker *worker, const struct subprocess_spec *spec,
                             struct subprocess **out, struct error *err) {
    struct start start = {.spec = spec, .output = {-1, -1}, .failure = {-1, -1}};
    struct subprocess *self = calloc(1, sizeof(*self));
    start.env = child_environment(spec->env);
    if (!self || !start.env) {
        free(self);
        free(start.env);
        return error_no_memory(err, "running %s", spec->argv[0]);
    }
    self->on_line = spec->on_line;
    self->on_exit = spec->on_exit;
    self->user = spec->user;
    int why = start_program(&start, &self->pid);
    free(start.env);
    if (why != 0) {
        close_both(start.output);
        close_both(start.failure);
        free(self);
        return error_set(err, ST_IO, "%s can't be run: %s", spec->argv[0], strerror(why));
    }
    int output = start.output[0];
    start.output[0] = -1;
    close_both(start.output);
    close_both(start.failure);
    int rc = watch(self, worker, output);
    if (rc != 0) {
        abandon(self);
        return error_set(err, ST_IO, "%s can't be watched: %s", spec->argv[0], uv_strerror(rc));
    }
    on_child_signal(&self->child_signal, SIGCHLD); /* it may have ended before the handler was
                                                      set */
    *out = self;
    return ST_OK;
}
