/* The public functions, as an application calls them, against scripted answers. */
#include "sluice/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_server.h"

/* An answer with Content-Length. */
#define ANSWER(code, fields, length, body)                                                         \
    "HTTP/1.1 " code "\r\n" fields "Content-Length: " length "\r\n\r\n" body

static sluice_client *open_client(const char *url) {
    sluice_client_options options = {.size = sizeof(options), .url = url};
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    return client;
}

static void api_open_bad_options_are_invalid(void **state) {
    (void)state;
    static const char *const urls[] = {"", "localhost:8000", "http://h:0", NULL};
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        sluice_client_options options = {.size = sizeof(options), .url = urls[i]};
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
        assert_null(client);
        assert_int_equal(error.status, SLUICE_CLIENT_INVALID);
        assert_int_equal(error.http_status, 0);
        assert_true(strlen(error.text) > 10);
    }
    static const char *const grpc_urls[] = {"grpc://x:1", "grpc+unix:/x"};
    for (size_t i = 0; i < sizeof(grpc_urls) / sizeof(*grpc_urls); i++) {
        sluice_client_options options = {.size = sizeof(options), .url = grpc_urls[i]};
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
        sluice_client_close(client);
    }
    sluice_client_options no_size = {.url = "http://h"};
    assert_int_equal(sluice_client_open(&no_size, &client, NULL), SLUICE_CLIENT_INVALID);
    /* a caller compiled with an older header */
    sluice_client_options shorter = {.size = offsetof(sluice_client_options, idle_timeout_ns),
                                     .url = "http://h"};
    memset((char *)&shorter + shorter.size, 0x55, sizeof(shorter) - shorter.size);
    assert_int_equal(sluice_client_open(&shorter, &client, NULL), SLUICE_CLIENT_OK);
    sluice_client_close(client);
    sluice_client_close(NULL);
}

/* A caller compiled with a newer header: members that this library does not have must be zero. */
static void api_newer_struct_is_refused_if_it_sets_more(void **state) {
    (void)state;
    struct newer_options {
        sluice_client_options known;
        uint64_t added;
    } options = {.known = {.size = sizeof(options), .url = "https://h"}};
    struct newer_header {
        sluice_header known;
        const char *added;
    } headers[2] = {{.known = {.size = sizeof(*headers), .name = "a", .value = "b"}},
                    {.known = {.size = sizeof(*headers), .name = "c", .value = "d"}}};
    sluice_tls_options tls = {.size = sizeof(tls), .insecure = 1};
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    options.known.headers = &headers[0].known;
    options.known.n_headers = 2;
    options.known.tls = &tls;
    sluice_client_status status = sluice_client_open(&options.known, &client, &error);
    bool has_tls = status == SLUICE_CLIENT_OK;
    assert_true(has_tls || strstr(error.text, "this build has no TLS"));
    sluice_client_close(client);

    options.added = 1;
    assert_int_equal(sluice_client_open(&options.known, &client, &error),
                     SLUICE_CLIENT_UNSUPPORTED);
    assert_null(client);
    assert_non_null(strstr(
        error.text, "sluice_client_options is not zero after the members that libsluice 1."));
    options.added = 0;
    headers[1].added = "x";
    assert_int_equal(sluice_client_open(&options.known, &client, &error),
                     SLUICE_CLIENT_UNSUPPORTED);
    assert_true(!has_tls || strstr(error.text, "sluice_header is not zero after"));
    headers[1].added = NULL;
    tls.reserved = 1;
    assert_int_equal(sluice_client_open(&options.known, &client, &error),
                     SLUICE_CLIENT_UNSUPPORTED);
    assert_true(!has_tls || strstr(error.text, "sluice_tls_options is not zero"));
    options.known.size = SIZE_MAX; /* was not set */
    assert_int_equal(sluice_client_open(&options.known, &client, &error), SLUICE_CLIENT_INVALID);
    assert_non_null(strstr(error.text, "set its `size`"));
}

