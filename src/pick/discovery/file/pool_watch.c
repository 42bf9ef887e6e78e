/* Reads the pools from their file, flags and cluster, and publishes them, again when one of these
 * changes. */
#include "pick/discovery/file/pool_watch.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/must/must.h"
#include "core/os/watched_file.h"
#include "pick/config/dns_plan.h"
#include "pick/discovery/dns/watch.h"
#include "pick/discovery/file/endpoints_file.h"
#include "pick/discovery/file/pool_file.h"
#include "pick/discovery/kube/store.h"

struct pool_watch {
    struct pool_watch_options options;
    struct watched_file file;
    struct endpoints_file endpoints;
    struct pool_set *pools;
    char *text; /* of the file, as last published */
    size_t text_len;
    struct dns_watch *dns; /* NULL: names are not resolved */
};

/* Parses all texts. Without any there is one pool without endpoints. */
static enum status read_specs(const struct pool_watch_options *options, struct str text,
                              struct pool_specs *out, struct error *err) {
    struct pool_config_source sources[POOL_CONFIG_MAX_SOURCES];
    size_t n = 0;
    if (options->config) {
        sources[n++] = (struct pool_config_source){.name = options->config, .text = text};
    }
    if (options->config_text) {
        sources[n++] = (struct pool_config_source){.name = "--config-text",
                                                   .text = str_of(options->config_text)};
    }
    if (options->extra_config) {
        sources[n++] = (struct pool_config_source){
            .name = options->extra_config_flag ? options->extra_config_flag : "defaults",
            .text = str_of(options->extra_config),
            .is_default = !options->extra_config_flag};
    }
    if (n == 0) {
        sources[n++] = (struct pool_config_source){.name = "--endpoint", .text = STR("")};
    }
    return pool_file_parse_all(sources, n, options->errors, out, err);
}

static const char *name_of(const struct pool_watch_options *options) {
    return options->config ? options->config : "--config-text";
}

static enum status add_cluster(const struct pool_watch_options *options, struct pool_specs *specs,
                               struct error *err) {
    struct pool_spec *spec = specs->items[0];
    if (specs->is_list) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: has a list of pools, which can't be combined with --kube",
                         name_of(options));
    }
    if (spec->name.len > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: has an InferencePool; with --kube it is the cluster's",
                         name_of(options));
    }
    if (kube_store_is_synced(options->cluster)) {
        kube_store_add_to_spec(options->cluster, spec);
    }
    return ST_OK;
}

/* Adds what the specs name beside the texts: the pool's name and endpoints files. */
static enum status add_named(const struct pool_watch_options *options,
                             struct endpoints_file *endpoints, bool logs, struct pool_specs *specs,
                             struct error *err) {
    enum status st = ST_OK;
    if (!specs->is_list && options->name && specs->items[0]->name.len == 0) {
        specs->items[0]->name = pool_spec_dup_text(specs->items[0], str_of(options->name));
    }
    for (size_t i = 0; st == ST_OK && i < specs->n; i++) {
        struct pool_spec *spec = specs->items[i];
        if (spec->endpoints_file.path.len > 0 && specs->is_list) {
            st = error_set(err, ST_BAD_CONFIG,
                           "%s: file-discovery is for a file of one pool: beside `pools` each has "
                           "its `endpoints`",
                           name_of(options));
        } else {
            st = endpoints_file_add_to(endpoints, spec, logs, err);
        }
    }
    return st;
}

static void set_fallback(enum pool_watch_fallback fallback, struct protocol *protocol) {
    if (fallback != POOL_WATCH_FALLBACK_CONFIGURED) {
        protocol->fallback = fallback == POOL_WATCH_FALLBACK_NONE  ? FALLBACK_NONE
                             : fallback == POOL_WATCH_FALLBACK_KEY ? FALLBACK_KEY
                                                                   : FALLBACK_LIST;
        protocol->n_fallbacks = fallback == POOL_WATCH_FALLBACK_KEY ? 1 : protocol->n_fallbacks;
    }
}

/* Reads the specs and adds endpoints of their file, of the command line and of the cluster. `text`:
 * ptr NULL without a file. `logs`: entries of the endpoints file that are left out. */
static enum status make_specs(const struct pool_watch_options *options, struct str text,
                              struct endpoints_file *endpoints, bool logs, struct pool_specs *out,
                              struct error *err) {
    enum status st = read_specs(options, text, out, err);
    if (st == ST_OK && out->is_list && options->n_endpoints > 0) {
        st = error_set(err, ST_BAD_CONFIG,
                       "%s: has a list of pools, so that --endpoint %s belongs to none of them",
                       name_of(options), options->endpoints[0]);
    }
    if (st == ST_OK) {
        st = add_named(options, endpoints, logs, out, err);
    }
    for (size_t i = 0; st == ST_OK && i < options->n_endpoints; i++) {
        st = pool_file_add_endpoint(out->items[0], str_of(options->endpoints[i]), err);
    }
    if (st == ST_OK && options->cluster) {
        st = add_cluster(options, out, err);
    }
    for (size_t i = 0; st == ST_OK && i < out->n; i++) {
        set_fallback(options->fallback, &out->items[i]->protocol);
    }
    if (st != ST_OK) {
        pool_specs_free(out);
    }
    return st;
}

