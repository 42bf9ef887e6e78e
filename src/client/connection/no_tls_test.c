/* A build without TLS: its URLs are refused with the reason, the caller's transport works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/connection/test_transport.h"
#include "client/test_expect.h"

static sluice_client_error error = {.size = sizeof(error)};

static void no_tls_urls_are_unsupported(void **state) {
    static const char *const urls[] = {"https://127.0.0.1:1", "grpcs://127.0.0.1:1"};
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        const sluice_client_options options = {.size = sizeof(options), .url = urls[i]};
        sluice_client *client;
        test_expect(&error, sluice_client_open(&options, &client, &error),
                    SLUICE_CLIENT_UNSUPPORTED, "SLUICE_CLIENT_TLS=OFF");
        assert_null(client);
    }
}

static void no_tls_transport_takes_its_place(void **state) {
    struct toy toy = {.fd = -1};
    const sluice_client_transport transport = toy_transport(&toy);
    const sluice_client_options options = {
        .size = sizeof(options), .url = "https://127.0.0.1:1", .transport = &transport};
    sluice_client *client;
    (void)state;
    test_expect(&error, sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_tls_urls_are_unsupported),
        cmocka_unit_test(no_tls_transport_takes_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