static void api_health_status_decides_yes(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {ANSWER("200 OK", "", "13", "{\"live\":true}"), ANSWER("503 x", "", "0", ""),
                   ANSWER("200 OK", "", "0", ""), ANSWER("404 x", "", "0", "")}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    int32_t yes = 0;
    assert_int_equal(sluice_client_is_live(client, NULL, &yes, &error), SLUICE_CLIENT_OK);
    assert_int_equal(yes, 1);
    assert_int_equal(sluice_client_is_ready(client, NULL, &yes, &error), SLUICE_CLIENT_OK);
    assert_int_equal(yes, 0);
    assert_int_equal(sluice_client_model_is_ready(client, "a b", "2", NULL, &yes, &error),
                     SLUICE_CLIENT_OK);
    assert_int_equal(yes, 1);
    assert_int_equal(sluice_client_model_is_ready(client, "a/b", NULL, NULL, &yes, &error),
                     SLUICE_CLIENT_OK);
    assert_int_equal(yes, 0);
    assert_int_equal(sluice_client_model_is_ready(client, NULL, NULL, NULL, &yes, &error),
                     SLUICE_CLIENT_INVALID);
    sluice_client_close(client);
    test_server_stop(&server);
    assert_memory_equal(server.request, "GET /v2/models/a%2Fb/ready HTTP/1.1\r\n", 37);
}

static void api_metadata_answer_is_exported(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {
             ANSWER("200 OK", "", "53",
                    "{\"name\":\"s\",\"version\":\"1.2\",\"extensions\":[\"a\",\"bc\"]} "),
             ANSWER("200 OK", "", "170",
                    "{\"name\":\"m\",\"versions\":[\"2\",\"3\"],\"platform\":\"p\",\"inputs\":["
                    "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,4]}],\"outputs\":["
                    "{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":[-1]}]}        "),
             ANSWER("404 x", "", "23", "{\"error\":\"no model m\"} ")}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};

    sluice_server_metadata about = {.size = sizeof(about)};
    sluice_call *call;
    assert_int_equal(sluice_client_server_metadata(client, NULL, &call, &error), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_server(call, &about), SLUICE_CLIENT_OK);
    assert_string_equal(about.name, "s");
    assert_string_equal(about.version, "1.2");
    assert_int_equal(about.n_extensions, 2);
    assert_string_equal(about.extensions[1], "bc");
    sluice_call_free(call);

    sluice_model_metadata model = {.size = sizeof(model)};
    sluice_tensor_spec spec = {.size = sizeof(spec)};
    assert_int_equal(sluice_client_model_metadata(client, "m", NULL, NULL, &call, &error),
                     SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_model(call, &model), SLUICE_CLIENT_OK);
    assert_string_equal(model.name, "m");
    assert_string_equal(model.version, "3");
    assert_string_equal(model.platform, "p");
    assert_int_equal(model.n_inputs, 1);
    assert_int_equal(model.n_outputs, 1);
    assert_int_equal(sluice_call_model_input(call, 0, &spec), SLUICE_CLIENT_OK);
    assert_int_equal(spec.datatype, SLUICE_FP32);
    assert_int_equal(spec.rank, 2);
    assert_int_equal(spec.dims[0], -1);
    assert_int_equal(sluice_call_model_output(call, 0, &spec), SLUICE_CLIENT_OK);
    assert_string_equal(spec.name, "y");
    assert_int_equal(spec.datatype, SLUICE_BYTES);
    assert_int_equal(sluice_call_model_output(call, 1, &spec), SLUICE_CLIENT_NOT_FOUND);
    sluice_call_free(call);

    /* a call that has failed is there too */
    assert_int_equal(sluice_client_model_metadata(client, "m", NULL, NULL, &call, &error),
                     SLUICE_CLIENT_SERVER_ERROR);
    assert_int_equal(error.http_status, 404);
    assert_non_null(strstr(error.text, "no model m"));
    assert_non_null(call);
    assert_int_equal(sluice_call_model(call, &model), SLUICE_CLIENT_INVALID);
    sluice_call_free(call);
    sluice_client_close(client);
    test_server_stop(&server);
}

