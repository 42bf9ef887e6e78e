/* A token, a certificate or a key: given as it is, or in a file, which may be another at any time.
 *
 * Thread: one at a time. Reading the file blocks: it is local, and small. */
#ifndef SLUICE_CORE_OS_CREDENTIAL_H
#define SLUICE_CORE_OS_CREDENTIAL_H

#include "core/base/status.h"
#include "core/os/watched_file.h"

/* Zeroed memory is none. */
struct credential {
    char *path; /* its own; NULL: there is no file */
    char *text; /* its own, a NUL behind it; NULL: nothing is known */
    size_t len;
    struct watched_file file;
};

/* Takes bytes in place of those that there are. Returns: ST_NO_MEMORY. */
enum status credential_set(struct credential *credential, struct str text, struct error *err)
    __attribute__((warn_unused_result));
/* From now on it is in that file (`path`, len 0: in none); of another one nothing stays. Returns:
 * false when out of memory: there is none then. */
bool credential_set_file(struct credential *credential, struct str path);
/* Reads the file again, if there is one. One that can't be read leaves what is known, and is logged
 * when that begins. `word`: blanks around it are no part of it. Returns: ST_IO where nothing is
 * known, ST_NO_MEMORY. */
enum status credential_refresh(struct credential *credential, bool trim, struct error *err)
    __attribute__((warn_unused_result));
static inline struct str credential_text(const struct credential *credential) {
    return str_make(credential->text, credential->len);
}
/* Overwrites what it held. */
void credential_fini(struct credential *credential);

#endif
