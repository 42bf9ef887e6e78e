/* A small file that is replaced while the process runs: a certificate, a list of keys. It is read
 * whole, again and again, and what counts is what is in it: a link that now leads elsewhere (as
 * Kubernetes swaps a secret) and a copy that kept its times are noticed, a file that was only
 * touched is not. It refuses to know what the bytes mean, and keeps none of them: they may be
 * secret.
 *
 * Thread: one at a time. Reading a file blocks: these are local, and small. */
#ifndef SLUICE_CORE_OS_WATCHED_FILE_H
#define SLUICE_CORE_OS_WATCHED_FILE_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/os/secret.h"

enum { WATCHED_FILE_MAX_BYTES = 4 << 20 };

/* Zeroed, with a path that lives as long; it was then never read. */
struct watched_file {
    const char *path;
    char *data; /* between a read and the drop after it */
    size_t len;
    int error; /* of the last read: 0, or an errno */
    bool read; /* it ever was */
    struct secret_digest digest;
};

static inline struct str watched_file_text(const struct watched_file *file) {
    return str_make(file->data, file->len);
}

/* Reads all of it. `*changed` is set, and else left alone, when the file holds something else than
 * the last time, or can't be read for another reason than then; the first read is a change.
 * Returns: ST_IO with the reason, without the path. Owns: watched_file_clear, also after an
 * error. */
enum status watched_file_read(struct watched_file *file, bool *changed, struct error *err)
    __attribute__((warn_unused_result));
/* Overwrites and frees what was read. */
void watched_file_clear(struct watched_file *file);

#endif
