/* Reads files. A mapped file would be shorter to write, but the process is killed by SIGBUS when
 * such a file is truncated or its volume fails. */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

static sluice_status error_io(sluice_error *error, const char *path) {
    sluice_status status = errno == ENOENT || errno == ENOTDIR ? SLUICE_NOT_FOUND
                           : errno == ELOOP                    ? SLUICE_INVALID_ARGUMENT
                           : errno == EMFILE || errno == ENFILE || errno == ENOMEM
                               ? SLUICE_UNAVAILABLE
                               : SLUICE_INTERNAL;
    return error_set(error, status, "%s: cannot be read: %s", path, strerror(errno));
}

/* The path of the opened file, which has no symbolic links. Returns: 0 when it is not known. */
static int opened_path(int fd, char opened[PATH_MAX]) {
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, opened, PATH_MAX - 1);
    opened[n < 0 ? 0 : n] = '\0';
    return n > 0 && opened[0] == '/';
}

static int is_inside(const char *opened, const char *directory) {
    size_t length = strcmp(directory, "/") == 0 ? 0 : strlen(directory);
    return strncmp(opened, directory, length) == 0 && opened[length] == '/';
}

static int is_allowed(const char *opened, const struct file_rules *rules) {
    for (size_t i = 0; i < rules->n_inside; i++) {
        if (is_inside(opened, rules->inside[i])) {
            return 1;
        }
    }
    return rules->n_inside == 0;
}

static sluice_status read_all(struct file *file, int fd, const char *path, sluice_error *error) {
    for (size_t at = 0; at < file->n_bytes;) {
        ssize_t n = read(fd, file->data + at, file->n_bytes - at);
        if (n < 0 && errno != EINTR) {
            return error_io(error, path);
        }
        if (n == 0) {
            return error_set(error, SLUICE_INVALID_ARGUMENT,
                             "%s: became shorter while it was being read", path);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return SLUICE_OK;
}

static int is_unchanged(const struct stat *before, int fd) {
    struct stat after;
    return fstat(fd, &after) == 0 && after.st_size == before->st_size &&
           after.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           after.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static sluice_status error_not_regular(sluice_error *error, const char *path) {
    return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: expected a regular file", path);
}

static sluice_status read_open(struct file *file, int fd, const char *path,
                               const struct file_rules *rules, sluice_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return error_io(error, path);
    }
    if (!S_ISREG(info.st_mode)) {
        return error_not_regular(error, path);
    }
    file->n_bytes = (size_t)info.st_size;
    if (rules->max_bytes > 0 && file->n_bytes > rules->max_bytes) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s %s", path, rules->too_large);
    }
    file->data = malloc(file->n_bytes + 1);
    if (!file->data) {
        return error_no_memory(error, "%s: %zu bytes", path, file->n_bytes);
    }
    sluice_status status = read_all(file, fd, path, error);
    if (status == SLUICE_OK && !is_unchanged(&info, fd)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: changed while it was being read",
                         path);
    }
    return status;
}

sluice_status file_read(struct file *file, const char *path, const struct file_rules *rules,
                        char **real, sluice_error *error) {
    struct stat info;
    char opened[PATH_MAX] = "";
    *file = (struct file){0};
    if (stat(path, &info) != 0) {
        return error_io(error, path);
    }
    if (!S_ISREG(info.st_mode)) { /* opening a device may change it */
        return error_not_regular(error, path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_io(error, path);
    }
    int known = opened_path(fd, opened);
    sluice_status status =
        is_allowed(opened, rules)
            ? read_open(file, fd, path, rules, error)
            : error_set(error, SLUICE_INVALID_ARGUMENT,
                        "%s: external data must be in the directory of the model's file, or of "
                        "the file that it links to",
                        path);
    close(fd);
    if (real) {
        *real = known ? strdup(opened) : NULL;
    }
    return status;
}
