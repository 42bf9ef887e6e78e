/* The messages to a service manager, at addresses of both kinds, and invalid addresses. */
#include "core/os/service_manager.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"

/* A manager that listens: at "@sluice-test-PID", or at a path. */
struct listener {
    int fd;
    char text[64];
};

static struct listener listen_at(const char *text) {
    struct listener listener = {.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(text);
    memcpy(address.sun_path, text, n);
    if (text[0] == '@') {
        address.sun_path[0] = '\0';
    }
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (text[0] != '@'));
    snprintf(listener.text, sizeof(listener.text), "%s", text);
    assert_true(listener.fd >= 0);
    assert_int_equal(bind(listener.fd, (const struct sockaddr *)&address, len), 0);
    return listener;
}

static struct listener listen_abstractly(void) {
    char text[64];
    snprintf(text, sizeof(text), "@sluice-test-%d", (int)getpid());
    return listen_at(text);
}

static const char *heard(const struct listener *listener, char out[256]) {
    ssize_t n = recv(listener->fd, out, 255, 0);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

static void service_manager_path_and_abstract_socket(void **state) {
    (void)state;
    char folder[] = "/tmp/sluice-manager-XXXXXX", path[64], text[256];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/notify", folder);
    struct listener listeners[] = {listen_abstractly(), listen_at(path)};
    for (size_t i = 0; i < 2; i++) {
        struct service_manager manager;
        struct error err;
        assert_int_equal(service_manager_open(&manager, listeners[i].text, NULL, NULL, &err),
                         ST_OK);
        assert_int_equal(manager.watchdog_ns, 0);
        service_manager_ready(&manager, "ready");
        assert_string_equal(heard(&listeners[i], text), "READY=1\nSTATUS=ready");
        service_manager_reloading(&manager);
        assert_memory_equal(heard(&listeners[i], text), "RELOADING=1\nMONOTONIC_USEC=", 27);
        service_manager_stopping(&manager, 2000000000);
        assert_string_equal(heard(&listeners[i], text),
                            "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000\nSTATUS=ending");
        service_manager_close(&manager);
        service_manager_close(&manager);
        assert_false(service_manager_notify(&manager, "READY=1"));
        close(listeners[i].fd);
    }
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void service_manager_unset_sends_nothing(void **state) {
    (void)state;
    static const char *const none[] = {NULL, ""};
    for (size_t i = 0; i < 2; i++) {
        struct service_manager manager;
        struct error err;
        assert_int_equal(service_manager_open(&manager, none[i], "30000000", NULL, &err), ST_OK);
        assert_int_equal(manager.watchdog_ns, 0);
        assert_false(service_manager_notify(&manager, "READY=1"));
        service_manager_close(&manager);
    }
}

static void service_manager_watchdog_pid_must_match(void **state) {
    (void)state;
    struct listener listener = listen_abstractly();
    struct service_manager manager;
    struct error err;
    char own[32], other[32];
    snprintf(own, sizeof(own), "%d", (int)getpid());
    snprintf(other, sizeof(other), "%d", (int)getppid());
    const char *const pids[] = {NULL, own, other};
    const uint64_t expected[] = {5000000, 5000000, 0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(service_manager_open(&manager, listener.text, "5000", pids[i], &err),
                         ST_OK);
        assert_int_equal(manager.watchdog_ns, expected[i]);
        service_manager_close(&manager);
    }
    close(listener.fd);
}

static void service_manager_invalid_variables_refused(void **state) {
    (void)state;
    static const struct {
        const char *socket, *us, *pid, *why;
    } rows[] = {
        {"notify", NULL, NULL, "NOTIFY_SOCKET: expected /PATH or @NAME, not \"notify\""},
        {"vsock:2:1", NULL, NULL, "NOTIFY_SOCKET: expected /PATH or @NAME"},
        {"@", NULL, NULL, "NOTIFY_SOCKET: expected /PATH or @NAME"},
        {"/n", "soon", NULL, "WATCHDOG_USEC: expected microseconds, not \"soon\""},
        {"/n", "0", NULL, "WATCHDOG_USEC: expected microseconds"},
        {"/n", "18446744073709551615", NULL, "WATCHDOG_USEC: expected microseconds"},
        {"/n", "1000", "me", "WATCHDOG_PID: expected a process, not \"me\""},
    };
    struct service_manager manager;
    struct error err;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            service_manager_open(&manager, rows[i].socket, rows[i].us, rows[i].pid, &err),
            ST_BAD_CONFIG);
        assert_non_null(strstr(err.text, rows[i].why));
        assert_false(service_manager_notify(&manager, "READY=1"));
    }
    char longer[200] = {0};
    memset(longer, '/', 108);
    assert_int_equal(service_manager_open(&manager, longer, NULL, NULL, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "at most 107 bytes, not 108"));
}

