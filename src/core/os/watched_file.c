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

/* Reads the file. Returns: whether it is as it was at the last taken read. */
static bool look(struct watched_file *file, int *error, struct secret_digest *digest) {
    watched_file_clear(file);
    *error = open_and_read(file);
    *digest = (struct secret_digest){{0}};
    if (*error == 0) {
        *digest = secret_digest_of(watched_file_text(file));
    } else {
        watched_file_clear(file);
    }
    return file->read && *error == file->error && secret_digest_equal(digest, &file->digest);
}

static enum status take(struct watched_file *file, int error, const struct secret_digest *digest,
                        struct error *err) {
    file->read = true;
    file->error = error;
    file->digest = *digest;
    file->n_unsettled = 0;
    return error == 0 ? ST_OK : read_error(file, err);
}

enum status watched_file_read(struct watched_file *file, bool *changed, struct error *err) {
    struct secret_digest digest;
    int error;
    if (!look(file, &error, &digest)) {
        *changed = true;
    }
    return take(file, error, &digest, err);
}

enum status watched_file_read_settled(struct watched_file *file, bool *changed, struct error *err) {
    struct secret_digest digest;
    int error;
    if (look(file, &error, &digest)) {
        return take(file, error, &digest, err);
    }
    bool settled = !file->read || file->n_unsettled + 1 >= WATCHED_FILE_MAX_UNSETTLED ||
                   (file->n_unsettled > 0 && error == file->unsettled_error &&
                    secret_digest_equal(&digest, &file->unsettled_digest));
    if (settled) {
        *changed = true;
        return take(file, error, &digest, err);
    }
    file->n_unsettled++;
    file->unsettled_error = error;
    file->unsettled_digest = digest;
    return ST_OK;
}

void watched_file_clear(struct watched_file *file) {
    if (file->data) {
        secret_wipe(file->data, file->len);
    }
    free(file->data);
    file->data = NULL;
    file->len = 0;
}
