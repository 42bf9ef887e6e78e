/* Which pools the configuration has: the list `pools` with the requests that each matches, and the
 * endpoints of a pool, given as addresses or as DNS names. The other members of an item are read as
 * if it were a file of its own. */
#include "pick/config/reader.h"

#include <stdlib.h>

#include "pick/config/dns_plan.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

enum { MOST_AUTHORITIES = 100, MOST_HOST_BYTES = 255 };

/* ---- authorities ----------------------------------------------------------------------------- */

static bool is_host_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c != '\0' && strchr("-._:[]", c));
}

/* "a.b", "a.b:80", "[::1]", or "*.b", which is stored as ".b". */
static bool is_authority(struct str text) {
    struct str host = text;
    if (str_starts_with(text, STR("*."))) {
        host = str_make(text.ptr + 2, text.len - 2);
    }
    bool fits = host.len > 0 && text.len <= MOST_HOST_BYTES && host.ptr[0] != '.' &&
                host.ptr[host.len - 1] != '.' && host.ptr[host.len - 1] != ':';
    for (size_t i = 0; i < host.len; i++) {
        fits = fits && is_host_byte(host.ptr[i]);
        fits = fits && !(host.len < text.len && host.ptr[i] == ':'); /* no port after a suffix */
    }
    return fits;
}

static enum status read_authority(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err) {
    char lower[MOST_HOST_BYTES];
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    size_t n = text.len < sizeof(lower) ? text.len : 0;
    for (size_t i = 0; i < n; i++) {
        char c = text.ptr[i];
        lower[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    struct str name = str_make(lower, n);
    if (!is_authority(name)) {
        return doc_error(node, err,
                         "expected an authority (api.example.com, api.example.com:8443 or "
                         "*.example.com), got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = pool_spec_dup_text(reader->spec, lower[0] == '*' ? str_make(lower + 1, n - 1) : name);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
}

static enum status check_new(const struct doc_node *node, const struct str *authorities, size_t n,
                             struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(authorities[i], authorities[n])) {
            return doc_error(node, err, "is there twice");
        }
    }
    return ST_OK;
}

static enum status read_authorities(struct pool_config_reader *reader, const struct doc_node *list,
                                    struct pool_match *match, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (list->val && (n == 0 || n > MOST_AUTHORITIES)) {
        return doc_error(list, err, "expected 1 to %d authorities, got %zu", MOST_AUTHORITIES, n);
    }
    struct str *authorities = arena_calloc(reader->spec->arena, n + 1, sizeof(*authorities));
    if (!authorities) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = ST_OK;
    struct doc_node item = {0};
    for (size_t i = 0; i < n && st == ST_OK && doc_next(list, &item); i++) {
        st = read_authority(reader, &item, &authorities[i], err);
        if (st == ST_OK) {
            st = check_new(&item, authorities, i, err);
        }
    }
    match->authorities = authorities;
    match->n_authorities = n;
    return st;
}

/* ---- paths, headers, metadata ---------------------------------------------------------------- */

/* Prefixes match whole segments, so that a trailing / has no effect. */
static enum status read_prefix(struct pool_config_reader *reader, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    struct str path = {NULL, 0};
    enum status st = pool_config_read_path(reader, node, &path, err);
    if (st == ST_OK && path.ptr &&
        (memchr(path.ptr, '?', path.len) || memchr(path.ptr, '#', path.len))) {
        st = doc_error(node, err, "expected a path without ? and #, got \"%.*s\"", STR_ARG(path));
    }
    while (path.ptr && path.len > 0 && path.ptr[path.len - 1] == '/') {
        path.len--;
    }
    match->path = path;
    return st;
}

static enum status read_header(struct pool_config_reader *reader, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    static const char *const names[] = {"name", "value", NULL};
    struct doc_node name = doc_get(node, "name"), value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK && !name.val) {
        return doc_error(&name, err, "expected the name of a header, got nothing");
    }
    if (st == ST_OK) {
        st = pool_config_read_header(reader, &name, &match->header, err);
    }
    return st == ST_OK ? pool_config_read_name(reader, &value, &match->header_value, err) : st;
}

static enum status read_metadata(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct pool_match *match, struct error *err) {
    static const char *const names[] = {"namespace", "key", "value", NULL};
    struct doc_node space = doc_get(node, "namespace"), key = doc_get(node, "key");
    struct doc_node value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &space, &match->space, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &key, &match->key, err);
    }
    return st == ST_OK ? pool_config_read_name(reader, &value, &match->metadata_value, err) : st;
}

static enum status read_match(struct pool_config_reader *reader, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"authority", "path_prefix", "header", "metadata", NULL};
    struct doc_node authority = doc_get(node, "authority"), path = doc_get(node, "path_prefix");
    struct doc_node header = doc_get(node, "header"), metadata = doc_get(node, "metadata");
    struct pool_match *match = &reader->spec->match;
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_authorities(reader, &authority, match, err);
    }
    if (st == ST_OK) {
        st = read_prefix(reader, &path, match, err);
    }
    if (st == ST_OK) {
        st = read_header(reader, &header, match, err);
    }
    return st == ST_OK ? read_metadata(reader, &metadata, match, err) : st;
}