static const int64_t dims[] = {1, 2};
static const float values[] = {1.0f, 2.5f};
static const sluice_tensor input = {.size = sizeof(sluice_tensor),
                                    .name = "x",
                                    .datatype = SLUICE_FP32,
                                    .dims = dims,
                                    .rank = 2,
                                    .data = values,
                                    .n_bytes = sizeof(values)};

/* Returns: the body of the last request. */
static const char *body_of(struct test_server *server) {
    char *end = memmem(server->request, server->n_request, "\r\n\r\n", 4);
    assert_non_null(end);
    return end + 4;
}

#define BINARY_JSON                                                                                \
    "{\"id\":\"7\",\"model_name\":\"m\",\"model_version\":\"3\",\"parameters\":{\"p\":true},"      \
    "\"outputs\":[{\"name\":\"y\",\"datatype\":\"INT16\",\"shape\":[3],\"parameters\":"            \
    "{\"binary_data_size\":6}}]}"

static void api_infer_binary_tensors_round_trip(void **state) {
    (void)state;
    static const char body[] = BINARY_JSON "\1\0\2\0\xff\xff";
    static char text[1024];
    size_t n_json = sizeof(BINARY_JSON) - 1;
    int n = snprintf(text, sizeof(text),
                     "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: %zu\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     n_json, n_json + 6);
    memcpy(text + n, body, n_json + 6);
    struct script script = {.texts = {text}, .n_bytes = {(size_t)n + n_json + 6}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, &script, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    static const sluice_wanted wanted = {.size = sizeof(wanted), .name = "y"};
    static const sluice_parameter param = {
        .size = sizeof(param), .name = "k", .kind = SLUICE_PARAM_INT64, .int64 = -3};
    sluice_infer_request request = {.size = sizeof(request),
                                    .model = "m",
                                    .version = "3",
                                    .id = "7",
                                    .inputs = &input,
                                    .n_inputs = 1,
                                    .wanted = &wanted,
                                    .n_wanted = 1,
                                    .params = &param,
                                    .n_params = 1};
    sluice_answer_info answer = {.size = sizeof(answer)};
    sluice_call *call;
    if (sluice_client_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    sluice_tensor output = {.size = sizeof(output)};
    sluice_parameter made = {.size = sizeof(made)};
    assert_int_equal(sluice_call_answer(call, &answer), SLUICE_CLIENT_OK);
    assert_string_equal(answer.id, "7");
    assert_string_equal(answer.model, "m");
    assert_string_equal(answer.version, "3");
    assert_int_equal(answer.n_params, 1);
    assert_int_equal(sluice_call_param(call, 0, &made), SLUICE_CLIENT_OK);
    assert_string_equal(made.name, "p");
    assert_int_equal(made.boolean, 1);
    assert_int_equal(sluice_call_find_param(call, "p", &made), SLUICE_CLIENT_OK);
    assert_int_equal(answer.n_outputs, 1);
    assert_int_equal(sluice_call_find_output(call, "y", &output), SLUICE_CLIENT_OK);
    assert_string_equal(output.name, "y");
    assert_int_equal(output.datatype, SLUICE_INT16);
    assert_int_equal(output.dims[0], 3);
    assert_memory_equal(output.data, "\1\0\2\0\xff\xff", 6);
    assert_int_equal((uintptr_t)output.data % 64, 0);
    sluice_call_free(call);
    sluice_client_close(client);
    test_server_stop(&server);
    assert_memory_equal(server.request, "POST /v2/models/m/versions/3/infer HTTP/1.1\r\n", 45);
    assert_memory_equal(server.request + server.n_request - 8, values, 8);
    assert_non_null(memmem(server.request, server.n_request, "\"k\":-3", 6));
    assert_null(memmem(server.request, server.n_request, "timeout", 7)); /* the default */
}

static void api_infer_json_tensors_round_trip(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {
             ANSWER("200 OK", "", "91",
                    "{\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"BYTES\","
                    "\"shape\":[1],\"data\":[\"hi\"]}]}   "),
             ANSWER("400 x", "", "19", "{\"error\":\"no good\"}")}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    sluice_infer_request request = {.size = sizeof(request),
                                    .model = "m",
                                    .inputs = &input,
                                    .n_inputs = 1,
                                    .form = SLUICE_FORM_JSON};
    sluice_answer_info answer = {.size = sizeof(answer)};
    sluice_call *call;
    if (sluice_client_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    sluice_tensor output = {.size = sizeof(output)};
    assert_int_equal(sluice_call_answer(call, &answer), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_output(call, 0, &output), SLUICE_CLIENT_OK);
    assert_string_equal(answer.id, "");
    assert_string_equal(answer.version, "");
    assert_int_equal(output.n_bytes, 6);
    assert_memory_equal(output.data, "\2\0\0\0hi", 6);
    sluice_call_free(call);
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_SERVER_ERROR);
    assert_int_equal(error.http_status, 400);
    assert_non_null(strstr(error.text, "no good"));
    sluice_client_close(client);
    test_server_stop(&server);
    assert_non_null(memmem(server.request, server.n_request, "\"data\":[1", 9));
    assert_null(memmem(server.request, server.n_request, "Inference-Header", 16));
}

/* A timeout that the caller has set, unless the request has one of its own. */
static void api_infer_timeout_is_a_parameter(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {ANSWER("200 OK", "", "31", "{\"model_name\":\"m\",\"outputs\":[]}")}}};
    const sluice_parameter own = sluice_parameter_int64("timeout", 5);
    static const struct {
        uint64_t of_client_ns, of_call_ns;
        size_t n_params;
        const char *wanted;
    } rows[] = {
        {0, 60000000001, 0, "\"timeout\":60000001}"},
        {70000000000, 0, 0, "\"timeout\":70000000}"},
        {70000000000, 60000000000, 0, "\"timeout\":60000000}"},
        {70000000000, 0, 1, "\"timeout\":5}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct test_server server;
        char url[URL_BYTES];
        test_server_start(&server, url, scripts, 1);
        const sluice_client_options options = {
            .size = sizeof(options), .url = url, .timeout_ns = rows[i].of_client_ns};
        const sluice_call_options of_call = {.size = sizeof(of_call),
                                             .timeout_ns = rows[i].of_call_ns};
        const sluice_infer_request request = {.size = sizeof(request),
                                              .model = "m",
                                              .inputs = &input,
                                              .n_inputs = 1,
                                              .params = &own,
                                              .n_params = rows[i].n_params};
        sluice_client *client;
        sluice_call *call;
        assert_int_equal(sluice_client_open(&options, &client, NULL), SLUICE_CLIENT_OK);
        assert_int_equal(sluice_client_infer(client, &request, &of_call, &call, NULL),
                         SLUICE_CLIENT_OK);
        sluice_client_close(client);
        test_server_stop(&server);
        assert_non_null(
            memmem(server.request, server.n_request, rows[i].wanted, strlen(rows[i].wanted)));
    }
}

static void api_infer_raw_request_sends_bytes_only(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {ANSWER("200 OK", "", "35", "{\"model_name\":\"m\",\"outputs\":[]}    ")}}};
    struct test_server server;
    char url[URL_BYTES];
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    sluice_infer_request request = {.size = sizeof(request),
                                    .model = "m",
                                    .inputs = &input,
                                    .n_inputs = 1,
                                    .form = SLUICE_FORM_RAW};
    sluice_answer_info answer = {.size = sizeof(answer)};
    sluice_call *call;
    if (sluice_client_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(sluice_call_answer(call, &answer), SLUICE_CLIENT_OK);
    assert_int_equal(answer.n_outputs, 0);
    sluice_client_close(client);
    test_server_stop(&server);
    assert_non_null(
        memmem(server.request, server.n_request, "Inference-Header-Content-Length: 0\r\n", 36));
    assert_memory_equal(body_of(&server), values, 8);
    assert_ptr_equal(body_of(&server) + 8, server.request + server.n_request);
}

/* Documents are given as they came, if they are JSON. */
static void api_documents_are_given_as_received(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {ANSWER("200 OK", "", "16", "{\"name\": \"m\\n\" }"),
                   ANSWER("200 OK", "", "2", "{}"), ANSWER("200 OK", "", "3", "[ ]"),
                   ANSWER("404 x", "", "16", "{\"error\":\"none\"}"),
                   ANSWER("200 OK", "", "4", "{\"a\""), ANSWER("200 OK", "", "0", "")}}};
    struct test_server server;
    char url[URL_BYTES];
    sluice_call *call;
    const char *text = "unset";
    size_t n = 7;
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    assert_int_equal(sluice_client_model_config(client, "m", NULL, NULL, &call, &error),
                     SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_text(call, &text, &n), SLUICE_CLIENT_OK);
    assert_string_equal(text, "{\"name\": \"m\\n\" }");
    assert_int_equal(n, 16);
    sluice_call_free(call);
    assert_int_equal(sluice_client_statistics(client, NULL, NULL, NULL, &call, &error),
                     SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_text(call, &text, NULL), SLUICE_CLIENT_OK);
    assert_string_equal(text, "{}");
    sluice_call_free(call);
    assert_int_equal(sluice_client_repository_index(client, NULL, &call, &error), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_call_text(call, &text, NULL), SLUICE_CLIENT_OK);
    assert_string_equal(text, "[ ]");
    sluice_call_free(call);
    assert_int_equal(sluice_client_statistics(client, "m", "1", NULL, &call, &error),
                     SLUICE_CLIENT_SERVER_ERROR);
    assert_int_equal(sluice_call_text(call, &text, NULL), SLUICE_CLIENT_INVALID);
    sluice_call_free(call);
    /* malformed, and empty */
    assert_int_equal(sluice_client_repository_index(client, NULL, &call, &error),
                     SLUICE_CLIENT_PROTOCOL);
    assert_non_null(strstr(error.text, "the server's answer"));
    sluice_call_free(call);
    assert_int_equal(sluice_client_model_config(client, "m", "1", NULL, &call, &error),
                     SLUICE_CLIENT_PROTOCOL);
    assert_int_equal(sluice_client_model_config(client, "", "1", NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    sluice_client_close(client);
    test_server_stop(&server);
    assert_memory_equal(server.request, "GET /v2/models/m/versions/1/config HTTP/1.1\r\n", 45);
}

static void api_load_and_unload_post_their_parameters(void **state) {
    (void)state;
    static const struct script loads[] = {
        {.texts = {ANSWER("200 OK", "", "0", ""),
                   ANSWER("400 x", "", "20", "{\"error\":\"no model\"}")}}};
    static const struct script unloads[] = {{.texts = {ANSWER("200 OK", "", "2", "{}")}}};
    struct test_server server;
    char url[URL_BYTES];
    sluice_client_error error = {.size = sizeof(error)};
    test_server_start(&server, url, loads, 1);
    sluice_client *client = open_client(url);
    assert_int_equal(sluice_client_load(client, "m", NULL, NULL, &error), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_client_load(client, "a/b", "{\"x\":\"y\"}", NULL, &error),
                     SLUICE_CLIENT_SERVER_ERROR);
    assert_string_equal(error.text, "no model (HTTP 400)");
    assert_int_equal(sluice_client_load(client, "m", "\xff", NULL, &error), SLUICE_CLIENT_INVALID);
    assert_int_equal(sluice_client_load(client, NULL, NULL, NULL, &error), SLUICE_CLIENT_INVALID);
    sluice_client_close(client);
    test_server_stop(&server);
    server.request[server.n_request] = '\0';
    assert_memory_equal(server.request, "POST /v2/repository/models/a%2Fb/load HTTP/1.1\r\n", 48);
    assert_string_equal(body_of(&server),
                        "{\"parameters\":{\"config\":\"{\\\"x\\\":\\\"y\\\"}\"}}");
    test_server_start(&server, url, unloads, 1);
    client = open_client(url);
    assert_int_equal(sluice_client_unload(client, "m", NULL, &error), SLUICE_CLIENT_OK);
    sluice_client_close(client);
    test_server_stop(&server);
    server.request[server.n_request] = '\0';
    assert_memory_equal(server.request, "POST /v2/repository/models/m/unload HTTP/1.1\r\n", 46);
    assert_string_equal(body_of(&server), "{}");
}

/* The elements of an array have the size of the first one: a caller that was compiled with a longer
 * struct is understood, and one whose elements lack a size is not. */
static void api_array_elements_are_read_by_their_size(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {ANSWER("200 OK", "", "35", "{\"model_name\":\"m\",\"outputs\":[]}    ")}}};
    struct longer {
        sluice_tensor tensor;
        char later[24];
    } inputs[2];
    struct test_server server;
    char url[URL_BYTES];
    sluice_call *call;
    test_server_start(&server, url, scripts, 1);
    sluice_client *client = open_client(url);
    sluice_client_error error = {.size = sizeof(error)};
    memset(inputs, 0, sizeof(inputs)); /* also `later`, which this library does not have */
    inputs[0].tensor = inputs[1].tensor = input;
    inputs[0].tensor.size = inputs[1].tensor.size = sizeof(struct longer);
    inputs[1].tensor.name = "second";
    sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .inputs = &inputs[0].tensor, .n_inputs = 2};
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK);
    sluice_call_free(call);
    inputs[1].tensor.size = sizeof(sluice_tensor);
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    assert_null(call);
    assert_non_null(strstr(error.text, "sluice_tensor 1 of an array has the size"));
    inputs[0].tensor.size = 0;
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    assert_non_null(strstr(error.text, "sluice_tensor was given without its size"));
    static const sluice_wanted wanted[] = {{.size = sizeof(sluice_wanted), .name = "a"},
                                           {.size = sizeof(sluice_wanted)}};
    inputs[0].tensor = input;
    request.n_inputs = 1, request.wanted = wanted, request.n_wanted = 2;
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    assert_non_null(strstr(error.text, "output 1 lacks a name, unlike the first"));
    sluice_client_close(client);
    test_server_stop(&server);
    assert_non_null(memmem(server.request, server.n_request, "second", 6));
}

