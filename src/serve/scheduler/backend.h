/* The backends that are installed: shared libraries `libsluice_NAME.so` in one directory, loaded
 * when a model first needs them and kept until the process ends. The host's side of the interface
 * is here too. It refuses to load from anywhere else, and a library that speaks another version. */
#ifndef SLUICE_SERVE_SCHEDULER_BACKEND_H
#define SLUICE_SERVE_SCHEDULER_BACKEND_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "sluice/backend.h"

struct backends;

/* `directory` may be NULL: none is installed. `builtin` are tables that are linked into the
 * program, `n_builtin` of them; one of the same name in the directory is not looked at. Returns:
 * NULL when memory is out. */
struct backends *backends_new(const char *directory, const sluice_backend *const *builtin,
                              size_t n_builtin);
/* The libraries stay in the process: their code may be on a stack until it ends. */
void backends_free(struct backends *backends);

/* Loads the backend, once. Returns: ST_BAD_MODEL with the list of those that are installed, or with
 * why the library could not be loaded. Thread: one at a time. */
enum status backends_get(struct backends *backends, struct str name, const sluice_backend **out,
                         struct error *err) __attribute__((warn_unused_result));
/* The first backend, by name, one of whose extensions `accepts` says yes to; loads backends until
 * it has one. Returns: NULL when none. Thread: one at a time. */
const sluice_backend *backends_find(struct backends *backends,
                                    bool (*accepts)(void *user, const char *extension), void *user);
/* "identity, onnxruntime", or "none", for messages; valid until `backends` is freed. */
const char *backends_list(const struct backends *backends);

/* What a backend is given by sluice_backend_entry. */
const sluice_host *backend_host(void);
/* Fills `err` with what the backend said. Returns: the status that its status is to us. */
enum status backend_error(struct error *err, const sluice_backend *backend, sluice_status status,
                          const char *text);
/* Is the table complete and of our version? `name` is what the file is called. */
enum status backend_check(const sluice_backend *backend, struct str name, struct error *err)
    __attribute__((warn_unused_result));

#endif
