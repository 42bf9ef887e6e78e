/* Fixture for the fetch tests: a fetcher on a worker of its own, steps that run there, and the
 * result of each fetch. */
#ifndef SLUICE_NET_CLIENT_HTTP_FETCH_FIXTURE_H
#define SLUICE_NET_CLIENT_HTTP_FETCH_FIXTURE_H

#include <pthread.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/client/http_fetch.h"
#include "net/server/http/server_fixture.h"

enum { SECOND = 1000000000, MOST = 64, URL_BYTES = 200 };

/* Result of a fetch. */
struct got {
    struct rig *rig;
    struct http_fetch *fetch;
    enum status status;
    char why[ERROR_TEXT_BYTES];
    bool refused, done;
    int http;
    uint64_t retry_after_s;
    char type[40], body[200];
    size_t n_body;
};

struct rig {
    struct worker *worker;
    struct http_fetcher *fetcher;
    struct worker_msg msg;
    void (*step)(struct rig *rig);
    struct got got[MOST];
    char url[URL_BYTES];           /* for the next steps */
    struct http_fetch_request ask; /* for the next steps */
    int n_asked, n_done, n_expected;
    bool ended; /* the condition the test waits for */
    struct lock lock;
    struct lock_cond cond;
    size_t n_pieces, n_piece_bytes;
};

/* ---- running --------------------------------------------------------------------------------- */

/* Runs on the worker. */
static inline void end(struct rig *rig) {
    lock_acquire(&rig->lock);
    rig->ended = true;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

static inline void wait_for_end(struct rig *rig) {
    lock_acquire(&rig->lock);
    while (!rig->ended) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    rig->ended = false;
    lock_release(&rig->lock);
}

static inline void on_done(void *user, const struct http_fetch_result *fetched) {
    struct got *got = user;
    struct rig *rig = got->rig;
    assert_true(worker_is_current(rig->worker));
    assert_false(got->done);
    got->done = true;
    got->fetch = NULL;
    got->status = fetched->error.status;
    got->refused = fetched->refused;
    got->http = fetched->status;
    got->retry_after_s = fetched->retry_after_s;
    got->n_body = fetched->body.len;
    snprintf(got->why, sizeof(got->why), "%s",
             fetched->error.status == ST_OK ? "" : fetched->error.text);
    snprintf(got->type, sizeof(got->type), "%.*s", STR_ARG(fetched->content_type));
    snprintf(got->body, sizeof(got->body), "%.*s", STR_ARG(fetched->body));
    if (++rig->n_done == rig->n_expected) {
        end(rig);
    }
}

static inline struct got *begin(struct rig *rig, const char *url) {
    struct got *got = &rig->got[rig->n_asked++];
    struct http_fetch_request ask = rig->ask;
    struct error err;
    *got = (struct got){.rig = rig};
    ask.url = url;
    ask.done = on_done;
    ask.user = ask.piece ? (void *)rig : (void *)got;
    assert_int_equal(http_fetch_start(rig->fetcher, &ask, &got->fetch, &err), ST_OK);
    assert_false(got->done);
    return got;
}

static inline void on_step(struct worker_msg *msg) {
    struct rig *rig = CONTAINER_OF(msg, struct rig, msg);
    rig->step(rig);
}

static inline void post(struct rig *rig, void (*step)(struct rig *rig)) {
    rig->step = step;
    rig->msg.run = on_step;
    worker_post(rig->worker, &rig->msg);
    wait_for_end(rig);
}

/* Runs `step` on the loop and waits until `n` fetches have ended. */
static inline void run(struct rig *rig, void (*step)(struct rig *rig), int n) {
    rig->n_asked = rig->n_done = 0;
    rig->n_expected = n;
    post(rig, step);
    assert_int_equal(rig->n_done, n);
}

static inline void rig_init(struct rig *rig, const struct http_fetch_tls *tls) {
    struct error err;
    *rig = (struct rig){.ask = {.timeout_ns = UINT64_C(60) * SECOND, .max_body_size = 100}};
    lock_init(&rig->lock);
    lock_cond_init(&rig->cond);
    assert_int_equal(worker_new("fetch", &rig->worker, &err), ST_OK);
    assert_int_equal(http_fetcher_new(rig->worker, tls, 8, &rig->fetcher, &err), ST_OK);
    assert_int_equal(worker_start(rig->worker, &err), ST_OK);
}

static inline void on_stopped(void *user) {
    end(user);
}

static inline void step_stop(struct rig *rig) {
    http_fetcher_stop(rig->fetcher, on_stopped, rig);
}

/* `stop`: step_stop or a replacement for it. */
static inline void rig_end(struct rig *rig, void (*stop)(struct rig *rig)) {
    post(rig, stop);
    worker_stop(rig->worker);
    worker_join(rig->worker);
    http_fetcher_free(rig->fetcher);
    worker_free(rig->worker);
    lock_cond_fini(&rig->cond);
    lock_fini(&rig->lock);
}

static inline void rig_fini(struct rig *rig) {
    rig_end(rig, step_stop);
}

static inline void set_url(struct rig *rig, const struct address *address, const char *scheme,
                           const char *path) {
    char text[ADDRESS_TEXT_BYTES];
    snprintf(rig->url, sizeof(rig->url), "%s://%s%s", scheme, address_print(address, text), path);
}

static inline void step_one(struct rig *rig) {
    begin(rig, rig->url);
}

static const struct got *fetch(struct rig *rig, const struct address *address, const char *path) {
    set_url(rig, address, "http", path);
    run(rig, step_one, 1);
    return &rig->got[0];
}

static inline int listen_at(struct address *out) {
    struct error err;
    assert_int_equal(address_parse(STR("127.0.0.1:0"), out, &err), ST_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&out->storage, out->len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&out->storage, &out->len), 0);
    return fd;
}

/* Reads up to the empty line. Returns: length of the head. */
static inline size_t read_head(int fd, char *head, size_t n_room) {
    size_t n = 0;
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
        assert_true(n < n_room);
        assert_int_equal(test_read(fd, head + n++, 1), 1);
    }
    return n;
}

#endif
