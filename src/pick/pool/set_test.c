/* Pools by name: they are kept, added and removed with their requests in flight, while several
 * threads read. A configuration is written in a line: names with the number of endpoints, "a3
 * b1". */
#include "pick/pool/set.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "pick/pool/pool_fixture.h"

/* Pool "a" matches the header p=a, and so on; endpoints are numbered from 0. */
static struct pool_spec *spec_of(const char *name, uint32_t n_endpoints) {
    struct pool_spec *spec = fixture_spec_of(n_endpoints);
    spec->name = pool_spec_dup_text(spec, str_of(name));
    spec->match.header = STR("p");
    spec->match.header_value = spec->name;
    return spec;
}

static struct pool_specs specs_of(const char *text) {
    struct pool_specs specs = {.is_list = true};
    for (struct str rest = str_of(text); rest.ptr && rest.len > 0;) {
        struct str word = str_cut(&rest, ' ');
        const char name[2] = {word.ptr[0], '\0'};
        uint32_t n = (uint32_t)(word.ptr[1] - '0');
        pool_specs_add(&specs, spec_of(name, n));
    }
    return specs;
}

static void update(struct pool_set *set, const char *text) {
    struct pool_specs specs = specs_of(text);
    struct error err;
    assert_int_equal(pool_set_update(set, &specs, &err), ST_OK);
    assert_int_equal(specs.n, 0);
}

struct fixture_set {
    struct pool_set *set;
    struct pool_set_reader *reader;
};

static void begin(struct fixture_set *f, const char *text) {
    struct error err;
    assert_int_equal(pool_set_new(&f->set, &err), ST_OK);
    assert_int_equal(pool_set_reader_new(f->set, &f->reader, &err), ST_OK);
    assert_int_equal(pool_set_reader_refresh(f->reader)->n, 0);
    update(f->set, text);
}

static void end(struct fixture_set *f) {
    pool_set_reader_free(f->reader);
    pool_set_free(f->set);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

/* Returns: NULL when there is no pool with this name. */
static struct pool_reader *reader_of(struct pool_set_reader *reader, const char *name) {
    const struct pool_entry *entry = pool_list_find(pool_set_reader_refresh(reader), str_of(name));
    return entry ? pool_set_reader_get(reader, entry) : NULL;
}

static struct pool_ticket pick(struct pool_reader *reader) {
    struct pool_request request = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_pick(reader, &request, &pick, &err), ST_OK);
    return pick.ticket;
}

static uint64_t in_flight(struct pool_set *set) {
    struct pool_stats stats;
    pool_set_get_stats(set, &stats);
    return stats.n_in_flight;
}

/* ---- updates --------------------------------------------------------------------------------- */

static void pool_set_without_pools_matches_nothing(void **state) {
    (void)state;
    struct fixture_set f;
    struct pool_pick pick;
    struct error err;
    begin(&f, "");
    struct pool_request request = {.model = {NULL, 0}};
    const struct pool_list *list = pool_set_reader_refresh(f.reader);
    struct pool_match_input facts = {.path = STR("/")};
    assert_int_equal(list->generation, 1);
    assert_true(pool_index_find(&list->index, &facts) == SIZE_MAX);
    assert_null(pool_list_find(list, STR("a")));
    assert_int_equal(pool_pick(pool_set_reader_get_empty(f.reader), &request, &pick, &err),
                     ST_NO_ENDPOINT);
    end(&f);
}

static void pool_set_update_keeps_state_of_remaining_pool(void **state) {
    (void)state;
    struct fixture_set f;
    begin(&f, "a2 b1");
    struct pool_reader *a = reader_of(f.reader, "a");
    struct pool *pool = pool_reader_pool(a);
    struct pool_ticket ticket = pick(a);
    update(f.set, "c1 b1 a3"); /* another order, another number of endpoints, another pool */
    assert_ptr_equal(reader_of(f.reader, "a"), a);
    assert_ptr_equal(pool_reader_pool(a), pool);
    assert_int_equal(pool_reader_refresh(a)->n_members, 3);
    assert_int_equal(endpoint_in_flight(ticket.endpoint), 1);
    assert_int_equal(in_flight(f.set), 1);
    const struct pool_list *list = pool_set_reader_refresh(f.reader);
    assert_int_equal(list->n, 3);
    assert_true(str_is(list->entries[0].name, "c"));
    pool_release_ticket(pool, &ticket);
    end(&f);
}

