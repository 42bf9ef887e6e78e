/* Trace files: a JSON array after each write, numbered files complete from the start. */
#include "telemetry/trace/file.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

enum { PATH_BYTES = 128 };

static char folder[] = "/tmp/trace_file_XXXXXX"; /* mkdtemp modifies it */

static int begin(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(const char *name, char out[PATH_BYTES]) {
    snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    return out;
}

static void expect(const char *name, const char *text) {
    char path[PATH_BYTES], got[256] = "";
    FILE *file = fopen(path_of(name, path), "r");
    assert_non_null(file);
    size_t n = fread(got, 1, sizeof got - 1, file);
    fclose(file);
    assert_int_equal(n, strlen(text));
    assert_string_equal(got, text);
    assert_int_equal(unlink(path), 0);
}

static void trace_file_appended_traces_form_one_array(void **state) {
    struct trace_file file;
    char path[PATH_BYTES], other[PATH_BYTES];
    struct stat info;
    (void)state;
    trace_file_init(&file, path_of("t", path), 0);
    trace_file_append(&file, STR("{\"id\":1}"), 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07, 0); /* not readable by others */
    assert_int_equal(link(path, path_of("first", other)), 0);
    expect("first", "[{\"id\":1}]\n");
    trace_file_append(&file, STR("{\"id\":2},{\"id\":3}"), 2);
    trace_file_close(&file);
    expect("t", "[{\"id\":1},{\"id\":2},{\"id\":3}]\n");
    trace_file_init(&file, path, 0);
    trace_file_append(&file, STR("{}"), 1); /* the existing file is replaced */
    trace_file_close(&file);
    expect("t", "[{}]\n");
}

static void trace_file_numbered_files_are_consecutive(void **state) {
    struct trace_file file;
    char path[PATH_BYTES];
    (void)state;
    trace_file_init(&file, path_of("n", path), 0);
    trace_file_write_next(&file, STR("{\"id\":1}"), 1);
    trace_file_write_next(&file, STR("{\"id\":2}"), 1);
    trace_file_close(&file);
    expect("n.0", "[{\"id\":1}]\n");
    expect("n.1", "[{\"id\":2}]\n");
    assert_int_not_equal(access(path, F_OK), 0);
}

/* A failed write is counted; the next one may succeed. */
static void trace_file_failed_write_is_counted(void **state) {
    struct trace_file file;
    char path[PATH_BYTES];
    (void)state;
    int64_t failed = metric_read(METRIC_TRACES_FAILED);
    trace_file_init(&file, path_of("d", path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    trace_file_append(&file, STR("{}"), 2);
    assert_int_equal(metric_read(METRIC_TRACES_FAILED), failed + 2);
    assert_int_equal(rmdir(path), 0);
    trace_file_append(&file, STR("{}"), 1);
    trace_file_close(&file);
    expect("d", "[{}]\n");
    assert_int_equal(metric_read(METRIC_TRACES_FAILED), failed + 2);
}

/* Returns: the previous limit. */
static rlim_t limit_files(rlim_t n_bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = n_bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

/* A partial write, as on a full disk, is undone: the file stays an array. */
static void trace_file_partial_write_is_undone(void **state) {
    static const char large[] = "{\"id\":2222222222222222}";
    struct trace_file file;
    char path[PATH_BYTES], part[PATH_BYTES];
    (void)state;
    int64_t failed = metric_read(METRIC_TRACES_FAILED);
    signal(SIGXFSZ, SIG_IGN);
    trace_file_init(&file, path_of("p", path), 0);
    rlim_t before = limit_files(8);
    trace_file_append(&file, str_of(large), 1);
    limit_files(before);
    assert_int_equal(link(path, path_of("empty", part)), 0);
    expect("empty", "");
    trace_file_append(&file, STR("{\"id\":1}"), 1);
    limit_files(20);
    trace_file_append(&file, str_of(large), 1);
    trace_file_write_next(&file, str_of(large), 1);
    limit_files(before);
    assert_int_equal(metric_read(METRIC_TRACES_FAILED), failed + 3);
    assert_int_equal(link(path, path_of("before", part)), 0);
    expect("before", "[{\"id\":1}]\n");
    assert_int_not_equal(access(path_of("p.part", part), F_OK), 0);
    trace_file_append(&file, STR("{\"id\":3}"), 1);
    trace_file_write_next(&file, STR("{}"), 1);
    trace_file_close(&file);
    expect("p", "[{\"id\":1},{\"id\":3}]\n");
    expect("p.0", "[{}]\n");
}

/* What would pass the limit is dropped whole; smaller ones may still fit. */
static void trace_file_size_limit_drops_traces(void **state) {
    struct trace_file file;
    char path[PATH_BYTES];
    int64_t dropped = metric_read(METRIC_TRACES_OVER_LIMIT);
    (void)state;
    log_configure(LOG_ERROR, LOG_TEXT);
    trace_file_init(&file, path_of("l", path), 22);
    trace_file_append(&file, STR("{\"id\":1}"), 1);
    trace_file_append(&file, STR("{\"id\":22222},{\"id\":3}"), 2);
    assert_true(file.full);
    trace_file_append(&file, STR("{\"id\":4}"), 1);
    assert_false(file.full);
    trace_file_append(&file, STR("{}"), 1);
    trace_file_write_next(&file, STR("{}"), 1);
    trace_file_close(&file);
    expect("l", "[{\"id\":1},{\"id\":4}]\n");
    assert_int_equal(metric_read(METRIC_TRACES_OVER_LIMIT), dropped + 4);
}

/* Numbered files that were taken away make room, which is looked for now and then. */
static void trace_file_size_limit_counts_files_that_are_there(void **state) {
    static const uint64_t begin_ns = 1000, later_ns = 60000000000;
    struct trace_file file;
    char path[PATH_BYTES];
    (void)state;
    log_configure(LOG_ERROR, LOG_TEXT);
    clock_set_fake_ns(begin_ns);
    trace_file_init(&file, path_of("c", path), 25);
    trace_file_write_next(&file, STR("{\"id\":1}"), 1);
    trace_file_write_next(&file, STR("{\"id\":2}"), 1);
    trace_file_write_next(&file, STR("{\"id\":3}"), 1);
    expect("c.0", "[{\"id\":1}]\n");
    trace_file_write_next(&file, STR("{\"id\":4}"), 1);
    assert_true(file.full);
    clock_set_fake_ns(begin_ns + later_ns);
    trace_file_write_next(&file, STR("{\"id\":5}"), 1);
    assert_false(file.full);
    clock_set_fake_ns(0);
    trace_file_close(&file);
    expect("c.1", "[{\"id\":2}]\n");
    expect("c.2", "[{\"id\":5}]\n");
}

static int end(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_file_appended_traces_form_one_array),
        cmocka_unit_test(trace_file_numbered_files_are_consecutive),
        cmocka_unit_test(trace_file_failed_write_is_counted),
        cmocka_unit_test(trace_file_partial_write_is_undone),
        cmocka_unit_test(trace_file_size_limit_drops_traces),
        cmocka_unit_test(trace_file_size_limit_counts_files_that_are_there),
    };
    return cmocka_run_group_tests_name("telemetry/trace/file", tests, begin, end);
}
