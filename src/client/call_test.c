/* Stepped calls against a peer in the same thread: at every split of an answer, at every point
 * of disconnection, cancelled in every state. The next call always succeeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_peer.h"
#include "sluice/client_mip.h"

static struct peer peer;
static sluice_client *client;
static sluice_call *call;
static sluice_client_error error = {.size = sizeof(error)};
static sluice_client_error last_error; /* that the last expect() checked */

static void open_client(bool mip) {
    peer_open(&peer, mip);
    const sluice_client_options options = {
        .size = sizeof(options), .url = peer.url, .timeout_ns = TEST_TIMEOUT_NS};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
}

static void close_client(void) {
    sluice_client_close(client);
    peer_close(&peer);
}

/* Checks status and error, and clears the error. */
static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
    last_error = error;
    memset(&error, 0x55, sizeof(error));
    error.size = sizeof(error);
}

/* ---- the tested calls ------------------------------------------------------------------------ */

static const int64_t dims[] = {3};
static const sluice_tensor input = {.size = sizeof(sluice_tensor),
                                    .name = "x",
                                    .datatype = SLUICE_INT16,
                                    .dims = dims,
                                    .rank = 1,
                                    .data = "\1\0\2\0\3\0",
                                    .n_bytes = 6};
static const sluice_mip_item item = {
    .size = sizeof(sluice_mip_item), .type = SLUICE_MIP_TEXT, .data = "hello", .n_bytes = 5};

static sluice_client_status start_infer(void) {
    const sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
    return sluice_client_start_infer(client, &request, NULL, &call, &error);
}

static void take_infer(void) {
    sluice_answer_info info = {.size = sizeof(info)};
    sluice_tensor output = {.size = sizeof(output)};
    assert_int_equal(sluice_call_answer(call, &info), SLUICE_CLIENT_OK);
    assert_int_equal(info.n_outputs, 1);
    assert_int_equal(sluice_call_output(call, 0, &output), SLUICE_CLIENT_OK);
    assert_memory_equal(output.data, "\1\0\2\0\xff\xff", 6);
}

static sluice_client_status start_ready(void) {
    return sluice_client_start_is_ready(client, NULL, &call, &error);
}

static void take_ready(void) {
    int32_t yes = 7;
    assert_int_equal(sluice_call_yes(call, &yes), SLUICE_CLIENT_OK);
    assert_int_equal(yes, 1);
}

static sluice_client_status start_server(void) {
    return sluice_client_start_server_metadata(client, NULL, &call, &error);
}

static void take_server(void) {
    sluice_server_metadata server = {.size = sizeof(server)};
    assert_int_equal(sluice_call_server(call, &server), SLUICE_CLIENT_OK);
    assert_string_equal(server.name, "s");
}

static sluice_client_status start_model(void) {
    return sluice_client_start_model_metadata(client, "m", "1", NULL, &call, &error);
}

static void take_model(void) {
    sluice_model_metadata model = {.size = sizeof(model)};
    assert_int_equal(sluice_call_model(call, &model), SLUICE_CLIENT_OK);
    assert_string_equal(model.name, "m");
}

static sluice_client_status start_ping(void) {
    return sluice_client_start_ping(client, NULL, &call, &error);
}

static void take_nothing(void) {
}

static sluice_client_status start_mip(void) {
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &item, .n_inputs = 1, .batch = 1};
    return sluice_client_start_mip_infer(client, &request, NULL, &call, &error);
}

static void take_mip(void) {
    sluice_mip_answer answer = {.size = sizeof(answer)};
    sluice_mip_item output = {.size = sizeof(output)};
    assert_int_equal(sluice_call_mip_answer(call, &answer), SLUICE_CLIENT_OK);
    assert_int_equal(answer.n_outputs, 1);
    assert_int_equal(sluice_call_mip_item(call, 0, &output), SLUICE_CLIENT_OK);
    assert_memory_equal(output.data, "hi", 2);
}

#define BYTES(text) (text), sizeof(text) - 1

