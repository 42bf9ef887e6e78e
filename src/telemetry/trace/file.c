/* Trace files. An existing file of the same name is replaced, as the reference does. */
#include "telemetry/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"

enum { FILE_MODE = 0640 /* tensors may be confidential */ };

void trace_file_init(struct trace_file *file, const char *path) {
    *file = (struct trace_file){.path = path, .fd = -1};
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

/* After a failed write (disk full), truncates the file and restores the closing bracket. */
static void restore_end(const struct trace_file *file) {
    bool bracket = file->end == 0 || write_all(file->fd, STR("]\n"), file->end);
    if (!bracket || ftruncate(file->fd, file->end > 0 ? file->end + 2 : 0) != 0) {
        log_event(LOG_WARNING, "a file of traces is torn", LOG_CSTR("file", file->path),
                  LOG_CSTR("reason", strerror(errno)));
    }
}

void trace_file_append(struct trace_file *file, struct str objects, uint64_t n) {
    if (file->fd < 0) {
        file->fd = open_file(file->path);
        file->end = 0;
    }
    bool written =
        file->fd >= 0 && write_array(file->fd, file->end > 0 ? ',' : '[', objects, file->end);
    report_result(file, written, errno, n);
    if (written) {
        file->end += 1 + (off_t)objects.len;
    } else if (file->fd >= 0) {
        restore_end(file);
    }
}

/* Written under a temporary name and renamed, so that a reader sees only complete files. */
void trace_file_write_next(struct trace_file *file, struct str objects, uint64_t n) {
    char path[PATH_MAX], part[PATH_MAX];
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
    file->next_index += written;
}

void trace_file_close(struct trace_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
}
