/* Checks of real servers, by each method and with each kind of response: which endpoints the pool
 * has ready, and that nothing is left when the prober stops. The servers' behaviour changes while
 * they are checked. */
#include "core/base/compiler.h"
#include "pick/discovery/probe/prober.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/grpc/health.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"
#include "pick/pool/pool_fixture.h"

static const uint64_t MS = 1000000, SECOND = 1000000000;
enum { MOST_PLACES = 4 };

/* ---- servers --------------------------------------------------------------------------------- */

enum manners { READY, BUSY, SILENT, ABRUPT, N_MANNERS };

/* An HTTP server that accepts one connection after the other, and answers one request on each. */
struct place {
    int fd;
    struct address address;
    char text[ADDRESS_TEXT_BYTES];
    atomic_int manners;
    atomic_int n_asked;
    atomic_bool ended;
    pthread_t thread;
};

static const char *const ANSWERS[N_MANNERS] = {
    [READY] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
    [BUSY] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    [SILENT] = "",
    [ABRUPT] = "",
};

static bool read_head(int fd) {
    char head[1000];
    size_t n = 0;
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
        if (n == sizeof(head) || test_read(fd, head + n, 1) == 0) {
            return false;
        }
        n++;
    }
    return true;
}

static void *serve(void *arg) {
    struct place *place = arg;
    while (!atomic_load(&place->ended)) {
        int fd = accept(place->fd, NULL, NULL);
        if (fd < 0) {
            break;
        }
        if (read_head(fd)) {
            int manners = atomic_load(&place->manners);
            atomic_fetch_add(&place->n_asked, 1);
            test_try_send(fd, ANSWERS[manners], strlen(ANSWERS[manners]));
            if (manners == SILENT) { /* reads and answers nothing until the prober closes */
                char sink[256];
                while (recv(fd, sink, sizeof(sink), 0) > 0) {
                }
            }
        }
        close(fd);
    }
    return NULL;
}

