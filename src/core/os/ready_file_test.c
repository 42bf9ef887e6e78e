/* The ready file: its content, and the files that are never replaced or removed. */
#include "core/os/ready_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char folder[64];
    char path[80];
    char beside[96];
};

static struct place place_new(void) {
    struct place place = {.folder = "/tmp/sluice-ready-XXXXXX"};
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.path, sizeof(place.path), "%s/ready", place.folder);
    snprintf(place.beside, sizeof(place.beside), "%s.new", place.path);
    return place;
}

static void place_free(const struct place *place) {
    assert_int_not_equal(access(place->beside, F_OK), 0);
    unlink(place->path);
    assert_int_equal(rmdir(place->folder), 0);
}

static const char *const urls[] = {"http://127.0.0.1:80", "http+unix:/s", "unix:///m=digits:2"};
enum { N_URLS = sizeof(urls) / sizeof(urls[0]) };

static void ready_file_has_one_url_per_line(void **state) {
    (void)state;
    struct place place = place_new();
    struct ready_file file = {.path = place.path};
    struct error err;
    assert_int_equal(ready_file_write(&file, urls, 1, &err), ST_OK);
    assert_int_equal(ready_file_write(&file, urls, N_URLS, &err), ST_OK); /* replaced */
    char text[100] = {0};
    FILE *stream = fopen(place.path, "r");
    assert_non_null(stream);
    assert_true(fread(text, 1, sizeof(text) - 1, stream) > 0);
    fclose(stream);
    assert_string_equal(text, "http://127.0.0.1:80\nhttp+unix:/s\nunix:///m=digits:2\n");
    ready_file_remove_stale(place.path);
    assert_int_not_equal(access(place.path, F_OK), 0);
    place_free(&place);
}

static void ready_file_of_another_server_stays(void **state) {
    (void)state;
    struct place place = place_new();
    struct ready_file old = {.path = place.path}, new = {.path = place.path};
    struct error err;
    ready_file_remove(&old); /* nothing was written */
    assert_int_equal(ready_file_write(&old, urls, 1, &err), ST_OK);
    assert_int_equal(ready_file_write(&new, urls, 1, &err), ST_OK);
    ready_file_remove(&old);
    assert_int_equal(access(place.path, F_OK), 0);
    ready_file_remove(&new);
    assert_int_not_equal(access(place.path, F_OK), 0);
    place_free(&place);
}

/* A pipe takes the place of /dev/null. */
static void ready_file_keeps_non_regular_file(void **state) {
    (void)state;
    struct place place = place_new();
    struct ready_file file = {.path = place.path};
    struct error err;
    assert_int_equal(mkfifo(place.path, 0600), 0);
    assert_int_equal(ready_file_write(&file, urls, N_URLS, &err), ST_IO);
    assert_non_null(strstr(err.text, place.path));
    assert_non_null(strstr(err.text, "regular file"));
    ready_file_remove_stale(place.path);
    struct stat info;
    assert_int_equal(lstat(place.path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    place_free(&place);
}

static void ready_file_write_error_is_returned(void **state) {
    (void)state;
    struct error err;
    assert_int_equal(
        ready_file_write(&(struct ready_file){.path = "/nowhere/ready"}, urls, N_URLS, &err),
        ST_IO);
    assert_non_null(strstr(err.text, "/nowhere/ready: No such file"));
    ready_file_remove_stale("/nowhere/ready");
    ready_file_remove_stale(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_file_has_one_url_per_line),
        cmocka_unit_test(ready_file_of_another_server_stays),
        cmocka_unit_test(ready_file_keeps_non_regular_file),
        cmocka_unit_test(ready_file_write_error_is_returned),
    };
    return cmocka_run_group_tests_name("core/os/ready_file", tests, NULL, NULL);
}
