/* A build without c-ares: names are looked up in functions that block, and in no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_server.h"

static void resolver_name_is_looked_up_in_blocking_calls_only(void **state) {
    static const struct script script = {.texts = {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}};
    struct test_server server;
    sluice_client_error error = {.size = sizeof(error)};
    char url[URL_BYTES], named[URL_BYTES];
    sluice_client *client;
    sluice_call *call;
    (void)state;
    test_server_start(&server, url, &script, 1);
    snprintf(named, sizeof(named), "http://localhost:%s", strrchr(url, ':') + 1);
    const sluice_client_options options = {.size = sizeof(options), .url = named};
    test_expect(&error, sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(sluice_client_start_ping(client, NULL, &call, &error), SLUICE_CLIENT_OK);
    sluice_client_step(client);
    test_expect(&error, sluice_call_status(call, &error), SLUICE_CLIENT_RESOLVE,
                "SLUICE_CLIENT_CARES=OFF");
    assert_int_equal(error.may_have_run, 0);
    sluice_call_free(call);
    test_expect(&error, sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
    test_server_stop(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolver_name_is_looked_up_in_blocking_calls_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
