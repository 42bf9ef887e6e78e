/* Targets between the pools, the schedule and the fetcher. */
#include "pick/discovery/scrape/scraper.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/os/credential.h"
#include "core/os/log_limit.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/scrape/page.h"
#include "pick/discovery/scrape/schedule.h"
#include "pick/pool/per_pool_table.h"

/* The room to read one page in. */
struct page_buffer {
    struct page_buffer *next; /* of those that are free */
    struct scrape_page page;
};

/* An endpoint that is asked. */
struct scrape_target {
    struct scrape_job job; /* first: a turn is cast to its target */
    struct scraped_pool *of;
    struct endpoint_address address;
    const struct endpoint *endpoint; /* of the reader's snapshot */
    struct scrape_request place;
    struct scrape_history history;
    struct credential token;  /* its own */
    struct http_fetch *fetch; /* under way; NULL: it waits for its time */
    struct page_buffer *buffer;
    uint64_t asked_ns;
    uint32_t in_flight; /* when it was asked */
    bool failing;       /* as the log has it */
};

/* A pool. */
struct scraped_pool {
    struct per_pool per_pool; /* first */
    struct scraper *scraper;
    const struct scrape_plan *plan; /* of the reader's snapshot; NULL: nobody is asked */
    struct scrape_target **targets; /* in the order of their addresses */
    size_t n_targets;
    struct scrape_rate rate;
    struct credential token; /* of endpoints without one of their own */
};

struct scraper {
    struct worker *worker;
    struct pool_set_reader *pools;
    struct http_fetcher *fetcher;
    struct per_pool_table scraped;
    struct scrape_schedule schedule;
    struct timer timer; /* looks who is due */
    bool timer_set;
    uint64_t timer_ns;
    struct page_buffer *free_buffers; /* those that are free */
    size_t n_buffers;                 /* in all */
    struct metric_histogram times;
    struct log_limit log_limit;
    void (*done)(void *user);
    void *user;
};

/* How many are asked at the same time; each has the room of a page. */
enum { MOST_PAGES = 256, URL_BYTES = 1200 };

/* ---- rooms ----------------------------------------------------------------------------------- */

static struct page_buffer *take_buffer(struct scraper *scraper) {
    struct page_buffer *buffer = scraper->free_buffers;
    if (buffer) {
        scraper->free_buffers = buffer->next;
    } else if (scraper->n_buffers < MOST_PAGES && (buffer = malloc(sizeof(*buffer)))) {
        scraper->n_buffers++;
    }
    return buffer;
}

static void give_buffer(struct scrape_target *target) {
    struct scraper *scraper = target->of->scraper;
    target->buffer->next = scraper->free_buffers;
    scraper->free_buffers = target->buffer;
    target->buffer = NULL;
}

/* ---- when ------------------------------------------------------------------------------------ */

static void scraper_set_timer(struct scraper *scraper) {
    uint64_t next_ns = scrape_schedule_next_ns(&scraper->schedule, clock_now_ns());
    if (next_ns == UINT64_MAX || (scraper->timer_set && scraper->timer_ns <= next_ns)) {
        return;
    }
    scraper->timer_set = timer_start(worker_timers(scraper->worker), &scraper->timer, next_ns);
    scraper->timer_ns = next_ns;
}

/* Out of memory it is asked no more until the pool changes. */
static void put_back(struct scrape_target *target, bool answered) {
    struct scraper *scraper = target->of->scraper;
    if (scrape_schedule_put_back(&scraper->schedule, &target->job, target->asked_ns, clock_now_ns(),
                                 answered)) {
        scraper_set_timer(scraper);
    }
}

/* ---- what came of it ------------------------------------------------------------------------- */

static void scraper_log_failure(struct scrape_target *target, const char *reason) {
    struct log_limit *limit = &target->of->scraper->log_limit;
    if (!target->failing && log_limit_allow(limit)) {
        log_event(LOG_WARNING, "an endpoint does not say its load",
                  LOG_STR("endpoint", endpoint_text(target->endpoint)), LOG_CSTR("reason", reason),
                  LOG_U64("left_out", limit->n_suppressed));
        limit->n_suppressed = 0;
        target->failing = true;
    }
}

static void log_success(struct scrape_target *target) {
    if (target->failing) {
        target->failing = false;
        log_event(LOG_INFO, "an endpoint says its load again",
                  LOG_STR("endpoint", endpoint_text(target->endpoint)));
    }
}

