/* For tests of an API server's clients: a server that follows a script, over plain HTTP, a client
 * on a worker of its own, and a record of events. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_KUBE_FIXTURE_H
#define SLUICE_PICK_DISCOVERY_KUBE_KUBE_FIXTURE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/num.h"
#include "core/event/lock.h"
#include "net/server/server_fixture.h"
#include "pick/discovery/kube/client.h"

enum { KUBE_HEAD_BYTES = 4096, KUBE_MOST_HELD = 16, KUBE_RECORD_BYTES = 8192 };

enum kube_ending {
    KUBE_CLOSES, /* after the whole response */
    KUBE_HOLDS,  /* the connection stays open, the response incomplete */
    KUBE_BREAKS, /* within the response */
    KUBE_SLOW,   /* byte by byte, then complete */
};

/* A step of the script: one request on a connection of its own. */
struct kube_step {
    const char *asked[4]; /* texts that the request's head must contain */
    const char *status;   /* NULL: "200 OK"; "": no response */
    const char *fields;   /* NULL: none; "Retry-After: 1\r\n" */
    const char *body;
    enum kube_ending ending;
};

struct kube_rig {
    /* The server. */
    int fd;
    struct address address;
    const struct kube_step *steps;
    size_t n_steps;
    int held[KUBE_MOST_HELD];
    size_t n_held;
    char seen[KUBE_HEAD_BYTES]; /* the last request: head and body */
    pthread_t thread;
    /* The client. */
    char folder[64];
    struct worker *worker;
    struct kube_client *client;
    struct worker_msg msg;
    void (*step)(struct kube_rig *rig);
    void *user;
    /* The record. */
    struct lock lock;
    struct lock_cond cond;
    bool ended;
    char record[KUBE_RECORD_BYTES];
    size_t n_record;
};

/* ---- the record ------------------------------------------------------------------------------ */

