/* What /metrics, /debug/state and /status.json say of a cluster. */
#include "core/base/json_writer.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/kube/leader.h"
#include "pick/discovery/kube/source.h"
#include "program/picker/admin.h"

static double age_of(uint64_t heard_ns) {
    uint64_t now_ns = clock_now_ns();
    return now_ns > heard_ns ? (double)(now_ns - heard_ns) / 1e9 : 0;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static double kind_age_of(const struct kube_source_kind *kind) {
    return age_of(kind->state.heard_ns);
}
static double events_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_events;
}
static double lists_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_lists;
}
static double failures_of(const struct kube_source_kind *kind) {
    return (double)kind->state.n_failures;
}
static double objects_of(const struct kube_source_kind *kind) {
    return (double)kind->counts.n_objects;
}
static double invalid_of(const struct kube_source_kind *kind) {
    return (double)kind->counts.n_invalid;
}

/* A number of each kind that is watched. */
static const struct column {
    enum metric_family family;
    bool heard; /* only of those that were heard of */
    double (*value_of)(const struct kube_source_kind *kind);
} COLUMNS[] = {
    {METRIC_FAMILY_KUBE_AGE, true, kind_age_of},
    {METRIC_FAMILY_KUBE_EVENTS, false, events_of},
    {METRIC_FAMILY_KUBE_LISTS, false, lists_of},
    {METRIC_FAMILY_KUBE_FAILURES, false, failures_of},
    {METRIC_FAMILY_KUBE_OBJECTS, false, objects_of},
    {METRIC_FAMILY_KUBE_SENSELESS, false, invalid_of},
};

static void begin_labels(const struct metric_text *text, int kind, struct buf *labels) {
    buf_init(labels, text->out->arena, 128);
    metric_label_add(labels, "kind", str_of(KUBE_KINDS[kind].kind));
    metric_label_add(labels, "group", str_of(KUBE_KINDS[kind].group));
}

static void print_column(const struct kube_source_report *report, const struct column *column,
                         struct metric_text *text) {
    metric_family_begin(text, column->family);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        const struct kube_source_kind *one = &report->kinds[kind];
        if (one->watched && (!column->heard || one->state.heard_ns > 0)) {
            struct buf labels;
            begin_labels(text, kind, &labels);
            metric_text_f64(text, buf_str(&labels), column->value_of(one));
        }
    }
}

/* Each phase of each kind: 1 is the one that it is in. */
static void print_phases(const struct kube_source_report *report, struct metric_text *text) {
    metric_family_begin(text, METRIC_FAMILY_KUBE_PHASE);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        const struct kube_source_kind *one = &report->kinds[kind];
        for (int phase = KUBE_LISTING; one->watched && phase <= KUBE_FAILING; phase++) {
            struct buf labels;
            begin_labels(text, kind, &labels);
            metric_label_add(&labels, "phase", str_of(KUBE_PHASE_TEXTS[phase]));
            metric_text_u64(text, buf_str(&labels), (int)one->state.phase == phase);
        }
    }
}

/* The heads of families are always there, so that a page says which there may be. */
static void print_u64(struct metric_text *text, enum metric_family family, bool there,
                      uint64_t value) {
    metric_family_begin(text, family);
    if (there) {
        metric_text_u64(text, STR(""), value);
    }
}

void pick_kube_metrics(const struct pick_admin *admin, struct metric_text *text) {
    struct kube_source_report report = {.synced = false};
    struct kube_leader_state leader = {.leads = false};
    bool there = admin->cluster != NULL, may_lead = admin->leader != NULL;
    if (there) {
        kube_source_report(admin->cluster, &report);
    }
    if (may_lead) {
        kube_leader_report(admin->leader, &leader);
    }
    print_u64(text, METRIC_FAMILY_KUBE_SYNCED, there, report.synced);
    print_u64(text, METRIC_FAMILY_KUBE_HAS_POOL, there, report.group != NULL);
    print_u64(text, METRIC_FAMILY_KUBE_UPDATES, there, report.n_changes);
    print_u64(text, METRIC_FAMILY_KUBE_LEADS, may_lead, leader.leads);
    print_u64(text, METRIC_FAMILY_KUBE_LEASE_FAILURES, may_lead, leader.n_failures);
    print_phases(&report, text);
    for (size_t i = 0; i < sizeof COLUMNS / sizeof COLUMNS[0]; i++) {
        print_column(&report, &COLUMNS[i], text);
    }
}

/* ---- state ----------------------------------------------------------------------------------- */

