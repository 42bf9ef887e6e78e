/* Which pools the configuration has: the list `pools` with the requests that each matches, and the
 * endpoints of a pool, given as addresses or as DNS names. The other members of an item are read as
 * if it were a file of its own. */
#include "pick/config/reader.h"

#include <stdlib.h>

#include "pick/config/dns_plan.h"

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

static void read_authority(struct doc_reader *reader, const struct doc_node *node,
                           struct str *out) {
    char lower[MOST_HOST_BYTES];
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    size_t n = text.len < sizeof(lower) ? text.len : 0;
    for (size_t i = 0; i < n; i++) {
        char c = text.ptr[i];
        lower[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    struct str name = str_make(lower, n);
    if (!is_authority(name)) {
        doc_reader_fail(reader, node,
                        "expected an authority (api.example.com, api.example.com:8443 or "
                        "*.example.com), got \"%.*s\"",
                        STR_ARG(text));
        return;
    }
    doc_reader_dup(reader, lower[0] == '*' ? str_make(lower + 1, n - 1) : name, out);
}

static void read_authorities(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct pool_match *match = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0, i = 0;
    if (list->val && (n == 0 || n > MOST_AUTHORITIES)) {
        doc_reader_fail(reader, list, "expected 1 to %d authorities, got %zu", MOST_AUTHORITIES, n);
    }
    struct str *authorities = doc_reader_calloc(reader, n + 1, sizeof(*authorities));
    match->authorities = authorities;
    match->n_authorities = n;
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item); i++) {
        read_authority(reader, &item, &authorities[i]);
        for (size_t k = 0; k < i; k++) {
            if (str_eq(authorities[k], authorities[i])) {
                doc_reader_fail(reader, &item, "is there twice");
            }
        }
    }
}

/* ---- paths, headers, metadata ---------------------------------------------------------------- */

/* Prefixes match whole segments, so that a trailing / has no effect. */
static void read_prefix(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str *path = out;
    pool_config_read_path(reader, node, path);
    if (!path->ptr) {
        return;
    }
    if (memchr(path->ptr, '?', path->len) || memchr(path->ptr, '#', path->len)) {
        doc_reader_fail(reader, node, "expected a path without ? and #, got \"%.*s\"",
                        STR_ARG(*path));
    }
    while (path->len > 0 && path->ptr[path->len - 1] == '/') {
        path->len--;
    }
}

static void read_header_name(struct doc_reader *reader, const struct doc_node *node, void *out) {
    if (!node->val) {
        doc_reader_fail(reader, node, "expected the name of a header, got nothing");
    }
    pool_config_read_header(reader, node, out);
}

#define MATCH_NAME(field, function)                                                                \
    MEMBER_CUSTOM_FIELD(struct pool_match, field, struct str, function)
static const struct doc_member HEADER[] = {
    {"name", MATCH_NAME(header, read_header_name)},
    {"value", MATCH_NAME(header_value, pool_config_read_name)},
    {0}};
static const struct doc_member METADATA[] = {
    {"namespace", MATCH_NAME(space, pool_config_read_name)},
    {"key", MATCH_NAME(key, pool_config_read_name)},
    {"value", MATCH_NAME(metadata_value, pool_config_read_name)},
    {0}};
static const struct doc_member MATCH[] = {{"authority", MEMBER_CUSTOM(read_authorities)},
                                          {"path_prefix", MATCH_NAME(path, read_prefix)},
                                          {"header", MEMBER_OBJECT(HEADER)},
                                          {"metadata", MEMBER_OBJECT(METADATA)},
                                          {0}};
#undef MATCH_NAME

/* ---- pools by name --------------------------------------------------------------------------- */

static int compare_reader_names(const void *a, const void *b) {
    const struct pool_config_reader *left = *(const struct pool_config_reader *const *)a;
    const struct pool_config_reader *right = *(const struct pool_config_reader *const *)b;
    int order = str_compare(left->spec->name, right->spec->name);
    return order ? order : left < right ? -1 : left > right;
}

