/* Keeps the endpoints named in the header of the gateways' conformance tests. The addresses are
 * parsed into an array on the stack, as a plugin allocates no memory. */
#include "pick/pool/profile/plugin.h"

#include "pick/pool/subset.h"

enum { MOST_NAMED = 1024 };

/* Clause: the request header of the gateways' conformance suite. */
static void read_named(const struct pool_headers *headers, struct subset *named, size_t most) {
    struct str name = STR("test-epp-endpoint-selection");
    struct str text = headers->find ? headers->find(headers->of, name) : STR("");
    while (text.len > 0 && named->n < most) {
        struct str item = str_trim(str_cut(&text, ','));
        struct endpoint_address *address = &named->items[named->n];
        named->n +=
            endpoint_address_parse(item, address) || endpoint_address_parse_ip(item, address);
    }
}

static bool is_named(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    return subset_has(parameters, &candidate_set_member(candidates, i)->endpoint->address);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    struct endpoint_address items[MOST_NAMED];
    struct subset named = {.items = items, .any_port = true};
    (void)parameters;
    read_named(&candidates->headers, &named, MOST_NAMED);
    candidate_set_filter(candidates, &named, is_named);
}

const struct plugin plugin_header_based_testing_filter = {
    .type = "header-based-testing-filter", .kind = PLUGIN_FILTER, .filter = filter};
