/* Targets between the pool, the schedule and the fetcher. */
#include "discover/scraper.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/metric.h"
#include "discover/scrape_page.h"
#include "discover/scrape_schedule.h"
#include "loop/clock.h"
#include "net/http_fetch.h"
#include "net/log_limit.h"
#include "net/watched_file.h"

/* How many are asked at the same time; each has the room of a page. */
enum { MOST_PAGES = 256, URL_BYTES = 1200, TOKEN_BYTES = 8192, MOST_KEPT = 4096 };

/* The room to read one page in. */
struct room {
    struct room *next; /* of those that are free */
    struct scrape_page page;
};

/* An endpoint that is asked. */
struct target {
    struct scrape_turn turn; /* first: a turn is cast to its target */
    struct scraper *scraper;
    struct endpoint_address address;
    const struct endpoint *endpoint; /* of the reader's snapshot */
    struct scrape_target_place place;
    struct scrape_past past;
    struct http_fetch *fetch; /* under way; NULL: it waits for its time */
    struct room *room;
    uint64_t asked_ns;
    uint32_t in_flight; /* when it was asked */
    bool failing;       /* as the log has it */
};

struct scraper {
    struct worker *worker;
    struct pool *pool;
    struct pool_reader *reader;
    struct http_fetcher *fetcher;
    const struct scrape_plan *plan; /* of the reader's snapshot; NULL: nobody is asked */
    uint64_t generation;            /* of that snapshot */
    struct target **targets;        /* in the order of their addresses */
    size_t n_targets;
    struct scrape_schedule schedule;
    struct alarm alarm; /* looks who is due */
    bool armed;
    uint64_t armed_ns;
    struct room *rooms; /* those that are free */
    size_t n_rooms;     /* in all */
    struct watched_file token_file;
    char token[TOKEN_BYTES]; /* empty: none */
    struct metric_histogram times;
    struct log_limit log_limit;
    void (*done)(void *cookie);
    void *cookie;
};

/* ---- rooms ----------------------------------------------------------------------------------- */

static struct room *take_room(struct scraper *scraper) {
    struct room *room = scraper->rooms;
    if (room) {
        scraper->rooms = room->next;
    } else if (scraper->n_rooms < MOST_PAGES && (room = malloc(sizeof(*room)))) {
        scraper->n_rooms++;
    }
    return room;
}

static void give_room(struct target *target) {
    target->room->next = target->scraper->rooms;
    target->scraper->rooms = target->room;
    target->room = NULL;
}

/* ---- when ------------------------------------------------------------------------------------ */

/* The alarm rings when the next one is due: sooner than it would have, never later. */
static void arm(struct scraper *scraper) {
    uint64_t next_ns = scrape_schedule_next_ns(&scraper->schedule, clock_now_ns());
    if (next_ns == UINT64_MAX || (scraper->armed && scraper->armed_ns <= next_ns)) {
        return;
    }
    scraper->armed = alarm_set(worker_alarms(scraper->worker), &scraper->alarm, next_ns);
    scraper->armed_ns = next_ns;
}