static void sort_names(struct pool_config_file *file) {
    file->by_name = doc_reader_calloc(&file->doc, file->n, sizeof(struct pool_config_reader *));
    if (!file->by_name) {
        return;
    }
    for (size_t i = 0; i < file->n; i++) {
        file->by_name[i] = &file->items[i];
    }
    qsort(file->by_name, file->n, sizeof(struct pool_config_reader *), compare_reader_names);
    for (size_t i = 1; i < file->n && doc_reader_ok(&file->doc); i++) {
        const struct pool_config_reader *first = file->by_name[i - 1], *again = file->by_name[i];
        if (str_eq(first->spec->name, again->spec->name)) {
            file->doc.status =
                error_set(file->doc.err, ST_BAD_CONFIG,
                          "%s:%u: the pool \"%.*s\" is there twice; the first is in line %u",
                          file->name, again->line, STR_ARG(again->spec->name), first->line);
        }
    }
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

static struct pool_config_reader *begin_pool(struct pool_config_file *file) {
    struct pool_config_reader *reader = &file->items[file->n++];
    pool_config_reader_init(reader, file->name, pool_spec_new(), file->arena, file->doc.err);
    reader->doc.errors = file->doc.errors;
    return reader;
}

static void read_item(struct pool_config_file *file, const struct doc_node *item) {
    struct doc_node name = doc_get(item, "name"), match = doc_get(item, "match");
    struct pool_config_reader *reader = begin_pool(file);
    doc_reader_expect_object(&reader->doc, item);
    pool_config_read_name(&reader->doc, &name, &reader->spec->name);
    if (doc_reader_ok(&reader->doc)) {
        reader->line = doc_line(item); /* errors have the pool's name from here on */
    }
    doc_reader_object(&reader->doc, &match, MATCH, &reader->spec->match);
    pool_config_end_pool(file, reader);
}

void pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node) {
    struct doc_node list = doc_get(node, "pools"), item = {0};
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    if (list.val && n == 0) {
        doc_reader_fail(&file->doc, &list, "expected a list of pools, got none");
    }
    if (!doc_reader_ok(&file->doc)) {
        return; /* the pools that were read stay */
    }
    file->items = doc_reader_calloc(&file->doc, n + 1, sizeof(*file->items));
    if (file->items && !list.val) {
        (void)begin_pool(file);
        return;
    }
    while (doc_reader_next(&file->doc, &list, &item)) {
        read_item(file, &item);
    }
    sort_names(file);
}

enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs, struct error *err) {
    struct pool_match_conflict clash = {.first = 0};
    struct error why;
    enum status st = pool_specs_check(specs, &clash, &why);
    if (st != ST_BAD_CONFIG) {
        return st == ST_OK ? st : error_no_memory(err, "the pool of %s", file->name);
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

void pool_config_end_pool(struct pool_config_file *file, struct pool_config_reader *reader) {
    struct error *err = reader->doc.err;
    if (reader->doc.status == ST_BAD_CONFIG && reader->line > 0 && !reader->doc.errors) {
        struct error said = *err;
        error_set(err, ST_BAD_CONFIG, "%s (in the pool \"%.*s\")", said.text,
                  STR_ARG(reader->spec->name));
    }
    file->doc.status = reader->doc.status;
}

enum { DNS_PORT = 53 };

/* ---- endpoints that are DNS names ------------------------------------------------------------ */

/* Adds the name to the DNS plan, and a text for each of its ports to the names that must be
 * unique. */
static void add_dns_name(struct pool_config_reader *reader, const struct doc_node *node,
                         struct dns_plan_name *wanted, const struct pool_config_ports *ports) {
    struct doc_reader *doc = &reader->doc;
    uint16_t *copy = doc_reader_calloc(doc, ports->n, sizeof(*copy));
    struct str name = dns_name_copy(reader->spec, wanted->name);
    for (size_t i = 0; doc_reader_ok(doc) && (i == 0 || i < ports->n); i++) {
        struct str noted =
            arena_printf(reader->arena, "%.*s:%u %s", STR_ARG(name),
                         ports->n > 0 ? ports->items[i] : 0U, DNS_RECORDS_TEXTS[wanted->records]);
        pool_config_add_name(reader, &reader->endpoints, noted, node);
    }
    if (!doc_reader_ok(doc)) {
        return;
    }
    memcpy(copy, ports->items, ports->n * sizeof(*copy));
    wanted->name = name;
    wanted->ports = copy;
    wanted->n_ports = ports->n;
    if (dns_plan_add(reader->spec, wanted, doc->err) != ST_OK) {
        doc_reader_fail(doc, node, "is one name too many: at most %d", DNS_MAX_NAMES);
    }
}

/* An endpoint as it is given. */
struct place {
    struct str text;
    struct pool_labels labels;
    struct pool_config_ports ports; /* the endpoint's own; may be empty */
    struct doc_node type;           /* the record type of a DNS name; may be absent */
};

static void read_dns_endpoint(struct pool_config_reader *reader, const struct doc_node *node,
                              const struct place *place) {
    struct dns_plan_name wanted = {.name = place->text, .labels = place->labels};
    struct pool_config_ports ports = place->ports.n > 0 ? place->ports : reader->ports;
    struct doc_reader *doc = &reader->doc;
    unsigned records = DNS_RECORDS_ANY;
    uint16_t port;
    bool with_port = dns_target_parse(place->text, &wanted.name, &port);
    if (!with_port && !dns_name_is_valid(place->text)) {
        doc_reader_fail(doc, node,
                        "expected \"IP:PORT\" (10.0.0.1:8000, and in quotes \"[::1]:8000\") or "
                        "\"NAME:PORT\" (models.example:8000), got \"%.*s\"",
                        STR_ARG(place->text));
    }
    doc_reader_word(doc, &place->type, DNS_RECORDS_WORDS, NULL, &records);
    wanted.records = (enum dns_records)records;
    if (wanted.records == DNS_RECORDS_SRV) {
        ports.n = 0; /* `ports` of the file do not apply to SRV records */
        if (with_port || place->ports.n > 0) {
            doc_reader_fail(doc, node, "expected a name without a port: SRV records have it");
        }
    } else if (with_port && place->ports.n > 0) {
        doc_reader_fail(doc, node, "has a port, and the endpoint has `ports` as well");
    } else if (with_port) {
        ports = (struct pool_config_ports){.items = {port}, .n = 1};
    } else if (ports.n == 0) {
        doc_reader_fail(doc, node,
                        "expected a port after the name (NAME:PORT), or `ports`, or an "
                        "InferencePool with targetPorts");
    }
    add_dns_name(reader, node, &wanted, &ports);
}

/* ---- the section `dns` ----------------------------------------------------------------------- */

/* "127.0.0.1:5353,[::1]:53" */
static void read_dns_servers(struct doc_reader *reader, const struct doc_node *list, void *out) {
    char text[DNS_SERVERS_BYTES], *end = text;
    if (!doc_is_present(list)) {
        return;
    }
    if (doc_count(list) > DNS_MAX_SERVERS) {
        doc_reader_fail(reader, list, "expected at most %d servers, got %zu", DNS_MAX_SERVERS,
                        doc_count(list));
    }
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        struct endpoint_address address = {.port = DNS_PORT};
        struct str server = {NULL, 0};
        doc_reader_view(reader, &item, &server);
        if (!endpoint_address_parse(server, &address)) {
            if (!endpoint_address_parse_ip(server, &address)) {
                doc_reader_fail(reader, &item, "expected IP or IP:PORT, got \"%.*s\"",
                                STR_ARG(server));
                return;
            }
            address.port = DNS_PORT;
        }
        *end = ',';
        end += end > text;
        end += endpoint_address_print(&address, end).len;
    }
    doc_reader_dup(reader, str_make(text, (size_t)(end - text)), out);
}

static void check_dns_ttl(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct dns_plan *plan = object;
    if (plan->min_ttl_ns > plan->max_ttl_ns) {
        doc_reader_fail(reader, node->parent,
                        "expected `shortest` (%g s) to be no more than `longest` (%g s)",
                        (double)plan->min_ttl_ns / 1e9, (double)plan->max_ttl_ns / 1e9);
    }
}

const struct doc_member POOL_CONFIG_DNS[] = {
    {"servers", MEMBER_CUSTOM_FIELD(struct dns_plan, servers, struct str, read_dns_servers),
     .form = "up to 8 of IP or IP:PORT", .help = "that resolve names; the system's"},
    {"timeout", MEMBER_DURATION(struct dns_plan, timeout_ns, 10 * CONFIG_MS, CONFIG_MINUTE),
     .help = "time until a query is repeated"},
    {"shortest", MEMBER_DURATION(struct dns_plan, min_ttl_ns, 10 * CONFIG_MS, CONFIG_HOUR),
     .help = "lower bound of the time that an answer is used"},
    {"longest", MEMBER_DURATION(struct dns_plan, max_ttl_ns, 10 * CONFIG_MS, 24 * CONFIG_HOUR),
     .help = "and its upper bound"},
    {"keep", MEMBER_DURATION(struct dns_plan, keep_ns, 0, 24 * CONFIG_HOUR), .check = check_dns_ttl,
     .help = "a name without addresses keeps its last ones for this time"},
    {0}};

void pool_config_read_dns(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, POOL_CONFIG_DNS, dns_plan_get(spec));
    }
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void add_endpoint(struct pool_config_reader *reader, const struct doc_node *node,
                         const struct pool_spec_endpoint *wanted) {
    char text[ENDPOINT_TEXT_BYTES];
    struct str copy = arena_dup(reader->arena, endpoint_address_print(&wanted->address, text));
    pool_config_add_name(reader, &reader->endpoints, copy, node);
    if (doc_reader_ok(&reader->doc)) {
        pool_spec_add_endpoint(reader->spec, wanted);
    }
}

