/* A query is a list of lookups, one for each address family of each host. Groups of them, by the
 * priority of SRV records, run one after the other until one has addresses. */
#include "pick/discovery/dns/query.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"

enum { MOST_AT_ONCE = 16 };

/* One address family of one host. */
struct part {
    struct dns_query *query;
    struct dns_lookup *lookup; /* running; NULL: not started, or ended */
    const char *name;
    enum dns_kind kind;
    uint16_t priority, port;
    uint64_t source;
};

struct dns_query {
    struct dns_query_options ask;
    struct arena *arena;
    struct dns_lookup *srv; /* running */
    struct part *parts;
    size_t n_parts, next, group_end; /* end of the current group */
    size_t n_running;
    bool beginning; /* lookups are being started; one that ends at once starts no others */
    struct dns_query_address *found;
    size_t n_found, found_cap;
    uint32_t ttl_s;
    bool answered;      /* at least one lookup succeeded */
    bool failed;        /* at least one lookup failed; `error` has the reason */
    bool nothing;       /* at least one host does not exist; `nothing_error` has the reason */
    bool unusable;      /* out of memory, or too many addresses: the whole answer is discarded */
    struct error error; /* of the first failure */
    struct error nothing_error;
};

/* ---- the answer ------------------------------------------------------------------------------ */

static void query_free(struct dns_query *query) {
    if (query) {
        arena_free(query->arena);
        free(query);
    }
}

static void note_failure(struct dns_query *query, const struct error *err) {
    if (!query->failed) {
        query->failed = true;
        query->error = *err;
    }
}

/* Discards the whole answer. */
static void note_unusable(struct dns_query *query, enum status status, const char *why) {
    struct error err;
    error_set(&err, status, "%s", why);
    query->failed = query->unusable = true;
    query->error = err;
}

static void note_nothing(struct dns_query *query, const struct error *err) {
    query->answered = true;
    if (!query->nothing) {
        query->nothing = true;
        query->nothing_error = *err;
    }
}

static void note_ttl(struct dns_query *query, uint32_t ttl_s) {
    query->answered = true;
    query->ttl_s = ttl_s < query->ttl_s ? ttl_s : query->ttl_s;
}

static void add_found(struct dns_query *query, const struct dns_query_address *found) {
    size_t cap = query->found_cap, size = sizeof(*found);
    if (query->n_found == DNS_MAX_ADDRESSES) {
        note_unusable(query, ST_BAD_ANSWER, "has more than 10000 addresses");
        return;
    }
    if (query->n_found == cap) {
        cap = 2 * cap + MOST_AT_ONCE;
        struct dns_query_address *larger =
            arena_realloc(query->arena, query->found, query->found_cap * size, cap * size);
        if (!larger) {
            note_unusable(query, ST_NO_MEMORY, "out of memory for the addresses");
            return;
        }
        query->found = larger;
        query->found_cap = cap;
    }
    query->found[query->n_found++] = *found;
}

static int compare_addresses(const void *a, const void *b) {
    const struct dns_query_address *left = a, *right = b;
    int order = endpoint_address_compare(&left->address, &right->address);
    return order ? order : left->source < right->source ? -1 : left->source > right->source;
}

static void sort_found(struct dns_query *query) {
    size_t n = 0;
    if (query->n_found > 0) {
        qsort(query->found, query->n_found, sizeof(*query->found), compare_addresses);
    }
    for (size_t i = 0; i < query->n_found; i++) {
        if (n == 0 ||
            !endpoint_address_equal(&query->found[n - 1].address, &query->found[i].address)) {
            query->found[n++] = query->found[i];
        }
    }
    query->n_found = n;
}

static void end_query(struct dns_query *query) {
    struct dns_result result = {.error.status = ST_OK};
    sort_found(query);
    if (query->unusable || (query->failed && (!query->answered || query->n_found == 0))) {
        result.outcome = DNS_FAILED;
        result.error = query->error;
    } else if (query->n_found == 0) {
        result.outcome = DNS_EMPTY;
        result.error = query->nothing_error;
    } else {
        result.outcome = query->failed ? DNS_PARTIAL : DNS_FOUND;
        result.error = query->error;
        result.found = query->found;
        result.n_found = query->n_found;
    }
    result.ttl_s = query->ttl_s == UINT32_MAX ? 0 : query->ttl_s;
    query->ask.done(query->ask.user, &result);
    query_free(query);
}

/* ---- lookups --------------------------------------------------------------------------------- */

static void begin_parts(struct dns_query *query);

static struct endpoint_address address_of(const struct dns_address *address, uint16_t port) {
    struct endpoint_address out = {.family = 4};
    uint64_t halves[2];
    uint32_t word;
    memcpy(halves, address->bytes, sizeof(halves));
    memcpy(&word, address->bytes, sizeof(word));
    if (address->is_ip6) {
        out = endpoint_address_of_ip6(be64toh(halves[0]), be64toh(halves[1]));
    } else {
        out.low = be32toh(word);
    }
    out.port = port;
    return out;
}

/* Keeps the last addresses of a host whose lookup failed. */
static void keep_known(struct part *part) {
    struct dns_query *query = part->query;
    for (size_t i = 0; i < query->ask.n_known; i++) {
        if (query->ask.known[i].source == part->source) {
            add_found(query, &query->ask.known[i]);
        }
    }
}

