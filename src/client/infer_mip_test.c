/* MIP through the public functions, as an application calls them, against scripted answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_server.h"
#include "sluice/client_mip.h"

#define PING "\0\1\1\0\0\0\0" /* with the terminating NUL */
/* One input, one output, one batch element: a TEXT item. */
#define ANSWER "\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi"
enum { PING_BYTES = sizeof(PING), ANSWER_BYTES = sizeof(ANSWER) - 1 };

static sluice_client_error error = {.size = sizeof(error)};

static sluice_client *open_client(const char *url) {
    sluice_client_options options = {
        .size = sizeof(options), .url = url, .timeout_ns = TEST_TIMEOUT_NS};
    sluice_client *client;
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return client;
}

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
}

static const sluice_mip_item item = {
    .size = sizeof(sluice_mip_item), .type = SLUICE_MIP_TEXT, .data = "hello", .n_bytes = 5};

/* An answer, and its first item. */
struct made {
    sluice_mip_answer answer;
    sluice_mip_item first;
};

static sluice_client_status infer(sluice_client *client, struct made *made) {
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &item, .n_inputs = 1, .batch = 1};
    sluice_call *call;
    sluice_client_status status = sluice_client_mip_infer(client, &request, NULL, &call, &error);
    *made = (struct made){{.size = sizeof(made->answer)}, {.size = sizeof(made->first)}};
    if (status == SLUICE_CLIENT_OK) {
        assert_int_equal(sluice_call_mip_answer(call, &made->answer), SLUICE_CLIENT_OK);
        (void)sluice_call_mip_item(call, 0, &made->first);
        assert_true(made->first.n_bytes == 0 || memcmp(made->first.data, "hi", 2) == 0);
    }
    sluice_call_free(call);
    return status;
}

static void good_infer(sluice_client *client) {
    struct made made;
    expect(infer(client, &made), SLUICE_CLIENT_OK, "");
    assert_int_equal(made.answer.n_inputs, 1);
    assert_int_equal(made.answer.n_outputs, 1);
    assert_int_equal(made.answer.batch, 1);
    assert_int_equal(made.first.type, SLUICE_MIP_TEXT);
    assert_int_equal(made.first.n_bytes, 2);
}

static void api_mip_ping_and_infer_share_connection(void **state) {
    (void)state;
    static const struct script scripts[] = {{.mip = true,
                                             .dribble = true,
                                             .texts = {PING, ANSWER, PING},
                                             .n_bytes = {PING_BYTES, ANSWER_BYTES, PING_BYTES}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    expect(sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_OK, "");
    good_infer(client);
    expect(sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
    test_server_stop(&server);
    assert_int_equal(server.n_requests, 3);
}

/* Like the reference server: one packet, one answer, then it closes the connection. */
static void api_mip_server_closing_each_time_reconnects(void **state) {
    (void)state;
    static const struct script script = {.mip = true, .texts = {ANSWER}, .n_bytes = {ANSWER_BYTES}};
    struct script scripts[20];
    struct test_server server;
    char url[URL_BYTES];
    for (size_t i = 0; i < 20; i++) {
        scripts[i] = script;
    }
    test_server_start(&server, url, scripts, 20);
    sluice_client *client = open_client(url);
    for (int i = 0; i < 20; i++) {
        good_infer(client);
    }
    sluice_client_close(client);
    test_server_stop(&server);
    assert_int_equal(server.n_requests, 20);
}

static void api_mip_unix_socket_path_may_be_relative(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.mip = true, .texts = {ANSWER}, .n_bytes = {ANSWER_BYTES}},
        {.mip = true, .texts = {ANSWER}, .n_bytes = {ANSWER_BYTES}}};
    char folder[] = "/tmp/sluice-mip-XXXXXX", here[4096], url[128];
    struct test_server server;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(here, sizeof(here)));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
    test_server_start_at(&server, (const struct sockaddr *)&address, sizeof(address), scripts, 2);
    snprintf(url, sizeof(url), "unix://%s/s", folder);
    sluice_client *client = open_client(url);
    good_infer(client);
    sluice_client_close(client);
    assert_int_equal(chdir(folder), 0);
    client = open_client("unix://s"); /* the client opens before the server is there */
    good_infer(client);
    sluice_client_close(client);
    assert_int_equal(chdir(here), 0);
    test_server_stop(&server);
    unlink(address.sun_path);
    rmdir(folder);
}

