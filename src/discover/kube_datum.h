/* A token, a certificate or a key: given as it is, or in a file, which may be another at any time.
 *
 * Thread: one at a time. Reading the file blocks: it is local, and small. */
#ifndef SLUICE_DISCOVER_KUBE_DATUM_H
#define SLUICE_DISCOVER_KUBE_DATUM_H

#include "base/status.h"
#include "net/watched_file.h"

/* Zeroed memory is none. */
struct kube_datum {
    char *path; /* its own; NULL: there is no file */
    char *text; /* its own, a NUL behind it; NULL: nothing is known */
    size_t len;
    struct watched_file file;
};

/* Takes bytes in place of those that there are. Returns: ST_NO_MEMORY. */
enum status kube_datum_set(struct kube_datum *datum, struct str text, struct error *err)
    __attribute__((warn_unused_result));
/* Reads the file again, if there is one. One that can't be read leaves what is known, and is logged
 * when that begins. `word`: blanks around it are no part of it. Returns: ST_IO where nothing is
 * known, ST_NO_MEMORY. */
enum status kube_datum_look(struct kube_datum *datum, bool word, struct error *err)
    __attribute__((warn_unused_result));
static inline struct str kube_datum_text(const struct kube_datum *datum) {
    return str_make(datum->text, datum->len);
}
/* Overwrites what it held. */
void kube_datum_fini(struct kube_datum *datum);

#endif
