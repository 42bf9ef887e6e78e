/* The lines on standard error, read from a file: the two formats, levels, and that lines can be
 * neither forged nor torn. */
#include "core/base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <yyjson.h>

#include "core/base/log_sink.h"
#include "core/base/metric/metric.h"

/* Standard error, redirected into a file while a test catches it. */
struct catcher {
    FILE *file;
    int saved;
};

static struct catcher catch_start(void) {
    struct catcher catcher = {tmpfile(), dup(STDERR_FILENO)};
    assert_non_null(catcher.file);
    assert_true(catcher.saved >= 0);
    assert_true(dup2(fileno(catcher.file), STDERR_FILENO) >= 0);
    return catcher;
}

/* Returns the text written since, NUL-terminated; the caller frees it. */
static char *catch_end(struct catcher catcher) {
    assert_true(dup2(catcher.saved, STDERR_FILENO) >= 0);
    close(catcher.saved);
    long n = lseek(fileno(catcher.file), 0, SEEK_END);
    char *text = calloc(1, (size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(pread(fileno(catcher.file), text, (size_t)n, 0), n);
    fclose(catcher.file);
    return text;
}

static char *catch_line(enum log_format format, const char *event, struct log_field field) {
    log_configure(LOG_DEBUG, format); /* without the limit on lines of one event */
    struct catcher catcher = catch_start();
    log_write(LOG_INFO, event, &field, 1);
    return catch_end(catcher);
}

/* The time at the front, "2026-11-21T10:00:00.123Z ", has 25 characters. */
static const char *without_time(const char *line) {
    int year, month, day, hour, minute, second, ms;
    char z, space;
    int n = sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3d%c%c", &year, &month, &day, &hour, &minute,
                   &second, &ms, &z, &space);
    assert_int_equal(n, 9);
    assert_int_equal(z, 'Z');
    assert_int_equal(space, ' ');
    assert_in_range(year, 2024, 9999);
    return line + 25;
}

static void log_text_format_writes_fields(void **state) {
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    struct catcher catcher = catch_start();
    log_event(LOG_INFO, "model loaded", LOG_CSTR("model", "digits"), LOG_U64("version", 1),
              LOG_I64("delta", -5), LOG_F64("seconds", 0.25));
    char *text = catch_end(catcher);
    assert_string_equal(without_time(text),
                        "INFO model loaded model=digits version=1 delta=-5 seconds=0.25\n");
    free(text);
}

static void log_pass_writes_line_as_it_is(void **state) {
    static char longer[8192];
    (void)state;
    log_configure(LOG_ERROR, LOG_JSON); /* neither level nor format matter */
    struct catcher catcher = catch_start();
    log_pass(STR("{\"level\":\"info\"} \xff"));
    memset(longer, 'x', sizeof(longer) - 1);
    log_pass(str_of(longer));
    char *text = catch_end(catcher);
    assert_memory_equal(text, "{\"level\":\"info\"} \xff\nxxx", 22);
    assert_true(strlen(text) < 22 + PIPE_BUF); /* cut to what a pipe takes whole */
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void log_text_format_quotes_where_needed(void **state) {
    static const struct {
        const char *value;
        size_t n;
        const char *text;
    } rows[] = {
        {"plain/value:1", 13, "v=plain/value:1"},
        {"caf\xc3\xa9", 5, "v=caf\xc3\xa9"},
        {"", 0, "v=\"\""},
        {"two words", 9, "v=\"two words\""},
        {"a=b", 3, "v=\"a=b\""},
        {"say \"x\"", 7, "v=\"say \\\"x\\\"\""},
        {"back\\slash", 10, "v=\"back\\\\slash\""},
        {"a\nERROR forged", 14, "v=\"a\\nERROR forged\""},
        {"\x1b[31m", 5, "v=\"\\u001b[31m\""},
        {"\xc2\x9b", 2, "v=\"\\u009b\""},
        {"\0\x7f", 2, "v=\"\\u0000\\u007f\""},
        {"\xff\xc3", 2, "v=\"\\xff\\xc3\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct str value = str_make(rows[i].value, rows[i].n);
        char *line = catch_line(LOG_TEXT, "e", LOG_STR("v", value));
        char want[100];
        snprintf(want, sizeof(want), "INFO e %s\n", rows[i].text);
        assert_string_equal(without_time(line), want);
        free(line);
    }
}

static yyjson_doc *parse_line(const char *line) {
    size_t n = strlen(line);
    assert_true(n > 0 && line[n - 1] == '\n');
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    yyjson_doc *doc = yyjson_read(line, n, YYJSON_READ_NOFLAG);
    assert_non_null(doc);
    return doc;
}

static const char *member(yyjson_doc *doc, const char *name) {
    return yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), name));
}