static void service_manager_unsets_environment(void **state) {
    (void)state;
    struct listener listener = listen_abstractly();
    struct service_manager manager;
    char text[256];
    setenv("NOTIFY_SOCKET", listener.text, 1);
    setenv("WATCHDOG_USEC", "1000", 1);
    unsetenv("WATCHDOG_PID");
    service_manager_open_from_env(&manager);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_int_equal(manager.watchdog_ns, 1000000);
    assert_true(service_manager_notify(&manager, "WATCHDOG=1"));
    assert_string_equal(heard(&listener, text), "WATCHDOG=1");
    service_manager_close(&manager);
    close(listener.fd);
}

/* Opens `manager`, which notifies the listener. */
static struct listener listen_for(struct service_manager *manager) {
    struct listener listener = listen_abstractly();
    struct error err;
    log_configure(LOG_ERROR, LOG_TEXT);
    assert_int_equal(service_manager_open(manager, listener.text, NULL, NULL, &err), ST_OK);
    return listener;
}

/* A manager that was restarted receives messages again. */
static void service_manager_lost_socket_recovers(void **state) {
    (void)state;
    struct service_manager manager;
    struct listener listener = listen_for(&manager);
    char text[256];
    close(listener.fd);
    assert_false(service_manager_notify(&manager, "WATCHDOG=1"));
    assert_true(manager.send_failed);
    listener = listen_abstractly();
    assert_true(service_manager_notify(&manager, "WATCHDOG=1"));
    assert_false(manager.send_failed);
    assert_string_equal(heard(&listener, text), "WATCHDOG=1");
    service_manager_close(&manager);
    close(listener.fd);
}

static void fill(const struct listener *listener, const struct service_manager *manager) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0 && listener->fd >= 0);
    while (sendto(fd, "X=1", 3, MSG_NOSIGNAL, (const struct sockaddr *)&manager->address,
                  manager->len) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    close(fd);
}

static void empty(const struct listener *listener) {
    char text[256];
    while (heard(listener, text)[0] != '\0') {
        assert_string_equal(text, "X=1");
    }
}

/* A manager that is busy takes no message for longer than the server waits. */
static void service_manager_state_is_sent_again_until_taken(void **state) {
    (void)state;
    struct service_manager manager;
    struct listener listener = listen_for(&manager);
    char text[256];
    fill(&listener, &manager);
    service_manager_ready(&manager, "ready");
    assert_false(service_manager_notify(&manager, "WATCHDOG=1"));
    service_manager_retry(&manager);
    empty(&listener);
    service_manager_retry(&manager);
    assert_string_equal(heard(&listener, text), "READY=1\nSTATUS=ready");
    service_manager_retry(&manager);
    assert_string_equal(heard(&listener, text), "");
    fill(&listener, &manager);
    service_manager_reloading(&manager);
    empty(&listener);
    service_manager_ready(&manager, "ready"); /* the state before is out of date */
    service_manager_retry(&manager);
    assert_string_equal(heard(&listener, text), "READY=1\nSTATUS=ready");
    assert_string_equal(heard(&listener, text), "");
    service_manager_close(&manager);
    close(listener.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(service_manager_path_and_abstract_socket),
        cmocka_unit_test(service_manager_unset_sends_nothing),
        cmocka_unit_test(service_manager_watchdog_pid_must_match),
        cmocka_unit_test(service_manager_invalid_variables_refused),
        cmocka_unit_test(service_manager_unsets_environment),
        cmocka_unit_test(service_manager_lost_socket_recovers),
        cmocka_unit_test(service_manager_state_is_sent_again_until_taken),
    };
    return cmocka_run_group_tests_name("core/os/service_manager", tests, NULL, NULL);
}
