/* A table of answers by hash, with open addressing within a short row: a full row replaces the
 * answer that expires first. */
#include "pick/discovery/kube/access.h"

#include <stdlib.h>
#include <string.h>

#include "codec/kube/review.h"
#include "core/base/hash.h"
#include "core/base/random.h"
#include "core/event/clock.h"

enum { ROW = 8 };
static const uint64_t NS_PER_S = 1000000000;

/* Zeroed memory is empty. */
struct answer {
    struct keyed_hash key;
    uint64_t until_ns;
    enum status status;
};

/* What the API server is being asked. */
struct question {
    LIST_ENTRY(question) link;
    struct kube_access *access;
    struct keyed_hash key;
    LIST_HEAD(, kube_access_waiter) waiters;
    struct arena *arena; /* of the texts */
    struct str verb, path;
    uint64_t until_ns;
};

struct kube_access {
    struct kube_client *client;
    struct hash_key key;
    LIST_HEAD(, question) questions;
    size_t n_questions, n_waiting;
    struct answer answers[KUBE_ACCESS_MAX_KEPT];
};

enum status kube_access_new(struct kube_client *client, struct kube_access **out,
                            struct error *err) {
    struct kube_access *access = calloc(1, sizeof(*access));
    if (!access) {
        return error_no_memory(err, "the answers about clients");
    }
    access->client = client;
    hash_key_init(&access->key);
    *out = access;
    return ST_OK;
}

void kube_access_free(struct kube_access *access) {
    free(access);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct answer *row_of(struct kube_access *access, struct keyed_hash key) {
    return &access->answers[key.low % (KUBE_ACCESS_MAX_KEPT / ROW) * ROW];
}

static const struct answer *find_answer(struct kube_access *access, struct keyed_hash key) {
    const struct answer *row = row_of(access, key);
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < ROW; i++) {
        if (row[i].until_ns > now_ns && keyed_hash_eq(row[i].key, key)) {
            return &row[i];
        }
    }
    return NULL;
}

static void keep_answer(struct kube_access *access, struct keyed_hash key, enum status status) {
    struct answer *row = row_of(access, key), *place = row;
    for (size_t i = 0; i < ROW; i++) {
        place = row[i].until_ns < place->until_ns ? &row[i] : place;
    }
    uint64_t seconds = status == ST_OK ? KUBE_ACCESS_ALLOWED_S : KUBE_ACCESS_DENIED_S;
    *place = (struct answer){key, clock_now_ns() + seconds * NS_PER_S, status};
}

