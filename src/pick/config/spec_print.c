/* Prints a pool's configuration: each setting as a label and a value, lists indented below. */
#include "pick/config/spec_print.h"

#include <inttypes.h>

#include "codec/prompt/model_location.h"
#include "core/base/plural.h"
#include "pick/config/dns_plan.h"
#include "pick/config/plugin_list.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/profile/handler.h"

/* The widths of labels and of names in lists. */
enum { LABEL_COLUMNS = 12, NAME_COLUMNS = 28 };

static void print_label(struct buf *out, const char *text) {
    buf_printf(out, "%-*s", LABEL_COLUMNS, text);
}

static void print_item(struct buf *out, struct str name) {
    buf_printf(out, "  %-*.*s  ", NAME_COLUMNS, STR_ARG(name));
}

/* Removes the padding at the end of a line. */
static void end_line(struct buf *out) {
    while (out->len > 0 && out->data[out->len - 1] == ' ') {
        out->len--;
    }
    buf_add_char(out, '\n');
}

static double seconds(uint64_t ns) {
    return (double)ns / 1e9;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void print_labels(struct pool_labels labels, struct buf *out) {
    for (size_t i = 0; i < labels.n; i++) {
        buf_printf(out, "%s%.*s=%.*s", i > 0 ? " " : "", STR_ARG(labels.items[i].key),
                   STR_ARG(labels.items[i].value));
    }
}

static void print_endpoints(const struct pool_spec *spec, struct buf *out) {
    size_t n = 0;
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        n += pool_labels_match(spec->endpoints[i].labels, spec->selector);
    }
    print_label(out, "endpoints");
    buf_printf(out, "%zu", n);
    if (spec->selector.n > 0) {
        buf_printf(out, " of %zu listed: those with ", spec->n_endpoints);
        print_labels(spec->selector, out);
    }
    buf_add_char(out, '\n');
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        print_item(out, endpoint_address_print(&spec->endpoints[i].address, text));
        print_labels(spec->endpoints[i].labels, out);
        if (!pool_labels_match(spec->endpoints[i].labels, spec->selector)) {
            buf_printf(out, "%s(not in the pool)", spec->endpoints[i].labels.n > 0 ? "  " : "");
        }
        end_line(out);
    }
}

static void print_check(const struct pool_health *health, struct buf *out) {
    switch (health->kind) {
    case POOL_HEALTH_NONE:
        break;
    case POOL_HEALTH_HTTP:
        buf_printf(out, "GET %.*s", STR_ARG(health->path));
        break;
    case POOL_HEALTH_GRPC:
        buf_printf(out, "gRPC health of \"%.*s\"", STR_ARG(health->service));
        break;
    case POOL_HEALTH_TCP:
        buf_printf(out, "a TCP connection");
        break;
    }
    if (health->port > 0) {
        buf_printf(out, " at port %u", health->port);
    }
}

static void print_health(const struct pool_health *health, struct buf *out) {
    print_label(out, "readiness");
    if (health->kind == POOL_HEALTH_NONE) {
        buf_printf(out, "not checked: every endpoint is ready\n");
        return;
    }
    print_check(health, out);
    buf_printf(out, ", every %g s, in %g s; ready after %u success%s, not after %u failure%s\n",
               seconds(health->interval_ns), seconds(health->timeout_ns), health->n_healthy,
               health->n_healthy == 1 ? "" : "es", health->n_unhealthy,
               plural_s(health->n_unhealthy));
}

/* By a detector, which measures the pool as a whole. */
static void print_detector(const struct pool_spec *spec, struct buf *out) {
    switch (spec->detector.kind) {
    case DETECTOR_NONE:
        break;
    case DETECTOR_REQUESTS:
        buf_printf(out, "as a whole, with %" PRIu64 " request%s in flight for each endpoint",
                   spec->max_in_flight, plural_s(spec->max_in_flight));
        break;
    case DETECTOR_TOKENS:
        buf_printf(out, "as a whole, with %" PRIu64 " tokens in flight for each endpoint",
                   spec->detector.max_tokens);
        break;
    case DETECTOR_HYBRID:
        buf_printf(out,
                   "as a whole, with %" PRIu64 " request%s or %" PRIu64
                   " tokens in flight in the mean of the endpoints",
                   spec->max_in_flight, plural_s(spec->max_in_flight), spec->detector.max_tokens);
        break;
    case DETECTOR_LOADS:
        buf_printf(out,
                   "as a whole, with %" PRIu64
                   " waiting or %g of the KV cache used in the mean of the endpoints%s",
                   spec->queue_depth, spec->kv_cache,
                   spec->detector.stale_is_saturated
                       ? ", of which one without a recent load is at its limit"
                       : " with a recent load");
        break;
    }
}