static inline void __attribute__((format(printf, 2, 3)))
kube_note(struct kube_rig *rig, const char *format, ...) {
    va_list args;
    lock_acquire(&rig->lock);
    va_start(args, format);
    int n =
        vsnprintf(rig->record + rig->n_record, sizeof(rig->record) - rig->n_record, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof(rig->record) - rig->n_record);
    rig->n_record += (size_t)n;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

/* Waits until the record has this text, and clears it. */
static inline void kube_expect(struct kube_rig *rig, const char *wanted) {
    size_t n = strlen(wanted);
    lock_acquire(&rig->lock);
    while (rig->n_record < n && strncmp(rig->record, wanted, rig->n_record) == 0) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    if (strcmp(rig->record, wanted) != 0) {
        fail_msg("expected: %s\ngot: %s", wanted, rig->record);
    }
    rig->n_record = 0;
    rig->record[0] = '\0';
    lock_release(&rig->lock);
}

/* Waits until the record begins with this text. */
static inline void kube_expect_start(struct kube_rig *rig, const char *wanted) {
    lock_acquire(&rig->lock);
    while (rig->n_record == 0) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    if (strncmp(rig->record, wanted, strlen(wanted)) != 0) {
        fail_msg("expected: %s…\ngot: %s", wanted, rig->record);
    }
    rig->n_record = 0;
    rig->record[0] = '\0';
    lock_release(&rig->lock);
}

/* ---- the server ------------------------------------------------------------------------------ */

static inline void kube_read_request(struct kube_rig *rig, int fd) {
    size_t n = 0;
    uint64_t n_body = 0;
    while (n < 4 || memcmp(rig->seen + n - 4, "\r\n\r\n", 4) != 0) {
        assert_true(n < sizeof(rig->seen) - 1);
        assert_int_equal(test_read(fd, rig->seen + n++, 1), 1);
    }
    rig->seen[n] = '\0';
    const char *length = strstr(rig->seen, "Content-Length: ");
    if (length) {
        length += strlen("Content-Length: ");
        assert_true(num_parse_u64(str_make(length, strcspn(length, "\r")), &n_body));
    }
    assert_true(n + n_body < sizeof(rig->seen));
    assert_int_equal(test_read(fd, rig->seen + n, n_body), n_body);
    rig->seen[n + n_body] = '\0';
}

/* The client may have closed the connection. */
static inline void kube_send(int fd, struct str text) {
    (void)test_try_send(fd, text.ptr, text.len);
}

static inline void kube_answer_step(const struct kube_step *step, int fd) {
    static const char head[] = "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%s"
                               "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    char text[KUBE_HEAD_BYTES];
    const char *body = step->body ? step->body : "";
    size_t n = strlen(body), n_piece = step->ending == KUBE_SLOW ? 1 : n;
    int len = snprintf(text, sizeof(text), head, step->status ? step->status : "200 OK",
                       step->fields ? step->fields : "");
    kube_send(fd, str_make(text, (size_t)len));
    for (size_t at = 0; at < n; at += n_piece) {
        len = snprintf(text, sizeof(text), "%zx\r\n", n_piece);
        kube_send(fd, str_make(text, (size_t)len));
        kube_send(fd, str_make(body + at, n_piece));
        kube_send(fd, STR("\r\n"));
    }
    if (step->ending == KUBE_CLOSES || step->ending == KUBE_SLOW) {
        kube_send(fd, STR("0\r\n\r\n"));
    }
}

static inline void kube_serve_step(struct kube_rig *rig, const struct kube_step *step) {
    int fd = accept(rig->fd, NULL, NULL);
    assert_true(fd >= 0);
    kube_read_request(rig, fd);
    for (size_t i = 0; i < 4 && step->asked[i]; i++) {
        if (!strstr(rig->seen, step->asked[i])) {
            fail_msg("step %zu: expected \"%s\" in: %s", step - rig->steps, step->asked[i],
                     rig->seen);
        }
    }
    if (!step->status || step->status[0] != '\0') {
        kube_answer_step(step, fd);
    }
    if (step->ending == KUBE_HOLDS) {
        rig->held[rig->n_held++] = fd;
    } else {
        close(fd);
    }
}

static inline void *kube_serve(void *arg) {
    struct kube_rig *rig = arg;
    for (size_t i = 0; i < rig->n_steps; i++) {
        kube_serve_step(rig, &rig->steps[i]);
    }
    return NULL;
}

static inline void kube_listen(struct kube_rig *rig) {
    struct error err;
    assert_int_equal(address_parse(STR("127.0.0.1:0"), &rig->address, &err), ST_OK);
    rig->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(rig->fd >= 0);
    assert_int_equal(bind(rig->fd, (struct sockaddr *)&rig->address.storage, rig->address.len), 0);
    assert_int_equal(listen(rig->fd, 8), 0);
    assert_int_equal(
        getsockname(rig->fd, (struct sockaddr *)&rig->address.storage, &rig->address.len), 0);
}

/* ---- the client ------------------------------------------------------------------------------ */

static inline void kube_write(const struct kube_rig *rig, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", rig->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A kubeconfig with this user. Returns: its path, in a static buffer. */
static inline const char *kube_write_config(const struct kube_rig *rig, const char *user) {
    static char path[128];
    char text[ADDRESS_TEXT_BYTES], config[2048];
    snprintf(
        config, sizeof(config),
        "{\"current-context\": \"x\","
        " \"contexts\": [{\"name\": \"x\", \"context\": {\"cluster\": \"c\", \"user\": \"u\"}}],"
        " \"clusters\": [{\"name\": \"c\", \"cluster\": {\"server\": \"http://%s\"}}],"
        " \"users\": [{\"name\": \"u\", \"user\": %s}]}",
        address_print(&rig->address, text), user);
    kube_write(rig, "config", config);
    snprintf(path, sizeof(path), "%s/config", rig->folder);
    return path;
}

static inline void kube_on_msg(struct worker_msg *msg) {
    struct kube_rig *rig = CONTAINER_OF(msg, struct kube_rig, msg);
    rig->step(rig);
}

static inline void kube_end(void *user) {
    struct kube_rig *rig = user;
    lock_acquire(&rig->lock);
    rig->ended = true;
    lock_cond_broadcast(&rig->cond);
    lock_release(&rig->lock);
}

/* Runs `step` on the worker until it calls kube_end. */
static inline void kube_run(struct kube_rig *rig, void (*step)(struct kube_rig *rig)) {
    rig->step = step;
    rig->msg.run = kube_on_msg;
    worker_post(rig->worker, &rig->msg);
    lock_acquire(&rig->lock);
    while (!rig->ended) {
        lock_cond_wait(&rig->lock, &rig->cond);
    }
    rig->ended = false;
    lock_release(&rig->lock);
}

static inline void kube_rig_init(struct kube_rig *rig, const char *user) {
    struct kube_config *config;
    struct error err;
    *rig = (struct kube_rig){.folder = "/tmp/sluice-kube-XXXXXX"};
    lock_init(&rig->lock);
    lock_cond_init(&rig->cond);
    assert_non_null(mkdtemp(rig->folder));
    kube_listen(rig);
    struct kube_config_options ask = {.kubeconfig = kube_write_config(rig, user)};
    if (kube_config_load(&ask, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(worker_new("kube", &rig->worker, &err), ST_OK);
    assert_int_equal(kube_client_new(rig->worker, config, &rig->client, &err), ST_OK);
    assert_int_equal(worker_start(rig->worker, &err), ST_OK);
}

static inline void kube_rig_serve(struct kube_rig *rig, const struct kube_step *steps,
                                  size_t n_steps) {
    rig->steps = steps;
    rig->n_steps = n_steps;
    assert_int_equal(pthread_create(&rig->thread, NULL, kube_serve, rig), 0);
}

/* Waits until every step of the script was requested. Held connections stay open. */
static inline void kube_rig_served(struct kube_rig *rig) {
    pthread_join(rig->thread, NULL);
}

static inline void kube_rig_let_go(struct kube_rig *rig) {
    while (rig->n_held > 0) {
        close(rig->held[--rig->n_held]);
    }
}

static inline void kube_step_stop(struct kube_rig *rig) {
    kube_client_stop(rig->client, kube_end, rig);
}

/* Stops the client; the record stays. */
static inline void kube_rig_end(struct kube_rig *rig) {
    kube_run(rig,
             kube_step_stop); /* before held connections are closed, which would be a response */
    kube_rig_let_go(rig);
    worker_stop(rig->worker);
    worker_join(rig->worker);
    kube_client_free(rig->client);
    worker_free(rig->worker);
    if (rig->fd >= 0) {
        close(rig->fd);
    }
}

static inline void kube_rig_clean(struct kube_rig *rig) {
    static const char *const files[] = {"config", "token", "program", "runs"};
    char path[128];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", rig->folder, files[i]);
        unlink(path);
    }
    rmdir(rig->folder);
    lock_cond_fini(&rig->cond);
    lock_fini(&rig->lock);
}

static inline void kube_rig_fini(struct kube_rig *rig) {
    kube_rig_end(rig);
    kube_rig_clean(rig);
}

#endif
