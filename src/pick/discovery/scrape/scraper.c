/* Scrapes the endpoints of the pools: follows their snapshots, takes due endpoints from the
 * schedule, fetches their pages and stores their loads. */
#include "pick/discovery/scrape/scraper.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/os/credential.h"
#include "core/os/log_limit.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/scrape/page.h"
#include "pick/discovery/scrape/schedule.h"
#include "pick/pool/set.h"

/* The buffer for a page that is being read. */
struct page_buffer {
    struct page_buffer *next; /* in scraper->free_buffers */
    struct scrape_page page;
};

/* An endpoint that is scraped. */
struct scrape_target {
    struct scrape_job job; /* first: a job is cast to its target */
    struct scraped_pages *pages;
    struct endpoint_address address;
    const struct endpoint *endpoint; /* in the reader's snapshot */
    struct scrape_request request;
    uint64_t request_hash;
    struct scrape_history history;
    struct credential token;  /* its own, if its labels name a file */
    struct http_fetch *fetch; /* the running request; NULL: none */
    struct page_buffer *buffer;
    uint64_t asked_ns;
    uint32_t in_flight; /* when the request was sent */
    bool failing;       /* a failure was logged */
    bool was_late;      /* the last scrape did not count, because this process stood still */
};

/* What the pages of a pool are of. */
enum scraped_kind { SCRAPED_LOADS, SCRAPED_GPUS, N_SCRAPED_KINDS };
static const char *const KIND_NAMES[N_SCRAPED_KINDS] = {"load", "gpu"};

/* The pages of one kind, one of each endpoint. */
struct scraped_pages {
    struct scraped_pool *pool;
    enum scraped_kind kind;
    const struct scrape_plan *plan; /* in the reader's snapshot; NULL: they are not scraped */
    struct scrape_target **targets; /* sorted by address */
    size_t n_targets;
    struct scrape_rate rate;
    struct credential token; /* for endpoints without their own */
};

/* A pool. */
struct scraped_pool {
    struct per_pool per_pool; /* first: the table's item is cast to it */
    struct scraper *scraper;
    struct scraped_pages pages[N_SCRAPED_KINDS];
};

struct scraper {
    struct worker *worker;
    struct pool_set_reader *pools;
    struct http_fetcher *fetcher;
    struct per_pool_table scraped;
    struct scrape_schedule schedule;
    struct timer timer; /* the next target is due */
    bool timer_set;
    uint64_t timer_ns;
    struct page_buffer *free_buffers;
    size_t n_buffers; /* free and in use */
    struct metric_histogram times;
    struct log_limit log_limit;
    void (*done)(void *user);
    void *user;
};

/* The number of concurrent scrapes; each needs a page buffer. */
enum { MAX_CONCURRENT = 256, URL_BYTES = 1200, MIN_AGE_INTERVALS = 3 };

/* ---- page buffers ---------------------------------------------------------------------------- */

static struct page_buffer *take_buffer(struct scraper *scraper) {
    struct page_buffer *buffer = scraper->free_buffers;
    if (buffer) {
        scraper->free_buffers = buffer->next;
    } else if (scraper->n_buffers < MAX_CONCURRENT && (buffer = malloc(sizeof(*buffer)))) {
        scraper->n_buffers++;
    }
    return buffer;
}

static void release_buffer(struct scrape_target *target) {
    struct scraper *scraper = target->pages->pool->scraper;
    target->buffer->next = scraper->free_buffers;
    scraper->free_buffers = target->buffer;
    target->buffer = NULL;
}

/* ---- timer ----------------------------------------------------------------------------------- */

static void scraper_set_timer(struct scraper *scraper) {
    uint64_t next_ns = scrape_schedule_next_ns(&scraper->schedule, clock_now_ns());
    if (next_ns == UINT64_MAX || (scraper->timer_set && scraper->timer_ns <= next_ns)) {
        return;
    }
    timer_start(worker_timers(scraper->worker), &scraper->timer, next_ns);
    scraper->timer_set = true;
    scraper->timer_ns = next_ns;
}

