/* Outcome records: how the last request at each of a few endpoints ended. They answer whether a
 * failure is the endpoint's or is seen at the others as well: the same client's request may fail
 * everywhere, or every endpoint may fail at the same time.
 *
 * Where several endpoints share a request, a failure is recorded at each of them: an endpoint is
 * compared with those for the same stage, which have their part in as many failures of the others.
 *
 * Sans clock; the caller serializes the calls. */
#ifndef SLUICE_PICK_POOL_RECORDS_H
#define SLUICE_PICK_POOL_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct endpoint;

/* From good to bad. */
enum outcome_kind {
    OUTCOME_KIND_ANSWERED,
    OUTCOME_KIND_REJECTED, /* 401, 403, 404: of the request, or of a server without the model */
    OUTCOME_KIND_FAILED,   /* 5xx, 429, or no response */
};

struct outcome_record {
    const struct endpoint *endpoint; /* only compared; NULL: unused */
    uint64_t at_ns;
    enum outcome_kind kind;
    uint16_t profiles; /* of the endpoint: those of other stages of requests say nothing of it */
};

/* At how many endpoints requests ended, and at how many of these they ended badly. */
struct outcome_share {
    uint32_t n, n_bad;
};

/* Replaces the endpoint's record, or an unused or the oldest one. */
void outcome_records_add(struct outcome_record *records, size_t n, const struct endpoint *endpoint,
                         enum outcome_kind kind, uint64_t now_ns);
/* Drops the endpoint's record. */
void outcome_records_forget(struct outcome_record *records, size_t n,
                            const struct endpoint *endpoint);
/* Counts the endpoints other than `endpoint`, with a profile in common, whose record is not older
 * than `age_ns`; bad ones are those of `kind` or a worse one. */
struct outcome_share outcome_records_elsewhere(const struct outcome_record *records, size_t n,
                                               const struct endpoint *endpoint,
                                               enum outcome_kind kind, uint64_t now_ns,
                                               uint64_t age_ns);

/* ---- by client ------------------------------------------------------------------------------- */

enum { OUTCOMES_OF_POOL = 32, OUTCOMES_OF_CLIENT = 4, OUTCOME_CLIENTS = 64 };

/* A place of the table is used by the client that failed there last. */
struct outcome_client {
    uint64_t client; /* hash; 0: unused */
    struct outcome_record records[OUTCOMES_OF_CLIENT];
};

struct outcome_table {
    struct outcome_record pool[OUTCOMES_OF_POOL]; /* of all clients */
    struct outcome_client clients[OUTCOME_CLIENTS];
};

/* `client`: 0: unknown. A client gets a place with its first bad outcome. */
void outcome_table_add(struct outcome_table *table, const struct endpoint *endpoint,
                       uint64_t client, enum outcome_kind kind, uint64_t now_ns);
void outcome_table_forget(struct outcome_table *table, const struct endpoint *endpoint);
/* As outcome_records_elsewhere, of the client's requests; n is 0 where none is known. */
struct outcome_share outcome_table_of_client(const struct outcome_table *table,
                                             const struct endpoint *endpoint, uint64_t client,
                                             enum outcome_kind kind, uint64_t now_ns,
                                             uint64_t age_ns);

#endif
