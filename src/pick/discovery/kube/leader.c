/* What a lease wants is asked of the server, every two seconds. */
#include "pick/discovery/kube/leader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/dice.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/event/lock.h"

enum { NOT_FOUND = 404, CONFLICT = 409 };
static const uint64_t NS_PER_S = 1000000000;
/* Two that fail still leave time for a third before leading ends. */
static const uint64_t TIMEOUT_NS = 3000000000;

struct kube_leader {
    struct kube_leader_options options;
    char name[2 * KUBE_LEASE_NAME_BYTES + 32];
    struct kube_lease lease;
    struct kube_call *call; /* NULL: none is under way */
    enum kube_lease_step step;
    uint64_t asked_ns;
    struct alarm turn; /* the next step */
    struct alarm ends; /* leading does, unless it is renewed */
    struct dice dice;
    bool leads, stopping;
    void (*done)(void *cookie);
    void *done_cookie;
    struct lock lock;
    struct kube_leader_state state; /* under lock */
};

#define OF_MEMBER(pointer, member)                                                                 \
    ((struct kube_leader *)(void *)((char *)(pointer)-offsetof(struct kube_leader, member)))

static void take_turn(struct kube_leader *leader);

/* ---- what is said ---------------------------------------------------------------------------- */

static void set_alarm(struct kube_leader *leader, struct alarm *alarm, uint64_t due_ns) {
    if (!alarm_set(worker_alarms(leader->options.worker), alarm, due_ns)) {
        log_plain(LOG_ERROR, "no memory for a timer: this picker does not lead any more");
        leader->lease.renewed_ns = 0;
    }
}

/* Something is known that was not: whether we lead may be another thing now. */
static void tell(struct kube_leader *leader, const struct error *err) {
    uint64_t now_ns = clock_now_ns();
    bool leads = kube_lease_leads(&leader->lease, now_ns), other = leads != leader->leads;
    leader->leads = leads;
    if (leads) {
        set_alarm(leader, &leader->ends, kube_lease_ends_ns(&leader->lease));
    }
    if (!leads && strcmp(leader->state.holder, leader->lease.holder) != 0 &&
        leader->lease.holder[0] != '\0') {
        log_event(LOG_INFO, "another picker leads", LOG_TEXT_OF("lease", leader->name),
                  LOG_TEXT_OF("holder", leader->lease.holder));
    }
    lock_take(&leader->lock);
    leader->state.leads = leads;
    memcpy(leader->state.holder, leader->lease.holder, sizeof(leader->state.holder));
    if (err) {
        leader->state.error = *err;
        leader->state.n_failures += err->status != ST_OK;
    }
    lock_drop(&leader->lock);
    if (other) {
        log_event(LOG_INFO, leads ? "this picker leads" : "this picker does not lead any more",
                  LOG_TEXT_OF("lease", leader->name));
        leader->options.changed(leader->options.cookie, leads);
    }
}

/* Once for each state it is in. */
static void log_failure(struct kube_leader *leader, const struct error *err) {
    if (strcmp(leader->state.error.text, err->text) != 0 ||
        leader->state.error.status != err->status) {
        log_event(LOG_WARNING, "the lease can't be asked for", LOG_TEXT_OF("lease", leader->name),
                  LOG_TEXT_OF("reason", err->text));
    }
}