/* Out of memory the target is not scraped again until the pool changes. */
static void reschedule(struct scrape_target *target, bool answered) {
    struct scraper *scraper = target->pages->pool->scraper;
    if (scrape_schedule_put_back(&scraper->schedule, &target->job, target->asked_ns, clock_now_ns(),
                                 answered)) {
        scraper_set_timer(scraper);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static void scraper_log_failure(struct scrape_target *target, const char *reason) {
    struct log_limit *limit = &target->pages->pool->scraper->log_limit;
    if (!target->failing && log_limit_allow(limit)) {
        log_event(LOG_WARNING, "metrics scrape failed",
                  LOG_STR("endpoint", endpoint_text(target->endpoint)),
                  LOG_CSTR("of", KIND_NAMES[target->pages->kind]), LOG_CSTR("reason", reason),
                  LOG_U64("left_out", limit->n_suppressed));
        limit->n_suppressed = 0;
        target->failing = true;
    }
}

static enum metric metric_of(const struct http_fetch_result *fetched) {
    switch ((int)fetched->error.status) {
    case ST_DEADLINE_EXCEEDED:
        return METRIC_PICK_SCRAPES_TIMEOUT;
    case ST_BODY_TOO_LARGE:
        return METRIC_PICK_SCRAPES_TOO_LARGE;
    case ST_OVERLOADED:
    case ST_NO_MEMORY:
        return METRIC_PICK_SCRAPES_LOCAL;
    default:
        return fetched->refused ? METRIC_PICK_SCRAPES_REFUSED : METRIC_PICK_SCRAPES_BROKEN;
    }
}

/* When the load expires: after the configured max_age, or after MIN_AGE_INTERVALS, so that two
 * failed scrapes in a row do not expire it. */
static uint64_t load_expires_ns(const struct scrape_target *target) {
    const struct scrape_plan *plan = target->pages->plan;
    uint64_t interval_ns =
        scrape_schedule_interval_ns(&target->pages->pool->scraper->schedule, &target->pages->rate);
    uint64_t age_ns = MIN_AGE_INTERVALS * interval_ns + plan->timeout_ns;
    return target->asked_ns + (age_ns > plan->max_age_ns ? age_ns : plan->max_age_ns);
}

/* Returns: the metric that counts the result; METRIC_PICK_SCRAPES_OK if the load was stored. */
static enum metric apply_response(struct scrape_target *target,
                                  const struct http_fetch_result *fetched, struct error *err) {
    struct pool *pool = target->pages->pool->per_pool.pool;
    const struct scrape_plan *plan = target->pages->plan;
    struct endpoint_load load;
    struct attribute_report attributes;
    if (fetched->error.status != ST_OK) {
        *err = fetched->error;
        return metric_of(fetched);
    }
    if (fetched->status != 200) {
        error_set(err, ST_BAD_ANSWER, "answered with status %d, expected 200", fetched->status);
        return METRIC_PICK_SCRAPES_STATUS;
    }
    if (scrape_page_end(&target->buffer->page, target->asked_ns, &target->history, &load,
                        &attributes, err) != ST_OK) {
        return METRIC_PICK_SCRAPES_SERIES;
    }
    load.asked_ns = target->asked_ns;
    load.until_ns = attributes.until_ns = load_expires_ns(target);
    load.in_flight = target->in_flight;
    if (attributes.known != 0) {
        pool_set_attributes(pool, target->endpoint, plan->attributes, plan->n_attributes,
                            &attributes);
    }
    if (target->pages->kind == SCRAPED_LOADS) {
        pool_set_load(pool, target->endpoint, &load);
    }
    return METRIC_PICK_SCRAPES_OK;
}

/* Whether the scrape failed only because this process stood still for longer than its timeout. A
 * second time in a row it counts. */
static bool is_late(struct scrape_target *target, const struct http_fetch_result *fetched) {
    uint64_t end_ns = target->asked_ns + target->pages->plan->timeout_ns;
    target->was_late = fetched->error.status != ST_OK && !target->was_late &&
                       timer_is_late(end_ns, clock_now_ns());
    return target->was_late;
}

static void on_done(void *user, const struct http_fetch_result *fetched) {
    struct scrape_target *target = user;
    struct scraper *scraper = target->pages->pool->scraper;
    struct error err = {.status = ST_OK};
    target->fetch = NULL;
    if (fetched->error.status != ST_CANCELLED && is_late(target, fetched)) {
        metric_add(METRIC_PICK_SCRAPES_LOCAL, 1);
        reschedule(target, true);
    } else if (fetched->error.status != ST_CANCELLED) {
        enum metric metric = apply_response(target, fetched, &err);
        metric_add(metric, 1);
        metric_histogram_add_ns(&scraper->times, clock_now_ns() - target->asked_ns);
        if (metric == METRIC_PICK_SCRAPES_OK) {
            if (target->failing) {
                target->failing = false;
                log_event(LOG_INFO, "metrics scrape recovered",
                          LOG_STR("endpoint", endpoint_text(target->endpoint)),
                          LOG_CSTR("of", KIND_NAMES[target->pages->kind]));
            }
        } else {
            if (metric != METRIC_PICK_SCRAPES_LOCAL) {
                pool_count_scrape_failure(target->endpoint);
            }
            scraper_log_failure(target, err.text);
        }
        reschedule(target, metric == METRIC_PICK_SCRAPES_OK);
    }
    release_buffer(target);
}

static void on_piece(void *user, struct str bytes) {
    struct scrape_target *target = user;
    scrape_page_read(&target->buffer->page, bytes);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void scraper_cancel(struct scrape_target *target) {
    if (target->fetch) {
        http_fetch_cancel(target->fetch);
        target->fetch = NULL;
        release_buffer(target);
    }
}

enum { MAX_IDLE_CONNECTIONS = 4096 };

/* ---- targets --------------------------------------------------------------------------------- */

static void drop_target(struct scrape_target *target) {
    scraper_cancel(target);
    scrape_schedule_remove(&target->pages->pool->scraper->schedule, &target->job);
    credential_fini(&target->token);
    free(target);
}

/* The target is new, or is scraped in another way than before: then a running scrape is cancelled
 * and scheduled again. */
static void begin_target(struct scraped_pages *pages, struct scrape_target *target, bool is_new) {
    struct scrape_schedule *schedule = &pages->pool->scraper->schedule;
    bool under_way = target->fetch != NULL;
    target->history = (struct scrape_history){0};
    scraper_cancel(target);
    if (!is_new && under_way) {
        scrape_schedule_remove(schedule, &target->job);
    }
    if ((is_new || under_way) &&
        !scrape_schedule_add(schedule, &target->job, &pages->rate, clock_now_ns())) {
        scraper_log_failure(target, "out of memory for the scrape");
    }
}

static struct scrape_target *target_new(struct scraped_pages *pages,
                                        const struct pool_member *member) {
    struct scrape_target *target = calloc(1, sizeof(*target));
    if (target) {
        target->pages = pages;
        target->address = member->address;
    }
    return target;
}

/* Returns: the member's target, the old one or a new one; NULL if it can't be scraped, or out of
 * memory. */
static struct scrape_target *target_of(struct scraped_pages *pages,
                                       const struct pool_member *member,
                                       struct scrape_target *old) {
    struct pool_spec_endpoint wanted = {.address = member->address,
                                        .node = member->node,
                                        .labels = member->labels,
                                        .name = member->name};
    struct scrape_request request;
    if (!pages->plan || !scrape_plan_resolve(pages->plan, &wanted, &request)) {
        return NULL;
    }
    struct scrape_target *target = old ? old : target_new(pages, member);
    if (target) {
        uint64_t hash = scrape_request_hash(pages->plan, &request);
        bool same = old && target->request_hash == hash && target->endpoint == member->endpoint;
        target->request = request;
        target->request_hash = hash;
        target->endpoint = member->endpoint;
        if (same) {
            /* Only its rules are elsewhere. What runs goes on: the pool may change more often than
             * a page is read. */
            if (target->fetch) {
                scrape_page_move_rules(&target->buffer->page, &target->request.source->rules,
                                       target->request.pod);
            }
        } else {
            begin_target(pages, target, !old);
        }
    }
    return target;
}

/* Both lists are sorted by address. */
static void merge_targets(struct scraped_pages *pages, const struct pool_snapshot *snapshot) {
    struct scrape_target **targets =
        calloc(snapshot->n_members + 1, sizeof(struct scrape_target *));
    size_t n = 0, old = 0;
    for (uint32_t i = 0; targets && i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        int order = -1;
        while (old < pages->n_targets &&
               (order = endpoint_address_compare(&pages->targets[old]->address, &member->address)) <
                   0) {
            drop_target(pages->targets[old++]);
        }
        struct scrape_target *same =
            old < pages->n_targets && order == 0 ? pages->targets[old++] : NULL;
        struct scrape_target *target = target_of(pages, member, same);
        if (target) {
            targets[n++] = target;
        } else if (same) {
            drop_target(same);
        }
    }
    while (old < pages->n_targets) {
        drop_target(pages->targets[old++]);
    }
    free(pages->targets);
    pages->targets = targets;
    pages->n_targets = n;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* If the file can't be read the endpoint is scraped without a token. */
static void refresh_token(struct credential *token, struct str path) {
    struct error ignored;
    if (credential_set_file(token, path)) {
        (void)!credential_refresh(token, true, &ignored);
    }
}

/* To be called before scrapes start. */
static void refresh_tokens(struct scraped_pages *pages) {
    const struct scrape_plan *plan = pages->plan;
    refresh_token(&pages->token, plan ? plan->token_file : STR(""));
    for (size_t i = 0; i < pages->n_targets; i++) {
        struct scrape_target *target = pages->targets[i];
        refresh_token(&target->token, target->request.token_file);
    }
}

/* ---- pools ----------------------------------------------------------------------------------- */

static struct scraped_pool *scraped_of(struct per_pool *item) {
    return (struct scraped_pool *)(void *)item;
}

static void free_scraped_pool(void *user, struct per_pool *item) {
    struct scraped_pool *scraped = scraped_of(item);
    (void)user;
    for (size_t k = 0; k < N_SCRAPED_KINDS; k++) {
        struct scraped_pages *pages = &scraped->pages[k];
        for (size_t i = 0; i < pages->n_targets; i++) {
            drop_target(pages->targets[i]);
        }
        credential_fini(&pages->token);
        free(pages->targets);
    }
    free(scraped);
}

/* Returns: the pool's plan, for which the fetcher is made. */
static const struct scrape_plan *plan_of(struct scraper *scraper,
                                         const struct pool_snapshot *snapshot,
                                         enum scraped_kind kind) {
    const struct pool_spec *spec = snapshot->spec;
    const struct scrape_plan *plan = !spec                   ? NULL
                                     : kind == SCRAPED_LOADS ? spec->scrape
                                                             : spec->scrape_gpus;
    struct error err;
    if (plan && !scraper->fetcher &&
        http_fetcher_new(scraper->worker, NULL, 1, &scraper->fetcher, &err) != ST_OK) {
        log_event(LOG_ERROR, "metrics scraping can't start", LOG_CSTR("reason", err.text));
        return NULL;
    }
    return plan;
}

/* Sets the common rate: the shortest interval and the highest limit of all pools. */
static void update_rate(struct scraper *scraper) {
    uint64_t interval_ns = UINT64_MAX;
    uint32_t most_per_second = 0;
    for (size_t i = 0; i < scraper->scraped.n_slots * N_SCRAPED_KINDS; i++) {
        struct per_pool *item = scraper->scraped.items[i / N_SCRAPED_KINDS];
        const struct scrape_plan *plan =
            item ? scraped_of(item)->pages[i % N_SCRAPED_KINDS].plan : NULL;
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

/* Returns: the pool has changed. */
static bool sync_pool(struct scraper *scraper, const struct pool_entry *entry) {
    struct scraped_pool *scraped = scraped_of(scraper->scraped.items[entry->slot]);
    struct pool_reader *reader = pool_set_reader_get(scraper->pools, entry);
    const struct pool_snapshot *snapshot = reader ? pool_reader_refresh(reader) : NULL;
    if (!snapshot || snapshot->generation == scraped->per_pool.generation) {
        return false;
    }
    scraped->scraper = scraper;
    scraped->per_pool.generation = snapshot->generation;
    for (size_t k = 0; k < N_SCRAPED_KINDS; k++) {
        struct scraped_pages *pages = &scraped->pages[k];
        pages->pool = scraped;
        pages->kind = (enum scraped_kind)k;
        pages->plan = plan_of(scraper, snapshot, pages->kind);
        if (pages->plan) {
            scrape_rate_set(&pages->rate, pages->plan->interval_ns, pages->plan->most_per_second);
        }
        merge_targets(pages, snapshot);
    }
    return true;
}

static void sync_pools(struct scraper *scraper) {
    const struct pool_list *list = pool_set_reader_refresh(scraper->pools);
    bool changed = list->generation != scraper->scraped.generation;
    if (!per_pool_table_sync(&scraper->scraped, list)) {
        log_message(LOG_ERROR, "out of memory for metrics scrapes");
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        changed = sync_pool(scraper, &list->entries[i]) || changed;
    }
    if (!changed) {
        return;
    }
    update_rate(scraper);
    if (scraper->fetcher) {
        size_t n = scraper->schedule.all.n_jobs;
        http_fetcher_set_max_idle(
            scraper->fetcher, (unsigned)(n < MAX_IDLE_CONNECTIONS ? n : MAX_IDLE_CONNECTIONS) + 1);
    }
    scraper_set_timer(scraper);
}

/* ---- scraping -------------------------------------------------------------------------------- */

static void start_scrape(struct scrape_target *target, struct page_buffer *buffer) {
    struct scraper *scraper = target->pages->pool->scraper;
    char url[URL_BYTES];
    struct error err;
    char text[ENDPOINT_TEXT_BYTES];
    snprintf(url, URL_BYTES, "%s://%s%.*s", target->pages->plan->https ? "https" : "http",
             endpoint_address_print(&target->request.host, text).ptr,
             STR_ARG(target->request.source->path));
    const struct scrape_plan *plan = target->pages->plan;
    struct http_fetch_tls tls = {.ca = plan->ca_file.len > 0 ? plan->ca_file.ptr : NULL,
                                 .cert = plan->cert_file.len > 0 ? plan->cert_file.ptr : NULL,
                                 .key = plan->key_file.len > 0 ? plan->key_file.ptr : NULL,
                                 .insecure = plan->insecure_skip_verify};
    struct http_fetch_request ask = {
        .tls = plan->https ? &tls : NULL,
        .url = url,
        .timeout_ns = plan->timeout_ns,
        .max_body_size = plan->max_page_bytes,
        .bearer =
            target->request.token_file.len > 0 ? target->token.text : target->pages->token.text,
        .piece = on_piece,
        .done = on_done,
        .user = target,
    };
    target->buffer = buffer;
    target->asked_ns = clock_now_ns();
    target->in_flight = endpoint_in_flight(target->endpoint);
    scrape_page_begin(&buffer->page, &target->request.source->rules, target->request.pod);
    if (http_fetch_start(scraper->fetcher, &ask, &target->fetch, &err) != ST_OK) {
        metric_add(METRIC_PICK_SCRAPES_BROKEN, 1);
        pool_count_scrape_failure(target->endpoint);
        scraper_log_failure(target, err.text);
        release_buffer(target);
        reschedule(target, false);
    }
}

static void on_timer_expired(struct timer *timer) {
    struct scraper *scraper = CONTAINER_OF(timer, struct scraper, timer);
    struct page_buffer *buffer;
    scraper->timer_set = false;
    while ((buffer = take_buffer(scraper))) {
        struct scrape_job *job = scrape_schedule_pop_due(&scraper->schedule, clock_now_ns());
        if (!job) {
            buffer->next = scraper->free_buffers;
            scraper->free_buffers = buffer;
            break;
        }
        start_scrape((struct scrape_target *)(void *)job, buffer);
    }
    scraper_set_timer(scraper);
}

/* ---- new, stop, free ------------------------------------------------------------------------- */

enum status scraper_new(struct worker *worker, struct pool_set *pools, struct scraper **out,
                        struct error *err) {
    struct scraper *scraper = calloc(1, sizeof(*scraper));
    if (!scraper) {
        return error_no_memory(err, "metrics scrapes");
    }
    scraper->worker = worker;
    scraper->timer.on_expire = on_timer_expired;
    scraper->scraped = (struct per_pool_table){.item_bytes = sizeof(struct scraped_pool),
                                               .free_item = free_scraped_pool};
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
    sync_pools(scraper);
    for (size_t i = 0; i < scraper->scraped.n_slots; i++) {
        struct per_pool *item = scraper->scraped.items[i];
        for (size_t k = 0; item && k < N_SCRAPED_KINDS; k++) {
            refresh_tokens(&scraped_of(item)->pages[k]);
        }
    }
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
