/* API keys: the file format, authorization, and reloads. */
#include "serve/frontend/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "serve/frontend/keys_fixture.h"

static struct keys_file *parse(const char *text, struct error *err) {
    struct keys_file *file = NULL;
    return keys_file_parse("keys.yaml", str_of(text), &file, err) == ST_OK ? file : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void keys_file_each_text_parses_or_names_error(void **state) {
    static const struct {
        const char *text;
        const char *says; /* NULL: the file is valid */
    } rows[] = {
        {"infer: [a, b]\nhealth: c\n", NULL},
        {"header: X-Api-Key\ninfer: [a]\n", NULL},
        {"control: [\"123\"]\n", NULL},
        {"{\"infer\": [\"json\"]}", NULL},
        {"infer: [\"sha256:"
         "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"]\n",
         NULL},
        {"", "expected"},
        {"header: X-Api-Key\n", "at least one of infer, metadata, health and control"},
        {"- a\n", "expected"},
        {"infer: []\n", "at least one key"},
        {"infer:\n", "at least one key"},
        {"infer: [12345]\n", "keys.yaml:1: infer[0]: expected text"},
        {"infer: [\"\"]\n", "visible ASCII"},
        {"infer: [\"two words\"]\n", "visible ASCII"},
        {"infer: [\"caf\xc3\xa9\"]\n", "visible ASCII"},
        {"infer: [a]\nmetadta: [b]\n", "did you mean \"metadata\""},
        {"infer: [a]\nheader: \"X Key\"\n", "name of a header"},
        {"infer: [a]\nheader: \"\"\n", "name of a header"},
        {"infer: [a]\nheader: key-bin\n", "-bin"},
        {"infer: [\"sha256:0123\"]\n", "64 digits"},
        {"infer: [\"sha256:"
         "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\"]\n",
         "lower case"},
        {"infer: [a\n", "keys.yaml:"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {0};
        struct keys_file *file = parse(rows[i].text, &err);
        if ((file != NULL) != (rows[i].says == NULL)) {
            fail_msg("%s: %s", rows[i].text, file ? "was taken" : err.text);
        }
        if (!file && !strstr(err.text, rows[i].says)) {
            fail_msg("%s: no \"%s\" in \"%s\"", rows[i].text, rows[i].says, err.text);
        }
        keys_file_free(file);
    }
}

/* No error text contains a key, whatever is wrong with the file. */
static void keys_file_error_text_contains_no_key(void **state) {
    static const char *const texts[] = {
        "infer: [\"s3cret two\"]\n", "infer: [3141592653]\n", "infer: [\"sha256:s3cret\"]\n",
        "infer: [{s3cret: 1}]\n",    "infer: {a: s3cret}\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct error err = {0};
        assert_null(parse(texts[i], &err));
        assert_null(strstr(err.text, "s3cret"));
        assert_null(strstr(err.text, "31415"));
    }
}

/* ---- authorization --------------------------------------------------------------------------- */

static const char BEARER[] = "infer: [one, two]\nhealth: [three]\n";
static const char BARE[] = "header: X-Api-Key\ninfer: [one]\ncontrol: [root]\n";

static void keys_file_each_value_is_accepted_or_refused(void **state) {
    static const struct {
        const char *file;
        enum keys_group group;
        size_t n;
        const char *value;
        bool admitted;
    } rows[] = {
        {BEARER, KEYS_INFER, 1, "Bearer one", true},
        {BEARER, KEYS_INFER, 1, "Bearer two", true},
        {BEARER, KEYS_INFER, 1, "bearer two", true},
        {BEARER, KEYS_INFER, 1, "  BEARER   two  ", true},
        {BEARER, KEYS_HEALTH, 1, "Bearer three", true},
        {BEARER, KEYS_METADATA, 0, "", true}, /* not in the file: open */
        {BEARER, KEYS_METADATA, 1, "Bearer nonsense", true},
        {BEARER, KEYS_INFER, 0, "", false},
        {BEARER, KEYS_INFER, 1, "", false},
        {BEARER, KEYS_INFER, 1, "Bearer", false},
        {BEARER, KEYS_INFER, 1, "Bearer ", false},
        {BEARER, KEYS_INFER, 1, "one", false},
        {BEARER, KEYS_INFER, 1, "Basic one", false},
        {BEARER, KEYS_INFER, 1, "Bearer on", false},
        {BEARER, KEYS_INFER, 1, "Bearer onee", false},
        {BEARER, KEYS_INFER, 1, "Bearer ONE", false},
        {BEARER, KEYS_INFER, 1, "Bearer one two", false},
        {BEARER, KEYS_INFER, 1, "Bearer three", false}, /* a key of another group */
        {BEARER, KEYS_INFER, 2, "Bearer one", false},   /* ambiguous */
        {BEARER, KEYS_CONTROL, 1, "Bearer one", false}, /* closed unless named */
        {BEARER, KEYS_CONTROL, 0, "", false},
        {BEARER, KEYS_NO_GROUP, 1, "Bearer one", false},
        {BARE, KEYS_INFER, 1, "one", true},
        {BARE, KEYS_INFER, 1, "Bearer one", false},
        {BARE, KEYS_INFER, 0, "", false},
        {BARE, KEYS_CONTROL, 1, "root", true},
        {BARE, KEYS_CONTROL, 1, "one", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {0};
        struct keys_file *file = parse(rows[i].file, &err);
        enum status st =
            keys_file_authorize(file, rows[i].group, rows[i].n, str_of(rows[i].value), &err);
        if ((st == ST_OK) != rows[i].admitted) {
            fail_msg("row %zu: \"%s\": %s", i, rows[i].value, st == ST_OK ? "admitted" : err.text);
        }
        if (st != ST_OK) {
            assert_int_equal(st, ST_UNAUTHENTICATED);
            assert_int_equal(err.status, ST_UNAUTHENTICATED);
        }
        keys_file_free(file);
    }
}

static void keys_file_sha256_entry_accepts_only_key(void **state) {
    /* printf hashed | sha256sum */
    struct error err;
    struct keys_file *file =
        parse("infer: [\"sha256:"
              "d2bb0951b0c3a6d7d3c8e1c2dba5ac5e6ac0a2b0b8d5a8a9e8a3c2f0a1b2c3d4\"]",
              &err);
    (void)state;
    assert_non_null(file);
    /* The digest itself is not a key. */
    assert_int_equal(
        keys_file_authorize(
            file, KEYS_INFER, 1,
            STR("Bearer sha256:d2bb0951b0c3a6d7d3c8e1c2dba5ac5e6ac0a2b0b8d5a8a9e8a3c2f0a1b2c3d4"),
            &err),
        ST_UNAUTHENTICATED);
    keys_file_free(file);
    file = parse("infer: [\"sha256:"
                 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]",
                 &err);
    assert_int_equal(keys_file_authorize(file, KEYS_INFER, 1, STR("Bearer abc"), &err), ST_OK);
    keys_file_free(file);
}

/* ---- a running server ------------------------------------------------------------------------ */

static enum status ask_http(const struct keys *keys, enum keys_group group, const char *name,
                            const char *value, char challenge[KEYS_CHALLENGE_BYTES]) {
    struct http_field field = {str_of(name), str_of(value)};
    struct http_head head = {.fields = &field, .n_fields = name ? 1 : 0};
    struct error err;
    return keys_authorize_http(keys, group, &head, challenge, &err);
}

static void keys_http_missing_key_gets_challenge(void **state) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct keys *keys;
    struct error err;
    int64_t refused = metric_read(METRIC_KEYS_REFUSED_TOTAL);
    (void)state;
    assert_int_equal(ask_http(NULL, KEYS_CONTROL, NULL, NULL, challenge), ST_OK);
    keys_path_write(BEARER);
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    assert_int_equal(ask_http(keys, KEYS_INFER, "AUTHORIZATION", "Bearer one", challenge), ST_OK);
    assert_int_equal(ask_http(keys, KEYS_INFER, NULL, NULL, challenge), ST_UNAUTHENTICATED);
    assert_string_equal(challenge, "Bearer realm=\"sluice\"");
    assert_true(keys_are_required(keys, KEYS_INFER) && !keys_are_required(keys, KEYS_METADATA));
    keys_free(keys);
    keys_path_write(BARE);
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    assert_int_equal(ask_http(keys, KEYS_INFER, "x-api-key", "one", challenge), ST_OK);
    assert_int_equal(ask_http(keys, KEYS_INFER, "Authorization", "one", challenge),
                     ST_UNAUTHENTICATED);
    assert_string_equal(challenge, "ApiKey realm=\"sluice\", header=\"x-api-key\"");
    keys_free(keys);
    assert_int_equal(metric_read(METRIC_KEYS_REFUSED_TOTAL) - refused, 2);
}

