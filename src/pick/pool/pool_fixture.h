/* Pools for tests, made in a line or two. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_POOL_FIXTURE_H
#define SLUICE_PICK_POOL_POOL_FIXTURE_H

#include "pick/pool/set.h"

/* The needs of a profile with one producer, of small blocks. */
#define FIXTURE_PREFIXES(bytes, most, cached)                                                      \
    .n_prefixes = 1, .used_prefixes = 1,                                                           \
    .prefixes = {{.name = STR("approx-prefix-cache-producer"),                                     \
                  .block_bytes = (bytes),                                                          \
                  .max_blocks = (most),                                                            \
                  .capacity = (cached)}}

static inline struct pool_spec *fixture_spec(void) {
    struct pool_spec *spec = NULL;
    spec = pool_spec_new();
    return spec;
}

static inline struct endpoint_address fixture_address(const char *text) {
    struct endpoint_address address = {0};
    assert_true(endpoint_address_parse(str_of(text), &address));
    return address;
}

static inline void fixture_add(struct pool_spec *spec, const char *text) {
    struct pool_spec_endpoint wanted = {.address = fixture_address(text)};
    pool_spec_add_endpoint(spec, &wanted);
}

/* 10.x.y.z:8000, numbered by `i`. */
static inline struct endpoint_address fixture_numbered(uint32_t i) {
    return (struct endpoint_address){.family = 4, .port = 8000, .low = (10u << 24) + i};
}

static inline struct pool_spec *fixture_spec_of(uint32_t n) {
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = 0; i < n; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    return spec;
}

static inline void fixture_update(struct pool *pool, struct pool_spec *spec) {
    struct error err;
    assert_int_equal(pool_update(pool, &spec, &err), ST_OK);
    assert_null(spec);
}

struct fixture {
    struct pool *pool;
    struct pool_reader *reader;
};

/* Takes the spec. */
static inline void fixture_open(struct fixture *fixture, struct pool_spec *spec) {
    struct error err;
    assert_int_equal(pool_new(&fixture->pool, &err), ST_OK);
    fixture_update(fixture->pool, spec);
    assert_int_equal(pool_reader_new(fixture->pool, 1, &fixture->reader, &err), ST_OK);
}

/* The same, with a table of prompt prefixes. */
static inline void fixture_open_with_prefixes(struct fixture *fixture, struct pool_spec *spec) {
    struct prefix_table *table;
    struct error err;
    assert_int_equal(pool_new(&fixture->pool, &err), ST_OK);
    assert_int_equal(prefix_table_new(PREFIX_MIN_BYTES, 0, &table, &err), ST_OK);
    pool_attach_prefix_table(fixture->pool, table);
    prefix_table_unref(table);
    fixture_update(fixture->pool, spec);
    assert_int_equal(pool_reader_new(fixture->pool, 1, &fixture->reader, &err), ST_OK);
}

static inline void fixture_close(struct fixture *fixture) {
    struct pool_stats stats;
    pool_get_stats(fixture->pool, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    pool_reader_unref(fixture->reader);
    pool_free(fixture->pool);
}

/* A set of one pool without endpoints; the tests update the pool themselves. Owns:
 * pool_set_free. */
static inline struct pool_set *fixture_set(struct pool **pool) {
    struct pool_set *set;
    struct pool_specs specs = {.n = 0};
    struct error err;
    assert_int_equal(pool_set_new(&set, &err), ST_OK);
    pool_specs_add(&specs, fixture_spec());
    assert_int_equal(pool_set_update(set, &specs, &err), ST_OK);
    struct pool_list *list = pool_set_acquire_list(set);
    *pool = list->entries[0].pool;
    pool_list_unref(list);
    return set;
}

static inline struct endpoint *fixture_endpoint(struct fixture *fixture, const char *text) {
    struct endpoint_address address = fixture_address(text);
    const struct pool_member *member =
        pool_snapshot_find(pool_reader_refresh(fixture->reader), &address);
    return member ? member->endpoint : NULL;
}

/* A pick from the whole pool that succeeds. */
static inline struct pool_pick fixture_pick(struct fixture *fixture) {
    struct pool_request request = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_pick(fixture->reader, &request, &pick, &err), ST_OK);
    return pick;
}

#endif
