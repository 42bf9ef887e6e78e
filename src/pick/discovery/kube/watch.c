/* One watched collection of the API server. Requests follow each other: the pages of a list, then
 * watches, each from the version where the last one ended. After failures a list comes first, as
 * events may have been missed; a watch that is lost once is resumed at once before that counts as a
 * failure.
 *
 * Callbacks of the owner may stop the watch, so `stopped` is checked after each. */
#include "pick/discovery/kube/watch.h"

#include <stdlib.h>
#include <string.h>

#include "codec/kube/stream.h"
#include "core/base/backoff.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/event/lock.h"

static const uint64_t NS_PER_S = 1000000000;

enum { KUBE_VERSION_BYTES = 256 };

struct kube_watch {
    struct kube_watch_options options;
    char *name;       /* the resource, for messages: "pods", "inferencepools.inference…" */
    char *path;       /* of the collection */
    char *query;      /* the selectors: "&labelSelector=…" */
    struct lock lock; /* guards `state`, which other threads read */
    struct kube_watch_status state;
    struct kube_call *call; /* the running request; NULL: none */
    struct timer timer;     /* the next request, or the next check of a watch */
    struct prng prng;
    bool stopped;
    /* Of the list: */
    bool listing;      /* the running or next request is a list */
    unsigned page;     /* objects in a page */
    char *next_page;   /* the server's continue token; NULL: the first page */
    bool was_served;   /* of the last list */
    unsigned n_absent; /* 404 responses in a row */
    /* Of the watch: */
    char version[KUBE_VERSION_BYTES];
    struct kube_stream stream;
    uint64_t started_ns, heard_ns; /* when it started; when the last byte arrived */
    bool watch_failed;             /* since a watch was stable */
    unsigned n_failures_in_row;    /* the same */
};

static void kube_watch_send_request(struct kube_watch *watch);
static void kube_watch_relist(struct kube_watch *watch);
static void kube_watch_on_silence(struct kube_watch *watch);

enum { PAGE = 500, OBJECT_BYTES = 4 << 20, PAGE_BYTES = 32 << 20, WATCH_S = 300 };
enum { OK = 200, MAX_RETRY_RATIO = 30 };
static const uint64_t LIST_TIMEOUT_NS = 60000000000;
/* Beyond the timeout that the server applies to a watch. */
static const uint64_t SLACK_NS = 30000000000;
/* The server sends bookmarks about once a minute. A watch that receives nothing for this time is
 * replaced. */
static const uint64_t SILENCE_NS = 150000000000;
/* A watch is stable after this fraction of SILENCE_NS, which is longer than connecting may take. */
enum { STABLE_FRACTION = 12 };

const char *const KUBE_PHASE_TEXTS[] = {
    [KUBE_LISTING] = "listing", [KUBE_WATCHING] = "watching", [KUBE_NOT_SERVED] = "not served",
    [KUBE_DENIED] = "denied",   [KUBE_FAILING] = "failing",
};

/* ---- state ----------------------------------------------------------------------------------- */

