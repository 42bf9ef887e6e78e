/* A token, a certificate or a key, given as text or in a file that may be replaced at any time.
 *
 * Thread: one at a time. Reading the file blocks: it is local and small. */
#ifndef SLUICE_CORE_OS_CREDENTIAL_H
#define SLUICE_CORE_OS_CREDENTIAL_H

#include "core/base/status.h"
#include "core/os/watched_file.h"

/* Zeroed memory is an empty credential. */
struct credential {
    char *path; /* owned; NULL: it is in no file */
    char *text; /* owned, followed by a NUL; NULL: not set, or not read yet */
    size_t len;
    struct watched_file file;
};

/* Replaces the text. Returns: ST_NO_MEMORY. */
enum status credential_set(struct credential *credential, struct str text,
                           struct error *err) SLUICE_MUST_USE;
/* Uses the file at `path` from now on (len 0: none); the text of another file is dropped. Returns:
 * false when out of memory; it has no file then. */
bool credential_set_file(struct credential *credential, struct str path);
/* Reads the file again, if there is one. On an error the last text stays, and the first failure is
 * logged. `trim`: removes blanks around the text. Returns: ST_IO when there is no text at all,
 * ST_NO_MEMORY. */
enum status credential_refresh(struct credential *credential, bool trim,
                               struct error *err) SLUICE_MUST_USE;
static inline struct str credential_text(const struct credential *credential) {
    return str_make(credential->text, credential->len);
}
/* Overwrites and frees the text. */
void credential_fini(struct credential *credential);

#endif