static void log_json_format_escapes_values(void **state) {
    (void)state;
    log_configure(LOG_DEBUG, LOG_JSON);
    struct catcher catcher = catch_start();
    log_event(LOG_WARNING, "odd \"thing\"\n", LOG_STR("s", STR("a\n\"\\\x01\xff\xc3\xa9")),
              LOG_U64("u", UINT64_MAX), LOG_I64("i", INT64_MIN), LOG_F64("f", 1.5),
              LOG_F64("nan", (double)NAN));
    char *text = catch_end(catcher);
    yyjson_doc *doc = parse_line(text);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_int_equal(strlen(member(doc, "time")), 24);
    assert_string_equal(member(doc, "level"), "warning");
    assert_string_equal(member(doc, "event"), "odd \"thing\"\n");
    assert_string_equal(member(doc, "s"), "a\n\"\\\x01\xef\xbf\xbd\xc3\xa9");
    assert_true(yyjson_get_uint(yyjson_obj_get(root, "u")) == UINT64_MAX);
    assert_true(yyjson_get_sint(yyjson_obj_get(root, "i")) == INT64_MIN);
    assert_true(yyjson_get_real(yyjson_obj_get(root, "f")) == 1.5);
    assert_true(yyjson_is_str(yyjson_obj_get(root, "nan"))); /* JSON has no such number */
    yyjson_doc_free(doc);
    free(text);
}

static void log_configure_filters_levels(void **state) {
    (void)state;
    for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
        log_configure((enum log_level)level, LOG_TEXT);
        struct catcher catcher = catch_start();
        log_message(LOG_ERROR, "one");
        log_message(LOG_WARNING, "two");
        log_message(LOG_INFO, "three");
        log_message(LOG_DEBUG, "four");
        char *text = catch_end(catcher);
        assert_int_equal(strstr(text, "ERROR one\n") != NULL, 1);
        assert_int_equal(strstr(text, "WARNING two\n") != NULL, level >= LOG_WARNING);
        assert_int_equal(strstr(text, "INFO three\n") != NULL, level >= LOG_INFO);
        assert_int_equal(strstr(text, "DEBUG four\n") != NULL, level >= LOG_DEBUG);
        assert_int_equal(log_enabled(LOG_INFO), level >= LOG_INFO);
        free(text);
    }
}

/* At each length around the buffer's size the line is complete: short enough for one write to a
 * pipe, one newline, and in JSON valid JSON. */
/* As clients change them over the API: each independently, while lines may be written. */
static void log_level_set_is_independent(void **state) {
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    log_level_set(LOG_ERROR, false);
    log_verbose_set(3);
    struct catcher catcher = catch_start();
    log_message(LOG_ERROR, "one");
    log_message(LOG_INFO, "three");
    log_message(LOG_DEBUG, "four");
    log_level_set(LOG_INFO, false);
    log_level_set(LOG_ERROR, true);
    log_verbose_set(0);
    log_message(LOG_ERROR, "five");
    log_message(LOG_INFO, "six");
    log_message(LOG_DEBUG, "seven");
    char *text = catch_end(catcher);
    assert_null(strstr(text, "one"));
    assert_non_null(strstr(text, "INFO three\n"));
    assert_non_null(strstr(text, "DEBUG four\n"));
    assert_non_null(strstr(text, "ERROR five\n"));
    assert_null(strstr(text, "six"));
    assert_null(strstr(text, "seven"));
    free(text);
    log_configure(LOG_DEBUG, LOG_TEXT);
    assert_int_equal(log_verbose(), 1);
}

static void log_long_value_is_truncated_at_character(void **state) {
    static const char *const fillers[] = {"x", "\n", "\xff", "\xc3\xa9", " "};
    (void)state;
    for (size_t f = 0; f < sizeof(fillers) / sizeof(fillers[0]); f++) {
        for (size_t n = 3900; n < 4200; n++) {
            char *value = malloc(n);
            assert_non_null(value);
            for (size_t i = 0; i < n; i++) {
                value[i] = fillers[f][i % strlen(fillers[f])];
            }
            struct log_field fields[] = {LOG_STR("v", str_make(value, n)), LOG_U64("after", 7)};
            for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
                log_configure(LOG_DEBUG, (enum log_format)format);
                struct catcher catcher = catch_start();
                log_write(LOG_INFO, "e", fields, 2);
                char *line = catch_end(catcher);
                assert_in_range(strlen(line), 3900, 4096);
                assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
                if (format == LOG_JSON) {
                    yyjson_doc_free(parse_line(line));
                }
                free(line);
            }
            free(value);
            n += n < 3950 || n > 4110 ? 16 : 0;
        }
    }
}