/* A client's headers go with each call, a call's replace them; those of the answer can be read. */
static void api_headers_are_sent_and_received(void **state) {
    (void)state;
    static const struct script scripts[] = {
        {.texts = {
             ANSWER("200 OK", "X-One: 1\r\nx-two:  a b \r\nX-One: 2\r\n", "12", "{\"name\":\"s\"}"),
             ANSWER("429 x", "Retry-After: 7\r\n", "15", "{\"error\":\"no\"} "),
             ANSWER("200 OK", "", "0", "")}}};
    static const sluice_header of_client[] = {
        {.size = sizeof(sluice_header), .name = "User-Agent", .value = "me/1"},
        {.size = sizeof(sluice_header), .name = "X-Tenant", .value = "a"}};
    static const sluice_header of_call = {
        .size = sizeof(of_call), .name = "x-tenant", .value = "b"};
    struct test_server server;
    char url[URL_BYTES], token[] = "secret";
    test_server_start(&server, url, scripts, 1);
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = url,
                                           .headers = of_client,
                                           .n_headers = 2,
                                           .bearer_token = token};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
    memset(token, 'x', sizeof(token) - 1); /* the client has copied it */
    sluice_call *first, *second;
    sluice_header header = {.size = sizeof(header)};
    assert_int_equal(sluice_client_server_metadata(client, NULL, &first, &error), SLUICE_CLIENT_OK);
    assert_int_equal(sluice_client_server_metadata(client, NULL, &second, &error),
                     SLUICE_CLIENT_SERVER_ERROR);
    assert_int_equal(error.http_status, 429);
    assert_int_equal(sluice_call_find_header(second, "retry-after", &header), SLUICE_CLIENT_OK);
    assert_string_equal(header.value, "7");
    /* those of the first answer are still there */
    assert_int_equal(sluice_call_header(first, 1, &header), SLUICE_CLIENT_OK);
    assert_string_equal(header.name, "x-two");
    assert_string_equal(header.value, "a b");
    assert_int_equal(header.value_bytes, 3);
    assert_int_equal(sluice_call_find_header(first, "X-ONE", &header), SLUICE_CLIENT_OK);
    assert_string_equal(header.value, "1");
    assert_int_equal(sluice_call_header(first, 4, &header), SLUICE_CLIENT_NOT_FOUND);
    assert_int_equal(sluice_call_find_header(first, "retry-after", &header),
                     SLUICE_CLIENT_NOT_FOUND);
    assert_int_equal(sluice_call_find_header(first, NULL, &header), SLUICE_CLIENT_INVALID);
    sluice_call_free(first);
    const sluice_call_options call_options = {
        .size = sizeof(call_options),
        .headers = &of_call,
        .n_headers = 1,
        .traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    assert_int_equal(sluice_client_ping(client, &call_options, &error), SLUICE_CLIENT_OK);
    sluice_client_close(client);
    test_server_stop(&server);
    server.request[server.n_request] = '\0';
    assert_non_null(strstr(server.request, "\r\nUser-Agent: me/1\r\n"
                                           "Authorization: Bearer secret\r\n"
                                           "x-tenant: b\r\n"
                                           "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-"
                                           "00f067aa0ba902b7-01\r\n\r\n"));
}

