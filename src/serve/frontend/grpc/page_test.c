/* Calls that wait for a page: those that are cancelled end before the page is printed. The printer
 * does not run until the test ends. */
#include "serve/frontend/shared_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/server/grpc/session_fixture.h"
#include "serve/frontend/grpc/methods.h"

struct rig {
    struct grpc_fixture *fixture;
    struct worker *printer;
    struct shared_pages *pages;
    struct grpc_api api;
    struct grpc_method_context context;
    int n_prints;
};

static void print_index(void *context, struct buf *out) {
    struct rig *rig = context;
    rig->n_prints++;
    buf_printf(out, "x");
}

static void step_page(struct grpc_call *call, enum grpc_event event) {
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        grpc_page_send(call, PAGE_GRPC_INDEX);
    } else if (event == GRPC_CANCELLED) {
        grpc_waiting_cancel(call);
    }
}

static void open_rig(struct rig *rig) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct error err;
    *rig = (struct rig){.fixture = grpc_fixture_new(&limits)};
    assert_int_equal(worker_new("printer", &rig->printer, &err), ST_OK);
    struct shared_pages_options options = {
        .kinds = {[PAGE_GRPC_INDEX] = {.print = print_index,
                                       .context = rig,
                                       .protocol = NET_BODY_GRPC}},
        .printer = rig->printer,
        .budget = &rig->fixture->budget};
    assert_int_equal(shared_pages_new(&options, &rig->pages, &err), ST_OK);
    rig->api.options.services.pages = rig->pages;
    rig->context.api = &rig->api;
    rig->fixture->methods[0].on_event = step_page;
    rig->fixture->methods[0].context = &rig->context;
    grpc_fixture_open_client(rig->fixture, NULL, 0);
}

/* Handles what was posted to the worker. */
static void run_worker(struct worker *worker) {
    worker_stop(worker);
    worker_run(worker);
}

static struct client_call *begin_call(struct rig *rig) {
    struct client_call *call =
        client_unary(&rig->fixture->client, rig->fixture->methods[0].path, STR("a"));
    grpc_fixture_run(rig->fixture);
    assert_int_equal(rig->fixture->n_calls, 1);
    assert_int_equal(rig->fixture->n_alive, 1);
    return call;
}

/* Nothing waits for the page: it is not printed. */
static void close_rig(struct rig *rig) {
    assert_int_equal(rig->fixture->n_calls, 0);
    assert_int_equal(rig->fixture->n_alive, 0);
    run_worker(rig->printer);
    assert_int_equal(rig->n_prints, 0);
    shared_pages_free(rig->pages);
    assert_int_equal(rig->fixture->budget.n_page_bytes, 0);
    worker_free(rig->printer);
    grpc_fixture_free(rig->fixture);
}

static void page_of_reset_call_is_not_waited_for(void **state) {
    struct rig rig;
    (void)state;
    open_rig(&rig);
    struct client_call *call = begin_call(&rig);
    nghttp2_submit_rst_stream(rig.fixture->client.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
    grpc_fixture_run(rig.fixture);
    close_rig(&rig);
}

static void page_of_lost_connection_is_not_waited_for(void **state) {
    struct rig rig;
    (void)state;
    open_rig(&rig);
    begin_call(&rig);
    grpc_session_close(&rig.fixture->session);
    grpc_core_sweep(&rig.fixture->core);
    close_rig(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_of_reset_call_is_not_waited_for),
        cmocka_unit_test(page_of_lost_connection_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
