/* Errors of libsluice as the commands print them, and metadata that cannot be sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "program/requests/command_client.h"

static struct client_url parse(struct arena *arena, const char *text) {
    struct client_url url;
    struct error err;
    assert_int_equal(client_url_parse(arena, str_of(text), &url, &err), ST_OK);
    return url;
}

static void error_of_library_becomes_error_of_command(void **state) {
    static const struct {
        sluice_client_status given;
        enum status status;
    } rows[] = {
        {SLUICE_CLIENT_CONNECT, ST_IO},           {SLUICE_CLIENT_TIMEOUT, ST_DEADLINE_EXCEEDED},
        {SLUICE_CLIENT_SERVER_ERROR, ST_REFUSED}, {SLUICE_CLIENT_TLS, ST_IO},
        {SLUICE_CLIENT_INVALID, ST_BAD_CONFIG},   {SLUICE_CLIENT_TOO_LARGE, ST_BODY_TOO_LARGE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const sluice_client_error error = {
            .size = sizeof(error), .status = rows[i].given, .text = "a text"};
        struct error err;
        assert_int_equal(command_client_error(&error, &err), rows[i].status);
        assert_string_equal(err.text, "a text");
    }
}

static void metadata_that_cannot_be_sent_is_a_usage_error(void **state) {
    static const char *const rows[] = {"a", "=b", "A=b", "a b=c", "a=\x01", "grpc-x=1", "te=x"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_url url = parse(arena, "grpc://h:1");
        const char *text = rows[i];
        struct option_texts metadata = {.items = &text, .n = 1};
        struct command_client_options options = {.server = &url, .metadata = &metadata};
        struct command_client client;
        struct error err;
        assert_int_equal(command_client_open(&options, &client, &err), ST_BAD_CONFIG);
        assert_memory_equal(err.text, "--metadata", 10);
        assert_null(client.client);
        text = "a-bin=\x01";
        assert_int_equal(command_client_open(&options, &client, &err), ST_OK);
        command_client_close(&client);
        command_client_close(&client);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_of_library_becomes_error_of_command),
        cmocka_unit_test(metadata_that_cannot_be_sent_is_a_usage_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
