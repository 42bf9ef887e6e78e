/* Watches of each kind of object, which fill a store. The lock guards the numbers that other
 * threads read; no callback runs with it held. */
#include "pick/discovery/kube/source.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/kube/stream.h"
#include "core/base/compiler.h"
#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "core/event/clock.h"
#include "core/event/lock.h"

static const uint64_t TOGETHER_NS = 5000000;
/* The pause after a notification, in times of its duration. */
enum { PAUSE_FACTOR = 9 };
static const uint64_t MAX_PAUSE_NS = UINT64_C(2000000000);

struct watched {
    struct kube_source *source;
    enum kube_kind kind;
    struct kube_watch *watch; /* NULL: not watched; under lock */
};

struct kube_source {
    struct kube_source_options options;
    struct kube_config *config; /* until the client takes it */
    char *server, *name_space, *selector;
    struct kube_store *store;
    struct worker *worker;
    struct kube_client *client;
    struct watched kinds[N_KUBE_KINDS];
    struct timer notify_timer;
    uint64_t notified_version; /* the store's version at the last notification */
    uint64_t not_before_ns;
    struct lock lock;
    struct kube_source_report report; /* without the watches' own numbers; under lock */
};

/* ---- notifications --------------------------------------------------------------------------- */

static void count_objects(struct kube_source *source) {
    struct kube_kind_counts counts[N_KUBE_KINDS];
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        kube_store_count(source->store, (enum kube_kind)kind, &counts[kind]);
    }
    lock_acquire(&source->lock);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        source->report.kinds[kind].counts = counts[kind];
    }
    source->report.group = kube_store_group(source->store);
    source->report.synced = kube_store_is_synced(source->store);
    lock_release(&source->lock);
}

static void notify_change(struct kube_source *source) {
    lock_acquire(&source->lock);
    source->report.n_changes++;
    lock_release(&source->lock);
    source->notified_version = kube_store_version(source->store);
    source->options.on_store_changed(source->options.user);
}

static void on_notify_timer(struct timer *timer) {
    struct kube_source *source = CONTAINER_OF(timer, struct kube_source, notify_timer);
    uint64_t begin_ns = clock_now_ns();
    count_objects(source);
    if (kube_store_is_synced(source->store) &&
        source->notified_version != kube_store_version(source->store)) {
        notify_change(source);
    }
    uint64_t end_ns = clock_now_ns();
    uint64_t pause_ns = PAUSE_FACTOR * (end_ns - begin_ns);
    source->not_before_ns = end_ns + (pause_ns < MAX_PAUSE_NS ? pause_ns : MAX_PAUSE_NS);
}

/* Schedules a notification, which covers the changes until then. */
static void schedule_change(struct kube_source *source) {
    uint64_t due_ns = clock_now_ns() + TOGETHER_NS;
    due_ns = due_ns > source->not_before_ns ? due_ns : source->not_before_ns;
    if (!timer_is_started(&source->notify_timer)) {
        timer_start(worker_timers(source->worker), &source->notify_timer, due_ns);
    }
}

/* ---- events of watches ----------------------------------------------------------------------- */

static void on_list_begin(void *user) {
    struct watched *watched = user;
    kube_store_list_begin(watched->source->store, watched->kind);
}

static void on_object(void *user, enum kube_event event, const struct doc_node *object) {
    struct watched *watched = user;
    (event == KUBE_DELETED ? kube_store_remove : kube_store_put)(watched->source->store,
                                                                 watched->kind, object);
    if (event != KUBE_LISTED) {
        schedule_change(watched->source);
    }
}

/* The kind may turn out not to be served, with an empty list: on_status follows at once then. */
static void on_list_end(void *user) {
    struct watched *watched = user;
    kube_store_list_end(watched->source->store, watched->kind, true);
    schedule_change(watched->source);
}

/* Returns: the kind counts as not served. Objects that were read before access was denied stay, as
 * it may be granted again. */
static bool is_missing(const struct watched *watched, enum kube_phase phase) {
    struct kube_kind_counts counts;
    kube_store_count(watched->source->store, watched->kind, &counts);
    return phase == KUBE_NOT_SERVED ||
           (phase == KUBE_DENIED && !counts.known && watched->kind != KUBE_POD);
}

static void on_status(void *user, const struct kube_watch_status *state) {
    struct watched *watched = user;
    struct kube_source *source = watched->source;
    if (is_missing(watched, state->phase)) {
        kube_store_skip_kind(source->store, watched->kind);
        schedule_change(source);
    }
    if (source->options.on_watch_status) {
        source->options.on_watch_status(source->options.user);
    }
}