static void api_mip_error_packet_sets_code_and_text(void **state) {
    (void)state;
    static const struct {
        const char *packet;
        size_t n_bytes;
        int32_t code;
        const char *says[2];
    } rows[] = {
        {"\0\0\0\0\0\0\0\0", 8, SLUICE_MIP_PROTOCOL, {"version", "MIP error 0, PROTOCOL"}},
        {"\0\0\1\0\0\0\0\0", 8, SLUICE_MIP_SUBTYPE, {"request", "MIP error 1, SUBTYPE"}},
        {"\0\0\2\0\0\0\0\0", 8, SLUICE_MIP_METHOD, {"kind of call", "MIP error 2, METHOD"}},
        {"\0\0\3\0\0\0\0\0", 8, SLUICE_MIP_MEMORY, {"memory", "MIP error 3, MEMORY"}},
        {"\0\0\4\0\0\0\0\0", 8, SLUICE_MIP_SHAPE, {"fit", "MIP error 4, SHAPE"}},
        {"\0\0\5\0\0\0\0\0", 8, SLUICE_MIP_INTERNAL, {"failed", "MIP error 5, INTERNAL"}},
        {"\0\0\xfa\0\0\0\0\0", 8, 250, {"does not have", "MIP error 250, unknown"}},
        {"\0\0\4\0\0\0\0\3why", 11, SLUICE_MIP_SHAPE, {"fit", "MIP error 4"}},
    };
    enum { N = sizeof(rows) / sizeof(*rows) };
    for (size_t i = 0; i < N; i++) { /* inferences and pings on one connection */
        struct script script = {.mip = true,
                                .texts = {rows[i].packet, rows[i].packet, ANSWER},
                                .n_bytes = {rows[i].n_bytes, rows[i].n_bytes, ANSWER_BYTES}};
        struct test_server server;
        char url[URL_BYTES];
        struct made made;
        test_server_start(&server, url, &script, 1);
        sluice_client *client = open_client(url);
        expect(infer(client, &made), SLUICE_CLIENT_SERVER_ERROR, rows[i].says[0]);
        assert_int_equal(error.mip_error, rows[i].code);
        expect(sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_SERVER_ERROR,
               rows[i].says[1]);
        assert_int_equal(error.mip_error, rows[i].code);
        assert_int_equal(error.http_status, 0);
        good_infer(client);
        sluice_client_close(client);
        test_server_stop(&server);
    }
}

/* An answer that does not match the request is the server's error. */
static void api_mip_malformed_answer_is_broken(void **state) {
    (void)state;
    static const struct {
        const char *packet;
        size_t n_bytes;
        const char *says;
    } rows[] = {
        {"\0\2\1\0\0\0\0\x0e\1\1\0\2\0\0\0\1\0\0\0\2hi", 22, "item 1 of 2"},
        {"\0\2\1\0\0\0\0\4\1\0\0\2", 12, "expected batch size 1 as in the request, got 2"},
        {"\0\2\1\0\0\0\0\4\1\0\0\0", 12, "the server's answer: expected a batch size from 1"},
        {"\0\2\1\0\0\0\0\4\2\0\0\1", 12, "expected n-input 1 as in the request, got 2"},
        {"\0\2\1\0\0\0\0\4\0\0\0\1", 12, "expected n-input 1 as in the request, got 0"},
        {"\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\1hi", 22, "1 bytes more after them"},
        {"\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\xff\xff\xff\xffhi", 22, "expected 4294967295 bytes"},
        {"\0\2\1\0\0\0\0\3\1\1\0", 11, "at least 4 bytes"},
        {"\0\2\0\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi", 22, "got kind 2 and subtype 0"},
        {"\1\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi", 22, "not MIP version 0"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28, "not MIP but HTTP"},
        {PING, PING_BYTES, "got kind 1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct script scripts[] = {
            {.mip = true, .texts = {rows[i].packet}, .n_bytes = {rows[i].n_bytes}},
            {.mip = true, .texts = {ANSWER}, .n_bytes = {ANSWER_BYTES}}};
        struct test_server server;
        char url[URL_BYTES];
        struct made made;
        test_server_start(&server, url, scripts, 2);
        sluice_client *client = open_client(url);
        expect(infer(client, &made), SLUICE_CLIENT_PROTOCOL, rows[i].says);
        assert_int_equal(error.mip_error, -1);
        good_infer(client);
        sluice_client_close(client);
        test_server_stop(&server);
    }
}

/* An answer may have no outputs; unknown item types are passed on. */
static void api_mip_empty_or_unknown_item_is_accepted(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.mip = true,
         .texts = {"\0\2\1\0\0\0\0\4\1\0\0\1", "\0\2\1\0\0\0\0\x0c\1\1\0\1\0\0\0\x63\0\0\0\0"},
         .n_bytes = {12, 20}}};
    struct test_server server;
    char url[URL_BYTES];
    struct made made;
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    expect(infer(client, &made), SLUICE_CLIENT_OK, "");
    assert_int_equal(made.answer.n_outputs, 0);
    expect(infer(client, &made), SLUICE_CLIENT_OK, "");
    assert_int_equal(made.first.type, 99);
    assert_int_equal(made.first.n_bytes, 0);
    sluice_client_close(client);
    test_server_stop(&server);
}

