/* Targets between the pools, the schedule and the fetcher. */
#include "pick/discovery/scrape/scraper.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/discovery/scrape/scraper_state.h"

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

void scraper_set_timer(struct scraper *scraper) {
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

void scraper_log_failure(struct scrape_target *target, const char *reason) {
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

/* ---- giving up ------------------------------------------------------------------------------- */

void scraper_cancel(struct scrape_target *target) {
    if (target->fetch) {
        http_fetch_cancel(target->fetch);
        target->fetch = NULL;
        give_buffer(target);
    }
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
