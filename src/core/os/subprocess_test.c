/* Programs of a shell: their lines, their end, signals to them, and their end with this process. */
#include "core/os/subprocess.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/buf.h"

struct run {
    struct worker *worker;
    struct subprocess *subprocess;
    struct buf lines; /* each in brackets */
    int n_exits, wait_status;
    int signum; /* sent with the first line; 0: none */
};

static void on_line(void *user, struct str line) {
    struct run *run = user;
    buf_printf(&run->lines, "[%.*s]", STR_ARG(line));
    if (run->signum != 0) {
        subprocess_signal(run->subprocess, run->signum);
    }
}

static void on_exit(void *user, int wait_status) {
    struct run *run = user;
    run->n_exits++;
    run->wait_status = wait_status;
    worker_stop(run->worker);
}

/* Returns: the lines. Owns: in `arena`. */
static struct str run_shell(struct arena *arena, const char *script, int signum, int *wait_status) {
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const char *const env[] = {"SLUICE_TEST=from here", NULL};
    struct run run = {.signum = signum};
    struct error err;
    buf_init(&run.lines, arena, 0);
    struct subprocess_spec spec = {
        .argv = argv, .env = env, .on_line = on_line, .on_exit = on_exit, .user = &run};
    assert_int_equal(worker_new("main", &run.worker, &err), ST_OK);
    assert_int_equal(subprocess_start(run.worker, &spec, &run.subprocess, &err), ST_OK);
    assert_true(subprocess_pid(run.subprocess) > 0);
    worker_run(run.worker);
    worker_free(run.worker);
    assert_int_equal(run.n_exits, 1);
    *wait_status = run.wait_status;
    return buf_str(&run.lines);
}

static void subprocess_lines_and_code_are_reported(void **state) {
    static const struct {
        const char *script, *lines;
        int code;
    } CASES[] = {
        {"exit 0", "", 0},
        {"exit 7", "", 7},
        {"echo one >&2; echo two >&2; exit 1", "[one][two]", 1},
        {"printf 'a\\n\\nb' >&2", "[a][b]", 0},
        {"echo $SLUICE_TEST >&2", "[from here]", 0},
        {"cat >&2", "", 0}, /* its standard input is empty */
        {"(sleep 60 &) ; echo still >&2", "[still]", 0},
    };
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        int wait_status;
        struct str lines = run_shell(arena, CASES[i].script, 0, &wait_status);
        assert_true(str_is(lines, CASES[i].lines));
        assert_true(WIFEXITED(wait_status));
        assert_int_equal(WEXITSTATUS(wait_status), CASES[i].code);
    }
    arena_free(arena);
}

static void subprocess_long_line_is_divided(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    int wait_status;
    (void)state;
    struct str lines =
        run_shell(arena, "head -c 40000 /dev/zero | tr '\\0' x >&2; echo >&2", 0, &wait_status);
    assert_int_equal(lines.len, 40000 + 6); /* the brackets of three */
    arena_free(arena);
}

static void subprocess_signal_ends_it(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    int wait_status;
    (void)state;
    struct str lines = run_shell(arena, "echo begun >&2; exec sleep 600", SIGTERM, &wait_status);
    assert_true(str_is(lines, "[begun]"));
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(WTERMSIG(wait_status), SIGTERM);
    arena_free(arena);
}

static void subprocess_that_is_no_program_is_refused(void **state) {
    const char *const argv[] = {"/nowhere/at-all", NULL};
    const char *const env[] = {NULL};
    struct subprocess_spec spec = {
        .argv = argv, .env = env, .on_line = on_line, .on_exit = on_exit};
    struct subprocess *subprocess;
    struct worker *worker;
    struct error err;
    (void)state;
    assert_int_equal(worker_new("main", &worker, &err), ST_OK);
    assert_int_equal(subprocess_start(worker, &spec, &subprocess, &err), ST_IO);
    assert_string_equal(err.text, "/nowhere/at-all can't be run: No such file or directory");
    worker_free(worker);
}

/* A process that starts one and is killed. The pipe is open as long as the started one lives. */
static void subprocess_ends_with_this_process(void **state) {
    char byte;
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t middle = fork();
    if (middle == 0) {
        const char *const argv[] = {"/bin/sh", "-c", "echo begun; exec sleep 600", NULL};
        const char *const env[] = {NULL};
        struct subprocess_spec spec = {
            .argv = argv, .env = env, .on_line = on_line, .on_exit = on_exit};
        struct subprocess *subprocess;
        struct worker *worker;
        struct error err;
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (worker_new("main", &worker, &err) == ST_OK &&
            subprocess_start(worker, &spec, &subprocess, &err) == ST_OK) {
            pause();
        }
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(kill(middle, SIGKILL), 0);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    while (read(ends[0], &byte, 1) > 0) { /* ends when both have ended */
    }
    close(ends[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subprocess_lines_and_code_are_reported),
        cmocka_unit_test(subprocess_long_line_is_divided),
        cmocka_unit_test(subprocess_signal_ends_it),
        cmocka_unit_test(subprocess_that_is_no_program_is_refused),
        cmocka_unit_test(subprocess_ends_with_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
