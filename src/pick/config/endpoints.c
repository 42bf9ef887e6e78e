/* The endpoints that a file lists: "IP:PORT", or an object with labels, whose address may leave the
 * port to `ports` (its own, or the pool's). What is no address may be a name (dns.c). */
#include "pick/config/reader.h"

/* ---- one endpoint ---------------------------------------------------------------------------- */

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

/* An address for each of the ports. */
static enum status add_ports(struct pool_config_reader *reader, const struct doc_node *node,
                             struct pool_spec_endpoint *wanted,
                             const struct pool_config_ports *ports, struct error *err) {
    enum status st = ST_OK;
    if (ports->n == 0) {
        return doc_error(node, err,
                         "expected a port behind the IP (IP:PORT), or `ports`, or an InferencePool "
                         "with targetPorts");
    }
    for (size_t i = 0; st == ST_OK && i < ports->n; i++) {
        wanted->address.port = ports->items[i];
        st = add_endpoint(reader, node, wanted, err);
    }
    return st;
}

/* `own`: the endpoint's own ports, of which there may be none. `type`: of a name's records; may be
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
        return pool_config_read_dns_endpoint(reader, node, text, labels, own, type, err);
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

/* ---- the sections ---------------------------------------------------------------------------- */

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
    for (struct doc_node item = {0}; st == ST_OK && doc_next(&list, &item);) {
        st = read_endpoint(reader, &item, err);
    }
    return st;
}