static void keys_changed_file_is_reloaded(void **state) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct keys *keys;
    struct error err;
    int64_t reloads = metric_read(METRIC_RELOADS_KEYS);
    int64_t failures = metric_read(METRIC_RELOAD_FAILURES_KEYS);
    (void)state;
    keys_path_write(BEARER);
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    assert_false(keys_reload(keys, true));
    keys_path_write("infer: [new]\n");
    assert_true(keys_reload(keys, true));
    assert_false(keys_reload(keys, true));
    assert_int_equal(ask_http(keys, KEYS_INFER, "authorization", "Bearer new", challenge), ST_OK);
    assert_int_equal(ask_http(keys, KEYS_INFER, "authorization", "Bearer one", challenge),
                     ST_UNAUTHENTICATED);
    keys_path_write("infer: [\n");
    assert_false(keys_reload(keys, true));
    assert_false(keys_reload(keys, true));
    assert_int_equal(ask_http(keys, KEYS_INFER, "authorization", "Bearer new", challenge), ST_OK);
    unlink(keys_path);
    assert_false(keys_reload(keys, true));
    assert_false(keys_reload(keys, true));
    assert_int_equal(ask_http(keys, KEYS_INFER, "authorization", "Bearer new", challenge), ST_OK);
    keys_path_write(BARE);
    assert_true(keys_reload(keys, true));
    assert_int_equal(ask_http(keys, KEYS_INFER, "x-api-key", "one", challenge), ST_OK);
    keys_free(keys);
    assert_int_equal(metric_read(METRIC_RELOADS_KEYS) - reloads, 2);
    assert_int_equal(metric_read(METRIC_RELOAD_FAILURES_KEYS) - failures, 2);
}

