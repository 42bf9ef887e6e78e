/* Writes and removes the ready file. A server may run as root: it must not replace or remove
 * anything but a regular file, as a rename over /dev/null would. */
#include "core/os/ready_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_regular_or_absent(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 ? S_ISREG(info.st_mode) : errno == ENOENT;
}

static bool write_beside(const char *beside, const char *const *urls, size_t n) {
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(beside, flags, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (size_t i = 0; file && i < n; i++) {
        fprintf(file, "%s\n", urls[i]);
    }
    return file && fclose(file) == 0;
}

enum status ready_file_write(const char *path, const char *const *urls, size_t n,
                             struct error *err) {
    if (!is_regular_or_absent(path)) {
        return error_set(err, ST_IO, "writing %s: expected a regular file, or none", path);
    }
    size_t len = strlen(path) + sizeof ".new";
    char *beside = malloc(len);
    if (!beside) {
        return error_no_memory(err, "writing %s", path);
    }
    snprintf(beside, len, "%s.new", path);
    bool written = write_beside(beside, urls, n) && rename(beside, path) == 0;
    int reason = errno;
    if (!written) {
        unlink(beside);
    }
    free(beside);
    return written ? ST_OK : error_set(err, ST_IO, "writing %s: %s", path, strerror(reason));
}

void ready_file_remove(const char *path) {
    if (path && is_regular_or_absent(path)) {
        unlink(path);
    }
}