static void print_kind(int kind, const struct kube_source_kind *one, struct buf *out) {
    const struct kube_kind_info *info = &KUBE_KINDS[kind];
    buf_printf(out, "cluster's %s%s%s: %s, %zu objects, %zu of the pool", info->kind,
               *info->group ? " of " : "", info->group, KUBE_PHASE_TEXTS[one->state.phase],
               one->counts.n_objects, one->counts.n_matching);
    if (kind == KUBE_POD) {
        buf_printf(out, ", %zu of these ready", one->counts.n_usable);
    }
    if (one->counts.n_invalid > 0) {
        buf_printf(out, ", %zu that make no sense", one->counts.n_invalid);
    }
    buf_printf(out, "; %llu events, %llu lists, %llu failures",
               (unsigned long long)one->state.n_events, (unsigned long long)one->state.n_lists,
               (unsigned long long)one->state.n_failures);
    if (one->state.heard_ns > 0) {
        buf_printf(out, ", heard of %.1f s ago", age_of(one->state.heard_ns));
    }
    if (one->state.error.status != ST_OK) {
        buf_printf(out, " (%s)", one->state.error.text);
    }
    buf_add_char(out, '\n');
}

static void describe_leader(struct kube_leader *leader, struct buf *out) {
    struct kube_leader_state state;
    kube_leader_report(leader, &state);
    buf_printf(out, "cluster's lease: %s%s, we are %s; %llu failures",
               state.leads     ? "this picker leads"
               : *state.holder ? "led by "
                               : "nobody leads",
               state.leads ? "" : state.holder, state.identity,
               (unsigned long long)state.n_failures);
    if (state.error.status != ST_OK) {
        buf_printf(out, " (%s)", state.error.text);
    }
    buf_add_char(out, '\n');
}

void pick_kube_state(const struct pick_admin *admin, struct buf *out) {
    struct kube_source_report report;
    if (!admin->cluster) {
        return;
    }
    kube_source_report(admin->cluster, &report);
    buf_printf(out, "cluster %s, namespace %s: ", report.server, report.name_space);
    if (report.pods) {
        buf_printf(out, "pods with %s", report.pods);
    } else if (report.group) {
        buf_printf(out, "InferencePool %s of %s", report.pool, report.group);
    } else {
        buf_printf(out, "no InferencePool %s", report.pool);
    }
    uint64_t heard_ns = kube_source_fresh_ns(&report);
    buf_printf(out, "%s; %llu changes of the pool",
               report.synced ? "" : ", as far as it is known yet",
               (unsigned long long)report.n_changes);
    if (heard_ns > 0) {
        buf_printf(out, "; all of it was so %.1f s ago", age_of(heard_ns));
    }
    buf_add_char(out, '\n');
    if (admin->leader) {
        describe_leader(admin->leader, out);
    }
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        if (report.kinds[kind].watched) {
            print_kind(kind, &report.kinds[kind], out);
        }
    }
}

/* ---- the status page ------------------------------------------------------------------------- */

static void add_kind(struct json_writer *json, int kind, const struct kube_source_kind *one) {
    json_write_separator(json);
    json_write_open(json, '{');
    json_write_string(json, "kind", str_of(KUBE_KINDS[kind].kind));
    json_write_string(json, "group", str_of(KUBE_KINDS[kind].group));
    json_write_string(json, "phase", str_of(KUBE_PHASE_TEXTS[one->state.phase]));
    json_write_u64(json, "objects", one->counts.n_objects);
    json_write_u64(json, "ours", one->counts.n_matching);
    json_write_u64(json, "usable", one->counts.n_usable);
    json_write_u64(json, "senseless", one->counts.n_invalid);
    json_write_u64(json, "events", one->state.n_events);
    json_write_u64(json, "lists", one->state.n_lists);
    json_write_u64(json, "failures", one->state.n_failures);
    if (one->state.heard_ns > 0) {
        json_write_f64(json, "age_s", age_of(one->state.heard_ns));
    }
    if (one->state.error.status != ST_OK) {
        json_write_string(json, "error", str_of(one->state.error.text));
    }
    json_write_close(json, '}');
}

void pick_kube_status(const struct pick_admin *admin, struct json_writer *json) {
    struct kube_source_report report;
    if (!admin->cluster) {
        return;
    }
    kube_source_report(admin->cluster, &report);
    json_write_key(json, "cluster");
    json_write_open(json, '{');
    json_write_string(json, "server", str_of(report.server));
    json_write_string(json, "namespace", str_of(report.name_space));
    json_write_string(json, "pool", str_of(report.pool));
    if (report.pods) {
        json_write_string(json, "pods", str_of(report.pods));
    }
    json_write_string(json, "group", str_of(report.group ? report.group : ""));
    json_write_bool(json, "synced", report.synced);
    json_write_u64(json, "updates", report.n_changes);
    if (kube_source_fresh_ns(&report) > 0) {
        json_write_f64(json, "age_s", age_of(kube_source_fresh_ns(&report)));
    }
    if (admin->leader) {
        struct kube_leader_state state;
        kube_leader_report(admin->leader, &state);
        json_write_bool(json, "leads", state.leads);
        json_write_string(json, "holder", str_of(state.holder));
    }
    json_write_key(json, "kinds");
    json_write_open(json, '[');
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        if (report.kinds[kind].watched) {
            add_kind(json, kind, &report.kinds[kind]);
        }
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}