static void api_invalid_headers_are_refused(void **state) {
    (void)state;
    static const sluice_header bad = {.size = sizeof(bad), .name = "Host", .value = "x"};
    static const char *const urls[] = {"http+unix:/nowhere/at/all", "unix:///nowhere/at/all"};
    sluice_client_error error = {.size = sizeof(error)};
    for (int mip = 0; mip < 2; mip++) {
        sluice_client *client;
        sluice_client_options options = {
            .size = sizeof(options), .url = urls[mip], .headers = &bad, .n_headers = 1};
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_INVALID);
        assert_null(client);
        options.n_headers = 0, options.bearer_token = "a";
        assert_int_equal(sluice_client_open(&options, &client, &error),
                         mip ? SLUICE_CLIENT_UNSUPPORTED : SLUICE_CLIENT_OK);
        sluice_client_close(client);
        options.bearer_token = NULL;
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
        sluice_call_options of_call = {.size = sizeof(of_call), .headers = &bad, .n_headers = 1};
        assert_int_equal(sluice_client_ping(client, &of_call, &error), SLUICE_CLIENT_INVALID);
        of_call = (sluice_call_options){.size = sizeof(of_call), .bearer_token = "a"};
        assert_int_equal(sluice_client_ping(client, &of_call, &error),
                         mip ? SLUICE_CLIENT_UNSUPPORTED : SLUICE_CLIENT_CONNECT);
        sluice_client_close(client);
    }
}

