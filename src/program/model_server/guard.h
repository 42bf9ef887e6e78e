/* What stands before the listeners: TLS and keys, and the timer that looks whether their files have
 * changed. All of it is off where no setting asks for it. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_GUARD_H
#define SLUICE_PROGRAM_MODEL_SERVER_GUARD_H

#include "core/event/worker.h"
#include "net/transport/tls/server.h"
#include "program/model_server/settings.h"
#include "program/process/serve_place.h"
#include "serve/frontend/keys.h"

struct serve_guard {
    struct tls_server *http_tls, *grpc_tls; /* NULL: no certificate */
    struct keys *keys;                      /* NULL: no keys */
    uv_timer_t timer;
    bool timing;
    void (*closed)(void *cookie);
    void *cookie;
};

/* What --http and --grpc are read by. */
struct serve_scheme serve_http_scheme(const struct serve_settings *settings);
struct serve_scheme serve_grpc_scheme(const struct serve_settings *settings);
/* Do the settings of TLS and keys fit together? Returns: ST_BAD_CONFIG. */
enum status serve_guard_check(const struct serve_settings *settings, struct error *err)
    __attribute__((warn_unused_result));
/* Does any listener speak TLS? */
bool serve_guard_has_tls(const struct serve_settings *settings);
/* Reads all files, into zeroed memory. Returns: why one can't be used, with its setting. Owns:
 * serve_guard_free, also after a failure. */
enum status serve_guard_open(struct serve_guard *self, const struct serve_settings *settings,
                             struct error *err) __attribute__((warn_unused_result));
/* From now on the files are looked at again, on the main loop. */
void serve_guard_watch(struct serve_guard *self, const struct serve_settings *settings,
                       struct worker *main);
/* Looks at the files now. */
void serve_guard_look(struct serve_guard *self);
/* Closes the timer; `closed` follows, at once where there is none. */
void serve_guard_stop(struct serve_guard *self, void (*closed)(void *cookie), void *cookie);
/* After the servers are freed. */
void serve_guard_free(struct serve_guard *self);

#endif