static void print_limits(const struct pool_spec *spec, struct buf *out) {
    const char * or = "";
    if (spec->max_in_flight == 0 && !pool_limits_loads(spec)) {
        buf_printf(out, "never");
        return;
    }
    buf_printf(out, "when every endpoint has ");
    if (spec->max_in_flight > 0) {
        buf_printf(out, "%" PRIu64 " request%s in flight", spec->max_in_flight,
                   plural_s(spec->max_in_flight));
        or = " or ";
    }
    if (spec->queue_depth > 0) {
        buf_printf(out, "%s%" PRIu64 " waiting", or, spec->queue_depth);
        or = " or ";
    }
    if (spec->kv_cache > 0) {
        buf_printf(out, "%s%g of its KV cache used", or, spec->kv_cache);
    }
}

static void print_saturation(const struct pool_spec *spec, struct buf *out) {
    bool is_limited = spec->max_in_flight > 0 || pool_limits_loads(spec);
    print_label(out, "saturated");
    if (spec->detector.kind != DETECTOR_NONE) {
        print_detector(spec, out);
    } else {
        print_limits(spec, out);
    }
    if (!is_limited || (spec->flow_control.on && spec->flow_control.sheddable_waits)) {
        buf_add_char(out, '\n');
        return;
    }
    buf_printf(out, ": sheddable ones are refused, to be sent again after %" PRIu64 " s\n",
               spec->retry_after_s);
}

/* "5000 requests, 1000000000 bytes", or "any number" */
static void print_queue_limits(uint64_t max_requests, uint64_t max_bytes, struct buf *out) {
    const char *separator = "";
    if (max_requests != FLOW_UNLIMITED) {
        buf_printf(out, "%" PRIu64 " request%s", max_requests, plural_s(max_requests));
        separator = ", ";
    }
    if (max_bytes != FLOW_UNLIMITED) {
        buf_printf(out, "%s%" PRIu64 " bytes", separator, max_bytes);
        separator = ", ";
    }
    buf_printf(out, "%s", *separator ? "" : "any number");
}

static void print_max_wait(uint64_t max_wait_ns, struct buf *out) {
    if (max_wait_ns == POOL_WAIT_FOREVER) {
        buf_printf(out, "for any time");
    } else {
        buf_printf(out, "for %g s at most", seconds(max_wait_ns));
    }
}

static void print_band(const struct pool_flow_control *flow, const struct flow_band_rules *rules,
                       struct buf *out) {
    bool is_deepest = flow->programs.strategy == PROGRAMS_DEEPEST;
    print_queue_limits(rules->max_requests, rules->max_bytes, out);
    if (rules->max_wait_ns > 0) {
        buf_printf(out, ", ");
        print_max_wait(rules->max_wait_ns, out);
    }
    buf_printf(out, "%s%s\n",
               rules->fairness == FLOW_GLOBAL_STRICT ? ", without regard to fairness ids"
               : rules->fairness != FLOW_BY_PROGRAM  ? ""
               : is_deepest                          ? ", the fairness id with the most turns first"
                                                     : ", the least served fairness id first",
               rules->ordering == FLOW_BY_DEADLINE ? ", by deadline" : "");
}

/* Whether it is what holds where nothing is configured. */
static bool is_plain(const struct flow_band_rules *rules) {
    return rules->max_requests == FLOW_UNLIMITED && rules->max_bytes == FLOW_UNLIMITED &&
           rules->max_wait_ns == 0 && rules->fairness == FLOW_ROUND_ROBIN &&
           rules->ordering == FLOW_BY_ARRIVAL;
}

static void print_usage_limit(const struct usage_limit *limit, struct buf *out) {
    switch (limit->kind) {
    case USAGE_WHOLE:
        break;
    case USAGE_STATIC:
        buf_printf(out, "  each may use %g of the capacity\n", limit->max_ceiling);
        break;
    case USAGE_HOLDBACK_RANK:
    case USAGE_HOLDBACK_VALUE:
        buf_printf(out, "  the highest may use %g of the capacity, the lowest %g, by %s\n",
                   limit->max_ceiling, limit->min_ceiling,
                   limit->kind == USAGE_HOLDBACK_RANK ? "rank" : "value");
        break;
    case USAGE_SOFT_REFLECTIVE:
        buf_printf(out, "  lower ones are admitted less and less above a share of the capacity\n");
        break;
    }
}

