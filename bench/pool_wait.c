/* What waiting requests cost the pool's lock: N endpoints, all full, and W requests that wait, each
 * with a subset of all the endpoints. For callgrind as well as for the clock.
 *
 *     pool_wait ENDPOINTS WAITERS ROUNDS
 *
 * Prints the microseconds of a pool_tick while nothing has capacity; of a request's end, with the
 * pick of the waiter that is notified and the queueing of another one; of an update of the pool;
 * and of a request's end whose waiter was queued after W that wait for another endpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/num.h"
#include "pick/pool/flow/wait.h"

struct request {
    struct pool_waiter waiter; /* first: a waiter is cast to it */
    struct subset subset;
    struct pool_ticket ticket;
};

struct bench {
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_wakeup wakeup;
    uint64_t n_endpoints, n_waiters, n_rounds;
    struct request *requests; /* first those that fill the endpoints, then the waiting ones */
    uint64_t oldest;          /* request with an endpoint */
};

static void check(enum status st, const struct error *err) {
    if (st != ST_OK) {
        fprintf(stderr, "pool_wait: %s\n", err->text);
        exit(1);
    }
}

static struct endpoint_address numbered(uint64_t i) {
    return (struct endpoint_address){.family = 4, .port = 8000, .low = (10u << 24) + i};
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* `first`: the number of the first endpoint. */
static void update(const struct bench *bench, uint64_t first) {
    struct error err;
    struct pool_spec *spec;
    spec = pool_spec_new();
    for (uint64_t i = 0; i < bench->n_endpoints; i++) {
        struct pool_spec_endpoint wanted = {.address = numbered(first + i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    spec->flow_control.limits.max_requests = bench->n_waiters;
    check(pool_update(bench->pool, &spec, &err), &err);
}

/* Returns: whether it has an endpoint. */
static bool pick(const struct bench *bench, struct request *request) {
    struct pool_request asked = {.subset = &request->subset, .waiter = &request->waiter};
    struct pool_pick out;
    struct error err;
    check(pool_pick(bench->reader, &asked, &out, &err), &err);
    request->ticket = out.ticket;
    return out.ticket.endpoint != NULL;
}

static void ignore(void *user) {
    (void)user;
}

/* `apart`: of two endpoints, each request may use the first, but the second and the last one. */
static void open_bench_with(struct bench *bench, bool apart) {
    struct error err;
    uint64_t n = bench->n_endpoints + bench->n_waiters;
    check(pool_new(&bench->pool, &err), &err);
    update(bench, 0);
    check(pool_reader_new(bench->pool, 1, &bench->reader, &err), &err);
    pool_wakeup_init(&bench->wakeup, ignore, NULL);
    bench->requests = calloc(n, sizeof(*bench->requests));
    for (uint64_t i = 0; bench->requests && i < n; i++) {
        struct request *request = &bench->requests[i];
        struct subset *subset = &request->subset;
        subset->n = subset->cap = bench->n_endpoints + 1;
        subset->items = calloc(subset->n, sizeof(*subset->items));
        for (uint64_t k = 0; subset->items && k < subset->n; k++) {
            subset->items[k] = numbered(k);
        }
        if (apart && subset->items) {
            subset->items[0] = numbered(i == 1 || i == n - 1);
            subset->n = 1;
        }
        request->waiter.wakeup = &bench->wakeup;
        if (pick(bench, request) != (i < bench->n_endpoints)) {
            fprintf(stderr, "pool_wait: request %llu\n", (unsigned long long)i);
            exit(1);
        }
    }
}

/* A request ends, the notified one takes its endpoint, and another request arrives. */
static void turn(struct bench *bench) {
    uint64_t n = bench->n_endpoints + bench->n_waiters;
    struct request *ended = &bench->requests[bench->oldest++ % n];
    pool_release_ticket(bench->pool, &ended->ticket);
    struct pool_waiter *waiter = pool_wakeup_pop(&bench->wakeup);
    bool taken = waiter && pick(bench, (struct request *)(void *)waiter);
    bool waits = !pick(bench, ended);
    if (!taken || !waits) {
        fprintf(stderr, "pool_wait: turn %llu\n", (unsigned long long)bench->oldest);
        exit(1);
    }
}

static double tick_us(const struct bench *bench) {
    double start_us = now_us();
    for (uint64_t i = 0; i < bench->n_rounds; i++) {
        pool_tick(bench->pool, 0);
    }
    return (now_us() - start_us) / (double)bench->n_rounds;
}

static double turn_us(struct bench *bench) {
    double start_us = now_us();
    for (uint64_t i = 0; i < bench->n_rounds; i++) {
        turn(bench);
    }
    return (now_us() - start_us) / (double)bench->n_rounds;
}

static double update_us(const struct bench *bench) {
    double start_us = now_us();
    for (uint64_t i = 0; i < bench->n_rounds; i++) {
        update(bench, 0);
    }
    return (now_us() - start_us) / (double)bench->n_rounds;
}

/* A pool of two endpoints, both full: W requests wait for one, and one for the other. */
static double other_us(const struct bench *bench) {
    struct bench two = {.n_endpoints = 2, .n_waiters = bench->n_waiters + 1};
    struct request *one[2];
    open_bench_with(&two, true);
    one[0] = &two.requests[1], one[1] = &two.requests[two.n_waiters + 1];
    double start_us = now_us();
    for (uint64_t i = 0; i < bench->n_rounds; i++) {
        pool_release_ticket(two.pool, &one[i % 2]->ticket);
        struct pool_waiter *waiter = pool_wakeup_pop(&two.wakeup);
        if ((struct request *)(void *)waiter != one[(i + 1) % 2] || !pick(&two, one[(i + 1) % 2]) ||
            pick(&two, one[i % 2])) {
            fprintf(stderr, "pool_wait: other, round %llu\n", (unsigned long long)i);
            exit(1);
        }
    }
    return (now_us() - start_us) / (double)bench->n_rounds;
}

int main(int argc, char **argv) {
    struct bench bench = {.n_endpoints = 0};
    uint64_t *const numbers[] = {&bench.n_endpoints, &bench.n_waiters, &bench.n_rounds};
    for (int i = 0; i < 3; i++) {
        if (argc != 4 || !num_parse_u64(str_of(argv[i + 1]), numbers[i]) || *numbers[i] == 0) {
            fprintf(stderr, "usage: pool_wait ENDPOINTS WAITERS ROUNDS\n");
            return 2;
        }
    }
    open_bench_with(&bench, false);
    printf("{\"tick_us\": %.1f", tick_us(&bench));
    printf(", \"turn_us\": %.1f", turn_us(&bench));
    printf(", \"update_us\": %.1f", update_us(&bench));
    printf(", \"other_us\": %.1f}\n", other_us(&bench));
    return 0; /* memory is left to the process's end */
}
