/* The second signal ends a process whose main thread is blocked. */
#include "program/process/process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"

static uint64_t none_in_flight(void *user) {
    (void)user;
    return 0;
}

static void block_for_ever(void *user) {
    const int *told = user;
    ssize_t n = write(*told, "d", 1);
    (void)n;
    for (;;) {
        pause();
    }
}

static void run_blocked_process(int told) {
    static const struct process_handlers handlers = {.in_flight = none_in_flight,
                                                     .drain = block_for_ever};
    struct process process = {
        .handlers = &handlers, .user = &told, .drain_timeout_ns = UINT64_MAX / 2};
    struct error err;
    log_configure(LOG_ERROR, LOG_TEXT);
    if (process_start(&process, 1, &err) == ST_OK && write(told, "s", 1) == 1) {
        process_run(&process);
    }
    _exit(1);
}

static void wait_told(int from, char expected) {
    char told;
    assert_int_equal(read(from, &told, 1), 1);
    assert_int_equal(told, expected);
}

static void process_second_signal_ends_blocked_process(void **state) {
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        run_blocked_process(ends[1]);
    }
    close(ends[1]);
    wait_told(ends[0], 's');
    kill(pid, SIGTERM);
    wait_told(ends[0], 'd'); /* the main thread is in drain, and stays there */
    kill(pid, SIGINT);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGINT);
    close(ends[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_second_signal_ends_blocked_process),
    };
    return cmocka_run_group_tests_name("program/process/process", tests, NULL, NULL);
}
