/* Notifies the service manager that started the server (systemd, or another that sets
 * NOTIFY_SOCKET) of its state: ready, reloading, stopping, and the watchdog's keep-alive. Each
 * message is lines of NAME=VALUE in one datagram to a Unix socket. A state that the manager does
 * not take is sent again until it does, or until the next state. Without a manager nothing is sent.
 *
 * Thread: main only. */
#ifndef SLUICE_CORE_OS_SERVICE_MANAGER_H
#define SLUICE_CORE_OS_SERVICE_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/status.h"

enum { SERVICE_MANAGER_TEXT_BYTES = 256 };

struct service_manager {
    struct sockaddr_un address;
    socklen_t len;        /* of the address; 0: there is no manager */
    int fd;               /* while `len` is not 0 */
    uint64_t watchdog_ns; /* the interval in which a keep-alive is expected; 0: none is */
    bool send_failed;     /* the last message was not delivered, and that was logged */
    char unsent[SERVICE_MANAGER_TEXT_BYTES]; /* the state that is sent again; "": none */
};

/* The texts are those of the environment variables NOTIFY_SOCKET ("/path", or "@name" of the
 * abstract name space), WATCHDOG_USEC and WATCHDOG_PID (another process's watchdog is ignored);
 * NULL: not set. Returns: ST_BAD_CONFIG with the variable and what was expected, ST_IO; there is no
 * manager then. Owns: until service_manager_close. */
enum status service_manager_open(struct service_manager *self, const char *socket_text,
                                 const char *watchdog_us, const char *watchdog_pid,
                                 struct error *err) SLUICE_MUST_USE;
/* The same with this process's environment variables, which are then removed, so that child
 * processes do not notify. Errors are logged. Call it before other threads are started. */
void service_manager_open_from_env(struct service_manager *self);
/* Idempotent; also without a manager. */
void service_manager_close(struct service_manager *self);

/* Sends a message that is repeated anyway, such as WATCHDOG=1, without waiting. The first failure
 * is logged, and again after a success. Returns: whether it was sent. */
bool service_manager_notify(struct service_manager *self, const char *text);
/* Sends the last state again, without waiting, if it was not taken. Called every second. */
void service_manager_retry(struct service_manager *self);
/* The states: these functions wait for at most a second. */
/* READY=1 with `status` in words; also after a reload. */
void service_manager_ready(struct service_manager *self, const char *status);
/* RELOADING=1; service_manager_ready follows. */
void service_manager_reloading(struct service_manager *self);
/* STOPPING=1; the shutdown takes at most `max_ns`. */
void service_manager_stopping(struct service_manager *self, uint64_t max_ns);

#endif
