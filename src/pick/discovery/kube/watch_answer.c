/* What the server answers to lists and watches, and what that means for what is asked next. Whoever
 * is told may stop the watch from within: after each call that is looked at. */
#include <stdlib.h>
#include <string.h>

#include "core/event/clock.h"
#include "pick/discovery/kube/watch_state.h"

enum { GONE = 410, NOT_FOUND = 404, UNAUTHORIZED = 401, FORBIDDEN = 403, BAD_REQUEST = 400 };
enum { MOST_PAGE = 100000, MOST_ABSENT = 3 };
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t ABSENT_NS = 30000000000;
static const uint64_t MOST_RETRY_NS = 300000000000;
/* All watches of a server end together when it does. */
static const uint64_t SPREAD_NS = 250000000;

/* ---- failures -------------------------------------------------------------------------------- */

void kube_watch_on_failure(struct kube_watch *watch, const struct kube_response *answer) {
    bool denied = answer->status == UNAUTHORIZED || answer->status == FORBIDDEN;
    uint64_t wait_ns = answer->retry_after_ns;
    watch->n_turn++;
    watch->watch_failed = watch->watch_failed || (!watch->listing && answer->status != 0);
    kube_watch_relist(watch);
    lock_acquire(&watch->lock);
    watch->state.n_failures++;
    lock_release(&watch->lock);
    if (wait_ns > 0) {
        wait_ns = wait_ns < MOST_RETRY_NS ? wait_ns : MOST_RETRY_NS;
        wait_ns += kube_watch_jitter_ns(watch, wait_ns / 4);
    } else {
        wait_ns = kube_watch_back_off_ns(watch);
    }
    kube_watch_send_request_in(watch, wait_ns);
    kube_watch_set_phase(watch, denied ? KUBE_DENIED : KUBE_FAILING, &answer->error);
}

/* The server no longer has what follows: all is listed again, at once unless that is all that ever
 * happens. */