static void place_bind(struct place *place) {
    place->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    assert_true(place->fd >= 0);
    setsockopt(place->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(
        bind(place->fd, (struct sockaddr *)&place->address.storage, place->address.len), 0);
}

static void place_open(struct place *place) {
    atomic_store(&place->ended, false);
    assert_int_equal(listen(place->fd, 16), 0);
    assert_int_equal(pthread_create(&place->thread, NULL, serve, place), 0);
}

static void place_close(struct place *place) {
    atomic_store(&place->ended, true);
    shutdown(place->fd, SHUT_RDWR);
    pthread_join(place->thread, NULL);
    close(place->fd);
}

/* ---- a prober -------------------------------------------------------------------------------- */

struct rig {
    struct place places[MOST_PLACES];
    size_t n_places;
    struct pool_set *pools;
    struct pool *pool;          /* of the endpoints below */
    struct pool_reader *reader; /* the test's */
    struct worker *worker;
    struct prober *prober;
    struct worker_msg msg;
    struct lock lock;
    struct lock_cond cond;
    bool stopped;
    atomic_int n_settled, n_looks;
};

static struct rig *of_msg(struct worker_msg *msg) {
    return CONTAINER_OF(msg, struct rig, msg);
}

static void on_settled(void *user) {
    struct rig *rig = user;
    assert_true(worker_is_current(rig->worker));
    atomic_fetch_add(&rig->n_settled, 1);
}

static struct pool_health health_of(enum pool_health_kind kind) {
    return (struct pool_health){.kind = kind,
                                .path = STR("/health"),
                                .service = STR("s"),
                                .interval_ns = 20 * MS,
                                .timeout_ns = 60 * SECOND,
                                .n_healthy = 1,
                                .n_unhealthy = 2};
}

static void run_look(struct worker_msg *msg) {
    struct rig *rig = of_msg(msg);
    prober_refresh(rig->prober);
    atomic_fetch_add(&rig->n_looks, 1);
}

/* Puts the servers into the pool, checked in this way. */
static void rig_update(struct rig *rig, const struct pool_health *health) {
    struct pool_spec *spec = fixture_spec();
    for (size_t i = 0; i < rig->n_places; i++) {
        fixture_add(spec, rig->places[i].text);
    }
    spec->health = *health;
    fixture_update(rig->pool, spec);
    int n_looks = atomic_load(&rig->n_looks);
    rig->msg.run = run_look;
    worker_post(rig->worker, &rig->msg);
    test_wait_for(&rig->n_looks, n_looks + 1);
}

static void rig_init(struct rig *rig, size_t n_places) {
    struct error err;
    *rig = (struct rig){.n_places = n_places};
    lock_init(&rig->lock);
    lock_cond_init(&rig->cond);
    for (size_t i = 0; i < n_places; i++) {
        struct place *place = &rig->places[i];
        assert_int_equal(address_parse(STR("127.0.0.1:0"), &place->address, &err), ST_OK);
        place_bind(place);
        assert_int_equal(
            getsockname(place->fd, (struct sockaddr *)&place->address.storage, &place->address.len),
            0);
        address_print(&place->address, place->text);
        place_open(place);
    }
    rig->pools = fixture_set(&rig->pool);
    assert_int_equal(pool_reader_new(rig->pool, 1, &rig->reader, &err), ST_OK);
    assert_int_equal(worker_new("prober", &rig->worker, &err), ST_OK);
    struct prober_options options = {
        .worker = rig->worker, .pools = rig->pools, .on_all_probed = on_settled, .user = rig};
    assert_int_equal(prober_new(&options, &rig->prober, &err), ST_OK);
    assert_int_equal(worker_start(rig->worker, &err), ST_OK);
}

static void on_stopped(void *user) {
    struct rig *rig = user;
    lock_acquire(&rig->lock);
    rig->stopped = true;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

static void run_stop(struct worker_msg *msg) {
    struct rig *rig = of_msg(msg);
    prober_stop(rig->prober, on_stopped, rig);
}

/* Freeing the worker asserts that no handle is open. */
static void rig_fini(struct rig *rig) {
    rig->msg.run = run_stop;
    worker_post(rig->worker, &rig->msg);
    lock_acquire(&rig->lock);
    while (!rig->stopped) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    lock_release(&rig->lock);
    worker_stop(rig->worker);
    worker_join(rig->worker);
    prober_free(rig->prober);
    worker_free(rig->worker);
    for (size_t i = 0; i < rig->n_places; i++) {
        place_close(&rig->places[i]);
    }
    pool_reader_unref(rig->reader);
    pool_set_free(rig->pools);
    lock_cond_fini(&rig->cond);
    lock_fini(&rig->lock);
}

static struct endpoint *endpoint_of(struct rig *rig, size_t i) {
    struct endpoint_address address = fixture_address(rig->places[i].text);
    const struct pool_member *member =
        pool_snapshot_find(pool_reader_refresh(rig->reader), &address);
    assert_non_null(member);
    return member->endpoint;
}

/* Waits without a limit: the test runner ends a test that hangs. */
static void wait_ready(struct rig *rig, size_t i, bool ready) {
    while (endpoint_is_ready(endpoint_of(rig, i)) != ready) {
        usleep(1000);
    }
}

static void wait_metric(enum metric metric, int64_t value) {
    while (metric_read(metric) < value) {
        usleep(1000);
    }
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static void prober_http_answers_set_readiness(void **state) {
    (void)state;
    struct rig rig;
    int64_t refused = metric_read(METRIC_PICK_PROBES_STATUS);
    rig_init(&rig, 2);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    atomic_store(&rig.places[1].manners, BUSY);
    rig_update(&rig, &health);
    test_wait_for(&rig.n_settled, 1);
    wait_ready(&rig, 0, true); /* all probed: both verdicts are known */
    assert_false(endpoint_is_ready(endpoint_of(&rig, 1)));
    atomic_store(&rig.places[0].manners, BUSY);
    atomic_store(&rig.places[1].manners, READY);
    wait_ready(&rig, 0, false);
    wait_ready(&rig, 1, true);
    atomic_store(&rig.places[0].manners, READY);
    wait_ready(&rig, 0, true);
    assert_true(metric_read(METRIC_PICK_PROBES_STATUS) >= refused + 3);
    rig_fini(&rig);
}

static void prober_restarted_endpoint_is_ready_again(void **state) {
    (void)state;
    struct rig rig;
    int64_t refused = metric_read(METRIC_PICK_PROBES_REFUSED);
    rig_init(&rig, 2);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    wait_ready(&rig, 1, true);
    place_close(&rig.places[1]);
    wait_ready(&rig, 1, false);
    assert_true(metric_read(METRIC_PICK_PROBES_REFUSED) >= refused + 2);
    assert_true(endpoint_is_ready(endpoint_of(&rig, 0)));
    place_bind(&rig.places[1]);
    place_open(&rig.places[1]);
    wait_ready(&rig, 1, true);
    rig_fini(&rig);
}

/* The thresholds need more failures than there are: the endpoint is avoided from the first refused
 * check until one succeeds. */
static void prober_refused_connection_marks_endpoint(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, 2);
    struct pool_health health = health_of(POOL_HEALTH_TCP);
    health.n_unhealthy = 1000000;
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    wait_ready(&rig, 1, true);
    place_close(&rig.places[1]);
    while (!endpoint_is_refused(endpoint_of(&rig, 1))) {
        usleep(1000);
    }
    place_bind(&rig.places[1]);
    place_open(&rig.places[1]);
    while (endpoint_is_refused(endpoint_of(&rig, 1))) {
        usleep(1000);
    }
    assert_true(endpoint_is_ready(endpoint_of(&rig, 1)));
    rig_fini(&rig);
}

static void prober_timeout_makes_unready(void **state) {
    (void)state;
    struct rig rig;
    int64_t late = metric_read(METRIC_PICK_PROBES_TIMEOUT);
    rig_init(&rig, 1);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    health.timeout_ns = 30 * MS;
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    atomic_store(&rig.places[0].manners, SILENT);
    wait_ready(&rig, 0, false);
    assert_true(metric_read(METRIC_PICK_PROBES_TIMEOUT) >= late + 2);
    rig_fini(&rig);
}

static void prober_closed_connection_makes_unready(void **state) {
    (void)state;
    struct rig rig;
    int64_t broken = metric_read(METRIC_PICK_PROBES_BROKEN);
    rig_init(&rig, 1);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    atomic_store(&rig.places[0].manners, ABRUPT);
    rig_update(&rig, &health);
    test_wait_for(&rig.n_settled, 1);
    wait_metric(METRIC_PICK_PROBES_BROKEN, broken + 2);
    assert_false(endpoint_is_ready(endpoint_of(&rig, 0)));
    rig_fini(&rig);
}

/* The health port differs from that of requests: all three endpoints check the same one. */
static void prober_health_port_is_used(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, 3);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    health.port = fixture_address(rig.places[0].text).port;
    rig_update(&rig, &health);
    for (size_t i = 0; i < 3; i++) {
        wait_ready(&rig, i, true);
    }
    assert_int_equal(atomic_load(&rig.places[1].n_asked), 0);
    assert_int_equal(atomic_load(&rig.places[2].n_asked), 0);
    place_close(&rig.places[0]);
    for (size_t i = 0; i < 3; i++) {
        wait_ready(&rig, i, false);
    }
    place_bind(&rig.places[0]);
    place_open(&rig.places[0]);
    rig_fini(&rig);
}

/* ---- changes, stopping ----------------------------------------------------------------------- */

static void prober_checks_turn_off_and_on(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, 1);
    struct pool_health health = health_of(POOL_HEALTH_HTTP), none = {.kind = POOL_HEALTH_NONE};
    atomic_store(&rig.places[0].manners, BUSY);
    rig_update(&rig, &none);
    wait_ready(&rig, 0, true);
    test_wait_for(&rig.n_settled, 1); /* nothing to probe */
    rig_update(&rig, &health);
    wait_ready(&rig, 0, false);
    health = health_of(POOL_HEALTH_TCP); /* a TCP connection is enough now */
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    rig_update(&rig, &none);
    wait_ready(&rig, 0, true);
    rig_fini(&rig);
}

