/* Three independent pickers over the same eight servers: each scrapes the servers at times of its
 * own, and corrects the reports by the requests it has sent since. The clock is simulated; a server
 * processes one request at a time, the others wait. The requests of all pickers together are
 * compared with an even spread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

enum { PICKERS = 3, SERVERS = 8, WAITING = 256, STEPS = 20000, REPORT_STEPS = 200 };
#define MS UINT64_C(1000000)
#define BEGIN_NS (UINT64_C(1000000) * MS)

struct request {
    uint32_t picker;
    struct pool_ticket ticket;
};

struct server {
    struct request queue[WAITING]; /* the first one is being processed */
    uint32_t n, n_left;            /* steps until that one ends */
    uint32_t n_taken;
};

struct world {
    struct fixture pickers[PICKERS];
    struct server servers[SERVERS];
    struct prng prng;
    uint32_t service_steps, n_most_waiting;
};

/* Uses the reports only, so that the correction alone reflects requests sent since. */
static const struct profile_step QUEUE = {.plugin = &plugin_queue_scorer, .weight = 1};
static const struct profile BY_QUEUE = {
    .scorers = &QUEUE, .n_scorers = 1, .picker = {.plugin = &plugin_max_score_picker}};
static const struct profile *const PROFILES[] = {NULL, &BY_QUEUE};
enum { N_PROFILES = sizeof(PROFILES) / sizeof(PROFILES[0]) };

static void open_world(struct world *world, const struct profile *profile, uint32_t service_steps) {
    *world = (struct world){.prng = {3}, .service_steps = service_steps};
    clock_set_fake_ns(BEGIN_NS);
    for (uint32_t i = 0; i < PICKERS; i++) {
        struct pool_spec *spec = fixture_spec_of(SERVERS);
        spec->profile = profile;
        fixture_open(&world->pickers[i], spec);
    }
}

static void end_first(struct world *world, struct server *server) {
    struct request *request = &server->queue[0];
    pool_release_ticket(world->pickers[request->picker].pool, &request->ticket);
    server->n--;
    for (uint32_t i = 0; i < server->n; i++) {
        server->queue[i] = server->queue[i + 1];
    }
    server->n_left = world->service_steps;
}

static void close_world(struct world *world) {
    for (uint32_t i = 0; i < SERVERS; i++) {
        while (world->servers[i].n > 0) {
            end_first(world, &world->servers[i]);
        }
    }
    for (uint32_t i = 0; i < PICKERS; i++) {
        fixture_close(&world->pickers[i]);
    }
    clock_set_fake_ns(0);
}

static void work(struct world *world) {
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct server *server = &world->servers[i];
        if (server->n > 0 && --server->n_left == 0) {
            end_first(world, server);
        }
    }
}

static void report(struct world *world, uint32_t picker) {
    struct fixture *fixture = &world->pickers[picker];
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct endpoint *endpoint = snapshot->members[i].endpoint;
        uint32_t n = world->servers[i].n;
        struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                     .until_ns = clock_now_ns() + 2000 * MS,
                                     .in_flight = endpoint_in_flight(endpoint),
                                     .known = LOAD_WAITING | LOAD_RUNNING,
                                     .n_waiting = n > 0 ? n - 1 : 0,
                                     .n_running = n > 0};
        pool_set_load(fixture->pool, endpoint, &load);
    }
}

static void send(struct world *world, uint32_t picker) {
    struct pool_pick pick = fixture_pick(&world->pickers[picker]);
    const struct pool_snapshot *snapshot = pool_reader_refresh(world->pickers[picker].reader);
    const struct pool_member *member = pool_snapshot_find(snapshot, &pick.endpoints[0]->address);
    struct server *server = &world->servers[member - snapshot->members];
    assert_true(server->n < WAITING);
    server->n_left = server->n == 0 ? world->service_steps : server->n_left;
    server->queue[server->n++] = (struct request){picker, pick.ticket};
    server->n_taken++;
    world->n_most_waiting = server->n > world->n_most_waiting ? server->n : world->n_most_waiting;
}

/* One step is a millisecond. `n_at_once` requests arrive at each picker in turn, at `share` of the
 * servers' throughput. */
static void run(struct world *world, uint32_t n_at_once, double share) {
    double due = 0;
    uint32_t next = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        clock_set_fake_ns(BEGIN_NS + step * MS);
        for (uint32_t i = 0; i < PICKERS; i++) {
            if (step % REPORT_STEPS == i * REPORT_STEPS / PICKERS) {
                report(world, i);
            }
        }
        due += share * SERVERS / world->service_steps;
        for (; due >= n_at_once; due -= n_at_once, next++) {
            for (uint32_t i = 0; i < n_at_once; i++) {
                send(world, next % PICKERS);
            }
        }
        work(world);
    }
}

static void check_even(const struct world *world) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < SERVERS; i++) {
        n += world->servers[i].n_taken;
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        double share = (double)world->servers[i].n_taken * SERVERS / n;
        if (share < 0.9 || share > 1.1) {
            fail_msg("server %u took %u of %u", i, world->servers[i].n_taken, n);
        }
    }
}

/* Between two reports a server could process 10 requests, and gets about 8 from three pickers. */
static void replicas_balanced_load_spreads_evenly(void **state) {
    static struct world world;
    (void)state;
    for (size_t i = 0; i < N_PROFILES; i++) {
        open_world(&world, PROFILES[i], 20);
        run(&world, 1, 0.8);
        check_even(&world);
        close_world(&world);
    }
}

/* Bursts at one picker, within a scrape interval: no server has more than two evenly spread bursts,
 * and what waited before. */
static void replicas_bursts_do_not_hit_one_server(void **state) {
    static struct world world;
    (void)state;
    for (size_t i = 0; i < N_PROFILES; i++) {
        open_world(&world, PROFILES[i], 20);
        run(&world, 40, 0.7);
        check_even(&world);
        assert_in_range(world.n_most_waiting, 40 / SERVERS, 3 * 40 / SERVERS + 5);
        close_world(&world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_balanced_load_spreads_evenly),
        cmocka_unit_test(replicas_bursts_do_not_hit_one_server),
    };
    return cmocka_run_group_tests_name("pick/pool/replicas", tests, NULL, NULL);
}
