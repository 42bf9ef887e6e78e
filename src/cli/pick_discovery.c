/* A timer over what changes. */
#include "cli/pick_discovery.h"

#include <time.h>

#include "net/tls_server.h"

enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool *pool, struct error *err) {
    struct pool_watch_options options = pick_pool_options(settings);
    self->settings = settings;
    self->pool = pool;
    return pool_watch_new(&options, pool, &self->watch, err);
}

static void on_timer(uv_timer_t *timer) {
    struct pick_discovery *self = timer->data;
    if (pool_watch_check(self->watch)) {
        self->changed(self->changed_cookie);
    }
    scraper_look(self->scraper);
    if (self->tls) {
        tls_server_check(self->tls, time(NULL));
    }
}

enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*changed)(void *cookie),
                                 void *cookie, struct error *err) {
    uint64_t ms = self->settings->reload_interval_ns / 1000000;
    enum status st = scraper_new(main, self->pool, &self->scraper, err);
    if (st != ST_OK) {
        return st;
    }
    self->tls = tls;
    self->changed = changed;
    self->changed_cookie = cookie;
    uv_timer_init(worker_loop(main), &self->timer); /* cannot fail */
    self->timer.data = self;
    self->timing = true;
    uv_timer_start(&self->timer, on_timer, ms, ms);
    return ST_OK;
}

static void on_stopped(void *cookie) {
    struct pick_discovery *self = cookie;
    if (--self->n_stopping == 0) {
        self->stopped(self->stopped_cookie);
    }
}

static void on_closed(uv_handle_t *handle) {
    on_stopped(handle->data);
}

void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *cookie), void *cookie) {
    if (!self->timing) {
        stopped(cookie);
        return;
    }
    self->timing = false;
    self->stopped = stopped;
    self->stopped_cookie = cookie;
    self->n_stopping = 2;
    uv_close((uv_handle_t *)&self->timer, on_closed);
    scraper_stop(self->scraper, on_stopped, self);
}

void pick_discovery_free(struct pick_discovery *self) {
    scraper_free(self->scraper);
    pool_watch_free(self->watch);
}