static void api_call_without_its_options_size_is_invalid(void **state) {
    (void)state;
    sluice_call_options options = {.timeout_ns = 1};
    sluice_client *client = open_client("http+unix:/nowhere/at/all");
    sluice_client_error error = {.size = sizeof(error)};
    assert_int_equal(sluice_client_ping(client, &options, &error), SLUICE_CLIENT_INVALID);
    assert_non_null(strstr(error.text, "sluice_call_options was given without its size"));
    options.size = sizeof(options);
    assert_int_equal(sluice_client_ping(client, &options, &error), SLUICE_CLIENT_CONNECT);
    sluice_client_close(client);
}

/* An invalid request fails before a connection is made: no server is listening. */
static void api_invalid_request_is_refused_before_connect(void **state) {
    (void)state;
    enum { SIZE = sizeof(sluice_tensor) };
    static const sluice_tensor bad[] = {
        {SIZE, NULL, SLUICE_FP32, dims, 2, values, 8, NULL, 0},
        {SIZE, "x", SLUICE_FP32, NULL, 2, values, 8, NULL, 0},
        {SIZE, "x", SLUICE_FP32, dims, 2, NULL, 8, NULL, 0},
        {SIZE, "x", SLUICE_FP32, dims, 2, values, 4, NULL, 0},
        {SIZE, "x", SLUICE_FP64, dims, 2, values, 8, NULL, 0},
        {SIZE, "x", 0, dims, 2, values, 8, NULL, 0},
        {SIZE, "x", 15, dims, 2, values, 8, NULL, 0},
        {SIZE, "x", SLUICE_FP32, dims, 65, values, 8, NULL, 0},
    };
    static const sluice_form forms[] = {SLUICE_FORM_BINARY, SLUICE_FORM_JSON, SLUICE_FORM_RAW};
    sluice_client *client = open_client("http+unix:/nowhere/at/all");
    sluice_client_error error = {.size = sizeof(error)};
    sluice_call *call;
    sluice_infer_request request = {.size = sizeof(request), .model = "m", .n_inputs = 1};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        for (size_t k = 0; k < 3; k++) {
            request.inputs = &bad[i];
            request.form = forms[k];
            assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                             SLUICE_CLIENT_INVALID);
        }
    }
    request.inputs = &input;
    request.form = (sluice_form)3;
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    request.form = SLUICE_FORM_BINARY;
    request.model = "";
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_INVALID);
    request.model = "m";
    assert_int_equal(sluice_client_infer(client, &request, NULL, &call, &error),
                     SLUICE_CLIENT_CONNECT);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
    sluice_client_close(client);
}