static enum metric metric_of(const struct http_fetch_result *fetched) {
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
static uint64_t until_ns(const struct scrape_target *target) {
    const struct scrape_plan *plan = target->of->plan;
    uint64_t interval_ns =
        scrape_schedule_interval_ns(&target->of->scraper->schedule, &target->of->rate);
    uint64_t age_ns = 3 * interval_ns + plan->timeout_ns;
    return target->asked_ns + (age_ns > plan->max_age_ns ? age_ns : plan->max_age_ns);
}

/* Returns: which number counts it; METRIC_PICK_SCRAPES_OK when the load is known now. */
static enum metric take_answer(struct scrape_target *target,
                               const struct http_fetch_result *fetched, struct error *err) {
    struct endpoint_load load;
    if (fetched->error.status != ST_OK) {
        *err = fetched->error;
        return metric_of(fetched);
    }
    if (fetched->status != 200) {
        error_set(err, ST_BAD_ANSWER, "answered with status %d, expected 200", fetched->status);
        return METRIC_PICK_SCRAPES_STATUS;
    }
    if (scrape_page_end(&target->buffer->page, target->asked_ns, &target->history, &load, err) !=
        ST_OK) {
        return METRIC_PICK_SCRAPES_SERIES;
    }
    load.asked_ns = target->asked_ns;
    load.until_ns = until_ns(target);
    load.in_flight = target->in_flight;
    pool_set_load(target->of->per_pool.pool, target->endpoint, &load);
    return METRIC_PICK_SCRAPES_OK;
}

static void on_done(void *user, const struct http_fetch_result *fetched) {
    struct scrape_target *target = user;
    struct scraper *scraper = target->of->scraper;
    struct error err = {.status = ST_OK};
    target->fetch = NULL;
    if (fetched->error.status != ST_CANCELLED) {
        enum metric metric = take_answer(target, fetched, &err);
        metric_add(metric, 1);
        metric_histogram_add_ns(&scraper->times, clock_now_ns() - target->asked_ns);
        if (metric == METRIC_PICK_SCRAPES_OK) {
            log_success(target);
        } else {
            pool_count_scrape_failure(target->endpoint);
            scraper_log_failure(target, err.text);
        }
        put_back(target, metric == METRIC_PICK_SCRAPES_OK);
    }
    give_buffer(target);
}

static void on_piece(void *user, struct str bytes) {
    struct scrape_target *target = user;
    scrape_page_read(&target->buffer->page, bytes);
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void scraper_cancel(struct scrape_target *target) {
    if (target->fetch) {
        http_fetch_cancel(target->fetch);
        target->fetch = NULL;
        give_buffer(target);
    }
}

enum { MOST_KEPT = 4096 };

/* ---- targets --------------------------------------------------------------------------------- */

static void drop_target(struct scrape_target *target) {
    scraper_cancel(target);
    scrape_schedule_remove(&target->of->scraper->schedule, &target->job);
    credential_fini(&target->token);
    free(target);
}

/* One that was asked already begins anew: what is under way is by rules that are gone. */
static void begin_target(struct scraped_pool *scraped, struct scrape_target *target, bool is_new,
                         const struct pool_member *member) {
    struct scrape_schedule *schedule = &scraped->scraper->schedule;
    bool under_way = target->fetch != NULL;
    target->endpoint = member->endpoint;
    target->history = (struct scrape_history){0};
    scraper_cancel(target);
    if (!is_new && under_way) {
        scrape_schedule_remove(schedule, &target->job);
    }
    if ((is_new || under_way) &&
        !scrape_schedule_add(schedule, &target->job, &scraped->rate, clock_now_ns())) {
        scraper_log_failure(target, "no memory for asking it");
    }
}

static struct scrape_target *target_new(struct scraped_pool *scraped,
                                        const struct pool_member *member) {
    struct scrape_target *target = calloc(1, sizeof(*target));
    if (target) {
        target->of = scraped;
        target->address = member->address;
    }
    return target;
}

/* The target of a member: the old one, if there is one, or a new one. Returns: NULL when it can't
 * be asked, or out of memory. */
static struct scrape_target *target_of(struct scraped_pool *scraped,
                                       const struct pool_member *member,
                                       struct scrape_target *old) {
    struct pool_spec_endpoint wanted = {.address = member->address, .labels = member->labels};
    struct scrape_request place;
    if (!scraped->plan || !scrape_plan_resolve(scraped->plan, &wanted, &place)) {
        return NULL;
    }
    struct scrape_target *target = old ? old : target_new(scraped, member);
    if (target) {
        target->place = place;
        begin_target(scraped, target, !old, member);
    }
    return target;
}

/* Both lists are in the order of addresses. */
static void merge_targets(struct scraped_pool *scraped, const struct pool_snapshot *snapshot) {
    struct scrape_target **targets =
        calloc(snapshot->n_members + 1, sizeof(struct scrape_target *));
    size_t n = 0, old = 0;
    for (uint32_t i = 0; targets && i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        int order = -1;
        while (old < scraped->n_targets &&
               (order = endpoint_address_compare(&scraped->targets[old]->address,
                                                 &member->address)) < 0) {
            drop_target(scraped->targets[old++]);
        }
        struct scrape_target *same =
            old < scraped->n_targets && order == 0 ? scraped->targets[old++] : NULL;
        struct scrape_target *target = target_of(scraped, member, same);
        if (target) {
            targets[n++] = target;
        } else if (same) {
            drop_target(same);
        }
    }
    while (old < scraped->n_targets) {
        drop_target(scraped->targets[old++]);
    }
    free(scraped->targets);
    scraped->targets = targets;
    scraped->n_targets = n;
}

/* ---- the tokens ------------------------------------------------------------------------------ */

/* One that can't be read is logged, and endpoints are asked without. */
static void look_at_token(struct credential *token, struct str path) {
    struct error ignored;
    if (credential_set_file(token, path)) {
        (void)!credential_refresh(token, true, &ignored);
    }
}

/* Before anybody is asked with them. */
static void look_at_tokens(struct scraped_pool *scraped) {
    const struct scrape_plan *plan = scraped->plan;
    look_at_token(&scraped->token, plan ? plan->token_file : STR(""));
    for (size_t i = 0; i < scraped->n_targets; i++) {
        struct scrape_target *target = scraped->targets[i];
        look_at_token(&target->token, target->place.token_file);
    }
}

/* ---- the pools ------------------------------------------------------------------------------- */

static struct scraped_pool *scraped_of(struct per_pool *item) {
    return (struct scraped_pool *)(void *)item;
}

static void free_scraped_pool(void *user, struct per_pool *item) {
    struct scraped_pool *scraped = scraped_of(item);
    (void)user;
    for (size_t i = 0; i < scraped->n_targets; i++) {
        drop_target(scraped->targets[i]);
    }
    credential_fini(&scraped->token);
    free(scraped->targets);
    free(scraped);
}

static void scraper_pools_init(struct scraper *scraper) {
    scraper->scraped = (struct per_pool_table){.item_bytes = sizeof(struct scraped_pool),
                                               .free_item = free_scraped_pool};
}

/* The plan of the pool as it is, which needs a fetcher. */
static const struct scrape_plan *plan_of(struct scraper *scraper,
                                         const struct pool_snapshot *snapshot) {
    const struct scrape_plan *plan = snapshot->spec ? snapshot->spec->scrape : NULL;
    struct error err;
    if (plan && !scraper->fetcher &&
        http_fetcher_new(scraper->worker, NULL, 1, &scraper->fetcher, &err) != ST_OK) {
        log_event(LOG_ERROR, "endpoints can't be asked for their loads",
                  LOG_CSTR("reason", err.text));
        return NULL;
    }
    return plan;
}

/* The pace of all: nobody's interval is shorter, nobody's limit higher. */
static void set_pace(struct scraper *scraper) {
    uint64_t interval_ns = UINT64_MAX;
    uint32_t most_per_second = 0;
    for (size_t i = 0; i < scraper->scraped.n_slots; i++) {
        struct per_pool *item = scraper->scraped.items[i];
        const struct scrape_plan *plan = item ? scraped_of(item)->plan : NULL;
        if (plan) {
            interval_ns = plan->interval_ns < interval_ns ? plan->interval_ns : interval_ns;
            most_per_second =
                plan->most_per_second > most_per_second ? plan->most_per_second : most_per_second;
        }
    }
    if (most_per_second > 0) {
        scrape_schedule_set_rate(&scraper->schedule, interval_ns, most_per_second);
    }
}

/* Returns: it was another than before. */
static bool follow_pool(struct scraper *scraper, const struct pool_entry *entry) {
    struct scraped_pool *scraped = scraped_of(scraper->scraped.items[entry->slot]);
    struct pool_reader *reader = pool_set_reader_get(scraper->pools, entry);
    const struct pool_snapshot *snapshot = reader ? pool_reader_refresh(reader) : NULL;
    if (!snapshot || snapshot->generation == scraped->per_pool.generation) {
        return false;
    }
    scraped->scraper = scraper;
    scraped->per_pool.generation = snapshot->generation;
    scraped->plan = plan_of(scraper, snapshot);
    if (scraped->plan) {
        scrape_rate_set(&scraped->rate, scraped->plan->interval_ns, scraped->plan->most_per_second);
    }
    merge_targets(scraped, snapshot);
    return true;
}

static void follow_pools(struct scraper *scraper) {
    const struct pool_list *list = pool_set_reader_refresh(scraper->pools);
    bool changed = list->generation != scraper->scraped.generation;
    if (!per_pool_table_sync(&scraper->scraped, list)) {
        log_message(LOG_ERROR, "no memory for asking endpoints for their loads");
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        changed = follow_pool(scraper, &list->entries[i]) || changed;
    }
    if (!changed) {
        return;
    }
    set_pace(scraper);
    if (scraper->fetcher) {
        size_t n = scraper->schedule.all.n_jobs;
        http_fetcher_set_max_idle(scraper->fetcher, (unsigned)(n < MOST_KEPT ? n : MOST_KEPT) + 1);
    }
    scraper_set_timer(scraper);
}

static void scraper_sync_pools(struct scraper *scraper) {
    follow_pools(scraper);
    for (size_t i = 0; i < scraper->scraped.n_slots; i++) {
        if (scraper->scraped.items[i]) {
            look_at_tokens(scraped_of(scraper->scraped.items[i]));
        }
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void print_url(const struct scrape_target *target, char out[URL_BYTES]) {
    char text[ENDPOINT_TEXT_BYTES];
    struct endpoint_address address = target->address;
    address.port = target->place.port;
    snprintf(out, URL_BYTES, "%s://%s%.*s", target->of->plan->https ? "https" : "http",
             endpoint_address_print(&address, text).ptr, STR_ARG(target->place.source->path));
}

static void ask(struct scrape_target *target, struct page_buffer *buffer) {
    struct scraper *scraper = target->of->scraper;
    char url[URL_BYTES];
    struct error err;
    print_url(target, url);
    const struct scrape_plan *plan = target->of->plan;
    struct http_fetch_tls tls = {.ca = plan->ca_file.len > 0 ? plan->ca_file.ptr : NULL,
                                 .insecure = plan->insecure_skip_verify};
    struct http_fetch_request ask = {
        .tls = plan->https ? &tls : NULL,
        .url = url,
        .timeout_ns = plan->timeout_ns,
        .max_body_size = plan->max_page_bytes,
        .bearer = target->place.token_file.len > 0 ? target->token.text : target->of->token.text,
        .piece = on_piece,
        .done = on_done,
        .user = target,
    };
    target->buffer = buffer;
    target->asked_ns = clock_now_ns();
    target->in_flight = endpoint_in_flight(target->endpoint);
    scrape_page_begin(&buffer->page, &target->place.source->rules);
    if (http_fetch_start(scraper->fetcher, &ask, &target->fetch, &err) != ST_OK) {
        metric_add(METRIC_PICK_SCRAPES_BROKEN, 1);
        pool_count_scrape_failure(target->endpoint);
        scraper_log_failure(target, err.text);
        give_buffer(target);
        put_back(target, false);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct scraper *scraper =
        (struct scraper *)(void *)((char *)timer - offsetof(struct scraper, timer));
    struct page_buffer *buffer;
    scraper->timer_set = false;
    while ((buffer = take_buffer(scraper))) {
        struct scrape_job *job = scrape_schedule_pop_due(&scraper->schedule, clock_now_ns());
        if (!job) {
            buffer->next = scraper->free_buffers;
            scraper->free_buffers = buffer;
            break;
        }
        ask((struct scrape_target *)(void *)job, buffer);
    }
    scraper_set_timer(scraper);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum status scraper_new(struct worker *worker, struct pool_set *pools, struct scraper **out,
                        struct error *err) {
    struct scraper *scraper = calloc(1, sizeof(*scraper));
    if (!scraper) {
        return error_set(err, ST_NO_MEMORY, "no memory for asking endpoints for their loads");
    }
    scraper->worker = worker;
    scraper->timer.on_expire = on_timer_expired;
    scraper_pools_init(scraper);
    scraper->schedule.prng.state = uv_hrtime();
    enum status st = pool_set_reader_new(pools, &scraper->pools, err);
    if (st != ST_OK) {
        scraper_free(scraper);
        return st;
    }
    scraper_refresh(scraper);
    *out = scraper;
    return ST_OK;
}

void scraper_refresh(struct scraper *scraper) {
    scraper_sync_pools(scraper);
}

static void on_stopped(void *user) {
    struct scraper *scraper = user;
    scraper->done(scraper->user);
}

void scraper_stop(struct scraper *scraper, void (*done)(void *user), void *user) {
    per_pool_table_fini(&scraper->scraped);
    timer_stop(worker_timers(scraper->worker), &scraper->timer);
    scraper->done = done;
    scraper->user = user;
    if (scraper->fetcher) {
        http_fetcher_stop(scraper->fetcher, on_stopped, scraper);
    } else {
        done(user);
    }
}

void scraper_free(struct scraper *scraper) {
    if (!scraper) {
        return;
    }
    while (scraper->free_buffers) {
        struct page_buffer *buffer = scraper->free_buffers;
        scraper->free_buffers = buffer->next;
        free(buffer);
    }
    http_fetcher_free(scraper->fetcher);
    per_pool_table_fini(&scraper->scraped);
    pool_set_reader_free(scraper->pools);
    scrape_schedule_fini(&scraper->schedule);
    free(scraper);
}

const struct metric_histogram *scraper_durations(const struct scraper *scraper) {
    return &scraper->times;
}
