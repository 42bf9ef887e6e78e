/* Writes and removes the ready file. A server may run as root: it must not replace or remove
 * anything but a regular file, as a rename over /dev/null would. */
#include "core/os/ready_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_regular_or_absent(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 ? S_ISREG(info.st_mode) : errno == ENOENT;
}

static void remember(struct ready_file *file, const struct stat *info) {
    file->device = (uint64_t)info->st_dev;
    file->inode = (uint64_t)info->st_ino;
    file->modified_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static bool write_beside(struct ready_file *ready, const char *beside, const char *const *urls,
                         size_t n) {
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(beside, flags, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    struct stat info;
    for (size_t i = 0; file && i < n; i++) {
        fprintf(file, "%s\n", urls[i]);
    }
    bool known = file && fflush(file) == 0 && fstat(fd, &info) == 0;
    if (known) {
        remember(ready, &info);
    }
    return file && fclose(file) == 0 && known;
}

enum status ready_file_write(struct ready_file *file, const char *const *urls, size_t n,
                             struct error *err) {
    const char *path = file->path;
    if (!is_regular_or_absent(path)) {
        return error_set(err, ST_IO, "writing %s: expected a regular file, or none", path);
    }
    size_t len = strlen(path) + sizeof ".new";
    char *beside = malloc(len);
    if (!beside) {
        return error_no_memory(err, "writing %s", path);
    }
    snprintf(beside, len, "%s.new", path);
    file->written = write_beside(file, beside, urls, n) && rename(beside, path) == 0;
    int reason = errno;
    if (!file->written) {
        unlink(beside);
    }
    free(beside);
    return file->written ? ST_OK : error_set(err, ST_IO, "writing %s: %s", path, strerror(reason));
}

void ready_file_remove_stale(const char *path) {
    if (path && is_regular_or_absent(path)) {
        unlink(path);
    }
}

void ready_file_remove(struct ready_file *file) {
    struct stat info;
    struct ready_file found = {0};
    if (file->written && lstat(file->path, &info) == 0) {
        remember(&found, &info);
        if (S_ISREG(info.st_mode) && file->device == found.device && file->inode == found.inode &&
            file->modified_ns == found.modified_ns) {
            unlink(file->path);
        }
    }
    file->written = false;
}
