/* Endpoints that are names, and how names are resolved. */
#include "pick/config/dns_plan.h"
#include "pick/config/reader.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);
enum { DNS_PORT = 53 };

/* ---- an endpoint ----------------------------------------------------------------------------- */

static enum status not_an_endpoint(const struct doc_node *node, struct str text,
                                   struct error *err) {
    return doc_error(node, err,
                     "expected \"IP:PORT\" (10.0.0.1:8000, and in quotes \"[::1]:8000\") or "
                     "\"NAME:PORT\" (models.example:8000), got \"%.*s\"",
                     STR_ARG(text));
}

/* Into the plan, under a text that may be there once. */
static enum status add_dns_name(struct pool_config_reader *reader, const struct doc_node *node,
                                struct dns_plan_name *wanted, const struct pool_config_ports *ports,
                                struct error *err) {
    struct pool_spec *spec = reader->spec;
    uint16_t *copy = arena_calloc(spec->arena, ports->n, sizeof(*copy));
    wanted->name = dns_name_copy(spec, wanted->name);
    if (!copy || !wanted->name.ptr) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = ST_OK;
    for (size_t i = 0; i < ports->n; i++) {
        copy[i] = ports->items[i];
    }
    for (size_t i = 0; st == ST_OK && (i == 0 || i < ports->n); i++) {
        struct str noted =
            arena_printf(reader->arena, "%.*s:%u %s", STR_ARG(wanted->name),
                         ports->n > 0 ? ports->items[i] : 0U, DNS_RECORDS_TEXTS[wanted->records]);
        st = noted.ptr ? pool_config_add_name(reader, &reader->endpoints, noted, node, err)
                       : pool_config_no_memory(reader, err);
    }
    wanted->ports = copy;
    wanted->n_ports = ports->n;
    if (st == ST_OK) {
        st = dns_plan_add(spec, wanted, err);
        st = st == ST_BAD_CONFIG
                 ? doc_error(node, err, "is one name too many: at most %d", DNS_MAX_NAMES)
                 : st;
    }
    return st;
}

enum status pool_config_read_dns_endpoint(struct pool_config_reader *reader,
                                          const struct doc_node *node, struct str text,
                                          struct pool_labels labels,
                                          const struct pool_config_ports *own,
                                          const struct doc_node *type, struct error *err) {
    struct dns_plan_name wanted = {.name = text, .labels = labels};
    struct pool_config_ports ports = own->n > 0 ? *own : reader->ports;
    unsigned records = DNS_RECORDS_ANY;
    uint16_t port;
    bool with_port = dns_target_parse(text, &wanted.name, &port);
    if (!with_port && !dns_name_is_valid(text)) {
        return not_an_endpoint(node, text, err);
    }
    enum status st = pool_config_read_word(type, DNS_RECORDS_WORDS, &records, err);
    if (st != ST_OK) {
        return st;
    }
    wanted.records = (enum dns_records)records;
    if (wanted.records == DNS_RECORDS_SRV) {
        ports.n = 0; /* `ports` of the file are for the others */
        return with_port || own->n > 0
                   ? doc_error(node, err, "expected a name without a port: SRV records have it")
                   : add_dns_name(reader, node, &wanted, &ports, err);
    }
    if (with_port && own->n > 0) {
        return doc_error(node, err, "has a port, and the endpoint has `ports` as well");
    }
    if (with_port) {
        ports = (struct pool_config_ports){.items = {port}, .n = 1};
    }
    return ports.n > 0 ? add_dns_name(reader, node, &wanted, &ports, err)
                       : doc_error(node, err,
                                   "expected a port behind the name (NAME:PORT), or `ports`, or an "
                                   "InferencePool with targetPorts");
}

/* ---- how names are resolved ------------------------------------------------------------------ */

/* "127.0.0.1:5353,[::1]:53" */
static enum status read_servers(struct pool_config_reader *reader, const struct doc_node *list,
                                struct str *out, struct error *err) {
    char text[DNS_SERVERS_BYTES], *end = text;
    enum status st = ST_OK;
    if (!doc_is_present(list)) {
        return ST_OK;
    }
    if (doc_count(list) > DNS_MAX_SERVERS) {
        return doc_error(list, err, "expected at most %d servers, got %zu", DNS_MAX_SERVERS,
                         doc_count(list));
    }
    for (struct doc_node item = {0}; st == ST_OK && doc_next(list, &item);) {
        struct endpoint_address address;
        struct str server = {NULL, 0};
        st = doc_read_str(&item, &server, err);
        if (st == ST_OK && !endpoint_address_parse(server, &address)) {
            if (!endpoint_address_parse_ip(server, &address)) {
                return doc_error(&item, err, "expected IP or IP:PORT, got \"%.*s\"",
                                 STR_ARG(server));
            }
            address.port = DNS_PORT;
        }
        if (st == ST_OK) {
            *end = ',';
            end += end > text;
            end += endpoint_address_print(&address, end).len;
        }
    }
    *out = pool_spec_dup_text(reader->spec, str_make(text, (size_t)(end - text)));
    return out->ptr || st != ST_OK ? st : pool_config_no_memory(reader, err);
}

static enum status read_times(const struct doc_node *node, struct dns_plan *plan,
                              struct error *err) {
    struct doc_node timeout = doc_get(node, "timeout"), shortest = doc_get(node, "shortest");
    struct doc_node longest = doc_get(node, "longest"), keep = doc_get(node, "keep");
    enum status st =
        pool_config_read_duration(&timeout, 10 * NS_PER_MS, 60 * NS_PER_S, &plan->timeout_ns, err);
    if (st == ST_OK) {
        st = pool_config_read_duration(&shortest, 10 * NS_PER_MS, NS_PER_HOUR, &plan->min_ttl_ns,
                                       err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&longest, 10 * NS_PER_MS, 24 * NS_PER_HOUR,
                                       &plan->max_ttl_ns, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&keep, 0, 24 * NS_PER_HOUR, &plan->keep_ns, err);
    }
    if (st == ST_OK && plan->min_ttl_ns > plan->max_ttl_ns) {
        st = doc_error(node, err, "expected `shortest` (%g s) to be no more than `longest` (%g s)",
                       (double)plan->min_ttl_ns / 1e9, (double)plan->max_ttl_ns / 1e9);
    }
    return st;
}

enum status pool_config_read_dns(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
    static const char *const names[] = {"servers", "timeout", "shortest", "longest", "keep", NULL};
    struct doc_node section = doc_get(node, "dns"), servers = doc_get(&section, "servers");
    if (!doc_is_present(&section)) {
        return ST_OK;
    }
    struct dns_plan *plan = dns_plan_get(reader->spec);
    if (!plan) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = doc_expect_object(&section, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(&section, names, err);
    }
    if (st == ST_OK) {
        st = read_servers(reader, &servers, &plan->servers, err);
    }
    return st == ST_OK ? read_times(&section, plan, err) : st;
}