static enum status set_error(enum status status, struct error *err) {
    err->status = ST_OK;
    return status == ST_UNAUTHENTICATED
               ? error_set(err, status, "expected a bearer token of a user of the cluster")
           : status == ST_ACCESS_DENIED
               ? error_set(err, status, "the user of the token may not read this page")
               : ST_OK;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void end_question(struct question *question, const struct error *err) {
    struct kube_access *access = question->access;
    struct kube_access_waiter *waiter;
    bool is_answer = err->status == ST_OK || err->status == ST_UNAUTHENTICATED ||
                     err->status == ST_ACCESS_DENIED;
    LIST_REMOVE(question, link);
    access->n_questions--;
    if (is_answer) {
        keep_answer(access, question->key, err->status);
    }
    while ((waiter = LIST_FIRST(&question->waiters))) {
        LIST_REMOVE(waiter, link);
        access->n_waiting--;
        waiter->done(waiter, err);
    }
    arena_free(question->arena);
    free(question);
}

static void end_with(struct question *question, enum status status) {
    struct error err;
    (void)set_error(status, &err);
    end_question(question, &err);
}

static void fail_question(struct question *question, const char *what, const struct error *cause) {
    struct error err;
    error_set(&err, ST_IO, "the API server was asked about the client (%s) and failed: %s", what,
              cause->text);
    end_question(question, &err);
}

/* Both questions together take KUBE_ACCESS_TIMEOUT_S at most. */
static enum status ask(struct question *question, const char *group, const char *name,
                       struct str body,
                       void (*done)(void *user, const struct kube_response *answer),
                       struct error *err) {
    struct kube_resource resource = {.group = group, .version = "v1", .name = name};
    uint64_t left_ns = clock_between_ns(clock_now_ns(), question->until_ns);
    struct kube_request asked = {.method = "POST",
                                 .body = body,
                                 .timeout_ns = left_ns > 0 ? left_ns : 1,
                                 .max_bytes = 1 << 20,
                                 .done = done,
                                 .user = question};
    struct buf path;
    buf_init(&path, question->arena, 128);
    kube_path_print(&path, &resource, NULL, NULL);
    asked.path = buf_str(&path);
    return path.failed || !body.ptr ? error_no_memory(err, "a review")
                                    : kube_call_start(question->access->client, &asked, NULL, err);
}

static void on_access_review(void *user, const struct kube_response *answer) {
    struct question *question = user;
    struct error err = answer->error;
    bool is_allowed = false;
    if (err.status == ST_OK &&
        kube_access_review_read(&answer->object, &is_allowed, &err) == ST_OK) {
        end_with(question, is_allowed ? ST_OK : ST_ACCESS_DENIED);
    } else {
        fail_question(question, "SubjectAccessReview", &err);
    }
}

static void on_token_review(void *user, const struct kube_response *answer) {
    struct question *question = user;
    struct doc_node client;
    struct error err = answer->error;
    if (err.status != ST_OK || kube_token_review_read(&answer->object, &client, &err) != ST_OK) {
        fail_question(question, "TokenReview", &err);
        return;
    }
    if (!doc_is_present(&client)) {
        end_with(question, ST_UNAUTHENTICATED);
        return;
    }
    struct buf body;
    buf_init(&body, question->arena, 512);
    kube_access_review_print(&client, question->verb, question->path, &body);
    if (ask(question, "authorization.k8s.io", "subjectaccessreviews",
            body.failed ? (struct str){NULL, 0} : buf_str(&body), on_access_review,
            &err) != ST_OK) {
        fail_question(question, "SubjectAccessReview", &err);
    }
}

static enum status question_new(struct kube_access *access, struct keyed_hash key, struct str verb,
                                struct str path, struct question **out, struct error *err) {
    struct question *question = calloc(1, sizeof(*question));
    struct arena *arena = question ? arena_new(NULL, 0) : NULL;
    if (arena) {
        *question =
            (struct question){.access = access,
                              .key = key,
                              .arena = arena,
                              .verb = arena_dup(arena, verb),
                              .path = arena_dup(arena, path),
                              .until_ns = clock_now_ns() + KUBE_ACCESS_TIMEOUT_S * NS_PER_S};
    }
    if (!arena || !question->verb.ptr || !question->path.ptr) {
        arena_free(arena);
        free(question);
        return error_no_memory(err, "a review");
    }
    LIST_INSERT_HEAD(&access->questions, question, link);
    access->n_questions++;
    *out = question;
    return ST_OK;
}

static void add_waiter(struct question *question, struct kube_access_waiter *waiter) {
    LIST_INSERT_HEAD(&question->waiters, waiter, link);
    question->access->n_waiting++;
}

static struct question *find_question(struct kube_access *access, struct keyed_hash key) {
    struct question *question;
    LIST_FOREACH(question, &access->questions, link) {
        if (keyed_hash_eq(question->key, key)) {
            return question;
        }
    }
    return NULL;
}

static void start_question(struct question *question, struct str token) {
    struct buf body;
    struct error err;
    buf_init(&body, question->arena, token.len + 128);
    kube_token_review_print(token, &body);
    if (ask(question, "authentication.k8s.io", "tokenreviews",
            body.failed ? (struct str){NULL, 0} : buf_str(&body), on_token_review, &err) != ST_OK) {
        fail_question(question, "TokenReview", &err);
    }
}

/* Verb and path are of a table of pages, so that a separator keeps the three texts apart. */
static struct keyed_hash hash_of(const struct kube_access *access, struct str token,
                                 struct str verb, struct str path) {
    struct keyed_hash one = keyed_hash_of(&access->key, token);
    uint64_t page = hash_text(path, hash_text(verb, 1));
    one.low ^= page;
    one.high += page;
    return one;
}

void kube_access_check(struct kube_access *access, struct str token, struct str verb,
                       struct str path, struct kube_access_waiter *waiter) {
    struct keyed_hash key = hash_of(access, token, verb, path);
    const struct answer *known = find_answer(access, key);
    struct question *question = find_question(access, key);
    struct error err = {.status = ST_OK};
    if (known) {
        (void)set_error(known->status, &err);
        waiter->done(waiter, &err);
        return;
    }
    if (access->n_waiting >= KUBE_ACCESS_MAX_WAITING ||
        (!question && access->n_questions >= KUBE_ACCESS_MAX_ASKED)) {
        error_set(&err, ST_OVERLOADED,
                  "the API server is being asked about many other clients of this listener");
    } else if (question) {
        add_waiter(question, waiter);
        return;
    } else if (question_new(access, key, verb, path, &question, &err) == ST_OK) {
        add_waiter(question, waiter);
        start_question(question, token);
        return;
    }
    waiter->done(waiter, &err);
}