static void expire_version(struct kube_watch *watch) {
    uint64_t wait_ns =
        watch->n_turn == 0 ? kube_watch_jitter_ns(watch, SPREAD_NS) : kube_watch_back_off_ns(watch);
    watch->n_turn++;
    kube_watch_relist(watch);
    kube_watch_send_request_in(watch, wait_ns);
    kube_watch_set_phase(watch, KUBE_LISTING, NULL);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void tell_begin(struct kube_watch *watch) {
    watch->options.on_list_begin(watch->options.user);
}

static void tell_synced(struct kube_watch *watch) {
    lock_acquire(&watch->lock);
    watch->state.synced = true;
    watch->state.n_lists++;
    lock_release(&watch->lock);
    kube_watch_set_fresh(watch, false);
    watch->options.on_list_end(watch->options.user);
}

/* There is no such kind: an empty list, if that is new. */
static void on_not_found(struct kube_watch *watch, const struct kube_response *answer) {
    watch->n_absent++;
    if (watch->was_served && watch->n_absent < MOST_ABSENT) {
        kube_watch_on_failure(watch, answer);
        return;
    }
    kube_watch_relist(watch);
    watch->was_served = false;
    watch->n_turn = 0;
    if (watch->state.phase == KUBE_NOT_SERVED) {
        kube_watch_set_fresh(watch, false);
    } else {
        tell_begin(watch);
        if (!watch->stopped) {
            tell_synced(watch);
        }
    }
    if (!watch->stopped) {
        kube_watch_send_request_in(watch, ABSENT_NS - ABSENT_NS / 8 +
                                              kube_watch_jitter_ns(watch, ABSENT_NS / 4));
        kube_watch_set_phase(watch, KUBE_NOT_SERVED, NULL);
    }
}

static enum status check_page(const struct doc_node *items, struct str version, struct error *err) {
    struct doc_node item = {0};
    bool good = !doc_is_present(items) || yyjson_is_arr(items->val);
    while (good && doc_is_present(items) && doc_next(items, &item)) {
        good = yyjson_is_obj(item.val);
    }
    if (!good) {
        return error_set(err, ST_BAD_ANSWER, "the API server answered with no list of objects");
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

/* The last page is there. */
static void finish_list(struct kube_watch *watch, struct str version) {
    set_version(watch, version);
    watch->listing = false;
    watch->was_served = true;
    watch->n_absent = 0;
    watch->page = watch->options.page;
    tell_synced(watch);
    if (!watch->stopped && !watch->watch_failed) {
        kube_watch_set_phase(watch, KUBE_WATCHING, NULL);
    }
    kube_watch_send_request(watch);
}

static void tell_page(struct kube_watch *watch, const struct doc_node *items) {
    struct doc_node item = {0};
    if (!watch->next_page) {
        tell_begin(watch);
    }
    while (!watch->stopped && doc_is_present(items) && doc_next(items, &item)) {
        watch->options.on_object(watch->options.user, KUBE_LISTED, &item);
    }
}

static void on_page(struct kube_watch *watch, const struct kube_response *answer) {
    struct doc_node items = doc_get(&answer->object, "items");
    struct str next = kube_metadata_text(&answer->object, "continue");
    struct str version = kube_metadata_text(&answer->object, "resourceVersion");
    struct kube_response bad = {.status = answer->status};
    char *next_page = next.len > 0 ? str_dup(next) : NULL;
    enum status status = check_page(&items, version, &bad.error);
    if (status == ST_OK && next.len > 0 && !next_page) {
        status = error_set(&bad.error, ST_NO_MEMORY, "no memory for a list of objects");
    }
    if (status != ST_OK) {
        free(next_page);
        kube_watch_on_failure(watch, &bad);
        return;
    }
    tell_page(watch, &items);
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

void kube_watch_on_page(void *user, const struct kube_response *answer) {
    struct kube_watch *watch = user;
    watch->call = NULL;
    if (answer->error.status == ST_OK) {
        on_page(watch, answer);
    } else if (answer->error.status == ST_BODY_TOO_LARGE && watch->page > 1) {
        watch->page /= 2;
        kube_watch_send_request(watch);
    } else if (answer->status == NOT_FOUND) {
        on_not_found(watch, answer);
    } else if (answer->status == GONE) { /* it took too long: with fewer pages it won't */
        watch->page = watch->page < MOST_PAGE / 4 ? 4 * watch->page : MOST_PAGE;
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

/* Nothing more is read of what runs. */
static void cancel_call(struct kube_watch *watch) {
    kube_call_cancel(watch->call);
    watch->call = NULL;
}

/* A Status, as an event. */
static void on_error_event(struct kube_watch *watch, const struct kube_stream_event *event) {
    struct doc_node code = doc_get(&event->object, "code");
    struct str message = kube_member_text(&event->object, "message");
    struct kube_response answer = {.status = (int)yyjson_get_int(code.val)};
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
    if (watch->n_turn > 0 || watch->watch_failed) {
        kube_watch_reset_back_off(watch);
    }
    if (!bookmark && !watch->stopped) {
        watch->options.on_object(watch->options.user, EVENTS[event->type], &event->object);
    }
}

void kube_watch_on_piece(void *user, struct str bytes) {
    struct kube_watch *watch = user;
    struct kube_call *call = watch->call;
    struct kube_stream_event event;
    struct kube_response bad = {.status = 200};
    watch->heard_ns = clock_now_ns();
    while (bytes.len > 0 && watch->call == call) {
        enum status status = kube_stream_step(&watch->stream, &bytes, &event, &bad.error);
        if (status == ST_OK && event.complete && event.version.len >= KUBE_VERSION_BYTES) {
            status = error_set(&bad.error, ST_BAD_ANSWER, "told of a resourceVersion of %zu bytes",
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

/* A watch that was begun has ended, in good order or not. */
static void watch_again(struct kube_watch *watch, const struct kube_response *answer) {
    if (watch->n_turn > 0) { /* the last one did not last, either */
        kube_watch_on_failure(watch, answer);
        return;
    }
    watch->n_turn++;
    kube_watch_send_request_in(watch, kube_watch_jitter_ns(watch, SPREAD_NS));
}

void kube_watch_on_silence(struct kube_watch *watch) {
    struct kube_response silent = {.status = kube_call_status(watch->call)};
    error_set(&silent.error, ST_DEADLINE_EXCEEDED, "the API server says nothing of a watch");
    cancel_call(watch);
    watch_again(watch, &silent);
}

void kube_watch_on_end(void *user, const struct kube_response *answer) {
    struct kube_watch *watch = user;
    struct kube_response ended = *answer;
    watch->call = NULL;
    if (answer->error.status == ST_OK) {
        if (clock_now_ns() - watch->asked_ns >= watch->options.watch_s * NS_PER_S) {
            kube_watch_reset_back_off(watch); /* it is what was asked for */
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