static void pool_set_removed_pool_lives_until_last_request(void **state) {
    (void)state;
    struct fixture_set f;
    begin(&f, "a2 b1");
    struct pool_reader *a = pool_reader_ref(reader_of(f.reader, "a"));
    struct pool_ticket ticket = pick(a);
    update(f.set, "b1");
    assert_null(reader_of(f.reader, "a"));
    assert_int_equal(in_flight(f.set), 0); /* of the pools in the list */
    assert_int_equal(endpoint_in_flight(ticket.endpoint), 1);
    update(f.set, "b1 a2"); /* one with the same name, and another one */
    assert_ptr_not_equal(pool_reader_pool(reader_of(f.reader, "a")), pool_reader_pool(a));
    pool_release_ticket(pool_reader_pool(a), &ticket);
    pool_reader_unref(a);
    end(&f);
}

static void pool_set_free_slots_are_reused(void **state) {
    (void)state;
    struct fixture_set f;
    begin(&f, "a1 b1 c1");
    for (int i = 0; i < 50; i++) {
        update(f.set, i % 2 == 0 ? "c1 d1 a1" : "c1 b1 a1");
        assert_int_equal(pool_set_reader_refresh(f.reader)->n_slots, 3);
        assert_non_null(reader_of(f.reader, i % 2 == 0 ? "d" : "b"));
    }
    end(&f);
}

/* The name of the only pool is its InferencePool's, and may change. */
static void pool_set_without_list_is_one_pool(void **state) {
    (void)state;
    struct fixture_set f;
    struct error err;
    begin(&f, "a1");
    const struct pool *before = NULL;
    for (int i = 0; i < 3; i++) {
        struct pool_specs specs = specs_of(i % 2 == 0 ? "x2" : "y2");
        specs.is_list = false;
        specs.items[0]->match = (struct pool_match){.n_authorities = 0};
        assert_int_equal(pool_set_update(f.set, &specs, &err), ST_OK);
        const struct pool *pool = pool_reader_pool(reader_of(f.reader, ""));
        assert_true(!before || before == pool);
        assert_true(pool_set_reader_refresh(f.reader)->index.is_single_catch_all);
        before = pool;
    }
    end(&f);
}

static void pool_set_update_with_conflict_changes_nothing(void **state) {
    (void)state;
    struct fixture_set f;
    struct error err;
    struct pool_match_conflict conflict;
    begin(&f, "a1");
    struct pool_specs specs = specs_of("b1 c1 d1");
    specs.items[2]->match.header_value = STR("b");
    assert_int_equal(pool_specs_check(&specs, &conflict, &err), ST_BAD_CONFIG);
    assert_true(conflict.first == 0 && conflict.second == 2);
    assert_int_equal(pool_set_update(f.set, &specs, &err), ST_BAD_CONFIG);
    assert_int_equal(specs.n, 0);
    assert_int_equal(pool_set_generation(f.set), 1);
    assert_non_null(reader_of(f.reader, "a"));
    end(&f);
}

/* ---- concurrent updates ---------------------------------------------------------------------- */

enum { THREADS = 4, HELD = 24, UPDATES = 400, PICKS = 500, NAMES = 6 };

/* The number of endpoints of this pool in this generation; 0: it is not in the list. */
static uint32_t size_of(uint64_t generation, uint32_t name) {
    struct prng prng = {generation * NAMES + name};
    return generation > 0 ? prng_below(&prng, 4) : 0;
}

static struct pool_specs specs_of_generation(uint64_t generation) {
    struct pool_specs specs = {.is_list = true};
    for (uint32_t i = 0; i < NAMES; i++) {
        uint32_t which = (i + (uint32_t)generation) % NAMES, n = size_of(generation, which);
        const char name[2] = {(char)('a' + which), '\0'};
        if (n > 0) {
            pool_specs_add(&specs, spec_of(name, n));
        }
    }
    return specs;
}

