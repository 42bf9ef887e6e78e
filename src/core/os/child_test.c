/* Child processes: their output, how they end, and that nothing of them remains. */
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
    struct child_spec spec;
    struct worker_msg msg;
    struct child *child;
    struct error not_started;
    struct error error;
    char output[1000], stderr_tail[1000];
    size_t n_output;
    bool cancels;
    int n_done;
} run;

static void on_done(void *user, const struct child_result *result) {
    assert_ptr_equal(user, &run);
    run.error = result->error;
    run.n_output = result->output.len;
    snprintf(run.output, sizeof(run.output), "%.*s", STR_ARG(result->output));
    snprintf(run.stderr_tail, sizeof(run.stderr_tail), "%.*s", STR_ARG(result->stderr_tail));
    run.n_done++;
    worker_stop(run.worker);
}

static void on_start(struct worker_msg *msg) {
    (void)msg;
    if (child_start(run.worker, &run.spec, &run.child, &run.not_started) != ST_OK) {
        worker_stop(run.worker);
        return;
    }
    assert_int_equal(run.n_done, 0);
    if (run.cancels) {
        child_cancel(run.child);
        child_cancel(run.child);
    }
}

/* Runs it to its exit, on this thread. */
static enum status run_program(const char *const *argv) {
    static const char *const env[] = {"SLUICE_CHILD=given", "HOME=/nowhere", NULL};
    struct error err;
    run.spec.argv = argv;
    run.spec.env = env;
    run.spec.max_output_bytes = run.spec.max_output_bytes > 0 ? run.spec.max_output_bytes : 900;
    run.spec.timeout_ns = run.spec.timeout_ns > 0 ? run.spec.timeout_ns : 60 * SECOND;
    run.spec.done = on_done;
    run.spec.user = &run;
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

static void child_output_and_environment_are_passed(void **state) {
    (void)state;
    setenv("SLUICE_CHILD", "inherited", 1);
    setenv("SLUICE_OTHER", "kept", 1);
    assert_int_equal(run_shell("echo $SLUICE_CHILD $SLUICE_OTHER $HOME \"$1\"; cat; "
                               "echo one >&2; echo two >&2; echo >&2"),
                     ST_OK);
    assert_string_equal(run.output, "given kept /nowhere an argument\n");
    assert_string_equal(run.stderr_tail, "two");
}

static void child_exit_code_and_signal_are_reported(void **state) {
    (void)state;
    assert_int_equal(run_shell("echo out; echo why >&2; exit 3"), ST_IO);
    assert_string_equal(run.error.text, "exited with code 3");
    assert_string_equal(run.output, "out\n");
    assert_string_equal(run.stderr_tail, "why");
    clear(NULL);
    assert_int_equal(run_shell("kill -9 $$"), ST_IO);
    assert_string_equal(run.error.text, "was killed by signal 9");
}

static void child_start_missing_program_fails(void **state) {
    static const char *const argv[] = {"/nonexistent/program", NULL};
    (void)state;
    assert_int_equal(run_program(argv), ST_IO);
    assert_int_equal(run.n_done, 0);
    assert_string_equal(run.not_started.text,
                        "/nonexistent/program can't be run: no such file or directory");
}

static void child_output_over_limit_kills_child(void **state) {
    (void)state;
    run.spec.max_output_bytes = 10;
    assert_int_equal(run_shell("printf 0123456789"), ST_OK);
    assert_int_equal(run.n_output, 10);
    clear(NULL);
    run.spec.max_output_bytes = 10;
    assert_int_equal(run_shell("printf 0123456789x; sleep 1000"), ST_BODY_TOO_LARGE);
    clear(NULL);
    assert_int_equal(run_shell("i=0; while [ $i -lt 9000 ]; do echo line $i >&2; i=$((i+1)); done"),
                     ST_OK);
    assert_string_equal(run.stderr_tail, "line 8999");
    clear(NULL);
    assert_int_equal(run_shell("printf '%9000d\\nlast\\n' 0 >&2"), ST_OK);
    assert_string_equal(run.stderr_tail, "last");
}

/* Kills the processes that it started, too. */
static void child_timeout_or_cancel_kills_group(void **state) {
    (void)state;
    run.spec.timeout_ns = SECOND / 10;
    assert_int_equal(run_shell("sleep 1000 & sleep 1000"), ST_DEADLINE_EXCEEDED);
    assert_string_equal(run.error.text, "timed out");
    clear(NULL);
    run.cancels = true;
    assert_int_equal(run_shell("sleep 1000"), ST_CANCELLED);
    assert_int_equal(run.n_done, 1);
}

/* The exit of the child ends the run, even if another process has the pipe open for long. */
static void child_exit_with_pipe_held_open_completes(void **state) {
    (void)state;
    assert_int_equal(run_shell("echo said; sleep 3 & exit 0"), ST_OK);
    assert_string_equal(run.output, "said\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(child_output_and_environment_are_passed, clear),
        cmocka_unit_test_setup(child_exit_code_and_signal_are_reported, clear),
        cmocka_unit_test_setup(child_start_missing_program_fails, clear),
        cmocka_unit_test_setup(child_output_over_limit_kills_child, clear),
        cmocka_unit_test_setup(child_timeout_or_cancel_kills_group, clear),
        cmocka_unit_test_setup(child_exit_with_pipe_held_open_completes, clear),
    };
    return cmocka_run_group_tests_name("core/os/child", tests, NULL, NULL);
}