/* Results that have been counted. */
static int64_t n_probes(void) {
    return metric_read(METRIC_PICK_PROBES_OK) + metric_read(METRIC_PICK_PROBES_REFUSED) +
           metric_read(METRIC_PICK_PROBES_TIMEOUT) + metric_read(METRIC_PICK_PROBES_STATUS) +
           metric_read(METRIC_PICK_PROBES_BROKEN);
}

/* A cancelled check has no result. The join of the server's thread shows that its connection was
 * closed. */
static void prober_stop_closes_connections(void **state) {
    static const enum pool_health_kind kinds[] = {POOL_HEALTH_HTTP, POOL_HEALTH_GRPC};
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct rig rig;
        int64_t n_arenas = metric_read(METRIC_ARENAS);
        rig_init(&rig, 1);
        struct pool_health health = health_of(kinds[i]);
        atomic_store(&rig.places[0].manners, SILENT);
        rig_update(&rig, &health);
        test_wait_for(&rig.places[0].n_asked, 1);    /* an HTTP/2 preface looks like a head, too */
        int n_settled = atomic_load(&rig.n_settled); /* the pool had checks before */
        int64_t n_before = n_probes();
        rig_fini(&rig);
        assert_int_equal(atomic_load(&rig.places[0].n_asked), 1);
        assert_int_equal(atomic_load(&rig.n_settled), n_settled);
        assert_int_equal(n_probes(), n_before);
        assert_int_equal(metric_read(METRIC_ARENAS), n_arenas);
    }
}

/* An endpoint is removed while its check waits for a response; then the prober stops. */
static void prober_removed_endpoint_is_cancelled(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, 1);
    struct pool_health health = health_of(POOL_HEALTH_HTTP);
    atomic_store(&rig.places[0].manners, SILENT);
    rig_update(&rig, &health);
    test_wait_for(&rig.places[0].n_asked, 1);
    rig.n_places = 0;
    rig_update(&rig, &health);
    test_wait_for(&rig.n_settled, 1);
    pool_reader_refresh(rig.reader);
    rig.n_places = 1;
    rig_fini(&rig);
}

