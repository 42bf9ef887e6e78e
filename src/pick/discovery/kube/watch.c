/* What is asked of the server, and when: pages of a list, then one watch after the other, each from
 * where the last one ended. After failures a list comes first: who knows what has become of the
 * server. A watch that is lost once is tried again at once before that counts as a failure. */
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "pick/discovery/kube/watch_state.h"

enum { PAGE = 500, OBJECT_BYTES = 4 << 20, PAGE_BYTES = 32 << 20, WATCH_S = 300 };
enum { MOST_TURNS = 5, GOOD = 200 };
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t LIST_TIMEOUT_NS = 60000000000;
static const uint64_t SLACK_NS = 30000000000; /* to the server's own end of a watch */
static const uint64_t MOST_BACK_OFF_NS = 30000000000;
/* Bookmarks come about once a minute. A server that says nothing for so long is asked again. */
static const uint64_t SILENCE_NS = 150000000000;
/* A watch lasts when it has for this part of that, which is longer than connecting may take. */
enum { LASTS_PART = 12 };

const char *const KUBE_PHASE_TEXTS[] = {
    [KUBE_LISTING] = "listing", [KUBE_WATCHING] = "watching", [KUBE_NOT_SERVED] = "not served",
    [KUBE_DENIED] = "denied",   [KUBE_FAILING] = "failing",
};

/* ---- what is known of it --------------------------------------------------------------------- */

static const struct line {
    enum log_level level;
    const char *event;
} LINES[] = {
    [KUBE_LISTING] = {LOG_INFO, "the cluster's objects are listed anew"},
    [KUBE_WATCHING] = {LOG_INFO, "the cluster's objects are watched"},
    [KUBE_NOT_SERVED] = {LOG_INFO, "the cluster has no such objects"},
    [KUBE_DENIED] = {LOG_WARNING, "the API server denies objects: what is known of them stays"},
    [KUBE_FAILING] = {LOG_WARNING, "the API server can't be asked: what is known stays"},
};

static void log_phase(const struct kube_watch *watch, enum kube_phase phase,
                      const struct error *err) {
    const struct line *line = &LINES[phase];
    if (err) {
        log_event(line->level, line->event, LOG_CSTR("resource", watch->name),
                  LOG_CSTR("reason", err->text));
    } else {
        log_event(line->level, line->event, LOG_CSTR("resource", watch->name));
    }
}

void kube_watch_set_phase(struct kube_watch *watch, enum kube_phase phase,
                          const struct error *err) {
    struct kube_watch_status *state = &watch->state;
    bool same = state->phase == phase && state->error.status == (err ? err->status : ST_OK) &&
                (!err || strcmp(state->error.text, err->text) == 0);
    if (same) {
        return;
    }
    lock_acquire(&watch->lock);
    state->phase = phase;
    state->error = err ? *err : (struct error){.status = ST_OK};
    lock_release(&watch->lock);
    log_phase(watch, phase, err);
    if (watch->options.on_status && !watch->stopped) {
        struct kube_watch_status copy = *state;
        watch->options.on_status(watch->options.user, &copy);
    }
}

void kube_watch_set_fresh(struct kube_watch *watch, bool event) {
    lock_acquire(&watch->lock);
    watch->state.heard_ns = clock_now_ns();
    watch->state.n_events += event;
    lock_release(&watch->lock);
}

void kube_watch_reset_back_off(struct kube_watch *watch) {
    watch->n_turn = 0;
    watch->watch_failed = false;
    kube_watch_set_phase(watch, KUBE_WATCHING, NULL);
}