struct held {
    struct pool_reader *reader; /* with a reference */
    struct pool_ticket ticket;
};

struct worker_of_test {
    struct pool_set_reader *reader;
    struct prng prng;
    _Atomic bool *over;
    _Atomic unsigned *n_picked, *n_nobody; /* of all threads */
    struct held held[HELD];
    unsigned n_wrong;
};

/* As a session does. */
static void pick_one(struct worker_of_test *worker, struct held *held) {
    uint32_t which = prng_below(&worker->prng, NAMES);
    const char name[2] = {(char)('a' + which), '\0'};
    const struct pool_list *list = pool_set_reader_refresh(worker->reader);
    struct pool_match_input facts = {.path = STR("/"), .headers = {str_of(name)}};
    struct pool_request request = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    size_t i = pool_index_find(&list->index, &facts);
    worker->n_wrong += (i != SIZE_MAX) != (size_of(list->generation, which) > 0);
    if (i == SIZE_MAX) {
        atomic_fetch_add(worker->n_nobody, 1);
        return;
    }
    worker->n_wrong += !str_is(list->entries[i].name, name);
    struct pool_reader *reader = pool_set_reader_get(worker->reader, &list->entries[i]);
    worker->n_wrong += pool_pick(reader, &request, &pick, &err) != ST_OK;
    worker->n_wrong += !str_is(pool_reader_refresh(reader)->spec->name, name);
    held->ticket = pick.ticket;
    held->reader = pool_reader_ref(reader);
    atomic_fetch_add(worker->n_picked, 1);
}

static void *run(void *arg) {
    struct worker_of_test *worker = arg;
    while (!atomic_load(worker->over)) {
        struct held *held = &worker->held[prng_below(&worker->prng, HELD)];
        if (held->reader) {
            pool_release_ticket(pool_reader_pool(held->reader), &held->ticket);
            pool_reader_unref(held->reader);
            held->reader = NULL;
        } else {
            pick_one(worker, held);
        }
        if (prng_below(&worker->prng, 16) == 0) {
            pool_set_reader_refresh_all(worker->reader);
        }
    }
    return NULL;
}

static void pool_set_concurrent_updates_keep_tickets_valid(void **state) {
    static struct worker_of_test workers[THREADS];
    (void)state;
    pthread_t threads[THREADS];
    _Atomic bool over = false;
    struct pool_set *set;
    struct error err;
    _Atomic unsigned n_picked = 0, n_nobody = 0;
    assert_int_equal(pool_set_new(&set, &err), ST_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker_of_test){
            .prng = {i}, .over = &over, .n_picked = &n_picked, .n_nobody = &n_nobody};
        assert_int_equal(pool_set_reader_new(set, &workers[i].reader, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    }
    for (uint64_t generation = 1; generation <= UPDATES || n_picked < PICKS || n_nobody < PICKS;
         generation++) {
        struct pool_specs specs = specs_of_generation(generation);
        assert_int_equal(pool_set_update(set, &specs, &err), ST_OK);
        sched_yield();
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
        pool_set_reader_free(workers[i].reader); /* tickets outlive it */
        for (unsigned k = 0; k < HELD; k++) {
            struct held *held = &workers[i].held[k];
            if (held->reader) {
                pool_release_ticket(pool_reader_pool(held->reader), &held->ticket);
                pool_reader_unref(held->reader);
            }
        }
    }
    assert_int_equal(in_flight(set), 0);
    pool_set_free(set);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_set_without_pools_matches_nothing),
        cmocka_unit_test(pool_set_update_keeps_state_of_remaining_pool),
        cmocka_unit_test(pool_set_removed_pool_lives_until_last_request),
        cmocka_unit_test(pool_set_free_slots_are_reused),
        cmocka_unit_test(pool_set_without_list_is_one_pool),
        cmocka_unit_test(pool_set_update_with_conflict_changes_nothing),
        cmocka_unit_test(pool_set_concurrent_updates_keep_tickets_valid),
    };
    return cmocka_run_group_tests_name("pick/pool/set", tests, NULL, NULL);
}
