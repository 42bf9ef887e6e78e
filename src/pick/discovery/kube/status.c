/* Sends the store's status patches one after the other. When all are sent and the store has changed
 * since, a new list is made. */
#include "pick/discovery/kube/status.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/event/clock.h"

enum { BAD_REQUEST = 400, INVALID = 422, NOT_FOUND = 404, CONFLICT = 409, FORBIDDEN = 403 };
static const uint64_t NS_PER_S = 1000000000;
/* The minimum between two lists, in which the changes of the first arrive as events. */
enum { LEAST_S = 1, RETRY_S = 30, DENIED_S = 600 };

struct kube_status {
    struct kube_status_options options;
    struct arena *arena; /* of the list; NULL: nothing is being sent */
    struct kube_patch *patches;
    size_t n, next;
    struct kube_call *call;
    struct timer timer;
    struct prng prng;
    bool again, stopped;
    bool failed;                      /* a patch failed; the next list waits for RETRY_S */
    uint64_t denied_ns[N_KUBE_KINDS]; /* no patch is sent before; 0: allowed */
};

static void begin_list(struct kube_status *status);
static void send_next(struct kube_status *status);

/* The wait is random: of replicas with the same events one writes, and the others then find it
 * done. */
static void set_timer_in(struct kube_status *status, uint64_t seconds) {
    uint64_t wait_ns = seconds * NS_PER_S;
    wait_ns += prng_share(&status->prng, wait_ns);
    timer_start(worker_timers(status->options.worker), &status->timer, clock_now_ns() + wait_ns);
}

static void end_list(struct kube_status *status) {
    arena_free(status->arena);
    status->arena = NULL;
    if (status->failed || status->again) {
        set_timer_in(status, status->failed ? RETRY_S : LEAST_S);
    }
    status->again = status->failed = false;
}

/* Logs once for each kind in DENIED_S. */
static void log_denied(struct kube_status *status, enum kube_kind kind, const struct error *err) {
    status->denied_ns[kind] = clock_now_ns() + DENIED_S * NS_PER_S;
    log_event(LOG_INFO, "no permission to write the status of objects",
              LOG_CSTR("kind", KUBE_KINDS[kind].kind), LOG_CSTR("group", KUBE_KINDS[kind].group),
              LOG_CSTR("reason", err->text));
}

static void on_patch_failed(struct kube_status *status, const struct kube_patch *patch,
                            const struct error *err) {
    status->failed = true;
    log_event(LOG_WARNING, "the status of an object can't be written",
              LOG_CSTR("kind", KUBE_KINDS[patch->kind].kind), LOG_CSTR("name", patch->name.ptr),
              LOG_CSTR("reason", err->text));
}

/* A rejected patch does not stop the others; no connection does. */
static void on_answer(void *user, const struct kube_response *answer) {
    struct kube_status *status = user;
    const struct kube_patch *patch = &status->patches[status->next - 1];
    status->call = NULL;
    if (answer->status == FORBIDDEN) {
        log_denied(status, patch->kind, &answer->error);
    } else if (answer->status == CONFLICT) { /* the object has changed, and its event will follow */
        status->again = true;
    } else if (answer->error.status != ST_OK && answer->status != NOT_FOUND) {
        on_patch_failed(status, patch, &answer->error);
        status->next =
            answer->status == BAD_REQUEST || answer->status == INVALID ? status->next : status->n;
    }
    send_next(status);
}

static enum status send_patch(struct kube_status *status, const struct kube_patch *patch,
                              struct error *err) {
    const struct kube_kind_info *info = &KUBE_KINDS[patch->kind];
    struct kube_resource resource = {.group = info->group,
                                     .version = info->version,
                                     .name = info->resource,
                                     .name_space = status->options.name_space};
    struct kube_request ask = {.method = "PATCH",
                               .content_type = "application/merge-patch+json",
                               .body = patch->body,
                               .done = on_answer,
                               .user = status};
    struct buf path;
    buf_init(&path, status->arena, 256);
    kube_path_print(&path, &resource, patch->name.ptr, "status");
    ask.path = buf_str(&path);
    return path.failed ? error_no_memory(err, "a change")
                       : kube_call_start(status->options.client, &ask, &status->call, err);
}

static void send_next(struct kube_status *status) {
    struct error err;
    uint64_t now_ns = clock_now_ns();
    while (status->next < status->n &&
           now_ns < status->denied_ns[status->patches[status->next].kind]) {
        status->next++;
    }
    if (status->next == status->n) {
        end_list(status);
    } else if (send_patch(status, &status->patches[status->next++], &err) != ST_OK) {
        on_patch_failed(status, &status->patches[status->next - 1], &err);
        end_list(status);
    }
}

static void begin_list(struct kube_status *status) {
    char now[32];
    struct tm parts;
    time_t seconds = time(NULL);
    gmtime_r(&seconds, &parts);
    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &parts);
    status->arena = arena_new(worker_arenas(status->options.worker), 0);
    status->again = false;
    status->next = 0;
    status->n = 0;
    if (status->arena) {
        status->n = kube_store_patches(status->options.store, status->arena, now, &status->patches);
        send_next(status);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct kube_status *status = CONTAINER_OF(timer, struct kube_status, timer);
    if (!status->arena) {
        begin_list(status);
    }
}

void kube_status_update(struct kube_status *status) {
    if (status->stopped) {
        return;
    }
    if (status->arena) {
        status->again = true;
    } else if (!timer_is_started(&status->timer)) {
        set_timer_in(status, LEAST_S);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status kube_status_new(const struct kube_status_options *options, struct kube_status **out,
                            struct error *err) {
    struct kube_status *status = calloc(1, sizeof(*status));
    if (!status) {
        return error_no_memory(err, "the status of objects");
    }
    status->options = *options;
    status->timer.on_expire = on_timer_expired;
    status->prng.state = uv_hrtime() ^ (uint64_t)(uintptr_t)status;
    *out = status;
    return ST_OK;
}

void kube_status_pause(struct kube_status *status) {
    timer_stop(worker_timers(status->options.worker), &status->timer);
    if (status->call) {
        kube_call_cancel(status->call);
        status->call = NULL;
    }
    arena_free(status->arena);
    status->arena = NULL;
    status->again = status->failed = false;
}

void kube_status_stop(struct kube_status *status) {
    status->stopped = true;
    kube_status_pause(status);
}

void kube_status_free(struct kube_status *status) {
    if (status) {
        arena_free(status->arena);
        free(status);
    }
}