static void ring_ends(struct alarm *alarm) {
    tell(OF_MEMBER(alarm, ends), NULL);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void finish(struct kube_leader *leader) {
    struct alarms *alarms = worker_alarms(leader->options.worker);
    alarm_clear(alarms, &leader->turn);
    alarm_clear(alarms, &leader->ends);
    leader->done(leader->done_cookie);
}

static void rest(struct kube_leader *leader) {
    uint64_t wait_ns = KUBE_LEASE_RETRY_S * NS_PER_S;
    wait_ns += (uint64_t)(dice_unit(&leader->dice) * (double)wait_ns / 5);
    set_alarm(leader, &leader->turn, clock_now_ns() + wait_ns);
}

/* Somebody else was faster, or it is gone: that is no failure. */
static bool was_missed(const struct kube_answer *answer) {
    return answer->status == CONFLICT || answer->status == NOT_FOUND;
}

/* Returns: nothing went wrong. */
static bool take_answer(struct kube_leader *leader, const struct kube_answer *answer) {
    uint64_t now_ns = clock_now_ns();
    bool looked = leader->step == KUBE_LEASE_LOOK;
    if (answer->error.status == ST_OK) {
        kube_lease_done(&leader->lease, leader->step, &answer->object, leader->asked_ns, now_ns);
        return true;
    }
    if (looked && answer->status == NOT_FOUND) {
        kube_lease_see(&leader->lease, NULL, now_ns);
        return true;
    }
    if (!looked) { /* also when nobody knows whether it was done */
        kube_lease_missed(&leader->lease);
    }
    return !looked && was_missed(answer);
}

/* After a look what follows from it comes at once. */
static void on_answer(void *user, const struct kube_answer *answer) {
    static const struct error none = {.status = ST_OK};
    struct kube_leader *leader = user;
    leader->call = NULL;
    bool good = take_answer(leader, answer);
    if (!good) {
        log_failure(leader, &answer->error);
    }
    tell(leader, good ? &none : &answer->error);
    bool at_once = good && leader->step == KUBE_LEASE_LOOK &&
                   kube_lease_next(&leader->lease, clock_now_ns()) != KUBE_LEASE_LOOK;
    if (at_once || leader->lease.resigned) {
        take_turn(leader);
    } else {
        rest(leader);
    }
}

static int64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static enum status ask(struct kube_leader *leader, struct buf *path, struct buf *body,
                       struct error *err) {
    bool creates = leader->step == KUBE_LEASE_CREATE, looks = leader->step == KUBE_LEASE_LOOK;
    struct kube_resource leases = {.group = "coordination.k8s.io",
                                   .version = "v1",
                                   .name = "leases",
                                   .name_space = leader->options.name_space};
    struct kube_ask asked = {
        .method = looks     ? NULL
                  : creates ? "POST"
                            : "PATCH",
        .content_type = creates ? NULL : "application/merge-patch+json",
        .timeout_ns = TIMEOUT_NS,
        .done = on_answer,
        .user = leader,
    };
    kube_path_print(path, &leases, creates ? NULL : leader->name, NULL);
    if (!looks) {
        kube_lease_print(&leader->lease, leader->step, leader->name, wall_us(), body);
        asked.body = buf_str(body);
    }
    asked.path = buf_str(path);
    return path->failed || body->failed
               ? error_set(err, ST_NO_MEMORY, "no memory for a lease")
               : kube_call_begin(leader->options.client, &asked, &leader->call, err);
}

static void take_turn(struct kube_leader *leader) {
    struct arena *arena;
    struct buf path, body;
    struct error err;
    leader->asked_ns = clock_now_ns();
    leader->step = kube_lease_next(&leader->lease, leader->asked_ns);
    if (leader->step == KUBE_LEASE_REST) {
        if (leader->stopping) {
            finish(leader);
        }
        return;
    }
    arena = arena_new(worker_arenas(leader->options.worker), 0);
    buf_init(&path, arena, arena ? 256 : 0);
    buf_init(&body, arena, arena ? 512 : 0);
    enum status st = arena ? ask(leader, &path, &body, &err)
                           : error_set(&err, ST_NO_MEMORY, "no memory for a lease");
    if (st != ST_OK) {
        log_failure(leader, &err);
        tell(leader, &err);
        rest(leader);
    }
    arena_free(arena);
}

static void ring_turn(struct alarm *alarm) {
    struct kube_leader *leader = OF_MEMBER(alarm, turn);
    if (!leader->call) {
        take_turn(leader);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A pod's host name is its own name. */
static void name_us(struct kube_leader *leader) {
    char host[UV_MAXHOSTNAMESIZE];
    size_t n = sizeof(host);
    const char *name = uv_os_gethostname(host, &n) == 0 ? host : "picker";
    snprintf(leader->lease.us, sizeof(leader->lease.us), "%.200s_%016llx", name,
             (unsigned long long)dice_roll(&leader->dice));
}

enum status kube_leader_new(const struct kube_leader_options *options, struct kube_leader **out,
                            struct error *err) {
    struct kube_leader *leader = calloc(1, sizeof(*leader));
    if (!leader) {
        return error_set(err, ST_NO_MEMORY, "no memory for a lease");
    }
    leader->options = *options;
    if (uv_random(NULL, NULL, &leader->dice.state, sizeof(leader->dice.state), 0, NULL) != 0) {
        leader->dice.state = uv_hrtime();
    }
    name_us(leader);
    snprintf(leader->name, sizeof(leader->name), "epp-%.200s-%.255s.llm-d.ai", options->name_space,
             options->pool);
    memcpy(leader->state.us, leader->lease.us, sizeof(leader->state.us));
    leader->turn.ring = ring_turn;
    leader->ends.ring = ring_ends;
    lock_init(&leader->lock);
    set_alarm(leader, &leader->turn, clock_now_ns());
    *out = leader;
    return ST_OK;
}

void kube_leader_resign(struct kube_leader *leader) {
    if (leader->lease.resigned) {
        return;
    }
    leader->lease.resigned = true;
    tell(leader, NULL);
    if (!leader->call) {
        take_turn(leader);
    }
}

void kube_leader_stop(struct kube_leader *leader, void (*done)(void *cookie), void *cookie) {
    leader->stopping = true;
    leader->done = done;
    leader->done_cookie = cookie;
    if (!leader->lease.resigned) {
        kube_leader_resign(leader);
    } else if (leader->step == KUBE_LEASE_REST && !leader->call) {
        finish(leader);
    }
}

void kube_leader_free(struct kube_leader *leader) {
    if (leader) {
        lock_fini(&leader->lock);
        free(leader);
    }
}

void kube_leader_report(struct kube_leader *leader, struct kube_leader_state *out) {
    lock_take(&leader->lock);
    *out = leader->state;
    lock_drop(&leader->lock);
}
