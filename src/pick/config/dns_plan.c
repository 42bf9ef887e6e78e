/* The endpoints of a pool that are DNS names, as a list in the spec's arena. */
#include "pick/config/dns_plan.h"

#include "core/base/num.h"

static const uint64_t NS_PER_S = 1000000000;
enum { TIMEOUT_S = 1, SHORTEST_S = 1, LONGEST_S = 300, KEEP_S = 30, FIRST_CAP = 8 };

const char *const DNS_RECORDS_TEXTS[] = {"A and AAAA", "A", "AAAA", "SRV"};
const char *const DNS_RECORDS_WORDS[] = {"any", "A", "AAAA", "SRV", NULL};

struct dns_plan *dns_plan_get(struct pool_spec *spec) {
    if (!spec->dns) {
        spec->dns = arena_calloc(spec->arena, 1, sizeof(*spec->dns));
        *spec->dns = (struct dns_plan){.servers = STR(""),
                                       .timeout_ns = TIMEOUT_S * NS_PER_S,
                                       .min_ttl_ns = SHORTEST_S * NS_PER_S,
                                       .max_ttl_ns = LONGEST_S * NS_PER_S,
                                       .keep_ns = KEEP_S * NS_PER_S};
    }
    return spec->dns;
}

enum status dns_plan_add(struct pool_spec *spec, const struct dns_plan_name *wanted,
                         struct error *err) {
    struct dns_plan *plan = dns_plan_get(spec);
    if (plan->n_names == DNS_MAX_NAMES) {
        return error_set(err, ST_BAD_CONFIG, "expected at most %d names to resolve", DNS_MAX_NAMES);
    }
    if (plan->n_names == plan->names_cap) {
        size_t cap = 2 * plan->names_cap + FIRST_CAP, size = sizeof(*plan->names);
        plan->names = arena_realloc(spec->arena, plan->names, plan->names_cap * size, cap * size);
        plan->names_cap = cap;
    }
    plan->names[plan->n_names++] = *wanted;
    return ST_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

bool dns_target_parse(struct str text, struct str *name, uint16_t *port) {
    size_t n = text.len;
    uint64_t number;
    while (n > 0 && text.ptr[n - 1] != ':') {
        n--;
    }
    struct str digits = str_make(text.ptr + n, text.len - n);
    if (n == 0 || digits.len == 0 || digits.ptr[0] == '0' || !num_parse_u64(digits, &number) ||
        number > UINT16_MAX) {
        return false;
    }
    *name = str_make(text.ptr, n - 1);
    *port = (uint16_t)number;
    return dns_name_is_valid(*name);
}

struct str dns_name_copy(struct pool_spec *spec, struct str name) {
    char text[DNS_NAME_BYTES];
    size_t n = name.len < sizeof(text) ? name.len : sizeof(text);
    str_copy_lower(text, str_make(name.ptr, n));
    return pool_spec_dup_text(spec, str_make(text, n));
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_name(const struct pool_spec *spec, const struct dns_plan_name *wanted,
                       struct buf *out) {
    enum { NAME_COLUMNS = 28 }; /* as in spec_print.c */
    buf_printf(out, "  %-*.*s  %s", NAME_COLUMNS, STR_ARG(wanted->name),
               DNS_RECORDS_TEXTS[wanted->records]);
    for (size_t i = 0; i < wanted->n_ports; i++) {
        buf_printf(out, "%s%u", i == 0 ? ", port " : " ", wanted->ports[i]);
    }
    for (size_t i = 0; i < wanted->labels.n; i++) {
        const struct pool_label *label = &wanted->labels.items[i];
        buf_printf(out, "%s%.*s=%.*s", i == 0 ? "  " : " ", STR_ARG(label->key),
                   STR_ARG(label->value));
    }
    buf_printf(out, "%s\n",
               pool_labels_match(wanted->labels, spec->selector) ? "" : "  (not in the pool)");
}

void dns_plan_print(const struct pool_spec *spec, struct buf *out) {
    const struct dns_plan *plan = spec->dns;
    if (!plan) {
        return;
    }
    buf_printf(out, "names       %zu, whose addresses are endpoints too; not resolved here\n",
               plan->n_names);
    for (size_t i = 0; i < plan->n_names; i++) {
        print_name(spec, &plan->names[i], out);
    }
    buf_printf(
        out,
        "dns         asks %.*s, once more after %g s; an answer counts %g s to %g s; what is "
        "gone stays %g s\n",
        STR_ARG(plan->servers.len > 0 ? plan->servers : STR("the system's servers")),
        (double)plan->timeout_ns / 1e9, (double)plan->min_ttl_ns / 1e9,
        (double)plan->max_ttl_ns / 1e9, (double)plan->keep_ns / 1e9);
}
