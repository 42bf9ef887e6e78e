/* What a pick costs, without a socket: the fewest in flight of N endpoints, and the request's end.
 * Requests are held meanwhile, one and a half for each endpoint, and end in random order, so that
 * the endpoints differ in what they have. For callgrind (bench/picks) as well as for the clock.
 *
 *     pool_pick ENDPOINTS PICKS [SUBSET [THREADS [LOADS]]]
 *
 * SUBSET: so many of the endpoints are named as "IP:PORT" by each request, which are read, too; 0:
 * no request names any. LOADS: 1: every endpoint has said its load, so that the default profile
 * judges all of them at each pick; 2: a profile of every scorer that there is does; 3: the same,
 * and the proxy shows the responses, so that prompts are held while they are in flight, and
 * recorded when they end. Prints {"ns": of a pick and its end, on one thread}. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/num.h"
#include "core/event/clock.h"
#include "pick/pool/pool.h"
#include "pick/pool/profile/profile.h"

enum { MOST_THREADS = 64 };

/* What changes with the time does so as often as with 25,000 picks a second, under callgrind,
 * too. */
static const uint64_t BEGAN_NS = UINT64_C(1000000000), TURN_NS = 40000;

struct bench {
    struct pool *pool;
    uint32_t n_endpoints, n_subset;
    uint64_t n_picks, loads;
    struct str *texts; /* of the subset's endpoints */
};

static void check(enum status st, const struct error *err) {
    if (st != ST_OK) {
        fprintf(stderr, "pool_pick: %s\n", err->text);
        exit(1);
    }
}

static struct endpoint_address numbered(uint32_t i) {
    return (struct endpoint_address){.family = 4, .port = 8000, .low = (10u << 24) + i};
}

/* Every scorer that is one without parameters, and the highest sum. */
static const struct profile *every_scorer(struct arena *arena) {
    static struct profile_step scorers[64];
    static struct profile profile = {.name = STR("every scorer"),
                                     .scorers = scorers,
                                     .picker = {.plugin = &plugin_max_score_picker}};
    struct error err;
    struct doc *doc;
    check(doc_parse(DOC_YAML, "bench", STR("{}"), &doc, &err), &err);
    struct doc_node none = doc_root(doc);
    for (size_t i = 0; i < N_PLUGINS && profile.n_scorers < 64; i++) {
        struct profile_step *step = &scorers[profile.n_scorers];
        *step = (struct profile_step){.plugin = PLUGINS[i], .weight = 1};
        if (PLUGINS[i]->kind == PLUGIN_SCORER &&
            plugin_read_parameters(PLUGINS[i], &none, arena, &step->parameters, &err) == ST_OK) {
            profile.n_scorers++;
        }
    }
    doc_free(doc);
    check(profile_collect_needs(&profile, &err), &err);
    return &profile;
}

