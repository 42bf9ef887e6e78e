/* Trace files. An existing file of the same name is replaced, as the reference does. */
#include "telemetry/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum { FILE_MODE = 0640 /* tensors may be confidential */, FRAME_BYTES = 3 /* "[", "]\n" */ };

void trace_file_init(struct trace_file *file, const char *path, uint64_t max_size) {
    *file = (struct trace_file){.path = path, .max_size = max_size, .fd = -1};
}

enum status trace_file_check(const char *path, struct error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;
    if (*path == '\0' || (slash && slash[1] == '\0') || n >= PATH_MAX - 1) {
        return error_set(err, ST_BAD_CONFIG, "expected the path of a file, got \"%s\"", path);
    }
    snprintf(folder, sizeof(folder), "%.*s", slash ? n + 1 : 1, slash ? path : ".");
    return access(folder, W_OK | X_OK) == 0
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG, "no file can be written to %s: %s", folder,
                           strerror(errno));
}

static void report_result(struct trace_file *file, bool written, int error, uint64_t n) {
    metric_add(written ? METRIC_TRACES_WRITTEN : METRIC_TRACES_FAILED, (int64_t)n);
    if (!written && !file->failing) {
        log_event(LOG_ERROR, "cannot write traces", LOG_CSTR("file", file->path),
                  LOG_CSTR("reason", strerror(error)));
    }
    file->failing = !written;
}

/* ---- the limit ------------------------------------------------------------------------------- */

static const uint64_t COUNT_INTERVAL_NS = UINT64_C(10000000000);

/* The numbered files that are still there: some may have been taken away. */
static void count_files(struct trace_file *file, uint64_t now_ns) {
    char path[PATH_MAX];
    struct stat info;
    file->counted_ns = now_ns;
    file->n_bytes = file->fd >= 0 ? (uint64_t)file->end : 0;
    for (uint64_t i = 0; i < file->next_index; i++) {
        snprintf(path, sizeof(path), "%s.%" PRIu64, file->path, i);
        file->n_bytes += stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    }
}

/* Returns: whether the traces fit. The others are counted, and the first is logged. */
static bool has_space(struct trace_file *file, struct str objects, uint64_t n) {
    uint64_t n_bytes = objects.len + FRAME_BYTES;
    bool fits = file->max_size == 0 || n_bytes <= file->max_size;
    if (fits && file->max_size > 0 && file->n_bytes > file->max_size - n_bytes) {
        uint64_t now_ns = clock_now_ns();
        if (file->counted_ns == 0 || now_ns - file->counted_ns >= COUNT_INTERVAL_NS) {
            count_files(file, now_ns);
        }
        fits = file->n_bytes <= file->max_size - n_bytes;
    }
    if (!fits) {
        metric_add(METRIC_TRACES_OVER_LIMIT, (int64_t)n);
    }
    if (!fits && !file->full) {
        log_event(LOG_WARNING, "traces are dropped: the files are full (--max-trace-size)",
                  LOG_CSTR("file", file->path), LOG_U64("bytes", file->n_bytes),
                  LOG_U64("max_size", file->max_size));
    }
    file->full = !fits;
    return fits;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A pipe without a reader is an error: opening it would wait, and with it the shutdown. */
static int open_file(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, FILE_MODE);
}

/* Returns: false with errno set. */
static bool write_all(int fd, struct str text, off_t at) {
    while (text.len > 0) {
        ssize_t n = pwrite(fd, text.ptr, text.len, at);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        if (n > 0) {
            text = str_make(text.ptr + n, text.len - (size_t)n);
            at += n;
        }
    }
    return true;
}

/* Writes `before` (bracket or comma), the objects, and the closing bracket. */
static bool write_array(int fd, char before, struct str objects, off_t at) {
    return write_all(fd, objects, at + 1) &&
           write_all(fd, STR("]\n"), at + 1 + (off_t)objects.len) &&
           write_all(fd, str_make(&before, 1), at);
}

/* After a failed write (disk full), truncates the file and restores the closing bracket. That fails
 * for devices, for instance; it is logged once until a write succeeds. */
static void restore_end(struct trace_file *file) {
    bool bracket = file->end == 0 || write_all(file->fd, STR("]\n"), file->end);
    bool restored = bracket && ftruncate(file->fd, file->end > 0 ? file->end + 2 : 0) == 0;
    if (!restored && !file->torn) {
        log_event(LOG_WARNING, "a file of traces is torn", LOG_CSTR("file", file->path),
                  LOG_CSTR("reason", strerror(errno)));
    }
    file->torn = file->torn || !restored;
}

void trace_file_append(struct trace_file *file, struct str objects, uint64_t n) {
    if (!has_space(file, objects, n)) {
        return;
    }
    if (file->fd < 0) {
        file->fd = open_file(file->path);
        file->end = 0;
    }
    bool written =
        file->fd >= 0 && write_array(file->fd, file->end > 0 ? ',' : '[', objects, file->end);
    report_result(file, written, errno, n);
    if (written) {
        file->torn = false;
        file->end += 1 + (off_t)objects.len;
        file->n_bytes += 1 + objects.len;
    } else if (file->fd >= 0) {
        restore_end(file);
    }
}

/* Written under a temporary name and renamed, so that a reader sees only complete files. */
void trace_file_write_next(struct trace_file *file, struct str objects, uint64_t n) {
    char path[PATH_MAX], part[PATH_MAX];
    if (!has_space(file, objects, n)) {
        return;
    }
    int len = snprintf(path, sizeof(path), "%s.%" PRIu64, file->path, file->next_index);
    int part_len = snprintf(part, sizeof(part), "%s.part", file->path);
    bool fits = len > 0 && len < PATH_MAX && part_len > 0 && part_len < PATH_MAX;
    int fd = fits ? open_file(part) : -1;
    bool written = fd >= 0 && write_array(fd, '[', objects, 0);
    int error = fits ? errno : ENAMETOOLONG;
    if (fd >= 0) {
        close(fd);
    }
    if (written && rename(part, path) != 0) {
        written = false;
        error = errno;
    }
    if (fd >= 0 && !written) {
        (void)unlink(part);
    }
    report_result(file, written, error, n);
    if (written) {
        file->next_index++;
        file->n_bytes += objects.len + FRAME_BYTES;
    }
}

void trace_file_close(struct trace_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
}