/* `now`: without waiting until two looks agree. Returns: ST_OK, with `*changed` false if the file
 * has the same content. */
static enum status read_file(struct watched_file *file, bool now, bool *changed,
                             struct error *err) {
    enum status st =
        now ? watched_file_read(file, changed, err) : watched_file_read_settled(file, changed, err);
    return st == ST_OK ? ST_OK : error_prefix(err, "%s", file->path);
}

enum status pool_watch_read(const struct pool_watch_options *options, struct pool_specs *out,
                            struct error *err) {
    struct watched_file file = {.path = options->config};
    struct endpoints_file endpoints = {.text = NULL};
    bool changed = false;
    enum status st = options->config ? read_file(&file, true, &changed, err) : ST_OK;
    if (st == ST_OK) {
        st = make_specs(options, watched_file_text(&file), &endpoints, true, out, err);
    }
    endpoints_file_clear(&endpoints);
    watched_file_clear(&file);
    return st;
}

enum status pool_watch_names_endpoints_file(const struct pool_watch_options *options, bool *out,
                                            struct error *err) {
    struct watched_file file = {.path = options->config};
    struct pool_specs specs;
    bool changed = false;
    enum status st = options->config ? read_file(&file, true, &changed, err) : ST_OK;
    *out = false;
    if (st == ST_OK) {
        st = read_specs(options, watched_file_text(&file), &specs, err);
    }
    watched_file_clear(&file);
    if (st == ST_OK) {
        *out = !specs.is_list && specs.items[0]->endpoints_file.path.len > 0;
        pool_specs_free(&specs);
    }
    return st;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static void log_notes(const struct pool_specs *specs) {
    for (size_t i = 0; i < specs->n; i++) {
        const struct pool_spec *spec = specs->items[i];
        for (size_t k = 0; k < spec->n_notes; k++) {
            log_event(LOG_INFO, "setting ignored, or applied in part",
                      LOG_STR("setting", spec->notes[k].setting),
                      LOG_CSTR("why", spec->notes[k].why));
        }
    }
}

/* Makes the pools from the text. `fresh`: the text is new, so its DNS names may be others. */
static enum status apply_text(struct pool_watch *watch, struct str text,
                              struct endpoints_file *endpoints, bool fresh, struct error *err) {
    struct pool_specs specs;
    enum status st = make_specs(&watch->options, text, endpoints, fresh, &specs, err);
    if (st != ST_OK) {
        return st;
    }
    if (watch->dns && fresh) {
        dns_watch_set_pools(watch->dns, &specs);
    }
    for (size_t i = 0; watch->dns && i < specs.n; i++) {
        dns_watch_add_endpoints(watch->dns, specs.items[i]);
    }
    if (fresh) {
        log_notes(&specs);
    }
    return pool_set_update(watch->pools, &specs, err);
}

static struct str text_of(const struct pool_watch *watch) {
    return str_make(watch->text, watch->text_len);
}

static bool has_endpoints(const struct pool_spec *spec) {
    return spec->n_endpoints > 0 || (spec->dns && spec->dns->n_names > 0);
}

static const struct pool_spec *find_spec(const struct pool_specs *specs, struct str name) {
    for (size_t i = 0; i < specs->n; i++) {
        if (str_eq(specs->items[i]->name, name)) {
            return specs->items[i];
        }
    }
    return NULL;
}

/* A file that lost its endpoints is taken for cut or empty by mistake, unless it says so. */
static enum status check_emptied(const struct pool_specs *before, const struct pool_specs *specs,
                                 struct error *err) {
    for (size_t i = 0; i < specs->n; i++) {
        const struct pool_spec *spec = specs->items[i];
        const struct pool_spec *old = find_spec(before, spec->name);
        if (!old || !has_endpoints(old) || has_endpoints(spec)) {
            continue;
        }
        if (!spec->is_empty_on_purpose) {
            return error_set(
                err, ST_BAD_CONFIG,
                "pool \"%.*s\" has no endpoints any more: `endpoints: []` says that it "
                "is to have none",
                STR_ARG(spec->name));
        }
        log_event(LOG_WARNING, "the pool's configuration removes all endpoints",
                  LOG_STR("pool", spec->name));
    }
    return ST_OK;
}

/* Compares the file that was read with the text in use. With a cluster the endpoints are its
 * pods. `endpoints`: of the file that was read. */
static enum status check_file(struct pool_watch *watch, struct str text,
                              struct endpoints_file *endpoints, struct error *err) {
    struct pool_specs before, specs;
    struct error unused;
    if (!watch->text || watch->options.cluster ||
        make_specs(&watch->options, text_of(watch), &watch->endpoints, false, &before, &unused) !=
            ST_OK) {
        return ST_OK;
    }
    enum status st = make_specs(&watch->options, text, endpoints, false, &specs, err);
    if (st == ST_OK) {
        st = check_emptied(&before, &specs, err);
        pool_specs_free(&specs);
    }
    pool_specs_free(&before);
    return st;
}

/* Makes the pools from the file that was read, and stores its text for later rebuilds. Where it is
 * refused, the endpoints file in use is followed on. */
static enum status take_file(struct pool_watch *watch, struct error *err) {
    struct str text = watched_file_text(&watch->file);
    struct endpoints_file endpoints;
    endpoints_file_dup(&endpoints, &watch->endpoints);
    enum status st = check_file(watch, text, &endpoints, err);
    if (st == ST_OK) {
        st = apply_text(watch, text, &endpoints, true, err);
    }
    if (st != ST_OK) {
        endpoints_file_clear(&endpoints);
    } else {
        endpoints_file_clear(&watch->endpoints);
        watch->endpoints = endpoints;
        free(watch->text);
        watch->text = must_dup(text.len > 0 ? text : STR(""), "the pool's configuration");
        watch->text_len = text.len;
    }
    return st;
}

enum status pool_watch_new(const struct pool_watch_options *options, struct pool_set *pools,
                           struct pool_watch **out, struct error *err) {
    struct pool_watch *watch = must_calloc(1, sizeof(*watch), "watching the pool's configuration");
    bool changed = false;
    watch->options = *options;
    watch->file.path = options->config;
    watch->pools = pools;
    enum status st = options->config ? read_file(&watch->file, true, &changed, err) : ST_OK;
    if (st == ST_OK) {
        st = take_file(watch, err);
    }
    watched_file_clear(&watch->file);
    if (st != ST_OK) {
        pool_watch_free(watch);
        return st;
    }
    *out = watch;
    return ST_OK;
}

void pool_watch_free(struct pool_watch *watch) {
    if (watch) {
        endpoints_file_clear(&watch->endpoints);
        free(watch->text);
        free(watch);
    }
}

static void log_failure(const struct error *err) {
    log_event(LOG_ERROR, "pool update failed: the previous pools stay in use",
              LOG_CSTR("reason", err->text));
}

void pool_watch_set_dns(struct pool_watch *watch, struct dns_watch *dns) {
    struct pool_specs specs;
    struct error err;
    watch->dns = dns;
    if (make_specs(&watch->options, text_of(watch), &watch->endpoints, false, &specs, &err) ==
        ST_OK) {
        dns_watch_set_pools(dns, &specs);
        pool_specs_free(&specs);
    } else {
        log_failure(&err);
    }
}

bool pool_watch_rebuild(struct pool_watch *watch) {
    struct error err;
    enum status st = apply_text(watch, text_of(watch), &watch->endpoints, false, &err);
    if (st != ST_OK) {
        log_failure(&err);
    }
    return st == ST_OK;
}

/* Counts and logs a changed file that was taken, or was not. */
static void report_change(const struct pool_watch *watch, const char *file, enum status st,
                          const struct error *err) {
    struct pool_stats numbers;
    if (st == ST_OK) {
        pool_set_get_stats(watch->pools, &numbers);
        metric_add(METRIC_RELOADS_POOL, 1);
        log_event(LOG_INFO, "the pool has changed", LOG_CSTR("file", file),
                  LOG_U64("generation", numbers.generation),
                  LOG_U64("endpoints", numbers.n_endpoints));
    } else {
        metric_add(METRIC_RELOAD_FAILURES_POOL, 1);
        log_event(LOG_ERROR, "pool configuration invalid: the previous one stays in use",
                  LOG_CSTR("reason", err->text));
    }
}

static bool check_config(struct pool_watch *watch, bool now) {
    bool changed = false;
    struct error err;
    enum status st = read_file(&watch->file, now, &changed, &err);
    if (st == ST_OK && changed) {
        st = take_file(watch, &err);
    }
    watched_file_clear(&watch->file);
    if (changed) {
        report_change(watch, watch->options.config, st, &err);
    }
    return changed && st == ST_OK;
}

static bool check_endpoints(struct pool_watch *watch, bool now) {
    bool changed = false;
    struct error err;
    enum status st = endpoints_file_check(&watch->endpoints, now, &changed, &err);
    if (st == ST_OK && changed) {
        st = apply_text(watch, text_of(watch), &watch->endpoints, true, &err);
    }
    if (changed) {
        report_change(watch, watch->endpoints.file.path, st, &err);
    }
    return changed && st == ST_OK;
}

bool pool_watch_check(struct pool_watch *watch, bool now) {
    bool published = watch->options.config && check_config(watch, now);
    return check_endpoints(watch, now) || published;
}
