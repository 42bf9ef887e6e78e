/* Runs the steps of a lease (lease.h) as requests to the API server, every two seconds. */
#include "pick/discovery/kube/leader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "core/event/lock.h"

enum { NOT_FOUND = 404, CONFLICT = 409 };
static const uint64_t NS_PER_S = 1000000000;
/* Two failed requests leave time for a third before leadership ends. */
static const uint64_t TIMEOUT_NS = 3000000000;

struct kube_leader {
    struct kube_leader_options options;
    char name[2 * KUBE_LEASE_NAME_BYTES + 32];
    struct kube_lease lease;
    struct kube_call *call; /* NULL: no request is running */
    enum kube_lease_step step;
    uint64_t asked_ns;
    struct timer step_timer;   /* the next step */
    struct timer expiry_timer; /* the lease expires unless it is renewed */
    struct prng prng;
    bool leads, stopping;
    void (*done)(void *user);
    void *done_user;
    struct lock lock;
    struct kube_leader_state state; /* under lock */
};

static void run_step(struct kube_leader *leader);

/* ---- leadership ------------------------------------------------------------------------------ */

static void start_timer(struct kube_leader *leader, struct timer *timer, uint64_t due_ns) {
    timer_start(worker_timers(leader->options.worker), timer, due_ns);
}

/* Applies what is known of the lease: leadership may have changed. */
static void update_leadership(struct kube_leader *leader, const struct error *err) {
    uint64_t now_ns = clock_now_ns();
    bool leads = kube_lease_is_leader(&leader->lease, now_ns), other = leads != leader->leads;
    leader->leads = leads;
    if (leads) {
        start_timer(leader, &leader->expiry_timer, kube_lease_expires_ns(&leader->lease));
    }
    if (!leads && strcmp(leader->state.holder, leader->lease.holder) != 0 &&
        leader->lease.holder[0] != '\0') {
        log_event(LOG_INFO, "another picker leads", LOG_CSTR("lease", leader->name),
                  LOG_CSTR("holder", leader->lease.holder));
    }
    lock_acquire(&leader->lock);
    leader->state.leads = leads;
    memcpy(leader->state.holder, leader->lease.holder, sizeof(leader->state.holder));
    if (err) {
        leader->state.error = *err;
        leader->state.n_failures += err->status != ST_OK;
    }
    lock_release(&leader->lock);
    if (other) {
        log_event(LOG_INFO, leads ? "this picker leads" : "this picker lost the leadership",
                  LOG_CSTR("lease", leader->name));
        leader->options.on_leadership_changed(leader->options.user, leads);
    }
}

/* Logs each error once. */
static void log_failure(struct kube_leader *leader, const struct error *err) {
    if (strcmp(leader->state.error.text, err->text) != 0 ||
        leader->state.error.status != err->status) {
        log_event(LOG_WARNING, "Lease request failed", LOG_CSTR("lease", leader->name),
                  LOG_CSTR("reason", err->text));
    }
}