static const struct line {
    enum log_level level;
    const char *event;
} LINES[] = {
    [KUBE_LISTING] = {LOG_INFO, "Kubernetes objects are being listed"},
    [KUBE_WATCHING] = {LOG_INFO, "Kubernetes objects are watched"},
    [KUBE_NOT_SERVED] = {LOG_INFO, "Kubernetes objects not served by the cluster"},
    [KUBE_DENIED] = {LOG_WARNING, "API server denies access: known objects are kept"},
    [KUBE_FAILING] = {LOG_WARNING, "API server request failed: known objects are kept"},
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

static void kube_watch_set_phase(struct kube_watch *watch, enum kube_phase phase,
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

static void kube_watch_set_fresh(struct kube_watch *watch, bool event) {
    lock_acquire(&watch->lock);
    watch->state.heard_ns = clock_now_ns();
    watch->state.n_events += event;
    lock_release(&watch->lock);
}

static void kube_watch_reset_back_off(struct kube_watch *watch) {
    watch->n_failures_in_row = 0;
    watch->watch_failed = false;
    kube_watch_set_phase(watch, KUBE_WATCHING, NULL);
}

void kube_watch_report(struct kube_watch *watch, struct kube_watch_status *out) {
    lock_acquire(&watch->lock);
    *out = watch->state;
    lock_release(&watch->lock);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void set_timer(struct kube_watch *watch, uint64_t due_ns) {
    timer_start(worker_timers(watch->options.worker), &watch->timer, due_ns);
}

static void kube_watch_send_request_in(struct kube_watch *watch, uint64_t wait_ns) {
    if (!watch->stopped) {
        set_timer(watch, clock_now_ns() + wait_ns);
    }
}

uint64_t kube_watch_back_off_ns(struct prng *prng, uint64_t first_ns, unsigned n_failures) {
    uint64_t wait_ns = backoff_wait(first_ns, MAX_RETRY_RATIO * first_ns, n_failures);
    return wait_ns - wait_ns / 4 + prng_share(prng, wait_ns / 2);
}

static void schedule_check(struct kube_watch *watch) {
    uint64_t silence_ns = watch->options.silence_ns, lasts_ns = silence_ns / STABLE_FRACTION;
    bool young = clock_now_ns() - watch->started_ns < lasts_ns;
    set_timer(watch, young ? watch->started_ns + lasts_ns : watch->heard_ns + silence_ns);
}

/* Checks whether the running watch is stable, or silent for too long. A watch without a response
 * status may still be queued by the server, and says nothing about it. */
static void check_watch(struct kube_watch *watch) {
    uint64_t now_ns = clock_now_ns(), silence_ns = watch->options.silence_ns;
    if (watch->listing) {
        return;
    }
    if (now_ns - watch->heard_ns >= silence_ns) {
        kube_watch_on_silence(watch);
        return;
    }
    if (now_ns - watch->started_ns >= silence_ns / STABLE_FRACTION &&
        kube_call_status(watch->call) == OK) {
        kube_watch_reset_back_off(watch);
    }
    if (!watch->stopped) {
        schedule_check(watch);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct kube_watch *watch = CONTAINER_OF(timer, struct kube_watch, timer);
    if (watch->call) {
        check_watch(watch);
    } else {
        kube_watch_send_request(watch);
    }
}

enum { GONE = 410, NOT_FOUND = 404, UNAUTHORIZED = 401, FORBIDDEN = 403, BAD_REQUEST = 400 };
enum { MAX_PAGE = 100000, MAX_ABSENT = 3 };
static const uint64_t MAX_RETRY_NS = 300000000000;
/* Watches of a server all end when it restarts: requests are spread over this time. */
static const uint64_t SPREAD_NS = 250000000;

/* ---- failures -------------------------------------------------------------------------------- */

static void kube_watch_on_failure(struct kube_watch *watch, const struct kube_response *answer) {
    bool denied = answer->status == UNAUTHORIZED || answer->status == FORBIDDEN;
    uint64_t wait_ns = answer->retry_after_ns;
    watch->n_failures_in_row++;
    watch->watch_failed = watch->watch_failed || (!watch->listing && answer->status != 0);
    kube_watch_relist(watch);
    lock_acquire(&watch->lock);
    watch->state.n_failures++;
    lock_release(&watch->lock);
    if (wait_ns > 0) {
        wait_ns = wait_ns < MAX_RETRY_NS ? wait_ns : MAX_RETRY_NS;
        wait_ns += prng_share(&watch->prng, wait_ns / 4);
    } else {
        wait_ns =
            kube_watch_back_off_ns(&watch->prng, watch->options.retry_ns, watch->n_failures_in_row);
    }
    kube_watch_send_request_in(watch, wait_ns);
    kube_watch_set_phase(watch, denied ? KUBE_DENIED : KUBE_FAILING, &answer->error);
}

/* The server no longer has the events since our version: everything is listed again, at once unless
 * that fails repeatedly. */
static void expire_version(struct kube_watch *watch) {
    uint64_t wait_ns = watch->n_failures_in_row == 0
                           ? prng_share(&watch->prng, SPREAD_NS)
                           : kube_watch_back_off_ns(&watch->prng, watch->options.retry_ns,
                                                    watch->n_failures_in_row);
    watch->n_failures_in_row++;
    kube_watch_relist(watch);
    kube_watch_send_request_in(watch, wait_ns);
    kube_watch_set_phase(watch, KUBE_LISTING, NULL);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void notify_list_begin(struct kube_watch *watch) {
    watch->options.on_list_begin(watch->options.user);
}

static void notify_list_end(struct kube_watch *watch) {
    lock_acquire(&watch->lock);
    watch->state.synced = true;
    watch->state.n_lists++;
    lock_release(&watch->lock);
    kube_watch_set_fresh(watch, false);
    watch->options.on_list_end(watch->options.user);
}

/* The server does not have the kind: an empty list, if that is new. */
static void on_not_found(struct kube_watch *watch, const struct kube_response *answer) {
    watch->n_absent++;
    if (watch->was_served && watch->n_absent < MAX_ABSENT) {
        kube_watch_on_failure(watch, answer);
        return;
    }
    kube_watch_relist(watch);
    watch->was_served = false;
    watch->n_failures_in_row = 0;
    if (watch->state.phase == KUBE_NOT_SERVED) {
        kube_watch_set_fresh(watch, false);
    } else {
        notify_list_begin(watch);
        if (!watch->stopped) {
            notify_list_end(watch);
        }
    }
    if (!watch->stopped) {
        uint64_t wait_ns = MAX_RETRY_RATIO * watch->options.retry_ns;
        kube_watch_send_request_in(watch,
                                   wait_ns - wait_ns / 8 + prng_share(&watch->prng, wait_ns / 4));
        kube_watch_set_phase(watch, KUBE_NOT_SERVED, NULL);
    }
}

static enum status check_page(const struct doc_node *items, struct str version, struct error *err) {
    struct doc_node item = {0};
    bool good = !doc_is_present(items) || doc_is_list(items);
    while (good && doc_is_present(items) && doc_next(items, &item)) {
        good = doc_is_object(&item);
    }
    if (!good) {
        return error_set(err, ST_BAD_ANSWER, "the API server sent no list of objects");
    }
    if (version.len == 0 || version.len >= KUBE_VERSION_BYTES) {
        return error_set(err, ST_BAD_ANSWER,
                         "the API server answered with a list without a resourceVersion");
    }
    return ST_OK;
}

static void set_version(struct kube_watch *watch, struct str version) {
    memcpy(watch->version, version.ptr, version.len);
    watch->version[version.len] = '\0';
}

/* After the last page. */
static void finish_list(struct kube_watch *watch, struct str version) {
    set_version(watch, version);
    watch->listing = false;
    watch->was_served = true;
    watch->page = watch->options.page;
    notify_list_end(watch);
    if (!watch->stopped && !watch->watch_failed) {
        kube_watch_set_phase(watch, KUBE_WATCHING, NULL);
    }
    kube_watch_send_request(watch);
}

static void on_page(struct kube_watch *watch, const struct kube_response *answer) {
    struct doc_node items = doc_get(&answer->object, "items");
    struct str next = kube_metadata_text(&answer->object, "continue");
    struct str version = kube_metadata_text(&answer->object, "resourceVersion");
    struct kube_response bad = {.status = answer->status};
    char *next_page = next.len > 0 ? str_dup(next) : NULL;
    enum status status = check_page(&items, version, &bad.error);
    if (status == ST_OK && next.len > 0 && !next_page) {
        status = error_no_memory(&bad.error, "a list of objects");
    }
    if (status != ST_OK) {
        free(next_page);
        kube_watch_on_failure(watch, &bad);
        return;
    }
    struct doc_node item = {0};
    if (!watch->next_page) {
        notify_list_begin(watch);
    }
    while (!watch->stopped && doc_is_present(&items) && doc_next(&items, &item)) {
        watch->options.on_object(watch->options.user, KUBE_LISTED, &item);
    }
    free(watch->next_page);
    watch->next_page = next_page;
    if (watch->stopped) {
        return;
    }
    if (next_page) {
        kube_watch_send_request(watch);
    } else {
        finish_list(watch, version);
    }
}

static void kube_watch_on_page(void *user, const struct kube_response *answer) {
    struct kube_watch *watch = user;
    watch->call = NULL;
    watch->n_absent = answer->status == NOT_FOUND ? watch->n_absent : 0;
    if (answer->error.status == ST_OK) {
        on_page(watch, answer);
    } else if (answer->error.status == ST_BODY_TOO_LARGE && watch->page > 1) {
        watch->page /= 2;
        kube_watch_send_request(watch);
    } else if (answer->status == NOT_FOUND) {
        on_not_found(watch, answer);
    } else if (answer->status ==
               GONE) { /* the list took too long for its continue token: larger pages next */
        watch->page = watch->page < MAX_PAGE / 4 ? 4 * watch->page : MAX_PAGE;
        expire_version(watch);
    } else {
        kube_watch_on_failure(watch, answer);
    }
}

/* ---- watches --------------------------------------------------------------------------------- */

static const enum kube_event EVENTS[] = {
    [KUBE_WATCH_ADDED] = KUBE_ADDED,
    [KUBE_WATCH_MODIFIED] = KUBE_MODIFIED,
    [KUBE_WATCH_DELETED] = KUBE_DELETED,
};

/* Ends the running request; the rest of its body is not read. */
static void cancel_call(struct kube_watch *watch) {
    kube_call_cancel(watch->call);
    watch->call = NULL;
}

/* An event with a Status object. */
static void on_error_event(struct kube_watch *watch, const struct kube_stream_event *event) {
    struct doc_node code = doc_get(&event->object, "code");
    struct str message = kube_member_text(&event->object, "message");
    struct kube_response answer = {.status = (int)json_whole(code.val)};
    cancel_call(watch);
    if (answer.status == GONE) {
        expire_version(watch);
        return;
    }
    error_set(&answer.error, ST_REFUSED, "the API server ends a watch, %d: %.*s", answer.status,
              STR_ARG(message));
    kube_watch_on_failure(watch, &answer);
}

static void on_event(struct kube_watch *watch, const struct kube_stream_event *event) {
    bool bookmark = event->type == KUBE_WATCH_BOOKMARK;
    set_version(watch, event->version);
    kube_watch_set_fresh(watch, !bookmark);
    if (watch->n_failures_in_row > 0 || watch->watch_failed) {
        kube_watch_reset_back_off(watch);
    }
    if (!bookmark && !watch->stopped) {
        watch->options.on_object(watch->options.user, EVENTS[event->type], &event->object);
    }
}

static void kube_watch_on_piece(void *user, struct str bytes) {
    struct kube_watch *watch = user;
    struct kube_call *call = watch->call;
    struct kube_stream_event event;
    struct kube_response bad = {.status = 200};
    watch->heard_ns = clock_now_ns();
    while (bytes.len > 0 && watch->call == call) {
        enum status status = kube_stream_step(&watch->stream, &bytes, &event, &bad.error);
        if (status == ST_OK && event.complete && event.version.len >= KUBE_VERSION_BYTES) {
            status = error_set(&bad.error, ST_BAD_ANSWER, "sent a resourceVersion of %zu bytes",
                               event.version.len);
        }
        if (status != ST_OK) {
            error_prefix(&bad.error, "the API server");
            cancel_call(watch);
            kube_watch_on_failure(watch, &bad);
        } else if (event.complete && event.type == KUBE_WATCH_ERROR) {
            on_error_event(watch, &event);
        } else if (event.complete) {
            on_event(watch, &event);
        }
    }
}

/* A watch has ended, regularly or not. */
static void watch_again(struct kube_watch *watch, const struct kube_response *answer) {
    if (watch->n_failures_in_row > 0) { /* the last one was not stable, either */
        kube_watch_on_failure(watch, answer);
        return;
    }
    watch->n_failures_in_row++;
    kube_watch_send_request_in(watch, prng_share(&watch->prng, SPREAD_NS));
}

static void kube_watch_on_silence(struct kube_watch *watch) {
    struct kube_response silent = {.status = kube_call_status(watch->call)};
    error_set(&silent.error, ST_DEADLINE_EXCEEDED, "the API server does not answer a watch");
    cancel_call(watch);
    watch_again(watch, &silent);
}

static void kube_watch_on_end(void *user, const struct kube_response *answer) {
    struct kube_watch *watch = user;
    struct kube_response ended = *answer;
    watch->call = NULL;
    if (answer->error.status == ST_OK) {
        if (clock_now_ns() - watch->started_ns >= watch->options.watch_s * NS_PER_S) {
            kube_watch_reset_back_off(watch); /* its full duration */
        }
        error_set(&ended.error, ST_BAD_ANSWER, "the API server ends watches at once");
        watch_again(watch, &ended);
    } else if (answer->status == GONE || answer->status == BAD_REQUEST) {
        expire_version(watch);
    } else if (answer->status == 200 || answer->error.status == ST_IO) {
        watch_again(watch, answer);
    } else {
        kube_watch_on_failure(watch, answer);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

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
        buf_printf(path, "%s?limit=%u%s", watch->path, watch->page, watch->query);
        if (watch->next_page) {
            buf_add_str(path, STR("&continue="));
            kube_query_print(path, str_of(watch->next_page));
        }
        ask.timeout_ns = LIST_TIMEOUT_NS;
        ask.max_bytes = most > PAGE_BYTES ? most : PAGE_BYTES;
        ask.done = kube_watch_on_page;
    } else {
        ask.timeout_ns = print_watch(watch, path) * NS_PER_S + SLACK_NS;
        ask.piece = kube_watch_on_piece;
        ask.done = kube_watch_on_end;
    }
    if (path->failed) {
        return error_no_memory(err, "an API server request");
    }
    ask.path = buf_str(path);
    return kube_call_start(watch->options.client, &ask, &watch->call, err);
}

static void kube_watch_send_request(struct kube_watch *watch) {
    struct kube_response none = {.status = 0};
    struct arena *arena = arena_new(worker_arenas(watch->options.worker), 0);
    struct buf path;
    if (watch->stopped) {
        arena_free(arena);
        return;
    }
    buf_init(&path, arena, arena ? 1024 : 0);
    kube_stream_fini(&watch->stream);
    watch->started_ns = watch->heard_ns = clock_now_ns();
    enum status status = arena ? begin_request(watch, &path, &none.error)
                               : error_no_memory(&none.error, "an API server request");
    arena_free(arena);
    if (status != ST_OK) {
        watch->call = NULL;
        kube_watch_on_failure(watch, &none);
    } else if (!watch->listing) {
        schedule_check(watch);
    } else {
        timer_stop(worker_timers(watch->options.worker), &watch->timer);
    }
}

static void kube_watch_relist(struct kube_watch *watch) {
    watch->listing = true;
    free(watch->next_page);
    watch->next_page = NULL;
}

/* ---- new, stop, free ------------------------------------------------------------------------- */

static void set_defaults(struct kube_watch_options *options) {
    options->page = options->page > 0 ? options->page : PAGE;
    options->object_bytes = options->object_bytes > 0 ? options->object_bytes : OBJECT_BYTES;
    options->watch_s = options->watch_s > 0 ? options->watch_s : WATCH_S;
    options->silence_ns = options->silence_ns > 0 ? options->silence_ns : SILENCE_NS;
    options->retry_ns = options->retry_ns > 0 ? options->retry_ns : NS_PER_S;
    options->label_selector = options->label_selector ? options->label_selector : "";
    options->field_selector = options->field_selector ? options->field_selector : "";
}

static void add_selector(struct buf *query, const char *name, const char *value) {
    if (*value != '\0') {
        buf_printf(query, "&%s=", name);
        kube_query_print(query, str_of(value));
    }
}

/* Makes path, query and name. Returns: false when out of memory. */
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
        return error_no_memory(err, "watching a cluster");
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
        return error_no_memory(err, "watching a cluster");
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
