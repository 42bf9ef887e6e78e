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
        const char *url;
        sluice_client_status given;
        const char *given_text;
        enum status status;
        const char *text;
    } rows[] = {
        {"grpc://h:1", SLUICE_CLIENT_CONNECT, "no connection to h:1: Connection refused", ST_IO,
         "h:1: no connection: connection refused"},
        {"grpc+unix:/a", SLUICE_CLIENT_CONNECT, "no connection to /a: No such file", ST_IO,
         "/a: no connection: no such file"},
        {"grpc://h:1", SLUICE_CLIENT_CONNECT, "no connection to h:1: ", ST_IO,
         "no connection to h:1: "},
        {"grpc://h:1", SLUICE_CLIENT_CONNECT, "h:1: not HTTP/2", ST_IO, "h:1: not HTTP/2"},
        {"http://h:1", SLUICE_CLIENT_CONNECT, "no connection to h:1: Connection refused", ST_IO,
         "no connection to h:1: Connection refused"},
        {"grpc://h:1", SLUICE_CLIENT_TIMEOUT, "timed out", ST_DEADLINE_EXCEEDED,
         "DEADLINE_EXCEEDED: timed out"},
        {"tcp://h:1", SLUICE_CLIENT_TIMEOUT, "timed out", ST_DEADLINE_EXCEEDED, "timed out"},
        {"grpc://h:1", SLUICE_CLIENT_SERVER_ERROR, "NOT_FOUND: a", ST_REFUSED, "NOT_FOUND: a"},
        {"grpc://h:1", SLUICE_CLIENT_TLS, "a", ST_IO, "a"},
        {"grpc://h:1", SLUICE_CLIENT_INVALID, "a", ST_BAD_CONFIG, "a"},
        {"grpc://h:1", SLUICE_CLIENT_TOO_LARGE, "a", ST_BODY_TOO_LARGE, "a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct client_url url = parse(arena, rows[i].url);
        sluice_client_error error = {.size = sizeof(error), .status = rows[i].given};
        struct error err;
        snprintf(error.text, sizeof(error.text), "%s", rows[i].given_text);
        assert_int_equal(command_client_error(&url, &error, &err), rows[i].status);
        assert_string_equal(err.text, rows[i].text);
        arena_free(arena);
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
