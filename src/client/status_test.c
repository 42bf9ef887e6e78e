/* Names and texts of statuses, the version, and the error's size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/client.h"

static void status_each_has_name_and_text(void **state) {
    (void)state;
    static const struct {
        sluice_client_status status;
        const char *name, *text;
    } rows[] = {
        {SLUICE_CLIENT_OK, "SLUICE_CLIENT_OK", "success"},
        {SLUICE_CLIENT_PENDING, "SLUICE_CLIENT_PENDING", "not done"},
        {SLUICE_CLIENT_INVALID, "SLUICE_CLIENT_INVALID", "arguments"},
        {SLUICE_CLIENT_TLS, "SLUICE_CLIENT_TLS", "TLS"},
        {SLUICE_CLIENT_TOO_LARGE, "SLUICE_CLIENT_TOO_LARGE", "limit"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_string_equal(sluice_status_name(rows[i].status), rows[i].name);
        assert_non_null(strstr(sluice_strerror(rows[i].status), rows[i].text));
    }
    /* every number from the last failure to the first has a name */
    int n_named = 0;
    for (int32_t status = SLUICE_CLIENT_NOT_FOUND; status <= SLUICE_CLIENT_END; status++) {
        n_named += strncmp(sluice_status_name(status), "SLUICE_CLIENT_", 14) == 0;
    }
    assert_int_equal(n_named, 17);
}

static void status_unknown_number_has_a_text(void **state) {
    (void)state;
    static const int32_t numbers[] = {3, 1000, -15, -1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        assert_string_equal(sluice_strerror(numbers[i]), "unknown status");
        assert_string_equal(sluice_status_name(numbers[i]), "unknown status");
    }
}

static void version_text_and_number_agree(void **state) {
    (void)state;
    int32_t number = sluice_version_number();
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", (int)(number / 1000000), (int)(number / 1000 % 1000),
             (int)(number % 1000));
    assert_string_equal(sluice_version(), text);
    assert_int_equal(sluice_version_number(), SLUICE_VERSION_NUMBER);
}

/* The library writes no byte past the size that the caller gives. */
static void error_is_filled_to_its_size(void **state) {
    (void)state;
    const sluice_client_options options = {.size = sizeof(options), .url = "nowhere"};
    static const size_t sizes[] = {sizeof(size_t),
                                   offsetof(sluice_client_error, http_status),
                                   offsetof(sluice_client_error, text),
                                   offsetof(sluice_client_error, text) + 5,
                                   sizeof(sluice_client_error),
                                   SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        sluice_client_error error;
        sluice_client *client = (sluice_client *)&error;
        memset(&error, 0x55, sizeof(error));
        error.size = sizes[i];
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
        assert_null(client);
        assert_true(error.size == sizes[i]);
        for (size_t k = sizes[i]; k < sizeof(error); k++) {
            assert_int_equal(((const char *)&error)[k], 0x55);
        }
        if (sizes[i] >= sizeof(error)) {
            assert_int_equal(error.status, SLUICE_CLIENT_INVALID);
            assert_non_null(strstr(error.text, "did you mean http://nowhere?"));
        }
    }
    assert_int_equal(sluice_client_open(&options, &(sluice_client *){NULL}, NULL),
                     SLUICE_CLIENT_INVALID);
}

static void error_without_size_is_invalid(void **state) {
    (void)state;
    const sluice_client_options options = {.size = sizeof(options), .url = "http://127.0.0.1:1"};
    sluice_client_error error = {0};
    sluice_client *client;
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
    assert_null(client);
    assert_int_equal(error.status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_each_has_name_and_text),
        cmocka_unit_test(status_unknown_number_has_a_text),
        cmocka_unit_test(version_text_and_number_agree),
        cmocka_unit_test(error_is_filled_to_its_size),
        cmocka_unit_test(error_without_size_is_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