static const struct case_of {
    const char *name;
    bool mip;
    sluice_client_status (*start)(void);
    void (*take)(void);
    const char *answer;
    size_t n_answer;
} calls[] = {
    {"infer", false, start_infer, take_infer,
     BYTES("HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 97\r\nContent-Length: 103\r\n\r\n"
           "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"INT16\",\"shape\":[3],\"parameters\":"
           "{\"binary_data_size\":6}}]}    \1\0\2\0\xff\xff")},
    {"infer, chunked", false, start_infer, take_infer,
     BYTES("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
           "4a\r\n{\"outputs\":[{\"name\":\"y\",\"datatype\":\"INT16\",\"shape\":[3],\"data\":"
           "[1,2,-1]    \r\n"
           "3\r\n}]}\r\n0\r\n\r\n")},
    {"ready", false, start_ready, take_ready,
     BYTES("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
    {"server", false, start_server, take_server,
     BYTES("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"name\":\"s\"}")},
    {"model", false, start_model, take_model,
     BYTES("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"name\":\"m\"}")},
    {"ping", false, start_ping, take_nothing,
     BYTES("HTTP/1.1 503 x\r\nContent-Length: 2\r\n\r\nno")},
    {"MIP ping", true, start_ping, take_nothing, BYTES("\0\1\1\0\0\0\0\0")},
    {"MIP infer", true, start_mip, take_mip, BYTES("\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi")},
};

enum { N_CALLS = sizeof(calls) / sizeof(*calls) };

/* Starts the call and sends its request. */
static void begin(const struct case_of *row) {
    expect(row->start(), SLUICE_CLIENT_OK, "");
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    (void)peer_accept(&peer);
    assert_true(peer_read(&peer) > 0);
}

/* Sends the rest of its answer. */
static void end(const struct case_of *row, size_t n_sent) {
    peer_send(&peer, row->answer + n_sent, row->n_answer - n_sent);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
    row->take();
    sluice_call_free(call);
}

static void good_call(const struct case_of *row) {
    begin(row);
    end(row, 0);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void call_answer_split_anywhere_completes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        for (size_t cut = 0; cut < calls[i].n_answer; cut++) {
            begin(&calls[i]);
            if (cut > 0) {
                peer_send(&peer, calls[i].answer, cut);
            }
            expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
                   "not done yet");
            end(&calls[i], cut);
        }
        assert_false(peer_accept(&peer)); /* one connection for all */
        close_client();
    }
}

static void call_answer_byte_by_byte_completes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        begin(&calls[i]);
        for (size_t k = 0; k + 1 < calls[i].n_answer; k++) {
            peer_send(&peer, calls[i].answer + k, 1);
            expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
                   "not done yet");
        }
        end(&calls[i], calls[i].n_answer - 1);
        close_client();
    }
}

/* The server closes the connection after each byte of its answer; the next call makes a new one. */
static void call_server_close_fails_and_next_call_reconnects(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        for (size_t cut = 0; cut < calls[i].n_answer; cut++) {
            begin(&calls[i]);
            if (cut > 0) {
                peer_send(&peer, calls[i].answer, cut);
            }
            peer_disconnect(&peer);
            expect(client_run_to_end(client, call, &error),
                   cut == 0 ? SLUICE_CLIENT_CLOSED : SLUICE_CLIENT_PROTOCOL,
                   cut == 0 ? "without an answer" : "in the middle of its answer");
            assert_int_equal(last_error.may_have_run, 1);
            sluice_call_free(call);
            assert_false(peer_accept(&peer)); /* it was the first on its connection */
        }
        good_call(&calls[i]);
        close_client();
    }
}

/* The server refuses all connections. */
static void call_refused_connection_is_unreachable(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        close(peer.listener);
        expect(calls[i].start(), SLUICE_CLIENT_OK, "");
        expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_CONNECT,
               "no connection to /tmp/");
        assert_int_equal(last_error.may_have_run, 0);
        sluice_call_free(call);
        unlink(peer.address.sun_path);
        peer_listen(&peer, 16);
        good_call(&calls[i]);
        close_client();
    }
}

/* ---- retries --------------------------------------------------------------------------------- */

/* The server has closed the idle connection: detected before anything is sent. */
static void call_closed_idle_connection_is_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        for (int n = 0; n < 3; n++) {
            good_call(&calls[i]);
            peer_disconnect(&peer);
        }
        close_client();
    }
}

/* The server sends unexpected bytes. */
static void call_idle_connection_with_input_is_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        good_call(&calls[i]);
        peer_send(&peer, calls[i].answer, calls[i].n_answer);
        expect(calls[i].start(), SLUICE_CLIENT_OK, "");
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        assert_true(peer_accept(&peer));
        assert_true(peer_read(&peer) > 0);
        end(&calls[i], 0);
        close_client();
    }
}

/* The server closes it when the next request arrives: the request is sent again, once. */
static void call_closed_on_reused_connection_is_retried_once(void **state) {
    (void)state;
    static char first[PEER_BYTES];
    for (size_t i = 0; i < N_CALLS; i++) {
        for (int again = 0; again < 2; again++) {
            open_client(calls[i].mip);
            good_call(&calls[i]);
            size_t n_first = peer.n_in;
            memcpy(first, peer.in, n_first);
            begin(&calls[i]);
            peer_disconnect(&peer);
            expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
                   "not done yet");
            assert_true(peer_accept(&peer));
            peer_read(&peer);
            assert_int_equal(peer.n_in, n_first);
            assert_memory_equal(peer.in, first, n_first);
            if (again) {
                peer_disconnect(&peer);
                expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_CLOSED,
                       "without an answer");
                assert_false(peer_accept(&peer));
                good_call(&calls[i]);
            } else {
                end(&calls[i], 0);
            }
            close_client();
        }
    }
}

