/* Which endpoints are asked, and how: the scraper follows the list of pools, and each of them. */
#include "pick/discovery/scrape/scraper_state.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "core/event/clock.h"

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

void scraper_pools_init(struct scraper *scraper) {
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

void scraper_sync_pools(struct scraper *scraper) {
    follow_pools(scraper);
    for (size_t i = 0; i < scraper->scraped.n_slots; i++) {
        if (scraper->scraped.items[i]) {
            look_at_tokens(scraped_of(scraper->scraped.items[i]));
        }
    }
}