static void log_many_fields_stop_at_line_limit(void **state) {
    struct log_field fields[500];
    (void)state;
    for (size_t i = 0; i < 500; i++) {
        fields[i] = LOG_U64("a_name_of_some_length", UINT64_MAX);
    }
    log_configure(LOG_DEBUG, LOG_JSON);
    struct catcher catcher = catch_start();
    log_write(LOG_INFO, "e", fields, 500);
    char *line = catch_end(catcher);
    assert_in_range(strlen(line), 3900, 4096);
    yyjson_doc_free(parse_line(line));
    free(line);
}

static void *write_lines(void *argument) {
    for (int i = 0; i < 200; i++) {
        log_event(LOG_INFO, "thread", LOG_CSTR("name", argument), LOG_I64("i", i));
    }
    return NULL;
}

static void log_concurrent_writers_keep_lines_whole(void **state) {
    pthread_t threads[4];
    char names[4][600];
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    int64_t n_before = metric_read(METRIC_LOG_LINES_NOT_READ);
    struct catcher catcher = catch_start();
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, sizeof(names[i]) - 1);
        names[i][sizeof(names[i]) - 1] = '\0';
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    char *text = catch_end(catcher);
    int lines = 0;
    for (char *at = text; *at;) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        yyjson_doc *doc = yyjson_read(at, (size_t)(end - at), YYJSON_READ_NOFLAG);
        assert_non_null(doc);
        if (strcmp(member(doc, "event"), "thread") == 0) { /* else it counts dropped lines */
            assert_int_equal(strlen(member(doc, "name")), 599);
            lines++;
        }
        yyjson_doc_free(doc);
        at = end + 1;
    }
    /* A thread that is stopped for long while it writes makes the others drop lines. */
    assert_int_equal(lines + metric_read(METRIC_LOG_LINES_NOT_READ) - n_before, 800);
    free(text);
}

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        n++;
    }
    return n;
}

static void log_many_lines_of_one_event_are_suppressed(void **state) {
    enum { N_LINES = LOG_EVENT_BURST_LINES + 500 };
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    int64_t n_before = metric_read(METRIC_LOG_LINES_LIMIT);
    struct catcher catcher = catch_start();
    for (int i = 0; i < N_LINES; i++) {
        log_message(LOG_WARNING, "flood");
    }
    int64_t n_suppressed = metric_read(METRIC_LOG_LINES_LIMIT) - n_before;
    log_message(LOG_WARNING, "other event");
    log_report("flood", str_of("of a report"));
    log_verbose_set(1);
    log_message(LOG_WARNING, "flood");
    char *text = catch_end(catcher);
    assert_true(n_suppressed > 0);
    assert_int_equal(count(text, "WARNING flood"), N_LINES - n_suppressed + 2);
    assert_int_equal(count(text, "other event"), 1);
    free(text);
}

/* A status is removed with as many spaces as it has columns: more would wrap. */
static void log_status_is_replaced_by_lines(void **state) {
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    struct catcher catcher = catch_start();
    log_status_show(STR("loading \033[2J\xc2\x9b\xff\n\u00e9\u00e9: 1 s"), 80);
    log_status_show(STR("\u00e9\u00e9\u00e9\u00e9\u00e9"), 5);
    log_status_show(STR("\u6a21\u578b\u578b"), 6);
    log_message(LOG_INFO, "line");
    log_message(LOG_INFO, "line");
    log_status_show(STR(""), 80);
    log_status_show(STR("abc"), 0);
    char *text = catch_end(catcher);
    static const char shown[] = "loading [2J\u00e9\u00e9: 1 s\r"
                                "                  \r\u00e9\u00e9\u00e9\u00e9\r"
                                "    \r\u6a21\u578b\r"
                                "    \r2";
    assert_memory_equal(text, shown, strlen(shown));
    assert_int_equal(count(text, "\r"), 6);
    assert_int_equal(count(text, "line\n"), 2);
    free(text);
}

/* Standard error is a pipe of two pages, which is full, and is read page by page while threads wait
 * for their turn to write a line that fills a page. */
enum { SLOW_THREADS = 14, SLOW_READ_MS = 4, SLOW_TRIES = 100 };

struct slow_pipe {
    atomic_int n_done;
    int saved, ends[2];
    char line[3800];
};

static void *write_slow_line(void *argument) {
    struct slow_pipe *slow = argument;
    log_event(LOG_WARNING, "slow", LOG_STR("v", str_make(slow->line, sizeof(slow->line))));
    atomic_fetch_add(&slow->n_done, 1);
    return NULL;
}