/* An answer that violates the protocol is the server's error. */
static void api_malformed_answer_is_broken(void **state) {
    (void)state;
    static const char *const answers[] = {
        "SSH-2.0-x\r\n\r\n",
        ANSWER("200 OK", "", "2", "[]"),
        ANSWER("200 OK", "", "1", "{"),
        ANSWER("200 OK", "Content-Encoding: gzip\r\n", "2", "{}"),
        ANSWER("200 OK", "Inference-Header-Content-Length: 3\r\n", "2", "{}"),
        ANSWER("200 OK", "Inference-Header-Content-Length: +2\r\n", "2", "{}"),
        ANSWER(
            "200 OK", "", "68",
            "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"INT8\",\"shape\":[2],\"data\":[1]}]} "),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        struct script script = {.texts = {answers[i]}};
        struct test_server server;
        char url[URL_BYTES];
        test_server_start(&server, url, &script, 1);
        sluice_client *client = open_client(url);
        sluice_client_error error = {.size = sizeof(error)};
        sluice_infer_request request = {
            .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
        sluice_call *call;
        if (sluice_client_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_PROTOCOL) {
            fail_msg("%s: %s", answers[i], error.text);
        }
        assert_non_null(strstr(error.text, "answer"));
        sluice_client_close(client);
        test_server_stop(&server);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(api_open_bad_options_are_invalid),
        cmocka_unit_test(api_newer_struct_is_refused_if_it_sets_more),
        cmocka_unit_test(api_health_status_decides_yes),
        cmocka_unit_test(api_metadata_answer_is_exported),
        cmocka_unit_test(api_documents_are_given_as_received),
        cmocka_unit_test(api_load_and_unload_post_their_parameters),
        cmocka_unit_test(api_array_elements_are_read_by_their_size),
        cmocka_unit_test(api_headers_are_sent_and_received),
        cmocka_unit_test(api_invalid_headers_are_refused),
        cmocka_unit_test(api_call_without_its_options_size_is_invalid),
        cmocka_unit_test(api_infer_binary_tensors_round_trip),
        cmocka_unit_test(api_infer_json_tensors_round_trip),
        cmocka_unit_test(api_infer_timeout_is_a_parameter),
        cmocka_unit_test(api_infer_raw_request_sends_bytes_only),
        cmocka_unit_test(api_invalid_request_is_refused_before_connect),
        cmocka_unit_test(api_malformed_answer_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