/* An invalid request fails before a connection is made: no server is listening. */
static void api_mip_invalid_request_is_refused_before_connect(void **state) {
    (void)state;
    static const sluice_mip_item bad_type = {sizeof(sluice_mip_item), (sluice_mip_type)4, "x", 1};
    static const sluice_mip_item no_type = {sizeof(sluice_mip_item), (sluice_mip_type)0, "x", 1};
    static const sluice_mip_item no_data = {
        .size = sizeof(sluice_mip_item), .type = SLUICE_MIP_TEXT, .data = NULL, .n_bytes = 1};
    static const sluice_mip_item large[] = {{.size = sizeof(sluice_mip_item),
                                             .type = SLUICE_MIP_IMAGE,
                                             .data = "x",
                                             .n_bytes = UINT32_MAX},
                                            {.size = sizeof(sluice_mip_item),
                                             .type = SLUICE_MIP_IMAGE,
                                             .data = "x",
                                             .n_bytes = SIZE_MAX}};
    static const struct {
        const sluice_mip_item *items;
        uint32_t n_inputs, batch;
        const char *says;
    } rows[] = {
        {&item, 0, 1, "n_inputs: expected 1 to 255, got 0"},
        {&item, 256, 1, "n_inputs: expected 1 to 255, got 256"},
        {&item, 1, 0, "batch: expected 1 to 65535, got 0"},
        {&item, 1, 65536, "batch: expected 1 to 65535, got 65536"},
        {&item, UINT32_MAX, UINT32_MAX, "n_inputs"},
        {NULL, 1, 1, "no items"},
        {&bad_type, 1, 1, "item 0: expected type 1 (text), 2 (JSON) or 3 (image), got 4"},
        {&no_type, 1, 1, "got 0"},
        {&no_data, 1, 1, "item 0 lacks its data"},
        {&large[0], 1, 1, "at most 4294967295 bytes"},
        {&large[1], 1, 1, "at most 4294967295 bytes"},
    };
    sluice_client *client = open_client("unix:///nowhere/at/all");
    struct made made;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const sluice_mip_request request = {.size = sizeof(request),
                                            .items = rows[i].items,
                                            .n_inputs = rows[i].n_inputs,
                                            .batch = rows[i].batch};
        sluice_call *call;
        expect(sluice_client_mip_infer(client, &request, NULL, &call, &error),
               SLUICE_CLIENT_INVALID, rows[i].says);
        assert_null(call);
        assert_int_equal(error.mip_error, -1);
    }
    const sluice_mip_request no_size = {.items = &item, .n_inputs = 1, .batch = 1};
    const sluice_mip_item no_item_size = {.type = SLUICE_MIP_TEXT};
    const sluice_mip_request bad_items = {
        .size = sizeof(bad_items), .items = &no_item_size, .n_inputs = 1, .batch = 1};
    sluice_call *call;
    expect(sluice_client_mip_infer(client, &no_size, NULL, &call, &error), SLUICE_CLIENT_INVALID,
           "sluice_mip_request was given without its size");
    expect(sluice_client_mip_infer(client, &bad_items, NULL, &call, &error), SLUICE_CLIENT_INVALID,
           "sluice_mip_item was given without its size");
    expect(infer(client, &made), SLUICE_CLIENT_CONNECT, "/nowhere/at/all");
    sluice_client_close(client);
}

/* A call of the other protocol reports which URLs are valid for it. */
static void api_mip_http_call_on_mip_url_is_unsupported(void **state) {
    (void)state;
    const sluice_infer_request request = {.size = sizeof(request), .model = "m"};
    struct made made;
    sluice_call *call;
    int32_t yes = 7;
    sluice_client *client = open_client("tcp://127.0.0.1:1");
    const char *says = "http+unix:/path/to.sock";
    expect(sluice_client_is_live(client, NULL, &yes, &error), SLUICE_CLIENT_UNSUPPORTED, says);
    assert_int_equal(yes, 0);
    expect(sluice_client_is_ready(client, NULL, &yes, &error), SLUICE_CLIENT_UNSUPPORTED, says);
    expect(sluice_client_model_is_ready(client, "m", NULL, NULL, &yes, &error),
           SLUICE_CLIENT_UNSUPPORTED, says);
    expect(sluice_client_server_metadata(client, NULL, &call, &error), SLUICE_CLIENT_UNSUPPORTED,
           says);
    expect(sluice_client_model_metadata(client, "m", NULL, NULL, &call, &error),
           SLUICE_CLIENT_UNSUPPORTED, says);
    expect(sluice_client_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_UNSUPPORTED,
           says);
    sluice_client_close(client);
    client = open_client("http://127.0.0.1:1");
    expect(infer(client, &made), SLUICE_CLIENT_UNSUPPORTED, "tcp://HOST:PORT or unix:///");
    sluice_client_close(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(api_mip_ping_and_infer_share_connection),
        cmocka_unit_test(api_mip_server_closing_each_time_reconnects),
        cmocka_unit_test(api_mip_unix_socket_path_may_be_relative),
        cmocka_unit_test(api_mip_error_packet_sets_code_and_text),
        cmocka_unit_test(api_mip_malformed_answer_is_broken),
        cmocka_unit_test(api_mip_empty_or_unknown_item_is_accepted),
        cmocka_unit_test(api_mip_invalid_request_is_refused_before_connect),
        cmocka_unit_test(api_mip_http_call_on_mip_url_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
