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
    sluice_status status = errno == ENOENT || errno == ENOTDIR ? SLUICE_NOT_FOUND : SLUICE_INTERNAL;
    return error_set(error, status, "%s: cannot be read: %s", path, strerror(errno));
}

/* Compares the path of the opened file, which has no symbolic links. */
static int is_inside(int fd, const char *inside) {
    char link[32], opened[PATH_MAX], directory[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, opened, sizeof(opened) - 1);
    if (n < 0 || !realpath(inside, directory)) {
        return 0;
    }
    opened[n] = '\0';
    size_t length = strcmp(directory, "/") == 0 ? 0 : strlen(directory);
    return strncmp(opened, directory, length) == 0 && opened[length] == '/';
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

static sluice_status read_open(struct file *file, int fd, const char *path, const char *inside,
                               sluice_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return error_io(error, path);
    }
    if (!S_ISREG(info.st_mode)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: expected a regular file", path);
    }
    if (inside && !is_inside(fd, inside)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "%s: external data must be in the directory of the model's file", path);
    }
    file->n_bytes = (size_t)info.st_size;
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

sluice_status file_read(struct file *file, const char *path, const char *inside,
                        sluice_error *error) {
    *file = (struct file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_io(error, path);
    }
    sluice_status status = read_open(file, fd, path, inside, error);
    close(fd);
    return status;
}
