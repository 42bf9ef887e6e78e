/* TLS and API keys of the listeners, and the timer that reloads their files when they change. Empty
 * where no setting enables them. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_SECURITY_H
#define SLUICE_PROGRAM_MODEL_SERVER_SECURITY_H

#include "core/event/worker.h"
#include "net/transport/tls/server.h"
#include "program/model_server/settings.h"
#include "program/process/listen_address.h"
#include "serve/frontend/keys.h"

struct serve_security {
    struct tls_server *http_tls, *grpc_tls; /* NULL: no certificate */
    struct keys *keys;                      /* NULL: no keys */
    uv_timer_t timer;
    bool timer_running;
    void (*closed)(void *user);
    void *user;
};

/* The schemes of --http and --grpc. */
struct listen_scheme serve_http_scheme(const struct serve_settings *settings);
struct listen_scheme serve_grpc_scheme(const struct serve_settings *settings);
/* Checks that the settings of TLS and keys are a valid combination. Returns: ST_BAD_CONFIG. */
enum status serve_security_check(const struct serve_settings *settings,
                                 struct error *err) SLUICE_MUST_USE;
/* Does any listener use TLS? */
bool serve_security_has_tls(const struct serve_settings *settings);
/* Loads all files, into a zeroed struct. Returns: why a file cannot be used, with its setting.
 * Owns: serve_security_free, also after a failure. */
enum status serve_security_open(struct serve_security *self, const struct serve_settings *settings,
                                struct error *err) SLUICE_MUST_USE;
/* Starts the reload timer on the main loop. */
void serve_security_start_timer(struct serve_security *self, const struct serve_settings *settings,
                                struct worker *main);
/* Checks the files now. */
void serve_security_reload(struct serve_security *self);
/* Closes the timer, then calls `closed`, at once where there is none. */
void serve_security_stop(struct serve_security *self, void (*closed)(void *user), void *user);
/* Call it after the servers are freed. */
void serve_security_free(struct serve_security *self);

#endif
