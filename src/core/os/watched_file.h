/* A small file that may be replaced while the process runs: a certificate, a list of keys. Each
 * read reads all of it and compares the content: a symbolic link that was changed (as Kubernetes
 * swaps a secret) and a copy with the old times count as changes, a file that was only touched does
 * not. The bytes may be secret and are kept only until watched_file_clear.
 *
 * Thread: one at a time. Reading a file blocks: these are local and small. */
#ifndef SLUICE_CORE_OS_WATCHED_FILE_H
#define SLUICE_CORE_OS_WATCHED_FILE_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/os/secret.h"

enum { WATCHED_FILE_MAX_BYTES = 4 << 20 };

/* Zeroed but for a path, which must stay valid, it was never read. */
struct watched_file {
    const char *path;
    char *data; /* from a read to watched_file_clear */
    size_t len;
    int error; /* of the last read: 0, or an errno */
    bool read; /* it was read at least once */
    struct secret_digest digest;
    /* watched_file_read_settled: what the last look found, when it was not taken */
    unsigned n_unsettled; /* looks in a row that found something else each; 0: it was taken */
    int unsettled_error;
    struct secret_digest unsettled_digest;
};

static inline struct str watched_file_text(const struct watched_file *file) {
    return str_make(file->data, file->len);
}

/* Reads all of it. Sets `*changed`, and leaves it alone otherwise, when the content differs from
 * the last read, or reading fails for another reason than then; the first read is a change.
 * Returns: ST_IO with the reason, without the path. Owns: until watched_file_clear, also after an
 * error. */
enum status watched_file_read(struct watched_file *file, bool *changed,
                              struct error *err) SLUICE_MUST_USE;
/* The same, but what differs from the last taken read is a change only when two looks in a row find
 * the same: a file that is being written may be cut anywhere and valid all the same. A file that
 * changes at each look is taken after WATCHED_FILE_MAX_UNSETTLED looks. Returns: also ST_OK for a
 * failure that is not taken yet. */
enum { WATCHED_FILE_MAX_UNSETTLED = 5 };
enum status watched_file_read_settled(struct watched_file *file, bool *changed,
                                      struct error *err) SLUICE_MUST_USE;
/* Overwrites and frees the bytes that were read. */
void watched_file_clear(struct watched_file *file);

#endif
