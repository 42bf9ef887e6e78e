/* The records are few, and searched linearly. */
#include "pick/pool/records.h"

#include "core/event/clock.h"
#include "pick/pool/endpoint/endpoint.h"

static struct outcome_record *find_record(struct outcome_record *records, size_t n,
                                          const struct endpoint *endpoint) {
    for (size_t i = 0; i < n; i++) {
        if (records[i].endpoint == endpoint) {
            return &records[i];
        }
    }
    return NULL;
}

void outcome_records_add(struct outcome_record *records, size_t n, const struct endpoint *endpoint,
                         enum outcome_kind kind, uint64_t now_ns) {
    struct outcome_record *place = find_record(records, n, endpoint);
    for (size_t i = 0; !place && i < n; i++) {
        place = records[i].endpoint ? NULL : &records[i];
    }
    if (!place) {
        place = records;
        for (size_t i = 1; i < n; i++) {
            place = records[i].at_ns < place->at_ns ? &records[i] : place;
        }
    }
    *place = (struct outcome_record){endpoint, now_ns, kind, endpoint->profiles};
}

void outcome_records_forget(struct outcome_record *records, size_t n,
                            const struct endpoint *endpoint) {
    struct outcome_record *place = find_record(records, n, endpoint);
    if (place) {
        *place = (struct outcome_record){.endpoint = NULL};
    }
}

struct outcome_share outcome_records_elsewhere(const struct outcome_record *records, size_t n,
                                               const struct endpoint *endpoint,
                                               enum outcome_kind kind, uint64_t now_ns,
                                               uint64_t age_ns) {
    struct outcome_share share = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const struct outcome_record *record = &records[i];
        if (record->endpoint && record->endpoint != endpoint &&
            (record->profiles & endpoint->profiles) != 0 &&
            clock_between_ns(record->at_ns, now_ns) <= age_ns) {
            share.n++;
            share.n_bad += record->kind >= kind;
        }
    }
    return share;
}

/* ---- by client ------------------------------------------------------------------------------- */

static size_t place_of(uint64_t client) {
    return client % OUTCOME_CLIENTS;
}

void outcome_table_add(struct outcome_table *table, const struct endpoint *endpoint,
                       uint64_t client, enum outcome_kind kind, uint64_t now_ns) {
    outcome_records_add(table->pool, OUTCOMES_OF_POOL, endpoint, kind, now_ns);
    struct outcome_client *own = &table->clients[place_of(client)];
    if (client != 0 && own->client != client && kind != OUTCOME_KIND_ANSWERED) {
        *own = (struct outcome_client){.client = client};
    }
    if (client != 0 && own->client == client) {
        outcome_records_add(own->records, OUTCOMES_OF_CLIENT, endpoint, kind, now_ns);
    }
}

void outcome_table_forget(struct outcome_table *table, const struct endpoint *endpoint) {
    outcome_records_forget(table->pool, OUTCOMES_OF_POOL, endpoint);
    for (size_t i = 0; i < OUTCOME_CLIENTS; i++) {
        outcome_records_forget(table->clients[i].records, OUTCOMES_OF_CLIENT, endpoint);
    }
}

struct outcome_share outcome_table_of_client(const struct outcome_table *table,
                                             const struct endpoint *endpoint, uint64_t client,
                                             enum outcome_kind kind, uint64_t now_ns,
                                             uint64_t age_ns) {
    const struct outcome_client *own = &table->clients[place_of(client)];
    return client != 0 && own->client == client
               ? outcome_records_elsewhere(own->records, OUTCOMES_OF_CLIENT, endpoint, kind, now_ns,
                                           age_ns)
               : (struct outcome_share){0, 0};
}
