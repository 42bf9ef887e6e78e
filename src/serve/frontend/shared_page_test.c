/* Shared pages of an HTTP server: how often they are printed, which requests share one, and
 * requests that end while they wait. The printer is a worker whose prints the test holds. */
#include "serve/frontend/shared_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "net/server/http/server_fixture.h"

static const uint64_t HOUR_NS = UINT64_C(3600000000000);

struct rig {
    struct test_server server;
    struct shared_pages *pages;
    struct worker *printer;
    struct lock lock;
    struct lock_cond cond;
    bool is_held;      /* prints wait */
    atomic_int prints; /* begun */
    atomic_int asked;  /* requests that shared_page_get has returned for */
    size_t n_bytes;    /* of a page, after its number */
};

/* PAGE_METRICS, and PAGE_LOAD as another kind. */
static void print_page(struct rig *rig, const char *name, struct buf *out) {
    int number = atomic_fetch_add(&rig->prints, 1) + 1;
    assert_true(worker_is_current(rig->printer));
    lock_acquire(&rig->lock);
    while (rig->is_held) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    lock_release(&rig->lock);
    buf_printf(out, "%s %d", name, number);
    char *more = rig->n_bytes > 0 ? buf_reserve(out, rig->n_bytes) : NULL;
    if (more) {
        memset(more, 'x', rig->n_bytes);
        buf_advance(out, rig->n_bytes);
    }
}

static void print_metrics(void *context, struct buf *out) {
    print_page(context, "page", out);
}

static void print_load(void *context, struct buf *out) {
    print_page(context, "load", out);
}

