/* Dials to a listening port, a closed port, a full backlog, and a cancelled one. */
#include "core/base/compiler.h"
#include "net/client/dial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "net/server/server_fixture.h"

enum { SECOND = 1000000000, MS = 1000000 };

struct rig {
    struct worker *worker;
    struct worker_msg msg;
    struct str address;
    uint64_t timeout_ns;
    struct dial *dial;
    bool cancels;
    int n_done;
    struct dial_result dialed;
};

static void on_done(void *user, const struct dial_result *dialed) {
    struct rig *rig = user;
    rig->n_done++;
    rig->dialed = *dialed;
    worker_stop(rig->worker);
}

static void begin(struct worker_msg *msg) {
    struct rig *rig = CONTAINER_OF(msg, struct rig, msg);
    struct error err;
    assert_int_equal(
        dial_start(rig->worker, rig->address, rig->timeout_ns, on_done, rig, &rig->dial, &err),
        ST_OK);
    assert_int_equal(rig->n_done, 0);
    if (rig->cancels) {
        dial_cancel(rig->dial);
        worker_stop(rig->worker);
    }
}

/* Freeing the worker checks that no handle is left open. */
static void run(struct rig *rig, const struct address *address, uint64_t timeout_ns, bool cancels) {
    char text[ADDRESS_TEXT_BYTES];
    struct error err;
    *rig = (struct rig){.msg.run = begin, .timeout_ns = timeout_ns, .cancels = cancels};
    rig->address = str_of(address_print(address, text));
    assert_int_equal(worker_new("dial", &rig->worker, &err), ST_OK);
    worker_post(rig->worker, &rig->msg);
    worker_run(rig->worker);
    worker_free(rig->worker);
    assert_int_equal(rig->n_done, cancels ? 0 : 1);
}

static int listen_at(const char *where, int backlog, struct address *out) {
    struct error err;
    assert_int_equal(address_parse(str_of(where), out, &err), ST_OK);
    int fd = socket(out->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&out->storage, out->len), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&out->storage, &out->len), 0);
    return fd;
}

static void dial_listening_port_connects(void **state) {
    (void)state;
    static const char *const wheres[] = {"127.0.0.1:0", "[::1]:0"};
    for (size_t i = 0; i < sizeof(wheres) / sizeof(wheres[0]); i++) {
        struct address address;
        struct rig rig;
        int fd = listen_at(wheres[i], 8, &address);
        run(&rig, &address, UINT64_C(60) * SECOND, false);
        assert_int_equal(rig.dialed.error.status, ST_OK);
        int taken = accept(fd, NULL, NULL); /* the connection is closed without a byte */
        assert_true(test_is_closed(taken));
        close(taken);
        close(fd);
    }
}

static void dial_closed_port_is_refused(void **state) {
    (void)state;
    struct address address;
    struct rig rig;
    close(listen_at("127.0.0.1:0", 8, &address));
    run(&rig, &address, UINT64_C(60) * SECOND, false);
    assert_int_equal(rig.dialed.error.status, ST_IO);
    assert_true(rig.dialed.refused);
    assert_string_equal(rig.dialed.error.text, "refused the connection");
}

/* With a full backlog a connection is neither accepted nor refused. */
static void dial_full_backlog_times_out(void **state) {
    (void)state;
    struct address address;
    struct rig rig;
    int fd = listen_at("127.0.0.1:0", 0, &address), first = test_connect_to(&address);
    run(&rig, &address, 50 * (uint64_t)MS, false);
    assert_int_equal(rig.dialed.error.status, ST_DEADLINE_EXCEEDED);
    assert_false(rig.dialed.refused);
    assert_string_equal(rig.dialed.error.text, "timed out");
    close(first);
    close(fd);
}

static void dial_cancel_prevents_callback(void **state) {
    (void)state;
    struct address address;
    struct rig rig;
    int fd = listen_at("127.0.0.1:0", 8, &address);
    run(&rig, &address, UINT64_C(60) * SECOND, true);
    close(fd);
}

static void dial_address_without_port_is_bad_config(void **state) {
    (void)state;
    struct worker *worker;
    struct dial *dial = NULL;
    struct error err;
    assert_int_equal(worker_new("dial", &worker, &err), ST_OK);
    assert_int_equal(dial_start(worker, STR("10.0.0.1"), SECOND, on_done, NULL, &dial, &err),
                     ST_BAD_CONFIG);
    worker_free(worker);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dial_listening_port_connects),
        cmocka_unit_test(dial_closed_port_is_refused),
        cmocka_unit_test(dial_full_backlog_times_out),
        cmocka_unit_test(dial_cancel_prevents_callback),
        cmocka_unit_test(dial_address_without_port_is_bad_config),
    };
    return cmocka_run_group_tests_name("net/client/dial", tests, NULL, NULL);
}