static void print_flow_control(const struct pool_flow_control *flow, struct buf *out) {
    if (!flow->on) {
        return;
    }
    print_label(out, "queue");
    buf_printf(out, "%s wait then, ", flow->sheddable_waits ? "requests" : "others");
    print_max_wait(flow->max_wait_ns, out);
    buf_printf(out, ": ");
    print_queue_limits(flow->limits.max_requests, flow->limits.max_bytes, out);
    buf_add_char(out, '\n');
    for (size_t i = 0; i < flow->limits.n_bands; i++) {
        buf_printf(out, "  of priority %" PRId64 ": ", flow->limits.bands[i].priority);
        print_band(flow, &flow->limits.bands[i], out);
    }
    if (flow->limits.negative) {
        buf_printf(out, "  of each other below 0: ");
        print_band(flow, flow->limits.negative, out);
    }
    if (flow->limits.others && !is_plain(flow->limits.others)) {
        buf_printf(out, "  of each other: ");
        print_band(flow, flow->limits.others, out);
    }
    print_usage_limit(&flow->usage, out);
    if (flow->evicts) {
        buf_printf(out, "  sheddable ones that run are ended for others of a higher priority\n");
    }
    if (flow->no_endpoint_wait_ns > 0) {
        buf_printf(out, "  while no endpoint is ready: ");
        print_max_wait(flow->no_endpoint_wait_ns, out);
        buf_add_char(out, '\n');
    }
}

static void print_admitter(const struct pool_admitter *admitter, struct buf *out) {
    if (admitter->on) {
        print_label(out, "admission");
        buf_printf(out,
                   "sheddable requests are refused with the probability %g * load^%g, of %g "
                   "waiting or %g of the KV cache\n",
                   admitter->k, admitter->power, admitter->queue_depth, admitter->kv_cache);
    }
}

static void print_outlier_detection(const struct pool_outlier_detection *outliers,
                                    struct buf *out) {
    const char * or = "after ";
    print_label(out, "outliers");
    if (outliers->max_ejection_percent == 0) {
        buf_printf(out, "are not ejected\n");
        return;
    }
    buf_printf(out, "are ejected ");
    if (outliers->consecutive_5xx > 0) {
        buf_printf(out, "%s%" PRIu64 " responses 5xx in a row", or, outliers->consecutive_5xx);
        or = " or ";
    }
    if (outliers->consecutive_gateway_failure > 0) {
        buf_printf(out, "%s%" PRIu64 " gateway failures in a row", or,
                   outliers->consecutive_gateway_failure);
        or = " or ";
    }
    if (outliers->failure_percentage_threshold > 0) {
        buf_printf(out, "%s%" PRIu64 " %% failures of %" PRIu64 " or more in %g s", or,
                   outliers->failure_percentage_threshold,
                   outliers->failure_percentage_request_volume, seconds(outliers->interval_ns));
    }
    buf_printf(out, ", for %g s to %g s, at most %" PRIu64 " %% of the endpoints\n",
               seconds(outliers->base_ejection_time_ns), seconds(outliers->max_ejection_time_ns),
               outliers->max_ejection_percent);
}

/* `kind`: what they are in the profile, as some plugins are of two kinds. */
static void print_steps(const struct profile_step *steps, size_t n, enum plugin_kind kind,
                        struct buf *out) {
    for (size_t i = 0; i < n; i++) {
        const struct profile_step *step = &steps[i];
        print_item(out, step->name);
        if (!str_is(step->name, step->plugin->type)) {
            buf_printf(out, "%s, ", step->plugin->type);
        }
        buf_printf(out, "%s", plugin_kind_name(kind));
        if (kind == PLUGIN_SCORER) {
            buf_printf(out, ", weight %g", (double)step->weight);
        }
        buf_add_char(out, '\n');
    }
}

static void print_profile(const struct profile *profile, bool named, struct buf *out) {
    print_label(out, "profile");
    if (named) {
        buf_printf(out, "%.*s\n", STR_ARG(profile->name));
    } else {
        buf_printf(out, "%s\n",
                   profile ? "as configured" : "fewest requests in flight; with scraped loads:");
    }
    profile = profile ? profile : &PROFILE_DEFAULT;
    print_steps(profile->filters, profile->n_filters, PLUGIN_FILTER, out);
    print_steps(profile->scorers, profile->n_scorers, PLUGIN_SCORER, out);
    print_steps(&profile->picker, 1, PLUGIN_PICKER, out);
}

