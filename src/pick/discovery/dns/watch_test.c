/* Names against a DNS server of the test: their addresses, when changes are notified, which
 * addresses stay when the server fails, and that all of it may change at any time while another
 * thread reads reports. */
#include "core/base/compiler.h"
#include "pick/discovery/dns/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "net/client/dns_fixture.h"
#include "net/server/server_fixture.h"
#include "pick/pool/pool_fixture.h"

static const uint64_t MS = 1000000, SECOND = 1000000000;

struct rig {
    struct test_dns dns;
    struct worker *worker;
    struct dns_watch *watch;
    struct worker_msg msg;
    void (*step)(struct rig *rig);
    struct pool_spec *spec; /* the spec to apply next */
    char system_file[40];
    struct lock lock;
    struct lock_cond cond;
    bool stepped;
    atomic_int n_changed, n_settled;
};

static void end_step(void *user) {
    struct rig *rig = user;
    lock_acquire(&rig->lock);
    rig->stepped = true;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

static void run_step(struct worker_msg *msg) {
    struct rig *rig = CONTAINER_OF(msg, struct rig, msg);
    rig->step(rig);
}

/* Runs the step on the worker, until end_step. */
static void run_on_worker(struct rig *rig, void (*step)(struct rig *rig)) {
    rig->stepped = false;
    rig->step = step;
    rig->msg.run = run_step;
    worker_post(rig->worker, &rig->msg);
    lock_acquire(&rig->lock);
    while (!rig->stepped) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    lock_release(&rig->lock);
}

static void on_changed(void *user) {
    struct rig *rig = user;
    assert_true(worker_is_current(rig->worker));
    atomic_fetch_add(&rig->n_changed, 1);
}

static void on_settled(void *user) {
    struct rig *rig = user;
    assert_true(worker_is_current(rig->worker));
    atomic_fetch_add(&rig->n_settled, 1);
}

static void rig_init(struct rig *rig) {
    struct error err;
    *rig = (struct rig){.spec = NULL};
    test_dns_init(&rig->dns);
    lock_init(&rig->lock);
    lock_cond_init(&rig->cond);
    snprintf(rig->system_file, sizeof(rig->system_file), "/tmp/dns_watch_test.XXXXXX");
    int fd = mkstemp(rig->system_file);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(worker_new("names", &rig->worker, &err), ST_OK);
    struct dns_watch_options options = {.worker = rig->worker,
                                        .on_addresses_changed = on_changed,
                                        .on_all_resolved = on_settled,
                                        .user = rig,
                                        .system_file = rig->system_file};
    assert_int_equal(dns_watch_new(&options, &rig->watch, &err), ST_OK);
    assert_int_equal(worker_start(rig->worker, &err), ST_OK);
}

static void step_stop(struct rig *rig) {
    dns_watch_stop(rig->watch, end_step, rig);
}

static void rig_fini(struct rig *rig) {
    run_on_worker(rig, step_stop);
    worker_stop(rig->worker);
    worker_join(rig->worker);
    dns_watch_free(rig->watch);
    worker_free(rig->worker);
    test_dns_fini(&rig->dns);
    unlink(rig->system_file);
    lock_cond_fini(&rig->cond);
    lock_fini(&rig->lock);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static const uint16_t PORTS[] = {80};

static void want(struct pool_spec *spec, const char *name, enum dns_records records) {
    struct dns_plan_name wanted = {.name = str_of(name),
                                   .records = records,
                                   .ports = PORTS,
                                   .n_ports = records == DNS_RECORDS_SRV ? 0 : 1};
    struct error err;
    assert_int_equal(dns_plan_add(spec, &wanted, &err), ST_OK);
}

/* Short times, and the rig's server. */
static struct pool_spec *spec_of(struct rig *rig) {
    struct pool_spec *spec = fixture_spec();
    struct dns_plan *plan = dns_plan_get(spec);
    assert_non_null(plan);
    plan->servers = pool_spec_dup_text(spec, str_of(rig->dns.address));
    plan->timeout_ns = 2 * (uint64_t)SECOND; /* a busy machine answers in time */
    plan->min_ttl_ns = 10 * MS;
    plan->max_ttl_ns = 50 * MS;
    plan->keep_ns = 3600 * SECOND;
    return spec;
}

static void step_follow(struct rig *rig) {
    struct pool_specs specs = {.items = &rig->spec, .n = 1};
    dns_watch_set_pools(rig->watch, rig->spec ? &specs : NULL);
    end_step(rig);
}

/* Applies the spec; NULL: no names. */
static void follow(struct rig *rig, struct pool_spec *spec) {
    rig->spec = spec;
    run_on_worker(rig, step_follow);
    pool_spec_free(spec);
}

/* Reads the report of the first name. Returns: false if there is none. */
static bool read_first_report(struct rig *rig, enum dns_state *state, uint32_t *sum, size_t *n) {
    struct arena *arena = arena_new(NULL, 0);
    struct dns_report *reports;
    size_t n_names = dns_watch_report(rig->watch, arena, &reports);
    *sum = 0;
    if (n_names > 0) {
        *state = reports[0].state;
        *n = reports[0].n_addresses;
        for (size_t i = 0; i < *n; i++) {
            *sum += (uint32_t)reports[0].addresses[i].low + reports[0].addresses[i].port;
        }
    }
    arena_free(arena);
    return n_names > 0;
}

/* Waits until the first name has this number of addresses, with this sum of their last bytes and
 * ports. */
static void wait_addresses(struct rig *rig, size_t n, uint32_t sum) {
    enum dns_state state;
    uint32_t sum_now;
    size_t n_now;
    while (!read_first_report(rig, &state, &sum_now, &n_now) || n_now != n || sum_now != sum) {
        usleep(1000);
    }
}

static void wait_state(struct rig *rig, enum dns_state wanted) {
    enum dns_state state;
    uint32_t sum;
    size_t n;
    while (!read_first_report(rig, &state, &sum, &n) || state != wanted) {
        usleep(1000);
    }
}

static void wait_metric(enum metric metric, int64_t least) {
    while (metric_read(metric) < least) {
        usleep(1000);
    }
}

static void set_a(struct rig *rig, uint32_t first, size_t n) {
    struct test_dns_record records[TEST_DNS_RECORDS];
    for (size_t i = 0; i < n; i++) {
        records[i] = (struct test_dns_record){
            .name = "a.test", .type = TEST_DNS_A, .ip = first + (uint32_t)i};
    }
    test_dns_set(&rig->dns, records, n);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void watch_changed_answers_change_endpoints(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    set_a(&rig, 1, 3);
    struct pool_spec *spec = spec_of(&rig);
    want(spec, "a.test", DNS_RECORDS_A);
    follow(&rig, spec);
    test_wait_for(&rig.n_settled, 1);
    assert_int_equal(atomic_load(&rig.n_changed), 1); /* before the second change */
    wait_addresses(&rig, 3, 6);
    set_a(&rig, 2, 3);
    wait_addresses(&rig, 3, 9);
    test_wait_for(&rig.n_changed, 2);
    wait_metric(METRIC_PICK_DNS_OK, metric_read(METRIC_PICK_DNS_OK) + 5);
    assert_int_equal(atomic_load(&rig.n_changed), 2); /* an equal answer is no change */
    follow(&rig, NULL);
    enum dns_state now;
    uint32_t sum;
    size_t n;
    assert_false(read_first_report(&rig, &now, &sum, &n));
    rig_fini(&rig);
}

static void watch_failed_query_keeps_addresses(void **state) {
    static const enum test_dns_manners manners[] = {TEST_DNS_FAILS, TEST_DNS_SILENT,
                                                    TEST_DNS_BABBLES};
    (void)state;
    struct rig rig;
    rig_init(&rig);
    set_a(&rig, 1, 2);
    struct pool_spec *spec = spec_of(&rig);
    spec->dns->timeout_ns = 20 * MS;
    want(spec, "a.test", DNS_RECORDS_A);
    follow(&rig, spec);
    wait_addresses(&rig, 2, 3);
    for (size_t i = 0; i < sizeof(manners) / sizeof(manners[0]); i++) {
        atomic_store(&rig.dns.manners, (int)manners[i]);
        wait_state(&rig, DNS_STATE_FAILING);
        wait_metric(METRIC_PICK_DNS_FAILED, metric_read(METRIC_PICK_DNS_FAILED) + 2);
        wait_addresses(&rig, 2, 3);
        atomic_store(&rig.dns.manners, TEST_DNS_ANSWERS);
        wait_state(&rig, DNS_STATE_RESOLVED);
    }
    test_dns_set(&rig.dns, NULL, 0);
    wait_state(&rig, DNS_STATE_EMPTY);
    wait_addresses(&rig, 2, 3); /* for an hour */
    rig_fini(&rig);
}

/* The targets of the lowest priority that has an address are used, each with its record's port. */
static void watch_srv_lowest_priority_with_addresses_counts(void **state) {
    static const struct test_dns_record first[] = {
        {.name = "s.test", .type = TEST_DNS_SRV, .priority = 2, .port = 100, .target = "two"},
        {.name = "s.test", .type = TEST_DNS_SRV, .priority = 1, .port = 1000, .target = "one"},
        {.name = "s.test", .type = TEST_DNS_SRV, .priority = 3, .port = 10000, .target = "three"},
        {.name = "two", .type = TEST_DNS_A, .ip = 1},
        {.name = "two", .type = TEST_DNS_AAAA, .ip = 2},
        {.name = "three", .type = TEST_DNS_A, .ip = 3},
        {.name = "one", .type = TEST_DNS_A, .ip = 4},
    };
    (void)state;
    struct rig rig;
    rig_init(&rig);
    test_dns_set(&rig.dns, first, 6); /* no address of "one" is known */
    struct pool_spec *spec = spec_of(&rig);
    want(spec, "s.test", DNS_RECORDS_SRV);
    follow(&rig, spec);
    wait_addresses(&rig, 2, 1 + 2 + 200);
    test_dns_set(&rig.dns, first, 7);
    wait_addresses(&rig, 1, 4 + 1000);
    rig_fini(&rig);
}

static int64_t n_lookups(void) {
    return metric_read(METRIC_PICK_DNS_OK) + metric_read(METRIC_PICK_DNS_PARTIAL) +
           metric_read(METRIC_PICK_DNS_EMPTY) + metric_read(METRIC_PICK_DNS_FAILED);
}

/* Stopping without names, and while a server does not answer: queries are cancelled, without a
 * result. */
static void watch_stop_during_queries_leaves_nothing(void **state) {
    (void)state;
    struct rig rig;
    int64_t n_before = n_lookups();
    rig_init(&rig);
    rig_fini(&rig);
    assert_int_equal(atomic_load(&rig.dns.n_asked), 0);
    assert_int_equal(atomic_load(&rig.n_changed) + atomic_load(&rig.n_settled), 0);
    rig_init(&rig);
    atomic_store(&rig.dns.manners, TEST_DNS_SILENT);
    struct pool_spec *spec = spec_of(&rig);
    spec->dns->timeout_ns = 60 * SECOND;
    want(spec, "a.test", DNS_RECORDS_ANY);
    want(spec, "s.test", DNS_RECORDS_SRV);
    follow(&rig, spec);
    test_wait_for(&rig.dns.n_asked, 3);
    enum dns_state found;
    uint32_t sum;
    size_t n = 1;
    assert_true(read_first_report(&rig, &found, &sum, &n));
    assert_int_equal(found, DNS_STATE_UNRESOLVED);
    assert_int_equal(n, 0);
    rig_fini(&rig); /* long before the timeout of a query */
    assert_int_equal(atomic_load(&rig.dns.n_asked), 3);
    assert_int_equal(atomic_load(&rig.n_changed) + atomic_load(&rig.n_settled), 0);
    assert_int_equal(n_lookups(), n_before);
}

/* A removed name's query is cancelled; after a change of servers the new ones are queried. */
static void watch_changed_server_is_queried(void **state) {
    (void)state;
    struct rig rig;
    struct test_dns silent;
    rig_init(&rig);
    test_dns_init(&silent);
    atomic_store(&silent.manners, TEST_DNS_SILENT);
    set_a(&rig, 1, 1);
    struct pool_spec *spec = spec_of(&rig);
    spec->dns->servers = pool_spec_dup_text(spec, str_of(silent.address));
    spec->dns->timeout_ns = 60 * SECOND;
    want(spec, "a.test", DNS_RECORDS_A);
    want(spec, "gone.test", DNS_RECORDS_SRV);
    follow(&rig, spec);
    test_wait_for(&silent.n_asked, 2);
    assert_int_equal(atomic_load(&rig.n_settled), 0);
    spec = spec_of(&rig);
    want(spec, "a.test", DNS_RECORDS_A);
    follow(&rig, spec);
    wait_addresses(&rig, 1, 1);
    test_wait_for(&rig.n_settled, 1);
    rig_fini(&rig);
    test_dns_fini(&silent);
}

/* ---- everything at once ---------------------------------------------------------------------- */

static void step_fill(struct rig *rig) {
    dns_watch_check_system_file(rig->watch);
    dns_watch_add_endpoints(rig->watch, rig->spec);
    end_step(rig);
}

struct reader {
    struct rig *rig;
    atomic_bool ended;
    pthread_t thread;
};

static void *keep_looking(void *arg) {
    struct reader *reader = arg;
    enum dns_state state;
    uint32_t sum;
    size_t n;
    while (!atomic_load(&reader->ended)) {
        read_first_report(reader->rig, &state, &sum, &n);
        usleep(100);
    }
    return NULL;
}

static void write_system_file(struct rig *rig, int round) {
    FILE *file = fopen(rig->system_file, "w");
    assert_non_null(file);
    fprintf(file, "nameserver 127.0.0.%d\n", 1 + round % 2); /* no server listens there */
    assert_int_equal(fclose(file), 0);
}

static void watch_churn_of_pools_and_answers_survives(void **state) {
    static const char *const names[] = {"a.test", "b.test", "s.test", "none.test"};
    enum { ROUNDS = 60 };
    (void)state;
    struct rig rig;
    rig_init(&rig);
    struct reader reader = {.rig = &rig};
    assert_int_equal(pthread_create(&reader.thread, NULL, keep_looking, &reader), 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct pool_spec *spec = spec_of(&rig);
        for (int i = 0; i < 4; i++) {
            if ((round + i) % 3 != 0) {
                want(spec, names[i], (enum dns_records)((round / 4 + i) % 4));
            }
        }
        if (round % 7 == 3) { /* the system's servers: the file changes */
            write_system_file(&rig, round);
            spec->dns->servers = STR("");
        }
        set_a(&rig, (uint32_t)round, 1 + (size_t)round % 8);
        atomic_store(&rig.dns.manners, round % 5 == 4 ? round % 4 : TEST_DNS_ANSWERS);
        rig.spec = spec;
        run_on_worker(&rig, step_follow);
        usleep(5000);
        run_on_worker(&rig, step_fill);
        for (size_t i = 0; i < spec->n_endpoints; i++) {
            assert_true(spec->endpoints[i].address.port != 0);
        }
        pool_spec_free(spec);
    }
    atomic_store(&rig.dns.manners, TEST_DNS_ANSWERS);
    set_a(&rig, 5, 2);
    struct pool_spec *spec = spec_of(&rig);
    want(spec, "a.test", DNS_RECORDS_A);
    follow(&rig, spec);
    wait_addresses(&rig, 2, 11);
    atomic_store(&reader.ended, true);
    pthread_join(reader.thread, NULL);
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watch_changed_answers_change_endpoints),
        cmocka_unit_test(watch_failed_query_keeps_addresses),
        cmocka_unit_test(watch_srv_lowest_priority_with_addresses_counts),
        cmocka_unit_test(watch_stop_during_queries_leaves_nothing),
        cmocka_unit_test(watch_changed_server_is_queried),
        cmocka_unit_test(watch_churn_of_pools_and_answers_survives),
    };
    return cmocka_run_group_tests_name("pick/discovery/dns/watch", tests, NULL, NULL);
}