static void open_pool(struct bench *bench) {
    struct error err;
    struct pool_spec *spec;
    struct prefix_table *prefixes;
    check(pool_new(&bench->pool, &err), &err);
    check(prefix_table_new((size_t)64 << 20, 1, &prefixes, &err), &err);
    pool_attach_prefix_table(bench->pool, prefixes);
    prefix_table_unref(prefixes);
    spec = pool_spec_new();
    for (uint32_t i = 0; i < bench->n_endpoints; i++) {
        struct pool_spec_endpoint wanted = {.address = numbered(i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    struct pool_model model = {.name = STR("llama")};
    pool_spec_add_model(spec, &model);
    spec->strict_models = true;
    spec->profile = bench->loads >= 2 ? every_scorer(spec->arena) : NULL;
    check(pool_update(bench->pool, &spec, &err), &err);
    bench->texts = calloc((size_t)bench->n_subset + 1, sizeof(*bench->texts));
    for (uint32_t i = 0; bench->texts && i < bench->n_subset; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct endpoint_address address = numbered(i * (bench->n_endpoints / bench->n_subset));
        bench->texts[i] = str_of(strdup(endpoint_address_print(&address, text).ptr));
    }
}

enum { N_ADAPTERS = 26 };

/* Names of adapters. As many as are expected of N_ADAPTERS, one, share their bit with the model,
 * whatever the hash is: each endpoint that has it is looked at closely. */
static void name_adapters(char names[N_ADAPTERS][8]) {
    uint32_t bit = load_adapter_bit(load_adapter_hash(STR("llama")));
    uint64_t number = 0;
    for (size_t i = 0; i < N_ADAPTERS; number++) {
        names[i][num_print_u64(names[i], number)] = '\0';
        bool shares = load_adapter_bit(load_adapter_hash(str_of(names[i]))) == bit;
        i += shares == (i == 0) ? 1 : 0;
    }
}

static void say_loads(const struct bench *bench) {
    struct pool_reader *reader;
    struct error err;
    struct prng prng = {5};
    char names[N_ADAPTERS][8];
    name_adapters(names);
    check(pool_reader_new(bench->pool, 1, &reader, &err), &err);
    const struct pool_snapshot *snapshot = pool_reader_refresh(reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint_load load = {.until_ns = UINT64_MAX,
                                     .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE |
                                              LOAD_ADAPTERS,
                                     .n_waiting = prng_below(&prng, 8),
                                     .n_running = prng_below(&prng, 32),
                                     .kv_cache_used = (float)prng_double(&prng),
                                     .max_adapters = 8};
        for (uint32_t k = prng_below(&prng, 5); k > 0; k--) {
            load_add_adapter(&load, str_of(names[prng_below(&prng, N_ADAPTERS)]), false);
        }
        pool_set_load(bench->pool, snapshot->members[i].endpoint, &load);
    }
    pool_reader_unref(reader);
}

static void read_subset(const struct bench *bench, struct subset *subset, struct arena *arena) {
    struct error err;
    subset->n = 0; /* its room stays */
    for (uint32_t i = 0; i < bench->n_subset; i++) {
        check(subset_add(subset, arena, bench->texts[i], &err), &err);
    }
}

/* One of a thousand prompts of a kilobyte, with one of eight beginnings of half that. */
static struct str roll_prompt(struct prng *prng, char text[1024]) {
    memset(text, 'a' + (int)prng_below(prng, 8), 512);
    memset(text + 512, 'a' + (int)prng_below(prng, 5), 256);
    memset(text + 768, 'a' + (int)prng_below(prng, 25), 256);
    return str_make(text, 1024);
}

/* A request in flight. */
struct flight {
    struct pool_ticket ticket;
    struct pool_prompt prompt;
};

static void finish(const struct bench *bench, struct pool_reader *reader, struct flight *flight) {
    if (bench->loads == 3 && flight->ticket.endpoint) {
        pool_prompt_answered(reader, &flight->prompt, flight->ticket.endpoint, true);
    }
    pool_release_ticket(bench->pool, &flight->ticket);
}

static void pick(const struct bench *bench, struct pool_reader *reader, struct subset *subset,
                 struct arena *arena, struct prng *prng, struct flight *flight) {
    struct pool_request request = {.model = STR("llama")};
    char session[24], text[1024];
    if (bench->loads >= 2) {
        request.prompt = pool_prompt_init(&flight->prompt, reader, arena, roll_prompt(prng, text));
        request.session = str_make(session, num_print_u64(session, prng_next(prng)));
    }
    struct pool_pick out;
    struct error err;
    if (bench->n_subset > 0) {
        read_subset(bench, subset, arena);
        request.subset = subset;
    }
    check(pool_pick(reader, &request, &out, &err), &err);
    flight->ticket = out.ticket;
}

static void *run(void *arg) {
    const struct bench *bench = arg;
    struct pool_reader *reader;
    struct error err;
    struct prng prng = {3};
    struct subset subset;
    struct arena *arena = arena_new(NULL, 0);
    uint32_t n_held = bench->n_endpoints + bench->n_endpoints / 2 + 1;
    struct flight *held = calloc(n_held, sizeof(*held));
    check(pool_reader_new(bench->pool, 1, &reader, &err), &err);
    subset_init(&subset, false);
    for (uint64_t i = 0; arena && held && i < bench->n_picks; i++) {
        struct flight *flight = &held[prng_below(&prng, n_held)];
        clock_set_fake_ns(BEGAN_NS + i * TURN_NS);
        finish(bench, reader, flight);
        pick(bench, reader, &subset, arena, &prng, flight);
    }
    for (uint32_t i = 0; held && i < n_held; i++) {
        finish(bench, reader, &held[i]);
    }
    pool_reader_unref(reader);
    arena_free(arena);
    free(held);
    return NULL;
}

static uint64_t argument(int argc, char **argv, int i, uint64_t preset) {
    uint64_t value = preset;
    if (i < argc && !num_parse_u64(str_of(argv[i]), &value)) {
        fprintf(stderr, "usage: pool_pick ENDPOINTS PICKS [SUBSET [THREADS [LOADS]]]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    struct bench bench = {.n_endpoints = (uint32_t)argument(argc, argv, 1, 1000),
                          .n_picks = argument(argc, argv, 2, 1000000),
                          .n_subset = (uint32_t)argument(argc, argv, 3, 0),
                          .loads = argument(argc, argv, 5, 0)};
    uint64_t n_threads = argument(argc, argv, 4, 1);
    pthread_t threads[MOST_THREADS];
    if (n_threads < 1 || n_threads > MOST_THREADS || bench.n_subset > bench.n_endpoints) {
        fprintf(stderr, "pool_pick: 1 to %d threads, a subset of the endpoints\n", MOST_THREADS);
        return 2;
    }
    open_pool(&bench);
    if (bench.loads != 0) {
        say_loads(&bench);
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (uint64_t i = 0; i < n_threads; i++) {
        if (pthread_create(&threads[i], NULL, run, &bench) != 0) {
            return 1;
        }
    }
    for (uint64_t i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double ns =
        (double)(ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec);
    printf("{\"ns\":%.1f}\n", ns / (double)bench.n_picks);
    for (uint32_t i = 0; i < bench.n_subset; i++) {
        free((char *)(uintptr_t)bench.texts[i].ptr);
    }
    free(bench.texts);
    pool_free(bench.pool);
    return 0;
}