/* "prefill     profile prefill, if ..." */
static void print_stage(const struct profile_handler *handler, enum stage_role role,
                        struct buf *out) {
    const struct handler_stage *stage = &handler->stages[role];
    const struct stage_decider *decider = &stage->decider;
    if (!stage->profile) {
        return;
    }
    print_item(out, str_of(stage_role_name(role)));
    buf_printf(out, "profile %.*s", STR_ARG(stage->profile->name));
    if (role != STAGE_DECODE) {
        buf_printf(out, ", %s", decider_kind_name(decider->kind));
    }
    if (decider->kind == DECIDER_PREFIX) {
        buf_printf(out, ": %u tokens or more, of a prompt of %u or more",
                   decider->non_cached_tokens, decider->prompt_tokens);
    }
    end_line(out);
}

static void print_handler(const struct profile_handler *handler, struct buf *out) {
    enum stage_role order[N_STAGE_ROLES];
    print_label(out, "handler");
    buf_printf(out, "%.*s", STR_ARG(handler->type));
    if (handler->header.ptr) {
        buf_printf(out, ": the header %.*s names the profile, by default %.*s",
                   STR_ARG(handler->header), STR_ARG(handler->default_profile));
    }
    if (handler->primary_port != 0) {
        buf_printf(out, ": requests are sent to port %u of the picked endpoint",
                   handler->primary_port);
    }
    end_line(out);
    profile_handler_order(handler, order);
    for (size_t i = 0; i < N_STAGE_ROLES && !handler->header.ptr; i++) {
        print_stage(handler, order[i], out);
    }
    if (handler->stages[STAGE_PREFILL].profile || handler->stages[STAGE_ENCODE].profile) {
        print_item(out, STR("missingStage"));
        buf_printf(out, "a request whose prefill or encode has no endpoint %s\n",
                   handler->refuses ? "is refused" : "does without it");
    }
}

