/* What a fingerprint notices, and that its walk ends whatever the links of a directory are. */
#include "serve/config/fingerprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char path[128];
};

/* Runs a command in the directory. */
static void run(const struct place *place, const char *command) {
    char text[1024];
    snprintf(text, sizeof(text), "cd '%s' && %s", place->path, command);
    assert_int_equal(system(text), 0); /* NOLINT(cert-env33-c): a constant of this file */
}

static void place_init(struct place *place, const char *command) {
    snprintf(place->path, sizeof(place->path), "/tmp/sluice-fingerprint-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    run(place, command);
}

static void place_fini(const struct place *place) {
    run(place, "rm -rf -- * .[!.]* && rmdir \"$PWD\"");
}

static uint64_t take(const struct place *place, const char *name, enum status expected) {
    char path[256];
    uint64_t hash;
    struct error err;
    snprintf(path, sizeof(path), "%s/%s", place->path, name);
    assert_int_equal(fingerprint_take(path, NULL, &hash, &err), expected);
    return hash;
}

static void fingerprint_change_is_noticed_by_table(void **state) {
    static const char *const cases[][3] = {
        /* before, change, "": must be noticed */
        {"mkdir -p m/1 && echo a > m/1/model", "echo bb > m/1/model", ""},
        {"mkdir -p m/1 && echo a > m/1/model", "mkdir m/2", ""},
        {"mkdir -p m/1 && echo a > m/1/.hidden", "echo bb > m/1/.hidden", "same"},
        {"mkdir -p m v && echo a > v/model && ln -s ../v m/1", "echo bb > v/model", ""},
        {"mkdir -p m/1 v && echo a > v/model && ln -s ../../v/model m/1/model", "echo bb > v/model",
         ""},
        {"mkdir -p m/1/..1/s m/1/..2/s && echo a > m/1/..1/s/f && echo bb > m/1/..2/s/f && ln -s "
         "..1 m/1/..data && ln -s ..data/s m/1/s",
         "ln -sfn ..2 m/1/..data", ""},
        {"mkdir -p m/1 v && ln -s ../../v m/1/out && echo a > v/f", "echo bb > v/f", "same"},
        {"mkdir -p v && echo a > v/model && ln -s v m", "echo bb > v/model", ""},
        {"mkdir -p m/1 && ln -s model m/1/model", "echo a > m/1/f", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct place place;
        place_init(&place, cases[i][0]);
        uint64_t before = take(&place, "m", ST_OK);
        assert_true(before != 0 && before == take(&place, "m", ST_OK));
        run(&place, cases[i][1]);
        assert_true((before == take(&place, "m", ST_OK)) == (cases[i][2][0] != '\0'));
        place_fini(&place);
    }
}

static void fingerprint_links_that_lead_anywhere_end(void **state) {
    static const char *const cases[] = {
        "for i in 1 2 3 4 5 6; do ln -s . m/1/$i; done",
        "for i in 1 2 3 4 5 6; do ln -s .. m/1/$i; ln -s ../.. m/1/a$i; done",
        "ln -s . m/a && ln -s .. m/b && ln -s 1 m/2 && ln -s ../m m/3",
        "ln -s / m/1/root && ln -s /proc/self/fd m/1/fd && ln -s /sys m/1/sys",
        "ln -s /proc/self/fd m/2 && ln -s /proc m/3 && ln -s /sys m/4",
        "ln -s /dev/zero m/1/model && mkfifo m/1/pipe && ln -s /dev/tty m/config.pbtxt",
        "ln -s b m/1/a && ln -s a m/1/b && ln -s self m/self",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct place place;
        place_init(&place, "mkdir -p m/1");
        run(&place, cases[i]);
        assert_true(take(&place, "m", ST_OK) == take(&place, "m", ST_OK));
        place_fini(&place);
    }
}

static void fingerprint_too_many_files_is_error(void **state) {
    struct place place;
    (void)state;
    place_init(&place, "mkdir -p m/1");
    for (int i = 0; i <= FINGERPRINT_MAX_ENTRIES; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/m/1/%d", place.path, i);
        assert_int_equal(symlink("nowhere", path), 0); /* quicker to make than a file */
    }
    uint64_t hash = take(&place, "m", ST_BAD_MODEL);
    assert_true(hash != 0 && hash == take(&place, "m", ST_BAD_MODEL));
    place_fini(&place);
}

static void fingerprint_cancelled_ends(void **state) {
    struct place place;
    atomic_bool cancelled = true;
    uint64_t hash;
    struct error err;
    (void)state;
    place_init(&place, "mkdir -p m/1");
    assert_int_equal(fingerprint_take(place.path, &cancelled, &hash, &err), ST_NOT_READY);
    assert_int_equal(fingerprint_take("/nonexistent", &cancelled, &hash, &err), ST_OK);
    assert_int_equal(hash, 0);
    place_fini(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fingerprint_change_is_noticed_by_table),
        cmocka_unit_test(fingerprint_links_that_lead_anywhere_end),
        cmocka_unit_test(fingerprint_too_many_files_is_error),
        cmocka_unit_test(fingerprint_cancelled_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