static void slow_pipe_open(struct slow_pipe *slow) {
    *slow = (struct slow_pipe){.saved = dup(STDERR_FILENO)};
    memset(slow->line, 's', sizeof(slow->line));
    assert_int_equal(pipe(slow->ends), 0);
    int n_pipe = fcntl(slow->ends[1], F_SETPIPE_SZ, 2 * (int)sysconf(_SC_PAGESIZE));
    char *filler = calloc(1, (size_t)n_pipe);
    assert_true(n_pipe > 0 && filler);
    assert_int_equal(write(slow->ends[1], filler, (size_t)n_pipe), n_pipe);
    free(filler);
    assert_true(dup2(slow->ends[1], STDERR_FILENO) >= 0);
}

/* Returns: the number of lines that were dropped. */
static int64_t write_to_slow_pipe(void) {
    pthread_t threads[SLOW_THREADS];
    struct slow_pipe slow;
    char page[4096];
    int64_t n_before = metric_read(METRIC_LOG_LINES_NOT_READ);
    slow_pipe_open(&slow);
    for (int i = 0; i < SLOW_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_slow_line, &slow), 0);
    }
    while (atomic_load(&slow.n_done) < SLOW_THREADS) {
        struct pollfd readable = {.fd = slow.ends[0], .events = POLLIN};
        usleep(SLOW_READ_MS * 1000);
        if (poll(&readable, 1, 0) == 1) {
            assert_true(read(slow.ends[0], page, sizeof(page)) > 0);
        }
    }
    for (int i = 0; i < SLOW_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(dup2(slow.saved, STDERR_FILENO) >= 0);
    close(slow.saved);
    close(slow.ends[0]);
    close(slow.ends[1]);
    return metric_read(METRIC_LOG_LINES_NOT_READ) - n_before;
}

/* Together the threads wait for much longer than for a reader that does not read. Where the machine
 * stops the reader or the writer for as long, lines are dropped by right: one try without is the
 * proof. */
static void log_pipe_that_is_read_slowly_gets_all_lines(void **state) {
    (void)state;
    log_configure(LOG_DEBUG, LOG_TEXT);
    int64_t n_dropped = write_to_slow_pipe();
    for (int i = 1; i < SLOW_TRIES && n_dropped > 0; i++) {
        usleep((LOG_SINK_PAUSE_MS + 100) * 1000); /* no thread waits until then */
        n_dropped = write_to_slow_pipe();
    }
    assert_int_equal(n_dropped, 0);
}

static void log_pipe_that_is_not_read_drops_lines(void **state) {
    int ends[2];
    (void)state;
    log_configure(LOG_DEBUG, LOG_TEXT);
    assert_int_equal(pipe(ends), 0);
    /* Two pages: poll reports a pipe with bytes in each of its pages as full. */
    int n_pipe = fcntl(ends[1], F_SETPIPE_SZ, 2 * (int)sysconf(_SC_PAGESIZE));
    assert_true(n_pipe > 0);
    char *text = malloc((size_t)n_pipe + 1);
    assert_non_null(text);
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    int64_t n_before = metric_read(METRIC_LOG_LINES_NOT_READ);
    while (metric_read(METRIC_LOG_LINES_NOT_READ) < n_before + 3) {
        log_message(LOG_WARNING, "before");
    }
    ssize_t n = read(ends[0], text, (size_t)n_pipe);
    assert_true(n > 0);
    log_message(LOG_WARNING, "after");
    n = read(ends[0], text, (size_t)n_pipe);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "log lines dropped: standard error was not read lines=3\n"));
    assert_non_null(strstr(text, "WARNING after\n"));
    free(text);
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_text_format_writes_fields),
        cmocka_unit_test(log_pass_writes_line_as_it_is),
        cmocka_unit_test(log_text_format_quotes_where_needed),
        cmocka_unit_test(log_json_format_escapes_values),
        cmocka_unit_test(log_configure_filters_levels),
        cmocka_unit_test(log_level_set_is_independent),
        cmocka_unit_test(log_long_value_is_truncated_at_character),
        cmocka_unit_test(log_many_fields_stop_at_line_limit),
        cmocka_unit_test(log_concurrent_writers_keep_lines_whole),
        cmocka_unit_test(log_many_lines_of_one_event_are_suppressed),
        cmocka_unit_test(log_status_is_replaced_by_lines),
        cmocka_unit_test(log_pipe_that_is_read_slowly_gets_all_lines),
        cmocka_unit_test(log_pipe_that_is_not_read_drops_lines),
    };
    return cmocka_run_group_tests_name("core/base/log", tests, NULL, NULL);
}