/* Reads the text at `node`: an IP or a name, with or without a port. */
static void read_address(struct pool_config_reader *reader, const struct doc_node *node,
                         struct place *place) {
    struct pool_spec_endpoint wanted = {.labels = place->labels};
    const struct pool_config_ports *ports = place->ports.n > 0 ? &place->ports : &reader->ports;
    struct doc_reader *doc = &reader->doc;
    doc_reader_view(doc, node, &place->text);
    if (!place->text.ptr) {
        doc_reader_fail(doc, node, "expected \"IP:PORT\", got nothing");
        return;
    }
    bool with_port = endpoint_address_parse(place->text, &wanted.address);
    if (!with_port && !endpoint_address_parse_ip(place->text, &wanted.address)) {
        read_dns_endpoint(reader, node, place);
        return;
    }
    if (place->type.val) {
        doc_reader_fail(doc, &place->type, "is for names; the endpoint has an IP");
    } else if (with_port && place->ports.n > 0) {
        doc_reader_fail(doc, node, "has a port, and the endpoint has `ports` as well");
    } else if (with_port) {
        add_endpoint(reader, node, &wanted);
    } else if (ports->n == 0) {
        doc_reader_fail(doc, node,
                        "expected a port after the IP (IP:PORT), or `ports`, or an InferencePool "
                        "with targetPorts");
    }
    for (size_t i = 0; !with_port && i < ports->n; i++) {
        wanted.address.port = ports->items[i];
        add_endpoint(reader, node, &wanted);
    }
}

static const struct doc_member ENDPOINT[] = {
    {"address", MEMBER_BY_CALLER},
    {"labels",
     MEMBER_CUSTOM_FIELD(struct place, labels, struct pool_labels, pool_config_read_labels)},
    {"ports", MEMBER_CUSTOM_FIELD(struct place, ports, struct pool_config_ports,
                                  pool_config_read_port_list)},
    {"type", MEMBER_BY_CALLER},
    {0}};

static void read_endpoint(struct pool_config_reader *reader, const struct doc_node *node) {
    struct place place = {.text = {NULL, 0}};
    if (doc_is_text(node)) {
        read_address(reader, node, &place);
        return;
    }
    struct doc_node address = doc_get(node, "address");
    place.type = doc_get(node, "type");
    doc_reader_object(&reader->doc, node, ENDPOINT, &place);
    read_address(reader, &address, &place);
}

/* ---- the section `endpoints` ----------------------------------------------------------------- */

void pool_config_read_selector(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct pool_spec *spec = object;
    if (!node->val) {
        return;
    }
    if (pool_config_reader_of(reader)->has_pool) {
        doc_reader_fail(reader, node, "the file's InferencePool has a selector already");
    }
    pool_config_read_labels(reader, node, &spec->selector);
}

void pool_config_read_ports(struct doc_reader *reader, const struct doc_node *node, void *spec) {
    (void)spec;
    pool_config_read_port_list(reader, node, &pool_config_reader_of(reader)->ports);
}

void pool_config_read_endpoints(struct doc_reader *reader, const struct doc_node *list,
                                void *object) {
    struct pool_spec *spec = object;
    if (!doc_is_present(list)) {
        return;
    }
    spec->is_empty_on_purpose = doc_is_list(list) && doc_count(list) == 0;
    for (struct doc_node item = {0}; doc_reader_next_part(reader, list, &item);) {
        enum status before = doc_reader_begin_part(reader);
        read_endpoint(pool_config_reader_of(reader), &item);
        doc_reader_end_part(reader, before);
    }
}