static void print_profiles(const struct pool_spec *spec, struct buf *out) {
    if (!spec->handler) {
        print_profile(spec->profile, false, out);
        return;
    }
    print_handler(spec->handler, out);
    for (size_t i = 0; i < spec->handler->n_profiles; i++) {
        print_profile(&spec->handler->profiles[i], true, out);
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

static void print_targets(struct pool_targets targets, struct buf *out) {
    uint64_t total = 0;
    for (size_t i = 0; i < targets.n; i++) {
        total += targets.items[i].weight;
    }
    for (size_t i = 0; i < targets.n; i++) {
        const struct pool_target *target = &targets.items[i];
        buf_printf(out, "%s%.*s", i > 0 ? ", " : "", STR_ARG(target->model));
        if (targets.n > 1) {
            buf_printf(out, " %.4g %%",
                       total > 0 ? 100.0 * (double)target->weight / (double)total : 0.0);
        }
    }
    buf_printf(out, "%s", targets.n > 0 && total == 0 ? " (refused: no weight)" : "");
    end_line(out);
}

static void print_models(const struct pool_spec *spec, struct buf *out) {
    print_label(out, "models");
    buf_printf(out, "%zu; a request for another is %s\n", spec->n_models,
               spec->strict_models ? "refused" : "passed on");
    for (size_t i = 0; i < spec->n_models; i++) {
        const struct pool_model *model = &spec->models[i];
        print_item(out, model->name);
        buf_printf(out, "%s%s", pool_criticality_name(model->criticality),
                   model->targets.n > 0 ? ", sent as " : "");
        print_targets(model->targets, out);
    }
    if (spec->model_paths) {
        print_label(out, "named in");
        buf_printf(out, "%zu path%s, the bodies of POST requests to which name the model\n",
                   spec->n_model_paths, plural_s(spec->n_model_paths));
        for (size_t i = 0; i < spec->n_model_paths; i++) {
            buf_printf(out, "  …%.*s\n", STR_ARG(spec->model_paths[i]));
        }
    }
}

/* Upstream's parsers, where they are listed. */
static void print_parsers(unsigned parsers, struct buf *out) {
    bool is_first = true;
    if (parsers == 0 || parsers == MODEL_PARSERS_DEFAULT) {
        return;
    }
    print_label(out, "bodies");
    for (size_t i = 0; i < N_PICKER_PARSERS; i++) {
        if ((parsers & PICKER_PARSERS[i].bit) &&
            PICKER_PARSERS[i].bit != MODEL_PARSER_PASSTHROUGH) {
            buf_printf(out, "%s%s", is_first ? "as " : ", ", PICKER_PARSERS[i].type);
            is_first = false;
        }
    }
    bool passes = (parsers & MODEL_PARSER_PASSTHROUGH) != 0;
    buf_printf(out, "%s\n",
               is_first ? "not read"
               : passes ? "; requests to other paths are passed on"
                        : "; requests to other paths are refused");
}

static void print_rewrites(const struct pool_spec *spec, struct buf *out) {
    print_label(out, "rewrites");
    buf_printf(out, "%zu\n", spec->n_rewrites);
    for (size_t i = 0; i < spec->n_rewrites; i++) {
        const struct pool_rewrite *rewrite = &spec->rewrites[i];
        for (size_t k = 0; k < rewrite->n_models; k++) {
            print_item(out, rewrite->models[k]);
            print_targets(rewrite->targets, out);
        }
        if (rewrite->n_models == 0) {
            print_item(out, STR("(every unknown name)"));
            print_targets(rewrite->targets, out);
        }
    }
}

static void print_objectives(const struct pool_spec *spec, struct buf *out) {
    print_label(out, "objectives");
    buf_printf(out, "%zu\n", spec->n_objectives);
    for (size_t i = 0; i < spec->n_objectives; i++) {
        const struct pool_objective *objective = &spec->objectives[i];
        print_item(out, objective->name);
        buf_printf(out, "priority %" PRId64 "%s\n", objective->priority,
                   objective->priority < 0 ? ", sheddable" : "");
    }
}

/* ---- the protocol ---------------------------------------------------------------------------- */

static void print_text(struct str text, struct buf *out) {
    buf_add_str(out, text);
    end_line(out);
}

static void print_headers(struct protocol_headers headers, struct buf *out) {
    for (size_t i = 0; i < headers.n; i++) {
        buf_printf(out, "%s%.*s", i > 0 ? ", " : "", STR_ARG(headers.names[i]));
    }
    end_line(out);
}

#define PRINT_HEADER print_text
#define PRINT_HEADERS print_headers
#define PRINT_KEY print_text
#define PRINT_COOKIE print_text

static void print_protocol(const struct protocol *protocol, struct buf *out) {
    print_label(out, "fallback");
    switch (protocol->fallback) {
    case FALLBACK_NONE:
        buf_printf(out, "none\n");
        break;
    case FALLBACK_KEY:
        buf_printf(out, "the next best, in a key of its own\n");
        break;
    case FALLBACK_LIST:
        buf_printf(out, "up to %zu more, in one list with the first\n", protocol->n_fallbacks);
        break;
    }
    print_label(out, "protocol");
    buf_printf(out, "%s",
               protocol->conformance          ? "with the headers of conformance tests"
               : protocol->send_served_header ? "with the response header of conformance tests"
                                              : "");
    end_line(out);
#define NAME(field, kind, preset, help)                                                            \
    print_item(out, STR(#field));                                                                  \
    PRINT_##kind(protocol->field, out);
#include "pick/pool/endpoint/protocol.def"
#undef NAME
}

void pool_spec_print(const struct pool_spec *spec, struct buf *out) {
    if (spec->name.len > 0) {
        print_label(out, "pool");
        print_text(spec->name, out);
    }
    print_endpoints(spec, out);
    dns_plan_print(spec, out);
    print_health(&spec->health, out);
    scrape_plan_print("loads", spec->scrape, out);
    if (spec->scrape_gpus) {
        scrape_plan_print("gpus", spec->scrape_gpus, out);
    }
    print_saturation(spec, out);
    print_flow_control(&spec->flow_control, out);
    print_admitter(&spec->admitter, out);
    print_label(out, "refused");
    buf_printf(out, "an endpoint that refused a connection is avoided for %g s\n",
               seconds(spec->refused_ns));
    print_outlier_detection(&spec->outlier_detection, out);
    print_profiles(spec, out);
    print_models(spec, out);
    print_parsers(spec->parsers, out);
    print_rewrites(spec, out);
    print_objectives(spec, out);
    print_protocol(&spec->protocol, out);
    for (size_t i = 0; i < spec->n_notes; i++) {
        print_label(out, i == 0 ? "notes" : "");
        buf_printf(out, "%.*s (%s)\n", STR_ARG(spec->notes[i].setting), spec->notes[i].why);
    }
}

void pool_specs_print(const struct pool_specs *specs, struct buf *out) {
    for (size_t i = 0; i < specs->n; i++) {
        const struct pool_spec *spec = specs->items[i];
        if (specs->is_list) {
            buf_printf(out, "%s--- pool %zu of %zu\n", i > 0 ? "\n" : "", i + 1, specs->n);
            print_label(out, "takes");
            pool_match_print(&spec->match, out);
            buf_add_char(out, '\n');
        }
        pool_spec_print(spec, out);
    }
}
