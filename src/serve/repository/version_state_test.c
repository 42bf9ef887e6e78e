/* The printed state of an idle version, and of one whose instance is busy while requests wait. */
#include "serve/repository/version_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_rig.h"

enum { N_WAITING = MODEL_STATE_WAITING + 3, MS_NS = 1000000 };

static const struct model_config on_instance = {
    .latest_count = 1, .run_on = RUN_ON_INSTANCE, .instance_count = 1};

static struct arena *arena;

static const char *said(struct rig *rig) {
    struct buf out;
    buf_init(&out, arena, 0);
    model_version_dump(rig->version, &out);
    buf_add_char(&out, '\0');
    assert_false(out.failed);
    return out.data;
}

static void version_dump_idle_prints_counts(void **state) {
    struct rig rig;
    (void)state;
    rig_open(&rig, &on_instance, 0);
    assert_string_equal(said(&rig), "model m 3: 0 waiting, 0 running, 1 instance\n");
    rig_close(&rig);
}

static void send_and_look(struct rig *rig) {
    atomic_store(&rig->model->gate_closed, true);
    rig_submit(rig_make(rig, 0, 2, 0));
    rig_await_started(rig, 1);
    struct rig_call *named = rig_make(rig, 1, 1, 0);
    named->request.id = STR("caf\xc3\xa9 one\n");
    rig_submit(named);
    clock_set_fake_ns(clock_now_ns() + 5 * MS_NS);
    assert_string_equal(said(rig), "model m 3: 1 waiting, 1 running, 1 instance\n"
                                   "  instance 0: 1 request, 2 rows, for 5.000 ms\n"
                                   "  waits for 5.000 ms: 1 row, id caf???one?\n");
    for (size_t i = 2; i <= N_WAITING; i++) {
        rig_submit(rig_make(rig, i, 1, 0));
    }
    const char *all = said(rig);
    assert_non_null(strstr(all, "model m 3: 35 waiting, 1 running"));
    assert_non_null(strstr(all, "\n  and 3 more that wait\n"));
    atomic_store(&rig->model->gate_closed, false);
}

static void version_dump_busy_prints_instances_and_queue(void **state) {
    struct rig rig;
    (void)state;
    clock_set_fake_ns(1000 * MS_NS);
    rig_open(&rig, &on_instance, 0);
    rig_run(&rig, send_and_look, N_WAITING + 1);
    clock_set_fake_ns(0);
    rig_close(&rig);
}

static int begin(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(version_dump_idle_prints_counts, begin, end),
        cmocka_unit_test_setup_teardown(version_dump_busy_prints_instances_and_queue, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
