/* MIP through the public functions, as a program outside would call them, against scripted answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_server.h"
#include "sluice/client.h"

#define PING "\0\1\1\0\0\0\0"                                 /* and the NUL */
#define ANSWER "\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi" /* one item of text */

static sluice_client *open_client(const char *url) {
    sluice_client_options options = {.size = sizeof(options), .url = url};
    sluice_client *client;
    sluice_client_error error;
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return client;
}

static const sluice_mip_item item = {SLUICE_MIP_TEXT, "hello", 5};
static const sluice_mip_request request = {
    .size = sizeof(request), .items = &item, .n_inputs = 1, .batch = 1};

static void pings_and_infers(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.mip = true, .texts = {PING, ANSWER, PING}, .n_bytes = {8, 22, 8}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error;
    sluice_mip_answer answer = {.size = sizeof(answer)};
    assert_int_equal(sluice_client_ping(client, &error), SLUICE_CLIENT_OK);
    if (sluice_client_mip_infer(client, &request, &answer, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(answer.n_inputs, 1);
    assert_int_equal(answer.n_outputs, 1);
    assert_int_equal(answer.batch, 1);
    assert_int_equal(answer.items[0].type, SLUICE_MIP_TEXT);
    assert_int_equal(answer.items[0].n_bytes, 2);
    assert_memory_equal(answer.items[0].data, "hi", 2);
    assert_int_equal(sluice_client_ping(client, &error), SLUICE_CLIENT_OK);
    sluice_client_close(client);
    test_server_stop(&server);
    assert_int_equal(server.n_requests, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pings_and_infers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
