/* Public functions of sluice/client.h: shared memory objects. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/call.h"
#include "core/event/clock.h"

enum { MAX_KEY_BYTES = 255 };

struct sluice_shm {
    char key[MAX_KEY_BYTES + 1];
    void *data;
    size_t n_bytes;
};

/* POSIX, shm_open: what all systems take. */
static bool is_key(const char *key) {
    size_t n = strlen(key);
    return n > 1 && n <= MAX_KEY_BYTES && key[0] == '/' && !strchr(key + 1, '/');
}

static enum status bad_key(const char *key, const char *why, struct error *err) {
    return error_set(err, ST_BAD_FIELD, "shared memory object \"%s\": %s", key, why);
}

/* Opens a new object. `key` NULL: of a name that no other has. */
static enum status open_new(struct sluice_shm *shm, const char *key, int *fd, struct error *err) {
    enum { TRIES = 100 };
    struct prng prng = {clock_now_ns() ^ (uint64_t)(uintptr_t)shm};
    if (key && !is_key(key)) {
        return bad_key(key, "expected /NAME", err);
    }
    for (int i = 0; i < TRIES; i++) {
        if (key) {
            snprintf(shm->key, sizeof(shm->key), "%s", key);
        } else {
            snprintf(shm->key, sizeof(shm->key), "/sluice-%ld-%016llx", (long)getpid(),
                     (unsigned long long)prng_next(&prng));
        }
        *fd = shm_open(shm->key, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (*fd >= 0) {
            return ST_OK;
        }
        if (key || errno != EEXIST) {
            break;
        }
    }
    return bad_key(shm->key, strerror(errno), err);
}

/* The pages exist from then on: a machine without memory for them fails here, and not with a signal
 * when they are written. */
static enum status map(struct sluice_shm *shm, int fd, size_t n_bytes, struct error *err) {
    int error = posix_fallocate(fd, 0, (off_t)n_bytes);
    if (error == 0) {
        shm->data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = shm->data == MAP_FAILED ? errno : 0;
    }
    if (error != 0) {
        shm->data = NULL;
        return error_set(err, ST_NO_MEMORY, "%zu bytes of shared memory: %s", n_bytes,
                         strerror(error));
    }
    shm->n_bytes = n_bytes;
    return ST_OK;
}

sluice_client_status sluice_shm_create(const char *key, size_t n_bytes, sluice_shm **out,
                                       sluice_client_error *error) {
    struct error err = {0};
    int fd = -1;
    *out = NULL;
    struct sluice_shm *shm = calloc(1, sizeof(*shm));
    if (!shm) {
        error_no_memory(&err, "an object");
        return client_start_error(&err, error);
    }
    enum status status = open_new(shm, key, &fd, &err);
    if (status == ST_OK && (n_bytes == 0 || n_bytes > SIZE_MAX / 2)) {
        status = error_set(&err, ST_BAD_FIELD, "a shared memory object has 1 byte or more");
    } else if (status == ST_OK) {
        status = map(shm, fd, n_bytes, &err);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (status == ST_OK) {
        *out = shm;
        return SLUICE_CLIENT_OK;
    }
    if (fd >= 0) {
        shm_unlink(shm->key);
    }
    free(shm);
    return client_start_error(&err, error);
}

void *sluice_shm_data(const sluice_shm *shm) {
    return shm->data;
}

const char *sluice_shm_key(const sluice_shm *shm) {
    return shm->key;
}

void sluice_shm_free(sluice_shm *shm) {
    if (shm) {
        munmap(shm->data, shm->n_bytes);
        shm_unlink(shm->key);
        free(shm);
    }
}
