/* What a server tells the service manager that started it (systemd, or whoever else sets
 * NOTIFY_SOCKET): that it is ready, reads its files again, ends, and lives. Each message is lines
 * of NAME=VALUE in one datagram to a Unix socket. Without a manager nothing is sent.
 *
 * Thread: one, main. */
#ifndef SLUICE_CORE_OS_SERVICE_MANAGER_H
#define SLUICE_CORE_OS_SERVICE_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/base/status.h"

struct service_manager {
    struct sockaddr_un address;
    socklen_t len;        /* of the address; 0: there is no manager */
    int fd;               /* while `len` is not 0 */
    uint64_t watchdog_ns; /* a sign of life is expected so often; 0: never */
    bool send_failed;     /* the last message did not arrive; the log has said so */
};

/* The texts are those of the environment variables NOTIFY_SOCKET ("/path", or "@name" of the
 * abstract name space), WATCHDOG_USEC and WATCHDOG_PID (a watchdog of another process is none of
 * ours); NULL: not set. Returns: ST_BAD_CONFIG with the variable and what was expected, ST_IO;
 * there is no manager then. Owns: service_manager_close. */
enum status service_manager_open(struct service_manager *self, const char *socket_text,
                                 const char *watchdog_us, const char *watchdog_pid,
                                 struct error *err) __attribute__((warn_unused_result));
/* The same with the environment's own, which are taken out of it: processes that we start have
 * nothing to say. What can't be used is in the log. Call it before other threads are started. */
void service_manager_open_from_env(struct service_manager *self);
/* Without a manager, too; more than once. */
void service_manager_close(struct service_manager *self);

/* Sends a message, waiting for a second at most. What does not arrive is in the log, once until one
 * does. Returns: was it sent? */
bool service_manager_notify(struct service_manager *self, const char *text);
/* READY=1: it serves, as `status` says in words; also when it has read its files again. */
void service_manager_ready(struct service_manager *self, const char *status);
/* RELOADING=1: it reads its files again, and says when it is ready. */
void service_manager_reloading(struct service_manager *self);
/* STOPPING=1: it ends, within `most_ns` at most. */
void service_manager_stopping(struct service_manager *self, uint64_t most_ns);

#endif