static void on_expiry_timer(struct timer *timer) {
    update_leadership(CONTAINER_OF(timer, struct kube_leader, expiry_timer), NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void finish_stop(struct kube_leader *leader) {
    struct loop_timers *timers = worker_timers(leader->options.worker);
    timer_stop(timers, &leader->step_timer);
    timer_stop(timers, &leader->expiry_timer);
    leader->done(leader->done_user);
}

static void set_retry_timer(struct kube_leader *leader) {
    uint64_t wait_ns = KUBE_LEASE_RETRY_PERIOD_S * NS_PER_S;
    wait_ns += prng_share(&leader->prng, wait_ns / 5);
    start_timer(leader, &leader->step_timer, clock_now_ns() + wait_ns);
}

/* Returns: the request did not fail. */
static bool apply_response(struct kube_leader *leader, const struct kube_response *answer) {
    uint64_t now_ns = clock_now_ns();
    bool was_get = leader->step == KUBE_LEASE_GET;
    if (answer->error.status == ST_OK) {
        kube_lease_apply_success(&leader->lease, leader->step, &answer->object, leader->asked_ns,
                                 now_ns);
        return true;
    }
    if (was_get && answer->status == NOT_FOUND) {
        kube_lease_observe(&leader->lease, NULL, now_ns);
        return true;
    }
    if (!was_get) { /* also if it is unknown whether the server applied it */
        kube_lease_apply_conflict(&leader->lease);
    }
    /* Another picker was faster, or the lease was deleted: not a failure. */
    return !was_get && (answer->status == CONFLICT || answer->status == NOT_FOUND);
}

/* After a GET the step that follows is run at once. */
static void on_answer(void *user, const struct kube_response *answer) {
    static const struct error none = {.status = ST_OK};
    struct kube_leader *leader = user;
    leader->call = NULL;
    bool good = apply_response(leader, answer);
    if (!good) {
        log_failure(leader, &answer->error);
    }
    update_leadership(leader, good ? &none : &answer->error);
    bool at_once = good && leader->step == KUBE_LEASE_GET &&
                   kube_lease_next(&leader->lease, clock_now_ns()) != KUBE_LEASE_GET;
    if (at_once || leader->lease.resigned) {
        run_step(leader);
    } else {
        set_retry_timer(leader);
    }
}

static int64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static enum status send_lease_request(struct kube_leader *leader, struct buf *path,
                                      struct buf *body, struct error *err) {
    bool is_create = leader->step == KUBE_LEASE_CREATE, is_get = leader->step == KUBE_LEASE_GET;
    struct kube_resource leases = {.group = "coordination.k8s.io",
                                   .version = "v1",
                                   .name = "leases",
                                   .name_space = leader->options.name_space};
    struct kube_request asked = {
        .method = is_get      ? NULL
                  : is_create ? "POST"
                              : "PATCH",
        .content_type = is_create ? NULL : "application/merge-patch+json",
        .timeout_ns = TIMEOUT_NS,
        .done = on_answer,
        .user = leader,
    };
    kube_path_print(path, &leases, is_create ? NULL : leader->name, NULL);
    if (!is_get) {
        kube_lease_print(&leader->lease, leader->step, leader->name, wall_us(), body);
        asked.body = buf_str(body);
    }
    asked.path = buf_str(path);
    return path->failed || body->failed
               ? error_no_memory(err, "a lease")
               : kube_call_start(leader->options.client, &asked, &leader->call, err);
}

static void run_step(struct kube_leader *leader) {
    struct arena *arena;
    struct buf path, body;
    struct error err;
    leader->asked_ns = clock_now_ns();
    leader->step = kube_lease_next(&leader->lease, leader->asked_ns);
    if (leader->step == KUBE_LEASE_STOPPED) {
        if (leader->stopping) {
            finish_stop(leader);
        }
        return;
    }
    arena = arena_new(worker_arenas(leader->options.worker), 0);
    buf_init(&path, arena, arena ? 256 : 0);
    buf_init(&body, arena, arena ? 512 : 0);
    enum status st =
        arena ? send_lease_request(leader, &path, &body, &err) : error_no_memory(&err, "a lease");
    if (st != ST_OK) {
        log_failure(leader, &err);
        update_leadership(leader, &err);
        set_retry_timer(leader);
    }
    arena_free(arena);
}

static void on_step_timer(struct timer *timer) {
    struct kube_leader *leader = CONTAINER_OF(timer, struct kube_leader, step_timer);
    if (!leader->call) {
        run_step(leader);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The host name of a pod is the pod's name. */
static void make_identity(struct kube_leader *leader) {
    char host[UV_MAXHOSTNAMESIZE];
    size_t n = sizeof(host);
    const char *name = uv_os_gethostname(host, &n) == 0 ? host : "picker";
    snprintf(leader->lease.identity, sizeof(leader->lease.identity), "%.200s_%016llx", name,
             (unsigned long long)prng_next(&leader->prng));
}

enum status kube_leader_new(const struct kube_leader_options *options, struct kube_leader **out,
                            struct error *err) {
    struct kube_leader *leader = calloc(1, sizeof(*leader));
    if (!leader) {
        return error_no_memory(err, "a lease");
    }
    leader->options = *options;
    if (uv_random(NULL, NULL, &leader->prng.state, sizeof(leader->prng.state), 0, NULL) != 0) {
        leader->prng.state = uv_hrtime();
    }
    make_identity(leader);
    snprintf(leader->name, sizeof(leader->name), "epp-%.200s-%.255s.llm-d.ai", options->name_space,
             options->pool);
    memcpy(leader->state.identity, leader->lease.identity, sizeof(leader->state.identity));
    leader->step_timer.on_expire = on_step_timer;
    leader->expiry_timer.on_expire = on_expiry_timer;
    lock_init(&leader->lock);
    start_timer(leader, &leader->step_timer, clock_now_ns());
    *out = leader;
    return ST_OK;
}

void kube_leader_resign(struct kube_leader *leader) {
    if (leader->lease.resigned) {
        return;
    }
    leader->lease.resigned = true;
    update_leadership(leader, NULL);
    if (!leader->call) {
        run_step(leader);
    }
}

void kube_leader_stop(struct kube_leader *leader, void (*done)(void *user), void *user) {
    leader->stopping = true;
    leader->done = done;
    leader->done_user = user;
    if (!leader->lease.resigned) {
        kube_leader_resign(leader);
    } else if (leader->step == KUBE_LEASE_STOPPED && !leader->call) {
        finish_stop(leader);
    }
}

void kube_leader_free(struct kube_leader *leader) {
    if (leader) {
        lock_fini(&leader->lock);
        free(leader);
    }
}

void kube_leader_report(struct kube_leader *leader, struct kube_leader_state *out) {
    lock_acquire(&leader->lock);
    *out = leader->state;
    lock_release(&leader->lock);
}
