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

static struct peer peer;
static sluice_client *client;
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
static const sluice_tensor input = {.name = "x",
                                    .datatype = SLUICE_INT16,
                                    .dims = dims,
                                    .rank = 1,
                                    .data = "\1\0\2\0\3\0",
                                    .n_bytes = 6};
static const sluice_mip_item item = {SLUICE_MIP_TEXT, "hello", 5};

static sluice_client_status start_infer(void) {
    const sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
    return sluice_client_start_infer(client, &request, &error);
}

static void take_infer(void) {
    sluice_infer_answer answer = {.size = sizeof(answer)};
    expect(sluice_client_take_infer(client, &answer, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(answer.n_outputs, 1);
    assert_memory_equal(answer.outputs[0].data, "\1\0\2\0\xff\xff", 6);
}

static sluice_client_status start_ready(void) {
    return sluice_client_start_is_ready(client, &error);
}

static void take_ready(void) {
    int32_t yes = 7;
    expect(sluice_client_take_yes(client, &yes, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(yes, 1);
}

static sluice_client_status start_server(void) {
    return sluice_client_start_server_metadata(client, &error);
}

static void take_server(void) {
    sluice_server_metadata server = {.size = sizeof(server)};
    expect(sluice_client_take_server_metadata(client, &server, &error), SLUICE_CLIENT_OK, "");
    assert_string_equal(server.name, "s");
}

static sluice_client_status start_model(void) {
    return sluice_client_start_model_metadata(client, "m", "1", &error);
}

static void take_model(void) {
    sluice_model_metadata model = {.size = sizeof(model)};
    expect(sluice_client_take_model_metadata(client, &model, &error), SLUICE_CLIENT_OK, "");
    assert_string_equal(model.name, "m");
}

static sluice_client_status start_ping(void) {
    return sluice_client_start_ping(client, &error);
}

static void take_nothing(void) {
}

static sluice_client_status start_mip(void) {
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &item, .n_inputs = 1, .batch = 1};
    return sluice_client_start_mip_infer(client, &request, &error);
}

static void take_mip(void) {
    sluice_mip_answer answer = {.size = sizeof(answer)};
    expect(sluice_client_take_mip_infer(client, &answer, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(answer.n_outputs, 1);
    assert_memory_equal(answer.items[0].data, "hi", 2);
}

#define BYTES(text) (text), sizeof(text) - 1

static const struct call {
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
static void begin(const struct call *call) {
    expect(call->start(), SLUICE_CLIENT_OK, "");
    expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING, "not done yet");
    (void)peer_accept(&peer);
    assert_true(peer_read(&peer) > 0);
}

/* Sends the rest of its answer. */
static void end(const struct call *call, size_t n_sent) {
    peer_send(&peer, call->answer + n_sent, call->n_answer - n_sent);
    expect(client_run_to_end(client, &error), SLUICE_CLIENT_OK, "");
    call->take();
}

static void good_call(const struct call *call) {
    begin(call);
    end(call, 0);
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
            expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING,
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
            expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING,
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
            expect(client_run_to_end(client, &error),
                   cut == 0 ? SLUICE_CLIENT_CLOSED : SLUICE_CLIENT_PROTOCOL,
                   cut == 0 ? "without an answer" : "in the middle of its answer");
            assert_int_equal(last_error.may_have_run, 1);
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
        expect(client_run_to_end(client, &error), SLUICE_CLIENT_CONNECT, "no connection to /tmp/");
        assert_int_equal(last_error.may_have_run, 0);
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
        expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING, "not done yet");
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
            expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING,
                   "not done yet");
            assert_true(peer_accept(&peer));
            peer_read(&peer);
            assert_int_equal(peer.n_in, n_first);
            assert_memory_equal(peer.in, first, n_first);
            if (again) {
                peer_disconnect(&peer);
                expect(client_run_to_end(client, &error), SLUICE_CLIENT_CLOSED,
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
        expect(client_run_to_end(client, &error), SLUICE_CLIENT_PROTOCOL, "in the middle");
        assert_false(peer_accept(&peer));
        close_client();
    }
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void check_between_calls(void) {
    sluice_client_waiting waiting = {.size = sizeof(waiting)};
    sluice_client_wait(client, &waiting);
    assert_int_equal(waiting.fd, -1);
    assert_true(waiting.timeout_ns == UINT64_MAX && !waiting.read && !waiting.write);
    expect(sluice_client_step(client, &error), SLUICE_CLIENT_INVALID, "no call is under way");
}

static void call_cancel_at_any_state_allows_next_call(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        const struct call *call = &calls[i];
        open_client(call->mip);
        sluice_client_cancel(client); /* no call */
        check_between_calls();
        expect(call->start(), SLUICE_CLIENT_OK, "");
        sluice_client_cancel(client); /* before the first step */
        check_between_calls();
        begin(call);
        sluice_client_cancel(client); /* before the answer */
        check_between_calls();
        peer_read(&peer);
        assert_true(peer.ended);
        begin(call);
        peer_send(&peer, call->answer, call->n_answer - 1);
        expect(client_step_until_blocked(client, &error), SLUICE_CLIENT_PENDING, "not done yet");
        sluice_client_cancel(client); /* in the middle of the answer */
        sluice_client_cancel(client);
        check_between_calls();
        good_call(call);
        sluice_client_cancel(client); /* after it: the connection stays */
        check_between_calls();
        good_call(call);
        assert_false(peer_accept(&peer));
        begin(call);
        sluice_client_close(client); /* closing cancels too */
        peer_close(&peer);
    }
}

/* ---- invalid order of calls ------------------------------------------------------------------ */

/* One call at a time: another call fails and does not affect the running one. */
static void call_during_another_call_is_invalid(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        begin(&calls[i]);
        for (size_t k = 0; k < N_CALLS; k++) {
            expect(calls[k].start(), SLUICE_CLIENT_INVALID, "a call is under way");
        }
        expect(sluice_client_ping(client, &error), SLUICE_CLIENT_INVALID, "a call is under way");
        int32_t yes = 7;
        expect(sluice_client_take_yes(client, &yes, &error), SLUICE_CLIENT_INVALID,
               "sluice_client_take_yes: no call with such a result is done");
        assert_int_equal(yes, 0);
        end(&calls[i], 0);
        expect(sluice_client_step(client, &error), SLUICE_CLIENT_OK, "");
        calls[i].take(); /* again */
        close_client();
    }
}

/* A result can only be taken by the function of its kind. */
static void call_result_of_other_kind_is_invalid(void **state) {
    (void)state;
    sluice_infer_answer answer = {.size = sizeof(answer)};
    sluice_mip_answer items = {.size = sizeof(items)};
    sluice_server_metadata server = {.size = sizeof(server)};
    sluice_model_metadata model = {.size = sizeof(model)};
    int32_t yes;
    for (size_t i = 0; i < N_CALLS; i++) {
        open_client(calls[i].mip);
        good_call(&calls[i]);
        int n_taken = 0;
        n_taken += sluice_client_take_infer(client, &answer, &error) == SLUICE_CLIENT_OK;
        n_taken += sluice_client_take_mip_infer(client, &items, &error) == SLUICE_CLIENT_OK;
        n_taken += sluice_client_take_server_metadata(client, &server, &error) == SLUICE_CLIENT_OK;
        n_taken += sluice_client_take_model_metadata(client, &model, &error) == SLUICE_CLIENT_OK;
        n_taken += sluice_client_take_yes(client, &yes, &error) == SLUICE_CLIENT_OK;
        assert_int_equal(n_taken, calls[i].take == take_nothing ? 0 : 1);
        close_client();
    }
}

/* ---- descriptors and timeouts ---------------------------------------------------------------- */

static void call_wait_reports_descriptor_and_timeout(void **state) {
    (void)state;
    sluice_client_waiting waiting = {.size = sizeof(waiting)};
    open_client(true);
    check_between_calls();
    expect(start_mip(), SLUICE_CLIENT_OK, "");
    sluice_client_wait(client, &waiting);
    assert_true(waiting.fd == -1 && waiting.timeout_ns == 0);
    expect(sluice_client_step(client, &error), SLUICE_CLIENT_PENDING, "not done yet");
    sluice_client_wait(client, &waiting);
    assert_true(waiting.fd >= 0 && waiting.read && !waiting.write);
    assert_true(waiting.timeout_ns > 0 && waiting.timeout_ns <= TEST_TIMEOUT_NS);
    sluice_client_waiting small = {.size = offsetof(sluice_client_waiting, write)};
    small.write = 7;
    sluice_client_wait(client, &small);
    assert_true(small.fd == waiting.fd && small.write == 7);
    for (int i = 0; i < 10; i++) { /* additional steps are harmless */
        expect(sluice_client_step(client, &error), SLUICE_CLIENT_PENDING, "not done yet");
    }
    assert_true(peer_accept(&peer));
    end(&calls[N_CALLS - 1], 0);
    sluice_client_wait(client, &waiting);
    assert_true(waiting.fd == -1 && waiting.timeout_ns == UINT64_MAX);
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
        cmocka_unit_test(call_during_another_call_is_invalid),
        cmocka_unit_test(call_result_of_other_kind_is_invalid),
        cmocka_unit_test(call_wait_reports_descriptor_and_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
