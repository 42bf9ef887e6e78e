/* What is asked of an API server that follows a script, what is kept of its answers, and the bounds
 * on what is asked at a time. */
#include "pick/discovery/kube/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/discovery/kube/kube_fixture.h"

#define STEPS(steps) (steps), sizeof(steps) / sizeof((steps)[0])

static struct kube_access *access_table;
static struct kube_rig *running;
static const char *const *tokens;
static size_t n_tokens, n_used; /* of `waiters` */
static struct kube_access_waiter waiters[KUBE_ACCESS_MAX_WAITING + 8];

/* Records "UNAUTHENTICATED;" */
static void on_done(struct kube_access_waiter *waiter, const struct error *err) {
    (void)waiter;
    kube_note(running, "%s;", status_name(err->status));
}

static void step_check(struct kube_rig *rig) {
    for (size_t i = 0; i < n_tokens; i++) {
        struct kube_access_waiter *waiter = &waiters[n_used++];
        waiter->done = on_done;
        kube_access_check(access_table, str_of(tokens[i]), STR("get"), STR("/metrics"), waiter);
    }
    kube_end(rig);
}

static void check_all(struct kube_rig *rig, const char *const *list, size_t n) {
    tokens = list;
    n_tokens = n;
    kube_run(rig, step_check);
}

static void open_rig(struct kube_rig *rig) {
    struct error err;
    kube_rig_init(rig, "{}");
    running = rig;
    n_used = 0;
    assert_int_equal(kube_access_new(rig->client, &access_table, &err), ST_OK);
}

static void close_rig(struct kube_rig *rig) {
    kube_rig_fini(rig);
    kube_access_free(access_table);
}

#define USER                                                                                       \
    "{\"kind\":\"TokenReview\",\"status\":{\"authenticated\":true,\"user\":{\"username\":\"u\"}}}"
#define MAY(word) "{\"kind\":\"SubjectAccessReview\",\"status\":{\"allowed\":" word "}}"

/* One token at a time; an answer is kept, an error is not. */
static void access_answers_are_kept_and_errors_are_not(void **state) {
    static const char *const a[] = {"a"}, *const b[] = {"b"}, *const c[] = {"c"},
                             *const aaa[] = {"a", "a", "b"};
    static const struct kube_step steps[] = {
        {.asked = {"POST /apis/authentication.k8s.io/v1/tokenreviews HTTP", "\"token\":\"a\""},
         .status = "201 Created",
         .body = USER},
        {.asked = {"POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP", "\"user\":\"u\"",
                   "{\"path\":\"/metrics\",\"verb\":\"get\"}"},
         .status = "201 Created",
         .body = MAY("true")},
        {.asked = {"\"token\":\"b\""}, .status = "201 Created", .body = USER},
        {.status = "201 Created", .body = MAY("false")},
        {.asked = {"\"token\":\"c\""}, .status = "403 Forbidden", .body = "{\"message\":\"no\"}"},
        {.asked = {"\"token\":\"c\""}, .status = "201 Created", .body = "{}"},
        {.asked = {"\"token\":\"c\""},
         .status = "201 Created",
         .body = "{\"kind\":\"TokenReview\",\"status\":{}}"},
    };
    struct kube_rig rig;
    (void)state;
    open_rig(&rig);
    kube_rig_serve(&rig, STEPS(steps));
    check_all(&rig, a, 1);
    kube_expect(&rig, "OK;");
    check_all(&rig, b, 1);
    kube_expect(&rig, "ACCESS_DENIED;");
    check_all(&rig, aaa, 3);
    kube_expect(&rig, "OK;OK;ACCESS_DENIED;");
    check_all(&rig, c, 1);
    kube_expect(&rig, "IO;");
    check_all(&rig, c, 1);
    kube_expect(&rig, "IO;");
    check_all(&rig, c, 1);
    kube_expect(&rig, "UNAUTHENTICATED;");
    check_all(&rig, c, 1);
    kube_expect(&rig, "UNAUTHENTICATED;");
    kube_rig_served(&rig);
    close_rig(&rig);
}

/* The server accepts nothing. Requests for a token that is being asked about wait with the first,
 * up to a bound; more tokens than another bound are refused at once. */
static void access_questions_and_waiters_are_bounded(void **state) {
    enum { MANY = KUBE_ACCESS_MAX_WAITING - KUBE_ACCESS_MAX_ASKED + 1 };
    static char names[KUBE_ACCESS_MAX_ASKED + 1][16];
    static const char *list[KUBE_ACCESS_MAX_ASKED + 1], *same[MANY];
    struct kube_rig rig;
    size_t n_failed = 0;
    (void)state;
    open_rig(&rig);
    for (size_t i = 0; i <= KUBE_ACCESS_MAX_ASKED; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        list[i] = names[i];
    }
    for (size_t i = 0; i < MANY; i++) {
        same[i] = names[0];
    }
    check_all(&rig, list, KUBE_ACCESS_MAX_ASKED + 1);
    kube_expect(&rig, "OVERLOADED;"); /* the last one */
    check_all(&rig, same, MANY);
    kube_expect(&rig, "OVERLOADED;");
    kube_rig_end(&rig); /* ends the questions */
    for (const char *at = rig.record; (at = strstr(at, "IO;")); at++) {
        n_failed++;
    }
    assert_int_equal(n_failed, KUBE_ACCESS_MAX_WAITING);
    kube_rig_clean(&rig);
    kube_access_free(access_table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(access_answers_are_kept_and_errors_are_not),
        cmocka_unit_test(access_questions_and_waiters_are_bounded),
    };
    return cmocka_run_group_tests_name("pick/discovery/kube/access", tests, NULL, NULL);
}