/* ---- ports ----------------------------------------------------------------------------------- */

enum status kube_ports_parse(const char *text, struct kube_ports *out, struct error *err) {
    struct str rest = str_of(text);
    out->n = 0;
    while (rest.ptr) {
        uint64_t port = 0;
        struct str item = str_trim(str_cut(&rest, ','));
        if (!num_parse_u64(item, &port) || port < 1 || port > UINT16_MAX ||
            out->n == KUBE_MAX_PORTS) {
            return error_set(err, ST_BAD_CONFIG,
                             "expected 1 to %d ports of 1 to 65535, as 8000,8001, got \"%s\"",
                             KUBE_MAX_PORTS, text);
        }
        out->items[out->n++] = (uint16_t)port;
    }
    return ST_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum status copy_text(const char *text, char **out, struct error *err) {
    *out = strdup(text);
    return *out ? ST_OK : error_no_memory(err, "watching a cluster");
}

/* The name of the pool in the store. */
static const char *name_of(const struct kube_source *source) {
    return source->options.pool_name ? source->options.pool_name : "pods";
}

static enum status copy_texts(struct kube_source *source, struct error *err) {
    const char *name_space = source->options.pool_namespace;
    size_t n = sizeof("metadata.name=") + strlen(name_of(source));
    name_space = name_space ? name_space : kube_config_namespace(source->config);
    enum status st = copy_text(name_space ? name_space : "default", &source->name_space, err);
    if (st == ST_OK) {
        st = copy_text(kube_config_server(source->config), &source->server, err);
    }
    if (st == ST_OK) {
        source->selector = malloc(n);
        st = source->selector ? ST_OK : error_no_memory(err, "watching a cluster");
    }
    if (st == ST_OK) {
        snprintf(source->selector, n, "metadata.name=%s", name_of(source));
    }
    return st;
}

static void print_pool(const char *name, const struct kube_ports *ports, struct buf *out) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_open(&json, "metadata", '{');
    json_write_string(&json, "name", str_of(name));
    json_write_close(&json, '}');
    json_write_open(&json, "spec", '{');
    json_write_open(&json, "selector", '{');
    json_write_open(&json, "matchLabels", '{');
    json_write_close(&json, '}');
    json_write_close(&json, '}');
    json_write_open(&json, "targetPorts", '[');
    for (size_t i = 0; i < ports->n; i++) {
        json_write_open(&json, JSON_ELEMENT, '{');
        json_write_u64(&json, "number", ports->items[i]);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    json_write_close(&json, '}');
}

/* The store always needs an InferencePool. For --kube-pods this one is put in, which selects all
 * pods that are watched. */
static enum status put_pool(struct kube_source *source, struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct kube_ports ports;
    struct doc *doc = NULL;
    struct buf text;
    enum status st = kube_ports_parse(source->options.pod_ports, &ports, err);
    buf_init(&text, arena, arena ? 512 : 0);
    if (st == ST_OK) {
        print_pool(name_of(source), &ports, &text);
        st = text.failed ? error_no_memory(err, "watching a cluster")
                         : kube_object_parse(buf_str(&text), &doc, err);
    }
    if (st == ST_OK) {
        struct doc_node root = doc_root(doc);
        kube_store_list_begin(source->store, KUBE_POOL);
        kube_store_put(source->store, KUBE_POOL, &root);
        kube_store_list_end(source->store, KUBE_POOL, true);
    }
    doc_free(doc);
    arena_free(arena);
    return st;
}

static enum status make_watches(struct kube_source *source, struct error *err) {
    enum status st = kube_config_load(&source->options.config, &source->config, err);
    if (st == ST_OK) {
        st = copy_texts(source, err);
    }
    if (st != ST_OK) {
        return st;
    }
    struct kube_store_options store = {.name_space = source->name_space,
                                       .pool = name_of(source),
                                       .group = source->options.pool_group};
    source->report.server = source->server;
    source->report.name_space = source->name_space;
    source->report.pool = source->options.pool_name ? source->options.pool_name : "";
    source->report.pods = source->options.pod_selector;
    st = kube_store_new(&store, &source->store, err);
    return st == ST_OK && source->options.pod_selector ? put_pool(source, err) : st;
}

enum status kube_source_new(const struct kube_source_options *options, struct kube_source **out,
                            struct error *err) {
    struct kube_source *source = calloc(1, sizeof(*source));
    if (!source) {
        return error_no_memory(err, "watching a cluster");
    }
    source->options = *options;
    source->notify_timer.on_expire = on_notify_timer;
    lock_init(&source->lock);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        source->kinds[kind] = (struct watched){.source = source, .kind = (enum kube_kind)kind};
    }
    enum status st = make_watches(source, err);
    if (st != ST_OK) {
        kube_source_free(source);
        return st;
    }
    *out = source;
    return ST_OK;
}