/* ---- gRPC ------------------------------------------------------------------------------------ */

struct health_server {
    struct test_host host;
    struct grpc_server *server;
    struct grpc_health *health;
    struct grpc_method methods[GRPC_HEALTH_METHODS];
    atomic_int state; /* of "s" */
};

static enum grpc_health_state state_of(void *context, struct str service) {
    struct health_server *self = context;
    return str_is(service, "s") ? (enum grpc_health_state)atomic_load(&self->state)
                                : GRPC_HEALTH_SERVICE_UNKNOWN;
}

static void health_server_start(struct health_server *self, struct place *place) {
    struct address address;
    struct error err;
    *self = (struct health_server){.state = GRPC_HEALTH_SERVING};
    test_host_init(&self->host, test_budget());
    struct grpc_health_options health = {.state_of = state_of,
                                         .context = self,
                                         .names = "s",
                                         .workers = self->host.workers,
                                         .n_workers = TEST_WORKERS};
    assert_int_equal(grpc_health_new(&health, &self->health, &err), ST_OK);
    grpc_health_methods(self->health, self->methods);
    struct grpc_server_options options = {.limits = {.net = {.max_header_size = 8192,
                                                             .max_body_size = 1 << 20,
                                                             .request_memory = 1 << 20},
                                                     .max_streams = 100,
                                                     .stream_window_bytes = 1 << 20,
                                                     .connection_window_bytes = 1 << 20},
                                          .budget = &self->host.budget,
                                          .methods = self->methods,
                                          .n_methods = GRPC_HEALTH_METHODS,
                                          .workers = self->host.workers,
                                          .n_workers = TEST_WORKERS,
                                          .acceptor = self->host.workers[0]};
    assert_int_equal(grpc_server_new(&options, &self->server, &err), ST_OK);
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &address, &err), ST_OK);
    assert_int_equal(grpc_server_listen(self->server, &address, NULL, &self->host.bound, &err),
                     ST_OK);
    address_print(&self->host.bound, place->text);
    test_host_start(&self->host);
}

static void run_server_stop(struct worker_msg *msg) {
    struct health_server *self = CONTAINER_OF(msg, struct health_server, host.control);
    net_server_stop(grpc_server_net(self->server), test_host_stopped, &self->host);
}

static void health_server_end(struct health_server *self) {
    test_host_ask_stop(&self->host, run_server_stop);
    test_host_wait(&self->host);
    grpc_server_free(self->server);
    grpc_health_free(self->health);
    test_host_fini(&self->host);
}

static void prober_grpc_health_sets_readiness(void **state) {
    (void)state;
    struct rig rig;
    struct health_server server;
    int64_t status = metric_read(METRIC_PICK_PROBES_STATUS);
    rig_init(&rig, 1);
    struct place other = rig.places[0]; /* the pool has the gRPC server in place of this one */
    health_server_start(&server, &other);
    memcpy(rig.places[0].text, other.text, sizeof(other.text));
    struct pool_health health = health_of(POOL_HEALTH_GRPC);
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    atomic_store(&server.state, GRPC_HEALTH_NOT_SERVING);
    wait_ready(&rig, 0, false);
    atomic_store(&server.state, GRPC_HEALTH_SERVING);
    wait_ready(&rig, 0, true);
    health.service = STR("unknown");
    rig_update(&rig, &health);
    wait_ready(&rig, 0, false);
    assert_true(metric_read(METRIC_PICK_PROBES_STATUS) >= status + 4);
    health.service = STR("s");
    rig_update(&rig, &health);
    wait_ready(&rig, 0, true);
    rig_fini(&rig);
    health_server_end(&server);
}

/* A server that speaks HTTP/1.1 only. */
static void prober_grpc_to_http_server_is_unready(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, 1);
    struct pool_health health = health_of(POOL_HEALTH_GRPC);
    rig_update(&rig, &health);
    test_wait_for(&rig.n_settled, 1);
    assert_false(endpoint_is_ready(endpoint_of(&rig, 0)));
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prober_http_answers_set_readiness),
        cmocka_unit_test(prober_restarted_endpoint_is_ready_again),
        cmocka_unit_test(prober_refused_connection_marks_endpoint),
        cmocka_unit_test(prober_timeout_makes_unready),
        cmocka_unit_test(prober_closed_connection_makes_unready),
        cmocka_unit_test(prober_health_port_is_used),
        cmocka_unit_test(prober_checks_turn_off_and_on),
        cmocka_unit_test(prober_stop_closes_connections),
        cmocka_unit_test(prober_removed_endpoint_is_cancelled),
        cmocka_unit_test(prober_grpc_health_sets_readiness),
        cmocka_unit_test(prober_grpc_to_http_server_is_unready),
    };
    return cmocka_run_group_tests_name("pick/discovery/probe/prober", tests, NULL, NULL);
}