/* ---- pools by name --------------------------------------------------------------------------- */

static int compare_reader_names(const void *a, const void *b) {
    const struct pool_config_reader *left = *(const struct pool_config_reader *const *)a;
    const struct pool_config_reader *right = *(const struct pool_config_reader *const *)b;
    int order = str_compare(left->spec->name, right->spec->name);
    return order ? order : left < right ? -1 : left > right;
}

static enum status sort_names(struct pool_config_file *file, struct error *err) {
    file->by_name = arena_calloc(file->arena, file->n, sizeof(struct pool_config_reader *));
    if (!file->by_name) {
        return pool_config_no_memory(&file->items[0], err);
    }
    for (size_t i = 0; i < file->n; i++) {
        file->by_name[i] = &file->items[i];
    }
    qsort(file->by_name, file->n, sizeof(struct pool_config_reader *), compare_reader_names);
    for (size_t i = 1; i < file->n; i++) {
        const struct pool_config_reader *first = file->by_name[i - 1], *again = file->by_name[i];
        if (str_eq(first->spec->name, again->spec->name)) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s:%u: the pool \"%.*s\" is there twice; the first is in line %u",
                             file->name, again->line, STR_ARG(again->spec->name), first->line);
        }
    }
    return ST_OK;
}

struct pool_config_reader *pool_config_find_pool(const struct pool_config_file *file,
                                                 struct str name) {
    size_t low = 0, high = file->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (str_compare(file->by_name[middle]->spec->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < file->n && str_eq(file->by_name[low]->spec->name, name);
    return found ? file->by_name[low] : NULL;
}

/* ---- the list of pools ----------------------------------------------------------------------- */

static enum status begin_pool(struct pool_config_file *file, struct error *err) {
    struct pool_config_reader *reader = &file->items[file->n++];
    *reader = (struct pool_config_reader){.file = file->name, .arena = file->arena};
    return pool_spec_new(&reader->spec, err);
}

static enum status read_item(struct pool_config_file *file, const struct doc_node *item,
                             struct error *err) {
    struct doc_node name = doc_get(item, "name"), match = doc_get(item, "match");
    enum status st = begin_pool(file, err);
    struct pool_config_reader *reader = &file->items[file->n - 1];
    reader->line = doc_line(item);
    if (st == ST_OK) {
        st = doc_expect_object(item, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &reader->spec->name, err);
    }
    if (st != ST_OK) {
        return st;
    }
    st = read_match(reader, &match, err);
    return st == ST_OK ? ST_OK : pool_config_error_add_pool(reader, err);
}

enum status pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node,
                                   struct error *err) {
    struct doc_node list = doc_get(node, "pools"), item = {0};
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    if (list.val && n == 0) {
        return doc_error(&list, err, "expected a list of pools, got none");
    }
    file->items = arena_calloc(file->arena, n + 1, sizeof(*file->items));
    if (!file->items) {
        return error_no_memory(err, "the pools of %s", file->name);
    }
    if (!list.val) {
        return begin_pool(file, err);
    }
    enum status st = ST_OK;
    while (st == ST_OK && doc_next(&list, &item)) {
        st = read_item(file, &item, err);
    }
    return st == ST_OK ? sort_names(file, err) : st;
}

enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs, struct error *err) {
    struct pool_match_conflict clash = {.first = 0};
    struct error why;
    enum status st = pool_specs_check(specs, &clash, &why);
    if (st != ST_BAD_CONFIG) {
        return st == ST_OK ? st : pool_config_no_memory(&file->items[0], err);
    }
    const struct pool_config_reader *first = &file->items[clash.first],
                                    *again = &file->items[clash.second];
    if (first == again) {
        return error_set(err, st, "%s:%u: the pool \"%.*s\": %s", file->name, again->line,
                         STR_ARG(again->spec->name), why.text);
    }
    bool suffix = clash.authority.len > 0 && clash.authority.ptr[0] == '.';
    return error_set(
        err, st,
        "%s:%u: the pool \"%.*s\" is for the same requests%s%s%.*s as \"%.*s\" in line "
        "%u: expected a `match` that tells them apart",
        file->name, again->line, STR_ARG(again->spec->name), clash.authority.len > 0 ? " to " : "",
        suffix ? "*" : "", STR_ARG(clash.authority), STR_ARG(first->spec->name), first->line);
}

enum status pool_config_error_add_pool(const struct pool_config_reader *reader, struct error *err) {
    struct error said = *err;
    if (reader->line == 0 || said.status != ST_BAD_CONFIG) {
        return said.status;
    }
    return error_set(err, said.status, "%s (in the pool \"%.*s\")", said.text,
                     STR_ARG(reader->spec->name));
}

enum { DNS_PORT = 53 };

/* ---- endpoints that are DNS names ------------------------------------------------------------ */

static enum status not_an_endpoint(const struct doc_node *node, struct str text,
                                   struct error *err) {
    return doc_error(node, err,
                     "expected \"IP:PORT\" (10.0.0.1:8000, and in quotes \"[::1]:8000\") or "
                     "\"NAME:PORT\" (models.example:8000), got \"%.*s\"",
                     STR_ARG(text));
}