enum status kube_source_set_worker(struct kube_source *source, struct worker *worker,
                                   struct error *err) {
    struct kube_config *config = source->config;
    source->config = NULL;
    source->worker = worker;
    return kube_client_new(worker, config, &source->client, err);
}

static enum status start_watch(struct watched *watched, struct error *err) {
    struct kube_source *source = watched->source;
    const struct kube_kind_info *info = &KUBE_KINDS[watched->kind];
    struct kube_watch_options options = {
        .worker = source->worker,
        .client = source->client,
        .resource = {.group = info->group,
                     .version = info->version,
                     .name = info->resource,
                     .name_space = source->name_space},
        .label_selector = watched->kind == KUBE_POD ? source->options.pod_selector : NULL,
        .field_selector = kube_kind_is_pool(watched->kind) ? source->selector : NULL,
        .on_list_begin = on_list_begin,
        .on_object = on_object,
        .on_list_end = on_list_end,
        .on_status = on_status,
        .user = watched,
    };
    struct kube_watch *watch;
    enum status st = kube_watch_new(&options, &watch, err);
    if (st == ST_OK) {
        lock_acquire(&source->lock);
        watched->watch = watch;
        lock_release(&source->lock);
    }
    return st;
}

static bool is_watched(const struct kube_source_options *options, enum kube_kind kind) {
    if (kube_kind_is_pool(kind)) {
        return !options->pod_selector &&
               (!options->pool_group || strcmp(options->pool_group, KUBE_KINDS[kind].group) == 0);
    }
    return kind == KUBE_POD || options->pool_name;
}

enum status kube_source_start(struct kube_source *source, struct error *err) {
    enum status st = ST_OK;
    for (int i = 0; i < N_KUBE_KINDS && st == ST_OK; i++) {
        enum kube_kind kind = (enum kube_kind)i;
        if (is_watched(&source->options, kind)) {
            st = start_watch(&source->kinds[kind], err);
        } else if (kind != KUBE_POOL || !source->options.pod_selector) {
            kube_store_skip_kind(source->store, kind);
        }
    }
    return st;
}

void kube_source_stop(struct kube_source *source, void (*done)(void *user), void *user) {
    timer_stop(worker_timers(source->worker), &source->notify_timer);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        if (source->kinds[kind].watch) {
            kube_watch_stop(source->kinds[kind].watch);
        }
    }
    kube_client_stop(source->client, done, user);
}

void kube_source_free(struct kube_source *source) {
    if (!source) {
        return;
    }
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        kube_watch_free(source->kinds[kind].watch);
    }
    kube_client_free(source->client);
    kube_config_free(source->config);
    kube_store_free(source->store);
    free(source->server);
    free(source->name_space);
    free(source->selector);
    lock_fini(&source->lock);
    free(source);
}

/* ---- reports --------------------------------------------------------------------------------- */

struct kube_client *kube_source_client(const struct kube_source *source) {
    return source->client;
}

const struct kube_store *kube_source_store(const struct kube_source *source) {
    return source->store;
}

void kube_source_report(struct kube_source *source, struct kube_source_report *out) {
    lock_acquire(&source->lock);
    *out = source->report;
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        struct kube_watch *watch = source->kinds[kind].watch;
        out->kinds[kind].watched = watch != NULL;
        if (watch) {
            kube_watch_report(watch, &out->kinds[kind].state);
        }
    }
    lock_release(&source->lock);
}

uint64_t kube_source_fresh_ns(const struct kube_source_report *report) {
    uint64_t oldest_ns = UINT64_MAX;
    for (int kind = 0; kind < N_KUBE_KINDS && report->synced; kind++) {
        const struct kube_source_kind *one = &report->kinds[kind];
        if (one->watched && one->state.heard_ns > 0 && one->state.heard_ns < oldest_ns) {
            oldest_ns = one->state.heard_ns;
        }
    }
    return oldest_ns < UINT64_MAX ? oldest_ns : 0;
}