/* After a byte of an answer the request may have been executed, so it is not sent again. */
static void call_closed_after_answer_byte_is_not_retried(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        good_call(&calls[i]);
        begin(&calls[i]);
        peer_send(&peer, calls[i].answer, 1);
        peer_disconnect(&peer);
        expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_PROTOCOL, "in the middle");
        assert_false(peer_accept(&peer));
        close_client();
    }
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void check_between_calls(void) {
    assert_true(sluice_client_timeout_ns(client) == UINT64_MAX);
    assert_int_equal(sluice_client_wait(client, UINT64_MAX), SLUICE_CLIENT_NOT_FOUND);
    sluice_client_step(client);
}

/* Cancels the call, once or twice, and frees it. */
static void cancel(bool may_have_run) {
    sluice_call_cancel(call);
    expect(sluice_call_status(call, &error), SLUICE_CLIENT_CANCELLED, "cancelled");
    assert_int_equal(last_error.may_have_run, may_have_run);
    sluice_call_cancel(call);
    expect(sluice_call_wait(call, &error), SLUICE_CLIENT_CANCELLED, "cancelled");
    check_between_calls();
    sluice_call_free(call);
    check_between_calls();
}

static void call_cancel_at_any_state_allows_next_call(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        const struct case_of *row = &calls[i];
        open_client(row->mip);
        check_between_calls();
        expect(row->start(), SLUICE_CLIENT_OK, "");
        cancel(false); /* before the first step */
        begin(row);
        cancel(true); /* before the answer */
        peer_read(&peer);
        assert_true(peer.ended);
        begin(row);
        peer_send(&peer, row->answer, row->n_answer - 1);
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        sluice_call_free(call); /* in the middle of the answer: freeing cancels too */
        check_between_calls();
        begin(row);
        peer_send(&peer, row->answer, row->n_answer);
        expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
        sluice_call_cancel(call); /* after it: nothing changes */
        expect(sluice_call_status(call, &error), SLUICE_CLIENT_OK, "");
        row->take();
        sluice_call_free(call);
        good_call(row);
        assert_false(peer_accept(&peer));
        begin(row);
        sluice_client_close(client); /* closing cancels too, and frees */
        peer_close(&peer);
    }
    sluice_call_free(NULL);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Results of several calls are valid at the same time, until each call is freed. */
static void call_results_stay_while_others_run(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        enum { N = 20 }; /* more than the client keeps for their memory */
        sluice_call *all[N];
        open_client(calls[i].mip);
        for (int round = 0; round < 2; round++) {
            for (size_t k = 0; k < N; k++) {
                begin(&calls[i]);
                peer_send(&peer, calls[i].answer, calls[i].n_answer);
                expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
                all[k] = call;
            }
            for (size_t k = 0; k < N; k++) {
                call = all[k];
                calls[i].take();
                sluice_call_free(call);
            }
        }
        good_call(&calls[i]);
        close_client();
    }
}

/* A result can only be read by the functions of its kind, and with an index in range. */
static void call_result_of_other_kind_is_invalid(void **state) {
    (void)state;
    sluice_answer_info answer = {.size = sizeof(answer)};
    sluice_tensor tensor = {.size = sizeof(tensor)};
    sluice_parameter param = {.size = sizeof(param)};
    sluice_mip_answer items = {.size = sizeof(items)};
    sluice_mip_item mip_item = {.size = sizeof(mip_item)};
    sluice_server_metadata server = {.size = sizeof(server)};
    sluice_model_metadata model = {.size = sizeof(model)};
    sluice_tensor_spec spec = {.size = sizeof(spec)};
    for (size_t i = 0; i < N_CALLS; i++) {
        int32_t yes = 0;
        open_client(calls[i].mip);
        begin(&calls[i]);
        peer_send(&peer, calls[i].answer, calls[i].n_answer);
        for (int done = 0; done < 2; done++) {
            const sluice_client_status is[] = {
                sluice_call_yes(call, &yes), sluice_call_server(call, &server),
                sluice_call_model(call, &model), sluice_call_answer(call, &answer),
                sluice_call_mip_answer(call, &items)};
            int n_valid = 0;
            for (size_t k = 0; k < sizeof(is) / sizeof(*is); k++) {
                assert_true(is[k] == SLUICE_CLIENT_OK || is[k] == SLUICE_CLIENT_INVALID);
                n_valid += is[k] == SLUICE_CLIENT_OK;
            }
            assert_int_equal(n_valid, done && calls[i].take != take_nothing);
            bool infers = done && calls[i].take == take_infer;
            sluice_client_status absent = infers ? SLUICE_CLIENT_NOT_FOUND : SLUICE_CLIENT_INVALID;
            assert_int_equal(sluice_call_output(call, 1, &tensor), absent);
            assert_int_equal(sluice_call_output(call, SIZE_MAX, &tensor), absent);
            assert_int_equal(sluice_call_find_output(call, "z", &tensor), absent);
            assert_int_equal(sluice_call_find_output(call, NULL, &tensor), SLUICE_CLIENT_INVALID);
            assert_int_equal(sluice_call_param(call, 0, &param), absent);
            assert_int_equal(sluice_call_find_param(call, "p", &param), absent);
            absent = done && calls[i].take == take_model ? SLUICE_CLIENT_NOT_FOUND
                                                         : SLUICE_CLIENT_INVALID;
            assert_int_equal(sluice_call_model_input(call, 0, &spec), absent);
            assert_int_equal(sluice_call_model_output(call, 0, &spec), absent);
            absent =
                done && calls[i].take == take_mip ? SLUICE_CLIENT_NOT_FOUND : SLUICE_CLIENT_INVALID;
            assert_int_equal(sluice_call_mip_item(call, 1, &mip_item), absent);
            expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
        }
        sluice_call_free(call);
        close_client();
    }
    int32_t yes;
    assert_int_equal(sluice_call_yes(NULL, &yes), SLUICE_CLIENT_INVALID);
    assert_int_equal(sluice_call_output(NULL, 0, &tensor), SLUICE_CLIENT_INVALID);
}

