/* Installed backends: shared libraries `libsluice_NAME.so` in one directory, loaded when a model
 * first needs one and kept until the process exits. A library with another ABI version is refused.
 * A directory NAME with a file model.py is a backend in Python: models of it are run by the backend
 * `python`, with that file as their program. Also the host's side of the backend interface. */
#ifndef SLUICE_SERVE_SCHEDULER_BACKEND_H
#define SLUICE_SERVE_SCHEDULER_BACKEND_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/param.h"
#include "sluice/backend.h"

struct backends;

/* `directory` may be NULL: none is installed. `builtin`: `n_builtin` tables that are linked into
 * the program; a file of the same name is ignored. Returns: NULL when out of memory. */
struct backends *backends_new(const char *directory, const sluice_backend *const *builtin,
                              size_t n_builtin);
/* The libraries stay loaded, because a thread may still run their code. */
void backends_free(struct backends *backends);

/* Loads the backend on the first call; of a backend in Python it is `python`. Returns: ST_BAD_MODEL
 * with the list of installed backends, or with the reason why the library could not be loaded;
 * ST_NOT_READY, ST_NO_MEMORY with what the process lacked for that: the next call tries again.
 * Thread: one at a time. */
enum status backends_get(struct backends *backends, struct str name, const sluice_backend **out,
                         struct error *err) SLUICE_MUST_USE;
/* Returns: the program of a backend in Python; ptr NULL: it is none. Valid until `backends` is
 * freed. */
struct str backends_program(const struct backends *backends, struct str name);
/* Loads backends by name until `accepts` returns true for one of a backend's file extensions.
 * Returns: that backend; NULL: none. Thread: one at a time. */
const sluice_backend *backends_find(struct backends *backends,
                                    bool (*accepts)(void *user, const char *extension), void *user);
/* Returns: whether a backend was tried and not loaded; *out is why: of the first for which the
 * process lacked something (ST_NOT_READY, ST_NO_MEMORY), else of the first. For the error when
 * backends_find finds none: that backend may be the one that is needed. Thread: as
 * backends_find. */
bool backends_failure(const struct backends *backends, struct error *out);
/* "identity, onnxruntime", or "none", for messages; valid until `backends` is freed. */
const char *backends_list(const struct backends *backends);

/* The host functions passed to sluice_backend_entry. */
const sluice_host *backend_host(void);
/* Fills `err` with the backend's message. Returns: the status that corresponds to the backend's. */
enum status backend_error(struct error *err, const sluice_backend *backend, sluice_status status,
                          const char *text);
/* A NUL-terminated copy, as the backend interface promises; an empty text needs no memory. */
static inline struct str backend_text(struct arena *arena, struct str text) {
    return text.len > 0 ? arena_dup(arena, text) : STR("");
}
/* Parameters to a backend, and from one, which are valid; copies, whose texts end in NUL. Return:
 * false when out of memory. */
bool backend_param_fill(struct arena *arena, const struct param *param, sluice_param *out);
bool backend_param_copy(struct arena *arena, const sluice_param *param, struct param *out);
/* Checks that the table is complete and has our ABI version. `name` is from the file's name. */
enum status backend_check(const sluice_backend *backend, struct str name,
                          struct error *err) SLUICE_MUST_USE;

#endif