/* Out of memory it is asked no more until the pool changes. */
static void put_back(struct target *target, bool answered) {
    struct scraper *scraper = target->scraper;
    if (scrape_schedule_put(&scraper->schedule, &target->turn, target->asked_ns, clock_now_ns(),
                            answered)) {
        arm(scraper);
    }
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void tell_failure(struct target *target, const char *reason) {
    if (!target->failing && log_limit_take(&target->scraper->log_limit)) {
        log_event(LOG_WARNING, "an endpoint does not say its load",
                  LOG_STR("endpoint", endpoint_text(target->endpoint)),
                  LOG_TEXT_OF("reason", reason),
                  LOG_U64("left_out", target->scraper->log_limit.n_left_out));
        target->scraper->log_limit.n_left_out = 0;
        target->failing = true;
    }
}

static void tell_success(struct target *target) {
    if (target->failing) {
        target->failing = false;
        log_event(LOG_INFO, "an endpoint says its load again",
                  LOG_STR("endpoint", endpoint_text(target->endpoint)));
    }
}

static enum metric metric_of(const struct http_fetched *fetched) {
    switch ((int)fetched->error.status) {
    case ST_DEADLINE_EXCEEDED:
        return METRIC_PICK_SCRAPES_TIMEOUT;
    case ST_BODY_TOO_LARGE:
        return METRIC_PICK_SCRAPES_TOO_LARGE;
    default:
        return fetched->refused ? METRIC_PICK_SCRAPES_REFUSED : METRIC_PICK_SCRAPES_BROKEN;
    }
}

/* Until when a load counts: as long as the configuration says, and over two times that an endpoint
 * is not heard. */
static uint64_t until_ns(const struct target *target) {
    const struct scrape_plan *plan = target->scraper->plan;
    uint64_t interval_ns = scrape_schedule_interval_ns(&target->scraper->schedule);
    uint64_t age_ns = 3 * interval_ns + plan->timeout_ns;
    return target->asked_ns + (age_ns > plan->max_age_ns ? age_ns : plan->max_age_ns);
}

/* Returns: which number counts it; METRIC_PICK_SCRAPES_OK when the load is known now. */
static enum metric take_answer(struct target *target, const struct http_fetched *fetched,
                               struct error *err) {
    struct endpoint_load load;
    if (fetched->error.status != ST_OK) {
        *err = fetched->error;
        return metric_of(fetched);
    }
    if (fetched->status != 200) {
        error_set(err, ST_BAD_ANSWER, "answered with status %d, expected 200", fetched->status);
        return METRIC_PICK_SCRAPES_STATUS;
    }
    if (scrape_page_end(&target->room->page, target->asked_ns, &target->past, &load, err) !=
        ST_OK) {
        return METRIC_PICK_SCRAPES_SERIES;
    }
    load.asked_ns = target->asked_ns;
    load.until_ns = until_ns(target);
    load.in_flight = target->in_flight;
    pool_set_load(target->scraper->pool, target->endpoint, &load);
    return METRIC_PICK_SCRAPES_OK;
}

static void on_done(void *user, const struct http_fetched *fetched) {
    struct target *target = user;
    struct scraper *scraper = target->scraper;
    struct error err = {.status = ST_OK};
    target->fetch = NULL;
    if (fetched->error.status != ST_CANCELLED) {
        enum metric metric = take_answer(target, fetched, &err);
        metric_add(metric, 1);
        metric_histogram_add_ns(&scraper->times, clock_now_ns() - target->asked_ns);
        if (metric == METRIC_PICK_SCRAPES_OK) {
            tell_success(target);
        } else {
            pool_count_silence(target->endpoint);
            tell_failure(target, err.text);
        }
        put_back(target, metric == METRIC_PICK_SCRAPES_OK);
    }
    give_room(target);
}

static void on_piece(void *user, struct str bytes) {
    struct target *target = user;
    scrape_page_feed(&target->room->page, bytes);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void print_url(const struct target *target, char out[URL_BYTES]) {
    char text[ENDPOINT_TEXT_BYTES];
    struct endpoint_address address = target->address;
    address.port = target->place.port;
    snprintf(out, URL_BYTES, "%s://%s%.*s", target->scraper->plan->https ? "https" : "http",
             endpoint_address_print(&address, text).ptr, STR_ARG(target->place.source->path));
}

static void ask(struct target *target, struct room *room) {
    struct scraper *scraper = target->scraper;
    char url[URL_BYTES];
    struct error err;
    print_url(target, url);
    const struct scrape_plan *plan = scraper->plan;
    struct http_fetch_tls tls = {.ca = plan->ca_file.len > 0 ? plan->ca_file.ptr : NULL,
                                 .insecure = plan->trusts_anybody};
    struct http_fetch_ask ask = {
        .tls = plan->https ? &tls : NULL,
        .url = url,
        .timeout_ns = scraper->plan->timeout_ns,
        .max_body_bytes = scraper->plan->max_page_bytes,
        .bearer = scraper->token[0] ? scraper->token : NULL,
        .piece = on_piece,
        .done = on_done,
        .user = target,
    };
    target->room = room;
    target->asked_ns = clock_now_ns();
    target->in_flight = endpoint_in_flight(target->endpoint);
    scrape_page_begin(&room->page, &target->place.source->rules);
    if (http_fetch_begin(scraper->fetcher, &ask, &target->fetch, &err) != ST_OK) {
        metric_add(METRIC_PICK_SCRAPES_BROKEN, 1);
        pool_count_silence(target->endpoint);
        tell_failure(target, err.text);
        give_room(target);
        put_back(target, false);
    }
}

static void ring(struct alarm *alarm) {
    struct scraper *scraper =
        (struct scraper *)(void *)((char *)alarm - offsetof(struct scraper, alarm));
    struct room *room;
    scraper->armed = false;
    while ((room = take_room(scraper))) {
        struct scrape_turn *turn = scrape_schedule_take(&scraper->schedule, clock_now_ns());
        if (!turn) {
            room->next = scraper->rooms;
            scraper->rooms = room;
            break;
        }
        ask((struct target *)(void *)turn, room);
    }
    arm(scraper);
}

/* ---- targets --------------------------------------------------------------------------------- */

static void give_up(struct target *target) {
    if (target->fetch) {
        http_fetch_cancel(target->fetch);
        target->fetch = NULL;
        give_room(target);
    }
}

static void drop_target(struct target *target) {
    give_up(target);
    scrape_schedule_remove(&target->scraper->schedule, &target->turn);
    free(target);
}

/* One that was asked already begins anew: what is under way is by rules that are gone. */
static void begin_target(struct scraper *scraper, struct target *target, bool is_new,
                         const struct pool_member *member) {
    bool under_way = target->fetch != NULL;
    target->endpoint = member->endpoint;
    target->past = (struct scrape_past){0};
    give_up(target);
    if (!is_new && under_way) {
        scrape_schedule_remove(&scraper->schedule, &target->turn);
    }
    if ((is_new || under_way) &&
        !scrape_schedule_add(&scraper->schedule, &target->turn, clock_now_ns())) {
        tell_failure(target, "no memory for asking it");
    }
}

static struct target *target_new(struct scraper *scraper, const struct pool_member *member) {
    struct target *target = calloc(1, sizeof(*target));
    if (target) {
        target->scraper = scraper;
        target->address = member->address;
    }
    return target;
}

/* The target of a member: the old one, if there is one, or a new one. Returns: NULL when it can't
 * be asked, or out of memory. */
static struct target *target_of(struct scraper *scraper, const struct pool_member *member,
                                struct target *old) {
    struct pool_wanted wanted = {.address = member->address, .labels = member->labels};
    struct scrape_target_place place;
    if (!scraper->plan || !scrape_plan_place(scraper->plan, &wanted, &place)) {
        return NULL;
    }
    struct target *target = old ? old : target_new(scraper, member);
    if (target) {
        target->place = place;
        begin_target(scraper, target, !old, member);
    }
    return target;
}

/* Both lists are in the order of addresses. */
static void follow(struct scraper *scraper, const struct pool_snapshot *snapshot) {
    struct target **targets = calloc(snapshot->n_members + 1, sizeof(struct target *));
    size_t n = 0, old = 0;
    for (uint32_t i = 0; targets && i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        int order = -1;
        while (old < scraper->n_targets &&
               (order = endpoint_address_compare(&scraper->targets[old]->address,
                                                 &member->address)) < 0) {
            drop_target(scraper->targets[old++]);
        }
        struct target *same =
            old < scraper->n_targets && order == 0 ? scraper->targets[old++] : NULL;
        struct target *target = target_of(scraper, member, same);
        if (target) {
            targets[n++] = target;
        } else if (same) {
            drop_target(same);
        }
    }
    while (old < scraper->n_targets) {
        drop_target(scraper->targets[old++]);
    }
    free(scraper->targets);
    scraper->targets = targets;
    scraper->n_targets = n;
}

/* The plan of the pool as it is, which needs a fetcher. */
static const struct scrape_plan *plan_of(struct scraper *scraper,
                                         const struct pool_snapshot *snapshot) {
    const struct scrape_plan *plan = snapshot->spec ? snapshot->spec->scrape : NULL;
    struct error err;
    if (plan && !scraper->fetcher &&
        http_fetcher_new(scraper->worker, NULL, 1, &scraper->fetcher, &err) != ST_OK) {
        log_event(LOG_ERROR, "endpoints can't be asked for their loads",
                  LOG_TEXT_OF("reason", err.text));
        return NULL;
    }
    return plan;
}

static void follow_pool(struct scraper *scraper) {
    const struct pool_snapshot *snapshot = pool_look(scraper->reader);
    if (snapshot->generation == scraper->generation) {
        return;
    }
    scraper->generation = snapshot->generation;
    scraper->plan = plan_of(scraper, snapshot);
    if (scraper->plan) {
        scrape_schedule_set_pace(&scraper->schedule, scraper->plan->interval_ns,
                                 scraper->plan->most_per_second);
    }
    follow(scraper, snapshot);
    if (scraper->fetcher) {
        size_t n_kept = scraper->n_targets < MOST_KEPT ? scraper->n_targets : MOST_KEPT;
        http_fetcher_keep(scraper->fetcher, (unsigned)n_kept + 1);
    }
    arm(scraper);
}

/* ---- the token ------------------------------------------------------------------------------- */

/* Without white space around it. */
static void take_token(struct scraper *scraper, struct str text) {
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    while (text.len > 0 && (unsigned char)text.ptr[0] <= ' ') {
        text = str_make(text.ptr + 1, text.len - 1);
    }
    size_t n = text.len < TOKEN_BYTES ? text.len : 0;
    if (n > 0) {
        memcpy(scraper->token, text.ptr, n);
    }
    scraper->token[n] = '\0';
}

static void look_at_token(struct scraper *scraper) {
    const char *path =
        scraper->plan && scraper->plan->token_file.len > 0 ? scraper->plan->token_file.ptr : NULL;
    struct watched_file *file = &scraper->token_file;
    struct error err;
    bool changed = !file->path != !path;
    file->path = path; /* of the newest plan */
    if (path && watched_file_read(file, &changed, &err) != ST_OK) {
        if (changed) {
            log_event(LOG_WARNING, "the token for endpoints' metrics can't be read",
                      LOG_TEXT_OF("file", path), LOG_TEXT_OF("reason", err.text));
        }
        changed = false; /* the old one stays */
    }
    if (changed) {
        take_token(scraper, watched_file_text(file));
    }
    watched_file_drop(file);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status scraper_new(struct worker *worker, struct pool *pool, struct scraper **out,
                        struct error *err) {
    struct scraper *scraper = calloc(1, sizeof(*scraper));
    if (!scraper) {
        return error_set(err, ST_NO_MEMORY, "no memory for asking endpoints for their loads");
    }
    scraper->worker = worker;
    scraper->pool = pool;
    scraper->alarm.ring = ring;
    scraper->schedule.dice.state = uv_hrtime();
    enum status st = pool_reader_new(pool, 0, &scraper->reader, err);
    if (st != ST_OK) {
        scraper_free(scraper);
        return st;
    }
    scraper_look(scraper);
    *out = scraper;
    return ST_OK;
}

void scraper_look(struct scraper *scraper) {
    follow_pool(scraper);
    look_at_token(scraper);
}

static void on_stopped(void *cookie) {
    struct scraper *scraper = cookie;
    scraper->done(scraper->cookie);
}

void scraper_stop(struct scraper *scraper, void (*done)(void *cookie), void *cookie) {
    for (size_t i = 0; i < scraper->n_targets; i++) {
        drop_target(scraper->targets[i]);
    }
    scraper->n_targets = 0;
    alarm_clear(worker_alarms(scraper->worker), &scraper->alarm);
    scraper->done = done;
    scraper->cookie = cookie;
    if (scraper->fetcher) {
        http_fetcher_stop(scraper->fetcher, on_stopped, scraper);
    } else {
        done(cookie);
    }
}

void scraper_free(struct scraper *scraper) {
    if (!scraper) {
        return;
    }
    while (scraper->rooms) {
        struct room *room = scraper->rooms;
        scraper->rooms = room->next;
        free(room);
    }
    http_fetcher_free(scraper->fetcher);
    pool_reader_free(scraper->reader);
    scrape_schedule_fini(&scraper->schedule);
    secret_wipe(scraper->token, sizeof(scraper->token));
    free(scraper->targets);
    free(scraper);
}

const struct metric_histogram *scraper_times(const struct scraper *scraper) {
    return &scraper->times;
}