static void keys_change_counts_when_two_looks_agree(void **state) {
    struct keys *keys;
    struct error err;
    (void)state;
    keys_path_write("infer: [one]\nhealth: [two]\n");
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    keys_path_write("infer: [other]\n"); /* cut, and valid all the same */
    assert_false(keys_reload(keys, false));
    keys_path_write("infer: [other]\nhealth: [new]\n");
    assert_false(keys_reload(keys, false));
    assert_true(keys_reload(keys, false));
    assert_false(keys_reload(keys, false));
    unlink(keys_path);
    assert_false(keys_reload(keys, false));
    keys_path_write("infer: [other]\nhealth: [new]\n");
    assert_false(keys_reload(keys, false));
    for (int i = 1; i < 5; i++) { /* it changes at each look */
        char text[64];
        snprintf(text, sizeof(text), "infer: [number%d]\n", i);
        keys_path_write(text);
        assert_false(keys_reload(keys, false));
    }
    keys_path_write("infer: [number5]\n");
    assert_true(keys_reload(keys, false));
    keys_free(keys);
}

static void keys_group_left_out_keeps_its_keys(void **state) {
    char challenge[KEYS_CHALLENGE_BYTES];
    struct keys *keys;
    struct error err;
    (void)state;
    keys_path_write("infer: [one]\nhealth: [two]\ncontrol: [three]\n");
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    keys_path_write("infer: [one]\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keys_reload(keys, true), i == 0);
        assert_true(keys_are_required(keys, KEYS_HEALTH));
        assert_int_equal(ask_http(keys, KEYS_HEALTH, "authorization", "Bearer two", challenge),
                         ST_OK);
        assert_int_equal(ask_http(keys, KEYS_CONTROL, "authorization", "Bearer three", challenge),
                         ST_UNAUTHENTICATED);
        assert_false(keys_are_required(keys, KEYS_METADATA)); /* never had keys */
    }
    keys_path_write("infer: [one]\nhealth: open\n");
    assert_true(keys_reload(keys, true));
    assert_false(keys_are_required(keys, KEYS_HEALTH));
    keys_path_write("infer: [one]\ncontrol: open\n"); /* a key of that name */
    assert_true(keys_reload(keys, true));
    assert_true(keys_are_required(keys, KEYS_CONTROL));
    keys_free(keys);
}

static void keys_unreadable_file_error_names_path(void **state) {
    struct keys *keys;
    struct error err;
    (void)state;
    unlink(keys_path);
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_IO);
    assert_non_null(strstr(err.text, keys_path));
    keys_path_write("infer: []\n");
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, keys_path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_file_each_text_parses_or_names_error),
        cmocka_unit_test(keys_file_error_text_contains_no_key),
        cmocka_unit_test(keys_file_each_value_is_accepted_or_refused),
        cmocka_unit_test(keys_file_sha256_entry_accepts_only_key),
        cmocka_unit_test(keys_http_missing_key_gets_challenge),
        cmocka_unit_test(keys_changed_file_is_reloaded),
        cmocka_unit_test(keys_change_counts_when_two_looks_agree),
        cmocka_unit_test(keys_group_left_out_keeps_its_keys),
        cmocka_unit_test(keys_unreadable_file_error_names_path),
    };
    return cmocka_run_group_tests(tests, keys_path_make, keys_path_remove);
}