/* Adds the name to the DNS plan, and a text for each of its ports to the names that must be
 * unique. */
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

static enum status read_dns_endpoint(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct str text, struct pool_labels labels,
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
        ports.n = 0; /* `ports` of the file do not apply to SRV records */
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
                                   "expected a port after the name (NAME:PORT), or `ports`, or an "
                                   "InferencePool with targetPorts");
}

/* ---- the section `dns` ----------------------------------------------------------------------- */

/* "127.0.0.1:5353,[::1]:53" */
static enum status read_dns_servers(struct pool_config_reader *reader, const struct doc_node *list,
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

static enum status read_dns_times(const struct doc_node *node, struct dns_plan *plan,
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
        st = read_dns_servers(reader, &servers, &plan->servers, err);
    }
    return st == ST_OK ? read_dns_times(&section, plan, err) : st;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static enum status add_endpoint(struct pool_config_reader *reader, const struct doc_node *node,
                                const struct pool_spec_endpoint *wanted, struct error *err) {
    char text[ENDPOINT_TEXT_BYTES];
    struct str copy = arena_dup(reader->arena, endpoint_address_print(&wanted->address, text));
    if (!copy.ptr) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = pool_config_add_name(reader, &reader->endpoints, copy, node, err);
    return st == ST_OK ? pool_spec_add_endpoint(reader->spec, wanted, err) : st;
}

/* Adds the address with each of the ports. */
static enum status add_ports(struct pool_config_reader *reader, const struct doc_node *node,
                             struct pool_spec_endpoint *wanted,
                             const struct pool_config_ports *ports, struct error *err) {
    enum status st = ST_OK;
    if (ports->n == 0) {
        return doc_error(node, err,
                         "expected a port after the IP (IP:PORT), or `ports`, or an InferencePool "
                         "with targetPorts");
    }
    for (size_t i = 0; st == ST_OK && i < ports->n; i++) {
        wanted->address.port = ports->items[i];
        st = add_endpoint(reader, node, wanted, err);
    }
    return st;
}

/* `own`: the endpoint's own ports; may be empty. `type`: the record type of a DNS name; may be
 * absent. */
static enum status read_address(struct pool_config_reader *reader, const struct doc_node *node,
                                struct pool_labels labels, const struct pool_config_ports *own,
                                const struct doc_node *type, struct error *err) {
    struct pool_spec_endpoint wanted = {.labels = labels};
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st != ST_OK ? st : doc_error(node, err, "expected \"IP:PORT\", got nothing");
    }
    bool with_port = endpoint_address_parse(text, &wanted.address);
    if (!with_port && !endpoint_address_parse_ip(text, &wanted.address)) {
        return read_dns_endpoint(reader, node, text, labels, own, type, err);
    }
    if (type->val) {
        return doc_error(type, err, "is for names; the endpoint has an IP");
    }
    if (with_port) {
        return own->n == 0
                   ? add_endpoint(reader, node, &wanted, err)
                   : doc_error(node, err, "has a port, and the endpoint has `ports` as well");
    }
    return add_ports(reader, node, &wanted, own->n > 0 ? own : &reader->ports, err);
}

static enum status read_endpoint(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
    static const char *const names[] = {"address", "labels", "ports", "type", NULL};
    struct pool_config_ports own = {.n = 0};
    struct pool_labels labels = {NULL, 0};
    struct str text;
    if (doc_read_str(node, &text, NULL) == ST_OK) {
        struct doc_node none = {.val = NULL};
        return read_address(reader, node, labels, &own, &none, err);
    }
    struct doc_node type = doc_get(node, "type"), address = doc_get(node, "address"),
                    ports = doc_get(node, "ports");
    struct doc_node marks = doc_get(node, "labels");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_labels(reader, &marks, &labels, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_port_list(&ports, &own, err);
    }
    return st == ST_OK ? read_address(reader, &address, labels, &own, &type, err) : st;
}

/* ---- the section `endpoints` ----------------------------------------------------------------- */

static enum status read_selector(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
    struct doc_node selector = doc_get(node, "selector");
    if (!selector.val) {
        return ST_OK;
    }
    if (reader->has_pool) {
        return doc_error(&selector, err, "the file's InferencePool has a selector already");
    }
    return pool_config_read_labels(reader, &selector, &reader->spec->selector, err);
}

enum status pool_config_read_endpoints(struct pool_config_reader *reader,
                                       const struct doc_node *node, struct error *err) {
    struct doc_node list = doc_get(node, "endpoints"), ports = doc_get(node, "ports");
    enum status st = read_selector(reader, node, err);
    if (st == ST_OK) {
        st = pool_config_read_port_list(&ports, &reader->ports, err);
    }
    if (!doc_is_present(&list)) {
        return st;
    }
    reader->spec->is_empty_on_purpose = doc_is_list(&list) && doc_count(&list) == 0;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        st = read_endpoint(reader, &item, err);
    }
    return st;
}
