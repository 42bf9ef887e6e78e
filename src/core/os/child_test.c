/* Programs that are run: what they print, how they end, and what is left of them. */
#include "core/os/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t SECOND = 1000000000;

static struct {
    struct worker *worker;
    struct child_ask ask;
    struct worker_msg msg;
    struct child *child;
    struct error not_started;
    struct error error;
    char output[1000], complaint[1000];
    size_t n_output;
    bool cancels;
    int n_done;
} run;

static void on_done(void *user, const struct child_result *result) {
    assert_ptr_equal(user, &run);
    run.error = result->error;
    run.n_output = result->output.len;
    snprintf(run.output, sizeof(run.output), "%.*s", STR_ARG(result->output));
    snprintf(run.complaint, sizeof(run.complaint), "%.*s", STR_ARG(result->complaint));
    run.n_done++;
    worker_stop(run.worker);
}

static void on_start(struct worker_msg *msg) {
    (void)msg;
    if (child_start(run.worker, &run.ask, &run.child, &run.not_started) != ST_OK) {
        worker_stop(run.worker);
        return;
    }
    assert_int_equal(run.n_done, 0);
    if (run.cancels) {
        child_cancel(run.child);
        child_cancel(run.child);
    }
}

/* Runs it to its end, on this thread. */
static enum status run_program(const char *const *argv) {
    static const char *const env[] = {"SLUICE_CHILD=given", "HOME=/nowhere", NULL};
    struct error err;
    run.ask.argv = argv;
    run.ask.env = env;
    run.ask.most_bytes = run.ask.most_bytes > 0 ? run.ask.most_bytes : 900;
    run.ask.timeout_ns = run.ask.timeout_ns > 0 ? run.ask.timeout_ns : 60 * SECOND;
    run.ask.done = on_done;
    run.ask.user = &run;
    run.msg.run = on_start;
    assert_int_equal(worker_new("child", &run.worker, &err), ST_OK);
    worker_post(run.worker, &run.msg);
    worker_run(run.worker);
    worker_free(run.worker);
    return run.n_done > 0 ? run.error.status : run.not_started.status;
}

static enum status run_shell(const char *script) {
    const char *const argv[] = {"sh", "-c", script, "name", "an argument", NULL};
    return run_program(argv);
}

static int clear(void **state) {
    (void)state;
    memset(&run, 0, sizeof(run));
    return 0;
}

static void what_is_printed(void **state) {
    (void)state;
    setenv("SLUICE_CHILD", "inherited", 1);
    setenv("SLUICE_OTHER", "kept", 1);
    assert_int_equal(run_shell("echo $SLUICE_CHILD $SLUICE_OTHER $HOME \"$1\"; cat; "
                               "echo one >&2; echo two >&2; echo >&2"),
                     ST_OK);
    assert_string_equal(run.output, "given kept /nowhere an argument\n");
    assert_string_equal(run.complaint, "two");
}

static void how_it_ends(void **state) {
    (void)state;
    assert_int_equal(run_shell("echo out; echo why >&2; exit 3"), ST_IO);
    assert_string_equal(run.error.text, "ended with code 3");
    assert_string_equal(run.output, "out\n");
    assert_string_equal(run.complaint, "why");
    clear(NULL);
    assert_int_equal(run_shell("kill -9 $$"), ST_IO);
    assert_string_equal(run.error.text, "was ended by signal 9");
}

static void no_such_program(void **state) {
    static const char *const argv[] = {"/nonexistent/program", NULL};
    (void)state;
    assert_int_equal(run_program(argv), ST_IO);
    assert_int_equal(run.n_done, 0);
    assert_string_equal(run.not_started.text,
                        "/nonexistent/program can't be run: no such file or directory");
}

static void too_much(void **state) {
    (void)state;
    run.ask.most_bytes = 10;
    assert_int_equal(run_shell("printf 0123456789"), ST_OK);
    assert_int_equal(run.n_output, 10);
    clear(NULL);
    run.ask.most_bytes = 10;
    assert_int_equal(run_shell("printf 0123456789x; sleep 1000"), ST_BODY_TOO_LARGE);
    clear(NULL);
    assert_int_equal(run_shell("i=0; while [ $i -lt 9000 ]; do echo line $i >&2; i=$((i+1)); done"),
                     ST_OK);
    assert_string_equal(run.complaint, "line 8999");
    clear(NULL);
    assert_int_equal(run_shell("printf '%9000d\\nlast\\n' 0 >&2"), ST_OK);
    assert_string_equal(run.complaint, "last");
}

/* With all that it has started. */
static void too_long(void **state) {
    (void)state;
    run.ask.timeout_ns = SECOND / 10;
    assert_int_equal(run_shell("sleep 1000 & sleep 1000"), ST_DEADLINE_EXCEEDED);
    assert_string_equal(run.error.text, "took too long");
    clear(NULL);
    run.cancels = true;
    assert_int_equal(run_shell("sleep 1000"), ST_CANCELLED);
    assert_int_equal(run.n_done, 1);
}

/* Its end counts, not that of the pipe, which somebody else may hold for long. */
static void somebody_else_holds_the_pipe(void **state) {
    (void)state;
    assert_int_equal(run_shell("echo said; sleep 3 & exit 0"), ST_OK);
    assert_string_equal(run.output, "said\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_printed, clear),
        cmocka_unit_test_setup(how_it_ends, clear),
        cmocka_unit_test_setup(no_such_program, clear),
        cmocka_unit_test_setup(too_much, clear),
        cmocka_unit_test_setup(too_long, clear),
        cmocka_unit_test_setup(somebody_else_holds_the_pipe, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
