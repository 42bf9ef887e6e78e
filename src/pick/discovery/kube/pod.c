/* Reads a pod's JSON into one block of memory. */
#include "pick/discovery/kube/pod.h"

#include <stdlib.h>

#include "core/base/num.h"

/* Annotations of upstream's pickers; the first that is present is used. */
static const char *const PORT_ANNOTATIONS[] = {"llm-d.ai/active-ports",
                                               "inference.networking.k8s.io/active-ports"};

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_ready(yyjson_val *object) {
    struct json_iter conditions = json_elements(json_at(object, "/status/conditions"));
    if (json_at(object, "/metadata/deletionTimestamp")) {
        return false;
    }
    while (json_iter_next(&conditions)) {
        if (json_text_is(json_member(conditions.value, "type"), "Ready")) {
            return json_text_is(json_member(conditions.value, "status"), "True");
        }
    }
    return false;
}

static enum status read_address(yyjson_val *object, struct endpoint_address *out,
                                struct error *err) {
    struct str ip = json_text(json_at(object, "/status/podIP"));
    if (!ip.ptr) {
        ip = json_text(json_at(object, "/status/podIPs/0/ip"));
    }
    if (ip.len > 0 && !endpoint_address_parse_ip(ip, out)) {
        return error_set(err, ST_BAD_CONFIG, "status.podIP: expected an IP address, got \"%.*s\"",
                         STR_ARG(ip));
    }
    return ST_OK;
}

static struct str ports_of(yyjson_val *object) {
    yyjson_val *annotations = json_at(object, "/metadata/annotations");
    struct str text = {NULL, 0};
    for (size_t i = 0; !text.ptr && i < sizeof PORT_ANNOTATIONS / sizeof *PORT_ANNOTATIONS; i++) {
        text = json_text(json_member(annotations, PORT_ANNOTATIONS[i]));
    }
    return text;
}

/* ---- the block of memory --------------------------------------------------------------------- */

/* Copies the text to *at, with a NUL. */
static struct str put_text(char **at, struct str text) {
    char *start = *at;
    if (!text.ptr) {
        return text;
    }
    memcpy(start, text.ptr, text.len);
    start[text.len] = '\0';
    *at = start + text.len + 1;
    return str_make(start, text.len);
}

static size_t labels_bytes(yyjson_val *labels) {
    struct json_iter label = json_members(labels);
    size_t n = 0;
    while (json_iter_next(&label)) {
        n += sizeof(struct pool_label) + label.name.len + json_text(label.value).len + 2;
    }
    return n;
}

/* Labels whose values are not texts are skipped; the API does not allow them. */
static void put_labels(struct kube_pod *pod, yyjson_val *labels, char **at) {
    struct pool_label *items = (struct pool_label *)(void *)(pod + 1);
    struct json_iter label = json_members(labels);
    struct str value;
    size_t n = 0;
    while (json_iter_next(&label)) {
        if (json_get_string(label.value, &value)) {
            items[n++] = (struct pool_label){put_text(at, label.name), put_text(at, value)};
        }
    }
    pod->labels = (struct pool_labels){items, n};
}

enum status kube_pod_read(yyjson_val *object, struct kube_pod **out, struct error *err) {
    struct str name = json_text(json_at(object, "/metadata/name"));
    struct str ports = ports_of(object), hostname = json_text(json_at(object, "/spec/hostname"));
    yyjson_val *labels = json_at(object, "/metadata/labels");
    struct endpoint_address address = {.family = 0}, node = {.family = 0};
    enum status st = read_address(object, &address, err);
    if (st == ST_OK && name.len == 0) {
        st = error_set(err, ST_BAD_CONFIG, "metadata.name: expected a name, got none");
    }
    if (st != ST_OK) {
        return st;
    }
    size_t n_bytes =
        sizeof(struct kube_pod) + labels_bytes(labels) + name.len + ports.len + hostname.len + 3;
    struct kube_pod *pod = calloc(1, n_bytes);
    if (!pod) {
        return error_no_memory(err, "a pod");
    }
    char *at = (char *)(pod + 1) + json_members(labels).left * sizeof(struct pool_label);
    pod->ready = address.family > 0 && is_ready(object);
    pod->address = address;
    if (endpoint_address_parse_ip(json_text(json_at(object, "/status/hostIP")), &node)) {
        pod->node = node;
    }
    pod->name = put_text(&at, name);
    pod->active_ports = put_text(&at, ports);
    pod->hostname = put_text(&at, hostname);
    put_labels(pod, labels, &at);
    *out = pod;
    return ST_OK;
}

/* ---- queries --------------------------------------------------------------------------------- */

static bool same_labels(struct pool_labels a, struct pool_labels b) {
    for (size_t i = 0; i < a.n && a.n == b.n; i++) {
        if (!str_eq(a.items[i].key, b.items[i].key) ||
            !str_eq(a.items[i].value, b.items[i].value)) {
            return false;
        }
    }
    return a.n == b.n;
}

static bool same_text(struct str a, struct str b) {
    return a.ptr && b.ptr ? str_eq(a, b) : a.ptr == b.ptr;
}

bool kube_pod_equal(const struct kube_pod *a, const struct kube_pod *b) {
    return a->ready == b->ready && endpoint_address_equal(&a->address, &b->address) &&
           endpoint_address_equal(&a->node, &b->node) &&
           same_text(a->active_ports, b->active_ports) && same_text(a->hostname, b->hostname) &&
           same_labels(a->labels, b->labels);
}

bool kube_pod_has_port(const struct kube_pod *pod, uint16_t port) {
    struct str rest = pod->active_ports;
    if (!rest.ptr) {
        return true;
    }
    while (rest.ptr) {
        uint64_t number = 0;
        struct str item = str_trim(str_cut(&rest, ','));
        if (num_parse_u64(item, &number) && number == port) {
            return true;
        }
    }
    return false;
}
