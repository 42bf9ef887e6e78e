/* Sends datagrams to the service manager. */
#include "core/os/service_manager.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/num.h"
#include "core/event/clock.h"

enum { NS_PER_US = 1000, TEXT_BYTES = SERVICE_MANAGER_TEXT_BYTES };
/* Shutdown takes longer than the drain: threads are joined, models are unloaded. */
static const uint64_t SHUTDOWN_US = 10000000;

/* ---- the environment ------------------------------------------------------------------------- */

static enum status read_address(struct service_manager *self, const char *text, struct error *err) {
    size_t n = strlen(text);
    if ((text[0] != '/' && text[0] != '@') || n < 2) {
        return error_set(err, ST_BAD_CONFIG,
                         "NOTIFY_SOCKET: expected /PATH or @NAME, not \"%.100s\"", text);
    }
    if (n >= sizeof(self->address.sun_path)) {
        return error_set(err, ST_BAD_CONFIG, "NOTIFY_SOCKET: expected at most %zu bytes, not %zu",
                         sizeof(self->address.sun_path) - 1, n);
    }
    bool abstract = text[0] == '@';
    self->address.sun_family = AF_UNIX;
    memcpy(self->address.sun_path, text, n);
    if (abstract) {
        self->address.sun_path[0] = '\0';
    }
    /* The length of an abstract address excludes the NUL, which would be part of its name. */
    self->len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (abstract ? 0 : sizeof(char)));
    return ST_OK;
}

static enum status read_watchdog(struct service_manager *self, const char *us_text,
                                 const char *pid_text, struct error *err) {
    uint64_t us = 0, pid = 0;
    if (!us_text) {
        return ST_OK;
    }
    if (!num_parse_u64(str_of(us_text), &us) || us == 0 || us > UINT64_MAX / NS_PER_US) {
        return error_set(err, ST_BAD_CONFIG, "WATCHDOG_USEC: expected microseconds, not \"%.100s\"",
                         us_text);
    }
    if (pid_text && !num_parse_u64(str_of(pid_text), &pid)) {
        return error_set(err, ST_BAD_CONFIG, "WATCHDOG_PID: expected a process, not \"%.100s\"",
                         pid_text);
    }
    self->watchdog_ns = !pid_text || pid == (uint64_t)getpid() ? us * NS_PER_US : 0;
    return ST_OK;
}

static enum status open_socket(struct service_manager *self, struct error *err) {
    const struct timeval patience = {.tv_sec = 1};
    self->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (self->fd < 0) {
        return error_set(err, ST_IO, "no socket for NOTIFY_SOCKET: %s", strerror(errno));
    }
    (void)setsockopt(self->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return ST_OK;
}

enum status service_manager_open(struct service_manager *self, const char *socket_text,
                                 const char *watchdog_us, const char *watchdog_pid,
                                 struct error *err) {
    *self = (struct service_manager){.fd = -1};
    if (!socket_text || !socket_text[0]) {
        return ST_OK;
    }
    if (read_address(self, socket_text, err) != ST_OK ||
        read_watchdog(self, watchdog_us, watchdog_pid, err) != ST_OK ||
        open_socket(self, err) != ST_OK) {
        *self = (struct service_manager){.fd = -1};
        return err->status;
    }
    return ST_OK;
}

void service_manager_open_from_env(struct service_manager *self) {
    struct error err;
    if (service_manager_open(self, getenv("NOTIFY_SOCKET"), getenv("WATCHDOG_USEC"),
                             getenv("WATCHDOG_PID"), &err) != ST_OK) {
        log_event(LOG_WARNING, "service manager notifications disabled",
                  LOG_CSTR("reason", err.text));
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void service_manager_close(struct service_manager *self) {
    if (self->len > 0) {
        close(self->fd);
        self->len = 0;
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* `flags`: MSG_DONTWAIT, or 0. */
static bool send_text(struct service_manager *self, const char *text, int flags) {
    if (self->len == 0) {
        return false;
    }
    ssize_t sent = -1;
    do {
        sent = sendto(self->fd, text, strlen(text), MSG_NOSIGNAL | flags,
                      (const struct sockaddr *)&self->address, self->len);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && !self->send_failed) {
        log_event(LOG_WARNING, "notifying the service manager failed",
                  LOG_CSTR("reason", strerror(errno)));
    }
    self->send_failed = sent < 0;
    return sent >= 0;
}

bool service_manager_notify(struct service_manager *self, const char *text) {
    return send_text(self, text, MSG_DONTWAIT);
}

void service_manager_retry(struct service_manager *self) {
    if (self->unsent[0] && send_text(self, self->unsent, MSG_DONTWAIT)) {
        log_event(LOG_INFO, "the service manager was notified late",
                  LOG_CSTR("message", self->unsent));
        self->unsent[0] = '\0';
    }
}

/* It replaces a state that was not taken. */
static void send_state(struct service_manager *self, const char *text) {
    self->unsent[0] = '\0';
    if (self->len > 0 && !send_text(self, text, 0)) {
        snprintf(self->unsent, sizeof(self->unsent), "%s", text);
    }
}

void service_manager_ready(struct service_manager *self, const char *status) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
    send_state(self, text);
}

void service_manager_reloading(struct service_manager *self) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reading its files again",
             (unsigned long long)(clock_now_ns() / NS_PER_US));
    send_state(self, text);
}

void service_manager_stopping(struct service_manager *self, uint64_t max_ns) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\nSTATUS=ending",
             (unsigned long long)(max_ns / NS_PER_US + SHUTDOWN_US));
    send_state(self, text);
}