void kube_watch_report(struct kube_watch *watch, struct kube_watch_status *out) {
    lock_acquire(&watch->lock);
    *out = watch->state;
    lock_release(&watch->lock);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void set_alarm(struct kube_watch *watch, uint64_t due_ns) {
    if (!timer_start(worker_timers(watch->options.worker), &watch->timer, due_ns)) {
        log_event(LOG_ERROR, "no memory for a timer: the cluster's objects are not watched",
                  LOG_CSTR("resource", watch->name));
    }
}

void kube_watch_send_request_in(struct kube_watch *watch, uint64_t wait_ns) {
    if (!watch->stopped) {
        set_alarm(watch, clock_now_ns() + wait_ns);
    }
}

uint64_t kube_watch_jitter_ns(struct kube_watch *watch, uint64_t most_ns) {
    return (uint64_t)(prng_double(&watch->prng) * (double)most_ns);
}

uint64_t kube_watch_back_off_ns(struct kube_watch *watch) {
    unsigned n_before = watch->n_turn > 0 ? watch->n_turn - 1 : 0;
    uint64_t wait_ns =
        n_before < MOST_TURNS ? NS_PER_S << n_before : MOST_BACK_OFF_NS; /* 1 s, 2 s … 16 s, 30 s */
    return wait_ns - wait_ns / 4 + kube_watch_jitter_ns(watch, wait_ns / 2);
}

static void look_later(struct kube_watch *watch) {
    uint64_t silence_ns = watch->options.silence_ns, lasts_ns = silence_ns / LASTS_PART;
    bool young = clock_now_ns() - watch->asked_ns < lasts_ns;
    set_alarm(watch, young ? watch->asked_ns + lasts_ns : watch->heard_ns + silence_ns);
}

/* Has the watch that runs begun well? Has it said anything? One that nobody has answered yet may
 * wait its turn, and says nothing of the server. */
static void look_at_watch(struct kube_watch *watch) {
    uint64_t now_ns = clock_now_ns(), silence_ns = watch->options.silence_ns;
    if (watch->listing) {
        return;
    }
    if (now_ns - watch->heard_ns >= silence_ns) {
        kube_watch_on_silence(watch);
        return;
    }
    if (now_ns - watch->asked_ns >= silence_ns / LASTS_PART &&
        kube_call_status(watch->call) == GOOD) {
        kube_watch_reset_back_off(watch);
    }
    if (!watch->stopped) {
        look_later(watch);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct kube_watch *watch =
        (struct kube_watch *)(void *)((char *)timer - offsetof(struct kube_watch, timer));
    if (watch->call) {
        look_at_watch(watch);
    } else {
        kube_watch_send_request(watch);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void print_list(struct kube_watch *watch, struct buf *path) {
    buf_printf(path, "%s?limit=%u%s", watch->path, watch->page, watch->query);
    if (watch->next_page) {
        buf_add_str(path, STR("&continue="));
        kube_query_print(path, str_of(watch->next_page));
    }
}

static unsigned print_watch(struct kube_watch *watch, struct buf *path) {
    unsigned least_s = watch->options.watch_s;
    unsigned seconds = least_s + prng_below(&watch->prng, least_s + 1);
    buf_printf(path, "%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=%u%s&resourceVersion=",
               watch->path, seconds, watch->query);
    kube_query_print(path, str_of(watch->version));
    return seconds;
}

static enum status begin_request(struct kube_watch *watch, struct buf *path, struct error *err) {
    struct kube_request ask = {.user = watch};
    if (watch->listing) {
        size_t most = watch->options.object_bytes;
        print_list(watch, path);
        ask.timeout_ns = LIST_TIMEOUT_NS;
        ask.max_bytes = most > PAGE_BYTES ? most : PAGE_BYTES;
        ask.done = kube_watch_on_page;
    } else {
        ask.timeout_ns = print_watch(watch, path) * NS_PER_S + SLACK_NS;
        ask.piece = kube_watch_on_piece;
        ask.done = kube_watch_on_end;
    }
    if (path->failed) {
        return error_set(err, ST_NO_MEMORY, "no memory for asking the API server");
    }
    ask.path = buf_str(path);
    return kube_call_start(watch->options.client, &ask, &watch->call, err);
}

void kube_watch_send_request(struct kube_watch *watch) {
    struct kube_response none = {.status = 0};
    struct arena *arena = arena_new(worker_arenas(watch->options.worker), 0);
    struct buf path;
    if (watch->stopped) {
        arena_free(arena);
        return;
    }
    buf_init(&path, arena, arena ? 1024 : 0);
    kube_stream_fini(&watch->stream);
    watch->asked_ns = watch->heard_ns = clock_now_ns();
    enum status status =
        arena ? begin_request(watch, &path, &none.error)
              : error_set(&none.error, ST_NO_MEMORY, "no memory for asking the API server");
    arena_free(arena);
    if (status != ST_OK) {
        watch->call = NULL;
        kube_watch_on_failure(watch, &none);
    } else if (!watch->listing) {
        look_later(watch);
    } else {
        timer_stop(worker_timers(watch->options.worker), &watch->timer);
    }
}

void kube_watch_relist(struct kube_watch *watch) {
    watch->listing = true;
    free(watch->next_page);
    watch->next_page = NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void set_defaults(struct kube_watch_options *options) {
    options->page = options->page > 0 ? options->page : PAGE;
    options->object_bytes = options->object_bytes > 0 ? options->object_bytes : OBJECT_BYTES;
    options->watch_s = options->watch_s > 0 ? options->watch_s : WATCH_S;
    options->silence_ns = options->silence_ns > 0 ? options->silence_ns : SILENCE_NS;
    options->label_selector = options->label_selector ? options->label_selector : "";
    options->field_selector = options->field_selector ? options->field_selector : "";
}

static void add_selector(struct buf *query, const char *name, const char *value) {
    if (*value != '\0') {
        buf_printf(query, "&%s=", name);
        kube_query_print(query, str_of(value));
    }
}

/* The texts of its own. Returns: false when out of memory. */
static bool print_texts(struct kube_watch *watch) {
    const struct kube_watch_options *options = &watch->options;
    const struct kube_resource *resource = &options->resource;
    struct arena *arena = arena_new(NULL, 0);
    struct buf name, path, query;
    if (!arena) {
        return false;
    }
    buf_init(&name, arena, 128);
    buf_init(&path, arena, 128);
    buf_init(&query, arena, 128);
    buf_printf(&name, "%s%s%s", resource->name, resource->group[0] ? "." : "", resource->group);
    kube_path_print(&path, resource, NULL, NULL);
    add_selector(&query, "labelSelector", options->label_selector);
    add_selector(&query, "fieldSelector", options->field_selector);
    bool printed = !name.failed && !path.failed && !query.failed;
    watch->name = printed ? str_dup(buf_str(&name)) : NULL;
    watch->path = printed ? str_dup(buf_str(&path)) : NULL;
    watch->query = printed ? str_dup(buf_str(&query)) : NULL;
    arena_free(arena);
    return watch->name && watch->path && watch->query;
}

enum status kube_watch_new(const struct kube_watch_options *options, struct kube_watch **out,
                           struct error *err) {
    struct kube_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return error_set(err, ST_NO_MEMORY, "no memory for watching a cluster");
    }
    lock_init(&watch->lock);
    watch->options = *options;
    set_defaults(&watch->options);
    watch->timer.on_expire = on_timer_expired;
    watch->prng.state = uv_hrtime() ^ (uint64_t)(uintptr_t)watch;
    watch->stream.max_event_bytes = watch->options.object_bytes;
    watch->listing = true;
    watch->page = watch->options.page;
    if (!print_texts(watch)) {
        kube_watch_free(watch);
        return error_set(err, ST_NO_MEMORY, "no memory for watching a cluster");
    }
    kube_watch_send_request_in(watch, 0);
    *out = watch;
    return ST_OK;
}

void kube_watch_stop(struct kube_watch *watch) {
    watch->stopped = true;
    timer_stop(worker_timers(watch->options.worker), &watch->timer);
    if (watch->call) {
        kube_call_cancel(watch->call);
        watch->call = NULL;
    }
}

void kube_watch_free(struct kube_watch *watch) {
    if (!watch) {
        return;
    }
    kube_watch_stop(watch);
    kube_stream_fini(&watch->stream);
    lock_fini(&watch->lock);
    free(watch->name);
    free(watch->path);
    free(watch->query);
    free(watch->next_page);
    free(watch);
}