/* A struct of the caller is filled as far as its size goes. */
static void call_result_is_written_to_size(void **state) {
    (void)state;
    open_client(false);
    begin(&calls[0]);
    peer_send(&peer, calls[0].answer, calls[0].n_answer);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
    sluice_tensor tensor;
    memset(&tensor, 0x55, sizeof(tensor));
    tensor.size = 0;
    assert_int_equal(sluice_call_output(call, 0, &tensor), SLUICE_CLIENT_INVALID);
    tensor.size = offsetof(sluice_tensor, rank);
    assert_int_equal(sluice_call_find_output(call, "y", &tensor), SLUICE_CLIENT_OK);
    assert_string_equal(tensor.name, "y");
    assert_int_equal(tensor.dims[0], 3);
    assert_int_equal(tensor.rank & 0xff, 0x55);
    assert_int_equal(tensor.size, offsetof(sluice_tensor, rank));
    close_client(); /* with a call that is not freed */
}

/* ---- descriptors and timeouts ---------------------------------------------------------------- */

static void call_descriptor_is_ready_when_answer_comes(void **state) {
    (void)state;
    open_client(true);
    int fd = sluice_client_fd(client);
    check_between_calls();
    expect(start_mip(), SLUICE_CLIENT_OK, "");
    assert_true(sluice_client_timeout_ns(client) == 0);
    for (int i = 0; i < 10; i++) { /* additional steps are harmless */
        sluice_client_step(client);
        expect(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    }
    uint64_t timeout_ns = sluice_client_timeout_ns(client);
    assert_true(timeout_ns > 0 && timeout_ns <= TEST_TIMEOUT_NS);
    assert_false(client_is_ready(client, 0));
    assert_true(peer_accept(&peer));
    peer_send(&peer, "\0\2\1\0", 4);
    assert_true(client_is_ready(client, PEER_TIMEOUT_MS));
    sluice_client_step(client);
    assert_false(client_is_ready(client, 0));
    end(&calls[N_CALLS - 1], 4);
    assert_true(sluice_client_timeout_ns(client) == UINT64_MAX);
    peer_disconnect(&peer); /* an idle connection that ends is closed, and not reported for ever */
    sluice_client_step(client);
    assert_false(client_is_ready(client, 0));
    assert_int_equal(sluice_client_fd(client), fd);
    good_call(&calls[N_CALLS - 1]);
    close_client();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_answer_split_anywhere_completes),
        cmocka_unit_test(call_answer_byte_by_byte_completes),
        cmocka_unit_test(call_server_close_fails_and_next_call_reconnects),
        cmocka_unit_test(call_refused_connection_is_unreachable),
        cmocka_unit_test(call_closed_idle_connection_is_replaced),
        cmocka_unit_test(call_idle_connection_with_input_is_replaced),
        cmocka_unit_test(call_closed_on_reused_connection_is_retried_once),
        cmocka_unit_test(call_closed_after_answer_byte_is_not_retried),
        cmocka_unit_test(call_cancel_at_any_state_allows_next_call),
        cmocka_unit_test(call_results_stay_while_others_run),
        cmocka_unit_test(call_result_of_other_kind_is_invalid),
        cmocka_unit_test(call_result_is_written_to_size),
        cmocka_unit_test(call_descriptor_is_ready_when_answer_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