static void on_part(void *user, const struct dns_answer *answer) {
    struct part *part = user;
    struct dns_query *query = part->query;
    part->lookup = NULL;
    query->n_running--;
    if (answer->error.status == ST_OK) {
        note_ttl(query, answer->ttl_s);
        for (size_t i = 0; i < answer->n_addresses; i++) {
            struct dns_query_address found = {address_of(&answer->addresses[i], part->port),
                                              part->source};
            if (endpoint_address_is_unicast(&found.address)) {
                add_found(query, &found);
            } else {
                struct error err;
                error_set(
                    &err, ST_BAD_ANSWER,
                    "has an address that no server can have (0.0.0.0, ::, multicast or broadcast)");
                note_failure(query, &err);
            }
        }
    } else if (answer->error.status == ST_NOT_FOUND) {
        note_nothing(query, &answer->error);
    } else {
        note_failure(query, &answer->error);
        keep_known(part);
    }
    if (!query->beginning) {
        begin_parts(query);
    }
}

static void begin_part(struct part *part) {
    struct dns_query *query = part->query;
    struct error err;
    query->n_running++;
    if (dns_lookup_start(query->ask.resolver, part->name, part->kind, on_part, part, &part->lookup,
                         &err) != ST_OK) {
        query->n_running--;
        note_failure(query, &err);
        keep_known(part);
    }
}

/* Moves to the next group if the current one had no address. Returns: false if there is none. */
static bool next_group(struct dns_query *query) {
    size_t end = query->group_end;
    if (query->n_found > 0 || query->unusable || end == query->n_parts) {
        return false;
    }
    while (end < query->n_parts &&
           query->parts[end].priority == query->parts[query->next].priority) {
        end++;
    }
    query->group_end = end;
    return true;
}

/* Starts lookups. May end the query. */
static void begin_parts(struct dns_query *query) {
    query->beginning = true;
    do {
        while (query->next < query->group_end && query->n_running < MOST_AT_ONCE) {
            begin_part(&query->parts[query->next++]);
        }
    } while (query->n_running == 0 && query->next == query->group_end && next_group(query));
    query->beginning = false;
    if (query->n_running == 0 && query->next == query->group_end) {
        end_query(query);
    }
}

/* FNV-1a over the host, the kind and the port. */
static uint64_t source_of(const char *name, enum dns_kind kind, uint16_t port) {
    uint64_t hash = FNV1A_BASIS;
    for (; *name; name++) {
        char c = *name;
        hash = fnv1a_add(hash, (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    return fnv1a_add(fnv1a_add(hash, (uint64_t)kind), port);
}

static void add_part(struct dns_query *query, const char *name, enum dns_kind kind,
                     uint16_t priority, uint16_t port) {
    query->parts[query->n_parts++] = (struct part){.query = query,
                                                   .name = name,
                                                   .kind = kind,
                                                   .priority = priority,
                                                   .port = port,
                                                   .source = source_of(name, kind, port)};
}

/* ---- services -------------------------------------------------------------------------------- */

static void take_records(struct dns_query *query, const struct dns_srv_list *list) {
    struct error err;
    if (list->n_invalid > 0) {
        error_set(&err, ST_BAD_ANSWER, "%zu of its records name no host, or port 0",
                  list->n_invalid);
        note_failure(query, &err);
    }
    if (list->n == 0) {
        error_set(&err, ST_NOT_FOUND, "the name has no such records");
        note_nothing(query, &err);
        return;
    }
    query->parts = arena_calloc(query->arena, 2 * list->n, sizeof(*query->parts));
    if (!query->parts) {
        note_unusable(query, ST_NO_MEMORY, "out of memory for the addresses");
        return;
    }
    note_ttl(query, list->ttl_s);
    for (size_t i = 0; i < list->n; i++) {
        const struct dns_srv *srv = &list->items[i];
        add_part(query, srv->target.ptr, DNS_A, srv->priority, srv->port);
        add_part(query, srv->target.ptr, DNS_AAAA, srv->priority, srv->port);
    }
}

static void on_records(void *user, const struct dns_answer *answer) {
    struct dns_query *query = user;
    struct error err = answer->error;
    struct dns_srv_list list;
    query->srv = NULL;
    if (err.status == ST_OK &&
        dns_srv_decode(query->arena, answer->message, &list, &err) == ST_OK) {
        take_records(query, &list);
    } else if (err.status == ST_NOT_FOUND) {
        note_nothing(query, &err);
    } else {
        note_failure(query, &err);
    }
    begin_parts(query);
}

/* ---- the query ------------------------------------------------------------------------------- */

enum status dns_query_start(const struct dns_query_options *ask, struct dns_query **out,
                            struct error *err) {
    struct dns_query *query = calloc(1, sizeof(*query));
    struct arena *arena = query ? arena_new(NULL, 0) : NULL;
    struct part *parts = arena ? arena_calloc(arena, 2, sizeof(*parts)) : NULL;
    enum status st = ST_OK;
    if (!parts) {
        arena_free(arena);
        free(query);
        return error_no_memory(err, "a DNS query");
    }
    *query = (struct dns_query){
        .ask = *ask, .arena = arena, .parts = parts, .ttl_s = UINT32_MAX, .error.status = ST_OK};
    *out = query; /* before `done` may free the query */
    if (ask->records == DNS_RECORDS_SRV) {
        st = dns_lookup_start(ask->resolver, ask->name, DNS_SRV, on_records, query, &query->srv,
                              err);
    } else {
        if (ask->records != DNS_RECORDS_AAAA) {
            add_part(query, ask->name, DNS_A, 0, 0);
        }
        if (ask->records != DNS_RECORDS_A) {
            add_part(query, ask->name, DNS_AAAA, 0, 0);
        }
        begin_parts(query);
    }
    if (st != ST_OK) {
        query_free(query);
    }
    return st;
}

void dns_query_cancel(struct dns_query *query) {
    if (query->srv) {
        dns_lookup_cancel(query->srv);
    }
    for (size_t i = 0; i < query->next; i++) {
        if (query->parts[i].lookup) {
            dns_lookup_cancel(query->parts[i].lookup);
        }
    }
    query_free(query);
}
