/* Reading a file that another process may be writing. */
#include "core/os/watched_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_BYTES = 4096 };

/* ---- reading --------------------------------------------------------------------------------- */

/* Grows the buffer. Returns: 0, or an errno. */
static int grow_buffer(struct watched_file *file, size_t *cap) {
    size_t larger = *cap == 0 ? FIRST_BYTES : 2 * *cap;
    char *data = malloc(larger);
    if (!data) {
        return ENOMEM;
    }
    if (file->len > 0) {
        memcpy(data, file->data, file->len);
        secret_wipe(file->data, file->len);
    }
    free(file->data);
    file->data = data;
    *cap = larger;
    return 0;
}

/* Returns: 0, or an errno. */
static int read_all(struct watched_file *file, int fd) {
    size_t cap = 0;
    for (;;) {
        int error = file->len == cap ? grow_buffer(file, &cap) : 0;
        if (error != 0) {
            return error;
        }
        ssize_t n = read(fd, file->data + file->len, cap - file->len);
        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        file->len += n > 0 ? (size_t)n : 0;
        if (file->len > WATCHED_FILE_MAX_BYTES) {
            return EFBIG;
        }
    }
}

/* Returns: 0, or an errno: ENXIO when it is not a regular file. */
static int open_and_read(struct watched_file *file) {
    /* Opening a pipe would block otherwise. */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return errno;
    }
    struct stat info;
    int error = fstat(fd, &info) != 0    ? errno
                : S_ISDIR(info.st_mode)  ? EISDIR
                : !S_ISREG(info.st_mode) ? ENXIO
                                         : read_all(file, fd);
    close(fd);
    return error;
}

/* ---- errors and changes ---------------------------------------------------------------------- */

static enum status read_error(const struct watched_file *file, struct error *err) {
    switch (file->error) {
    case EACCES:
        return error_set(err, ST_IO, "this process (user %ld) may not read it", (long)geteuid());
    case EISDIR:
        return error_set(err, ST_IO, "expected a file, this is a directory");
    case ENXIO:
        return error_set(err, ST_IO, "expected a regular file");
    case EFBIG:
        return error_set(err, ST_IO, "expected a file of at most %d bytes", WATCHED_FILE_MAX_BYTES);
    default:
        return error_set(err, ST_IO, "%s", strerror(file->error));
    }
}

enum status watched_file_read(struct watched_file *file, bool *changed, struct error *err) {
    watched_file_clear(file);
    int error = open_and_read(file);
    struct secret_digest digest = {{0}};
    if (error == 0) {
        digest = secret_digest_of(watched_file_text(file));
    } else {
        watched_file_clear(file);
    }
    if (!file->read || error != file->error || !secret_digest_equal(&digest, &file->digest)) {
        *changed = true;
    }
    file->read = true;
    file->error = error;
    file->digest = digest;
    return error == 0 ? ST_OK : read_error(file, err);
}

void watched_file_clear(struct watched_file *file) {
    if (file->data) {
        secret_wipe(file->data, file->len);
    }
    free(file->data);
    file->data = NULL;
    file->len = 0;
}
