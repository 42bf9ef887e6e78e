/* What /metrics and /debug/state say of endpoints that are names. */
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/dns/watch.h"
#include "program/picker/admin.h"

/* ---- metrics --------------------------------------------------------------------------------- */

static double dns_addresses_of(const struct dns_report *name, uint64_t now_ns) {
    (void)now_ns;
    return (double)name->n_addresses;
}
static double dns_failing_of(const struct dns_report *name, uint64_t now_ns) {
    (void)now_ns;
    return name->state == DNS_STATE_FAILING || name->state == DNS_STATE_EMPTY;
}
static double dns_age_of(const struct dns_report *name, uint64_t now_ns) {
    return now_ns > name->answered_ns ? (double)(now_ns - name->answered_ns) / 1e9 : 0;
}

/* A number of each name. */
static const struct named_column {
    enum metric_family family;
    bool answered; /* only of those that were */
    double (*value_of)(const struct dns_report *name, uint64_t now_ns);
} NAMED[] = {
    {METRIC_FAMILY_DNS_ADDRESSES, false, dns_addresses_of},
    {METRIC_FAMILY_DNS_FAILING, false, dns_failing_of},
    {METRIC_FAMILY_DNS_AGE, true, dns_age_of},
};

static void print_named(struct metric_text *text, const struct dns_report *names, size_t n,
                        const struct named_column *named) {
    uint64_t now_ns = clock_now_ns();
    metric_family_begin(text, named->family);
    for (size_t i = 0; i < n; i++) {
        struct buf labels;
        if (!named->answered || names[i].answered_ns > 0) {
            buf_init(&labels, text->out->arena, DNS_NAME_BYTES + 32);
            metric_label_add(&labels, "name", names[i].name);
            metric_label_add(&labels, "records", str_of(DNS_RECORDS_WORDS[names[i].records]));
            metric_text_f64(text, buf_str(&labels), named->value_of(&names[i], now_ns));
        }
    }
}

void pick_dns_metrics(struct dns_watch *dns, struct metric_text *text) {
    struct dns_report *names = NULL;
    size_t n = dns ? dns_watch_report(dns, text->out->arena, &names) : 0;
    for (size_t i = 0; i < sizeof NAMED / sizeof NAMED[0]; i++) {
        print_named(text, names, n, &NAMED[i]);
    }
}

/* ---- state ----------------------------------------------------------------------------------- */

static void print_addresses(const struct dns_report *name, struct buf *out) {
    enum { ADDRESSES_MOST = 100 };
    for (size_t i = 0; i < name->n_addresses && i < ADDRESSES_MOST; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct str address = endpoint_address_print(&name->addresses[i], text);
        if (name->addresses[i].port == 0) { /* without ":0" */
            address.len -= 2;
        }
        buf_printf(out, "%s%.*s", i == 0 ? ": " : ", ", STR_ARG(address));
    }
    if (name->n_addresses > ADDRESSES_MOST) {
        buf_printf(out, " and %zu more", name->n_addresses - ADDRESSES_MOST);
    }
}

static void print_name(const struct dns_report *name, struct buf *out) {
    static const char *const states[] = {
        [DNS_STATE_UNRESOLVED] = "not answered yet",
        [DNS_STATE_RESOLVED] = "resolved",
        [DNS_STATE_PARTIAL] = "resolved in part",
        [DNS_STATE_EMPTY] = "has no addresses",
        [DNS_STATE_FAILING] = "failing",
    };
    uint64_t now_ns = clock_now_ns();
    buf_printf(out, "name %.*s (%s): %s", STR_ARG(name->name), DNS_RECORDS_TEXTS[name->records],
               states[name->state]);
    if (name->error.len > 0) {
        buf_printf(out, " (%.*s)", STR_ARG(name->error));
    }
    if (name->answered_ns > 0) {
        buf_printf(out, ", answered %.1f s ago", dns_age_of(name, now_ns));
    }
    buf_printf(out, ", %zu address%s", name->n_addresses, name->n_addresses == 1 ? "" : "es");
    print_addresses(name, out);
    buf_add_char(out, '\n');
}

void pick_dns_state(struct dns_watch *dns, struct buf *out) {
    struct dns_report *names = NULL;
    size_t n = dns ? dns_watch_report(dns, out->arena, &names) : 0;
    for (size_t i = 0; i < n; i++) {
        print_name(&names[i], out);
    }
}
