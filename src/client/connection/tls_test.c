/* The options of TLS. Handshakes are tests/interop/client's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sluice/client.h"

static void tls_urls_need_no_options(void **state) {
    static const char *const urls[] = {"https://127.0.0.1:1", "grpcs://x:1"};
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        const sluice_client_options options = {.size = sizeof(options), .url = urls[i]};
        sluice_client *client;
        assert_int_equal(sluice_client_open(&options, &client, NULL), SLUICE_CLIENT_OK);
        sluice_client_close(client);
    }
}

/* Files are read, and options without effect refused, before anything is sent. */
static void tls_bad_options_are_invalid(void **state) {
    (void)state;
    static const sluice_client_transport transport = {.size = sizeof(transport)};
    static const struct {
        const char *url;
        sluice_tls_options tls;
        const sluice_client_transport *transport;
        const char *says;
    } rows[] = {
        {"https://127.0.0.1:1", {0}, NULL, "sluice_tls_options was given without its size"},
        {"http://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, NULL, "are for https://"},
        {"tcp://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, NULL, "are for https://"},
        {"https://127.0.0.1:1", {.size = sizeof(rows[0].tls)}, &transport, "without a transport"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .ca_file = "/nowhere/at/all"},
         NULL,
         "ca_file /nowhere/at/all: expected certificates in PEM: No such file"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .cert_file = "/nowhere/at/all"},
         NULL,
         "cert_file /nowhere/at/all: expected a certificate in PEM"},
        {"https://127.0.0.1:1",
         {.size = sizeof(rows[0].tls), .key_file = "/nowhere/at/all"},
         NULL,
         "key_file needs cert_file"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const sluice_client_options options = {.size = sizeof(options),
                                               .url = rows[i].url,
                                               .tls = &rows[i].tls,
                                               .transport = rows[i].transport};
        sluice_client *client;
        sluice_client_error error = {.size = sizeof(error)};
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
        assert_null(client);
        if (!strstr(error.text, rows[i].says)) {
            fail_msg("%zu: %s", i, error.text);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_urls_need_no_options),
        cmocka_unit_test(tls_bad_options_are_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
