/* Standard error may be shared with other processes, so its O_NONBLOCK is not ours to set. A pipe
 * and a socket take a flag with each write instead; a terminal is asked before. Threads write one
 * after the other, and wait for those before them as long as standard error takes bytes: what still
 * blocks (a file of a network that hangs) holds one of them, and the others drop their lines. */
#include "core/base/log_sink.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/metric/metric.h"

/* Standard error is one for the process, as is its log. */
static struct {
    pthread_mutex_t lock; /* of the next three; held only for moments */
    pthread_cond_t is_free;
    bool in_use;                       /* a thread writes */
    unsigned n_waiting;                /* threads that wait for it */
    bool handed_on;                    /* it has written, and one that waits is the next */
    bool torn;                         /* the last line was written in part */
    size_t n_status;                   /* columns of the status that is shown; 0: none */
    _Atomic uint64_t no_wait_until_ms; /* of CLOCK_MONOTONIC: a wait timed out before */
    _Atomic uint64_t n_dropped;        /* not reported yet */
    _Atomic uint64_t n_taken;          /* writes that standard error took, in full or in part */
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool may_wait(void) {
    return now_ms() >= atomic_load_explicit(&sink.no_wait_until_ms, memory_order_relaxed);
}

static void pause_waiting(void) {
    atomic_store_explicit(&sink.no_wait_until_ms, now_ms() + LOG_SINK_PAUSE_MS,
                          memory_order_relaxed);
}

static bool poll_writable(int timeout_ms) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n;
    do {
        n = poll(&fd, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* Without the flag, for what does not know it: after poll, another process may have filled a pipe
 * since. */
static ssize_t write_if_writable(const char *text, size_t n_bytes) {
    if (!poll_writable(0)) {
        errno = EAGAIN;
        return -1;
    }
    return write(STDERR_FILENO, text, n_bytes);
}

/* Returns: the bytes written; -1 with EAGAIN: it would wait. */
static ssize_t write_now(const char *text, size_t n_bytes) {
    struct stat info;
    if (fstat(STDERR_FILENO, &info) != 0) {
        return -1;
    }
    if (S_ISREG(info.st_mode)) {
        return write(STDERR_FILENO, text, n_bytes);
    }
    if (S_ISSOCK(info.st_mode)) {
        return send(STDERR_FILENO, text, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    struct iovec part = {.iov_base = (void *)text, .iov_len = n_bytes};
    ssize_t n = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
    return n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
               ? write_if_writable(text, n_bytes)
               : n;
}

/* Returns: whether all of it was written; false: none of it, or a part (sink.torn). */
static bool write_all(const char *text, size_t n_bytes) {
    size_t n_written = 0;
    while (n_written < n_bytes) {
        ssize_t n = write_now(text + n_written, n_bytes - n_written);
        if (n > 0) {
            n_written += (size_t)n;
            atomic_fetch_add_explicit(&sink.n_taken, 1, memory_order_relaxed);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n >= 0 || errno != EAGAIN || !may_wait()) {
            break; /* closed, or not read */
        } else if (!poll_writable(LOG_SINK_WAIT_MS)) {
            pause_waiting();
            break;
        }
    }
    sink.torn = n_written < n_bytes && (n_written > 0 || sink.torn);
    return n_written == n_bytes;
}

/* Lines begin at the start of a line, also after a part of one. */
static bool end_torn_line(void) {
    return !sink.torn || write_all("\n", 1);
}

static bool report_dropped(size_t (*print_dropped)(char *out, uint64_t n)) {
    char line[PIPE_BUF];
    uint64_t n = atomic_load_explicit(&sink.n_dropped, memory_order_relaxed);
    if (n == 0) {
        return true;
    }
    if (!write_all(line, print_dropped(line, n))) {
        return false;
    }
    atomic_fetch_sub_explicit(&sink.n_dropped, n, memory_order_relaxed);
    return true;
}

static void init_cond(void) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sink.is_free, &attr);
    pthread_condattr_destroy(&attr);
}

static struct timespec after_wait(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 2L * LOG_SINK_WAIT_MS * 1000000; /* the other one may wait for the reader */
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Waits until the thread that writes hands the sink on, and gives up when standard error has taken
 * nothing for a time. With the lock. Returns: whether this thread may write. */
static bool wait_for_sink(void) {
    uint64_t n_taken = atomic_load_explicit(&sink.n_taken, memory_order_relaxed);
    struct timespec until = after_wait();
    bool takes = true;
    sink.n_waiting++;
    while (!sink.handed_on && takes) {
        if (pthread_cond_timedwait(&sink.is_free, &sink.lock, &until) != 0) {
            uint64_t before = n_taken;
            n_taken = atomic_load_explicit(&sink.n_taken, memory_order_relaxed);
            until = after_wait();
            takes = n_taken != before;
        }
    }
    sink.n_waiting--;
    bool acquired = sink.handed_on;
    sink.handed_on = false;
    return acquired;
}

/* Waits for the lines of other threads. Returns: whether this thread may write. */
static bool acquire_sink(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool waits = may_wait();
    pthread_once(&once, init_cond);
    pthread_mutex_lock(&sink.lock);
    bool acquired = !sink.in_use || (waits && wait_for_sink());
    sink.in_use = true;
    pthread_mutex_unlock(&sink.lock);
    if (!acquired && waits) {
        pause_waiting();
    }
    return acquired;
}

/* A thread that waits has it next, so that one with many lines does not keep it. */
static void release_sink(void) {
    pthread_mutex_lock(&sink.lock);
    sink.handed_on = sink.n_waiting > 0;
    sink.in_use = sink.handed_on;
    pthread_cond_signal(&sink.is_free);
    pthread_mutex_unlock(&sink.lock);
}

/* Removes the status with spaces, which every terminal understands, and shows `text` in its place.
 */
static bool overwrite_status(const char *text, size_t n_bytes, size_t n_columns) {
    char line[2 * (LOG_SINK_STATUS_BYTES + 1)];
    size_t n = 0;
    if (sink.n_status > 0) {
        memset(line, ' ', sink.n_status);
        n = sink.n_status;
        line[n++] = '\r';
    }
    if (n_bytes > 0) {
        memcpy(line + n, text, n_bytes);
        n += n_bytes;
        line[n++] = '\r';
    }
    sink.n_status = n_columns;
    return write_all(line, n);
}

void log_sink_show_status(const char *text, size_t n_bytes, size_t n_columns) {
    assert(n_bytes <= LOG_SINK_STATUS_BYTES && n_columns <= n_bytes);
    if (acquire_sink()) {
        (void)(end_torn_line() && overwrite_status(text, n_bytes, n_columns));
        release_sink();
    }
}

void log_sink_write(const char *line, size_t n_bytes,
                    size_t (*print_dropped)(char *out, uint64_t n)) {
    bool written = false;
    if (acquire_sink()) {
        written = end_torn_line() && overwrite_status("", 0, 0) && report_dropped(print_dropped) &&
                  write_all(line, n_bytes);
        release_sink();
    }
    if (!written) {
        atomic_fetch_add_explicit(&sink.n_dropped, 1, memory_order_relaxed);
        metric_add(METRIC_LOG_LINES_NOT_READ, 1);
    }
}