static void hold(struct rig *rig, bool is_held) {
    lock_acquire(&rig->lock);
    rig->is_held = is_held;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

struct page_reply {
    struct shared_page_request request;
    struct http_exchange *exchange;
};

static void release(void *user) {
    shared_page_release(user);
}

static void on_page(struct shared_page_request *request) {
    struct http_exchange *exchange = CONTAINER_OF(request, struct page_reply, request)->exchange;
    if (request->text.ptr) {
        struct piece piece = {request->text.ptr, request->text.len};
        http_reply(exchange, &(struct http_reply){.status = 200,
                                                  .content_type = "text/plain",
                                                  .pieces = &piece,
                                                  .n_pieces = 1,
                                                  .release = release,
                                                  .user = request});
    } else {
        http_reply_error(exchange, &request->error, NULL, 0);
    }
}

static void on_head(struct http_exchange *exchange, void *context) {
    struct rig *rig = context;
    struct page_reply *reply = arena_calloc(exchange->arena, 1, sizeof(*reply));
    assert_non_null(reply);
    reply->exchange = exchange;
    reply->request = (struct shared_page_request){
        .kind = str_is(exchange->head.path, "/load") ? PAGE_LOAD : PAGE_METRICS,
        .worker = exchange->worker,
        .account = exchange->account,
        .done = on_page};
    exchange->user = reply;
    atomic_fetch_add(&rig->server.heads, 1);
    shared_page_get(rig->pages, &reply->request);
    atomic_fetch_add(&rig->asked, 1);
}

static void on_disconnect(struct http_exchange *exchange, void *context) {
    struct page_reply *reply = exchange->user;
    (void)context;
    if (exchange->client_disconnected && shared_page_cancel(&reply->request)) {
        http_reply(exchange, &(struct http_reply){.status = 503});
    }
}

static void start(struct rig *rig, uint64_t interval_ns, uint64_t memory) {
    struct error err;
    struct net_limits limits = test_limits();
    struct net_budget budget = test_budget();
    struct test_handler handler = {
        .on_head = on_head, .after_head = {.on_disconnect = on_disconnect, .on_end = test_on_end}};
    *rig = (struct rig){.is_held = false};
    lock_init(&rig->lock);
    lock_cond_init(&rig->cond);
    budget.memory = memory;
    assert_int_equal(worker_new("printer", &rig->printer, &err), ST_OK);
    assert_int_equal(worker_start(rig->printer, &err), ST_OK);
    test_server_start_as(&rig->server, handler, &limits, budget, "127.0.0.1:0", NULL);
    net_budget_count_arenas(&rig->server.host.budget, 0);
    struct shared_pages_options options = {.printer = rig->printer,
                                           .budget = &rig->server.host.budget};
    options.kinds[PAGE_METRICS] = (struct shared_page_printing){
        print_metrics, rig, .protocol = NET_BODY_HTTP, .interval_ns = interval_ns};
    options.kinds[PAGE_LOAD] = options.kinds[PAGE_METRICS];
    options.kinds[PAGE_LOAD].print = print_load;
    assert_int_equal(shared_pages_new(&options, &rig->pages, &err), ST_OK);
}

static void stop(struct rig *rig) {
    worker_stop(rig->printer);
    worker_join(rig->printer);
    test_server_stop(&rig->server);
    worker_free(rig->printer);
    shared_pages_free(rig->pages);
    assert_int_equal(rig->server.host.budget.n_page_bytes, 0);
    assert_int_equal(rig->server.host.budget.n_owner_page_bytes[NET_BODY_HTTP], 0);
    lock_cond_fini(&rig->cond);
    lock_fini(&rig->lock);
}

static void wait_for(const atomic_int *value, int wanted) {
    while (atomic_load(value) < wanted) {
        usleep(1000);
    }
}

/* Sends a request on a new connection, and waits until it has its page or waits for it. */
static int ask(struct rig *rig) {
    int fd = test_connect(&rig->server), before = atomic_load(&rig->asked);
    test_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_for(&rig->asked, before + 1);
    return fd;
}

static void expect_and_close(int fd, const char *body) {
    test_expect(fd, 200, body);
    close(fd);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void shared_page_within_interval_is_printed_once(void **state) {
    (void)state;
    struct rig rig;
    clock_set_fake_ns(HOUR_NS);
    start(&rig, HOUR_NS, 0);
    expect_and_close(ask(&rig), "page 1");
    clock_set_fake_ns(2 * HOUR_NS);
    expect_and_close(ask(&rig), "page 1");
    int fd = test_connect(&rig.server);
    test_send(fd, STR("GET /load HTTP/1.1\r\nHost: a\r\n\r\n"));
    expect_and_close(fd, "load 2");
    clock_set_fake_ns(3 * HOUR_NS + 1);
    expect_and_close(ask(&rig), "page 3");
    assert_int_equal(rig.prints, 3);
    clock_set_fake_ns(0);
    stop(&rig);
}

static void shared_page_in_print_is_shared_within_interval(void **state) {
    (void)state;
    struct rig rig;
    int fds[20];
    start(&rig, HOUR_NS, 0);
    hold(&rig, true);
    for (size_t i = 0; i < 20; i++) {
        fds[i] = ask(&rig);
        wait_for(&rig.prints, 1);
    }
    hold(&rig, false);
    for (size_t i = 0; i < 20; i++) {
        expect_and_close(fds[i], "page 1");
    }
    stop(&rig);
}

static void shared_page_without_interval_is_begun_after_request(void **state) {
    (void)state;
    struct rig rig;
    start(&rig, 0, 0);
    hold(&rig, true);
    int first = ask(&rig);
    wait_for(&rig.prints, 1);
    int second = ask(&rig), third = ask(&rig);
    hold(&rig, false);
    expect_and_close(first, "page 1");
    expect_and_close(second, "page 2");
    expect_and_close(third, "page 2");
    expect_and_close(ask(&rig), "page 3");
    stop(&rig);
}

static void shared_page_cancelled_requests_are_not_printed_for(void **state) {
    (void)state;
    struct rig rig;
    start(&rig, 0, 0);
    hold(&rig, true);
    int first = ask(&rig);
    wait_for(&rig.prints, 1);
    int second = ask(&rig), third = ask(&rig);
    test_reset(first); /* a client that only half-closes gets its response */
    test_reset(second);
    test_reset(third);
    wait_for(&rig.server.ends, 3); /* while the page is being printed */
    hold(&rig, false);
    expect_and_close(ask(&rig), "page 2");
    stop(&rig);
}

static void shared_page_server_stops_while_requests_wait(void **state) {
    (void)state;
    struct rig rig;
    start(&rig, 0, 0);
    hold(&rig, true);
    int first = ask(&rig);
    wait_for(&rig.prints, 1);
    int second = ask(&rig);
    test_ask_stop(&rig.server);
    wait_for(&rig.server.ends, 2);
    hold(&rig, false);
    stop(&rig);
    close(first);
    close(second);
}

static void shared_page_counts_once_until_last_reader_has_it(void **state) {
    (void)state;
    enum { N = 10 };
    static const uint64_t BYTES = 16 << 20;
    struct rig rig;
    int fds[N];
    start(&rig, 0, 0);
    rig.n_bytes = BYTES;
    const struct net_budget *budget = &rig.server.host.budget;
    hold(&rig, true);
    for (size_t i = 0; i < N; i++) { /* the first gets a page of its own */
        fds[i] = ask(&rig);
        wait_for(&rig.prints, 1);
    }
    hold(&rig, false);
    while (budget->n_page_bytes < 2 * BYTES) {
        usleep(1000);
    }
    assert_true(budget->n_page_bytes < 2 * BYTES + 4096);
    close(fds[0]);
    while (budget->n_page_bytes >= 2 * BYTES) {
        usleep(1000);
    }
    for (size_t i = 1; i < N; i++) {
        assert_true(budget->n_page_bytes >= BYTES);
        close(fds[i]);
    }
    while (budget->n_page_bytes > 0) {
        usleep(1000);
    }
    stop(&rig);
}

static void shared_page_without_memory_is_503(void **state) {
    (void)state;
    struct rig rig;
    start(&rig, 0, 16 << 20);
    rig.n_bytes = 32 << 20; /* printing takes more than the budget */
    int fd = ask(&rig);
    test_expect(fd, 503, "OVERLOADED");
    close(fd);
    rig.n_bytes = 0;
    expect_and_close(ask(&rig), "page 2");
    stop(&rig);
}

/* The first page may be larger than the part of all pages. */
static void shared_page_beside_unread_page_over_their_part_is_503(void **state) {
    (void)state;
    enum { BYTES = 12 << 20 };
    struct rig rig;
    start(&rig, 0, 64 << 20);
    rig.n_bytes = BYTES;
    const struct net_budget *budget = &rig.server.host.budget;
    int unread = ask(&rig);
    while (budget->n_page_bytes < BYTES) {
        usleep(1000);
    }
    rig.n_bytes = 1 << 20;
    int fd = ask(&rig);
    test_expect(fd, 503, "OVERLOADED");
    close(fd);
    test_reset(unread);
    while (budget->n_page_bytes > 0) {
        usleep(1000);
    }
    rig.n_bytes = 0;
    expect_and_close(ask(&rig), "page 3");
    stop(&rig);
}

/* A client that does not read its page in time is closed when another page does not fit. */
static void shared_page_over_their_part_closes_slow_readers(void **state) {
    (void)state;
    static const uint64_t BYTES = 12 << 20;
    struct rig rig;
    clock_set_fake_ns(HOUR_NS);
    start(&rig, 0, 64 << 20);
    rig.n_bytes = BYTES;
    const struct net_budget *budget = &rig.server.host.budget;
    int unread = ask(&rig);
    char byte;
    assert_int_equal(recv(unread, &byte, 1, MSG_PEEK), 1); /* the response has begun */
    rig.n_bytes = 0;
    int fd = ask(&rig);
    test_expect(fd, 503, "OVERLOADED");
    close(fd);
    assert_true(budget->n_page_bytes > BYTES);
    clock_set_fake_ns(HOUR_NS + NET_PAGE_READ_NS);
    static struct test_answer answer;
    for (answer.status = 503; answer.status == 503; close(fd)) {
        fd = ask(&rig);
        assert_true(test_read_answer(fd, &answer, false));
    }
    assert_int_equal(answer.status, 200);
    close(unread);
    clock_set_fake_ns(0);
    stop(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_page_within_interval_is_printed_once),
        cmocka_unit_test(shared_page_in_print_is_shared_within_interval),
        cmocka_unit_test(shared_page_without_interval_is_begun_after_request),
        cmocka_unit_test(shared_page_cancelled_requests_are_not_printed_for),
        cmocka_unit_test(shared_page_server_stops_while_requests_wait),
        cmocka_unit_test(shared_page_counts_once_until_last_reader_has_it),
        cmocka_unit_test(shared_page_without_memory_is_503),
        cmocka_unit_test(shared_page_beside_unread_page_over_their_part_is_503),
        cmocka_unit_test(shared_page_over_their_part_closes_slow_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
