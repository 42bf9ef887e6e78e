/* The endpoints of a pool that are DNS names: which records are resolved, at which ports their
 * addresses are endpoints, and how long answers are used. Part of a pool's spec (spec->dns), in its
 * arena.
 *
 * Thread: one at a time; the plan of a published spec does not change. */
#ifndef SLUICE_PICK_CONFIG_DNS_PLAN_H
#define SLUICE_PICK_CONFIG_DNS_PLAN_H

#include "codec/dns/srv.h"
#include "core/base/buf.h"
#include "pick/pool/spec.h"

/* The record type. ANY: A and AAAA. */
enum dns_records { DNS_RECORDS_ANY, DNS_RECORDS_A, DNS_RECORDS_AAAA, DNS_RECORDS_SRV };

/* For people ("A and AAAA", "SRV"), and as a value of `type` ("any"). */
extern const char *const DNS_RECORDS_TEXTS[];
extern const char *const DNS_RECORDS_WORDS[];

/* Each address of the name is an endpoint at each of the ports. */
struct dns_plan_name {
    struct str name; /* in lower case, NUL-terminated */
    enum dns_records records;
    const uint16_t *ports; /* at least one; DNS_RECORDS_SRV: none, the records have the port */
    size_t n_ports;
    struct pool_labels labels;
};

struct dns_plan {
    struct dns_plan_name *names;
    size_t n_names, names_cap;
    struct str servers; /* "127.0.0.1:5353,[::1]:53", NUL-terminated; empty: the system's servers */
    uint64_t timeout_ns; /* until a query is repeated */
    uint64_t min_ttl_ns; /* lower limit of an answer's lifetime */
    uint64_t max_ttl_ns; /* upper limit of an answer's lifetime */
    uint64_t keep_ns; /* how long the last addresses stay endpoints when a name has none any more */
};

enum { DNS_MAX_NAMES = 1000, DNS_MAX_SERVERS = 8 };
/* Size of the text of that many servers, with its NUL. */
enum { DNS_SERVERS_BYTES = DNS_MAX_SERVERS * ENDPOINT_TEXT_BYTES };

/* Returns: the spec's plan, made with the defaults if there is none. */
struct dns_plan *dns_plan_get(struct pool_spec *spec);
/* Appends `*wanted`, whose texts and arrays must be in the spec's arena. Returns: ST_BAD_CONFIG:
 * too many. */
enum status dns_plan_add(struct pool_spec *spec, const struct dns_plan_name *wanted,
                         struct error *err) SLUICE_MUST_USE;

/* Splits "models.example:8000". Returns: false if the text is not a name and a port. */
bool dns_target_parse(struct str text, struct str *name, uint16_t *port);
/* A copy of a name in the spec's arena, in lower case. */
struct str dns_name_copy(struct pool_spec *spec, struct str name);

/* Prints the plan for `sluice pick --check`; `spec->dns` may be NULL. */
void dns_plan_print(const struct pool_spec *spec, struct buf *out);

#endif
