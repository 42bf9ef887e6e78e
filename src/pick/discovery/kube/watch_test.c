/* Lists and watches of a server that follows a script: which requests it gets, in which order, and
 * which events are reported. */
#include "pick/discovery/kube/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/kube/stream.h"
#include "pick/discovery/kube/kube_fixture.h"

/* ---- events ---------------------------------------------------------------------------------- */

static void on_begin(void *user) {
    kube_note(user, "begin ");
}

static void on_object(void *user, enum kube_event event, const struct doc_node *object) {
    static const char *const marks[] = {"", "+", "~", "-"};
    kube_note(user, "%s%.*s ", marks[event], STR_ARG(kube_metadata_text(object, "name")));
}

static void on_synced(void *user) {
    kube_note(user, "synced ");
}

static void on_state(void *user, const struct kube_watch_status *state) {
    kube_note(user, "[%s] ", KUBE_PHASE_TEXTS[state->phase]);
}

/* ---- running a script ------------------------------------------------------------------------ */

static struct kube_watch *watch;
static struct kube_watch_options options;

static void step_watch(struct kube_rig *rig) {
    struct error err;
    options.worker = rig->worker;
    options.client = rig->client;
    options.on_list_begin = on_begin;
    options.on_object = on_object;
    options.on_list_end = on_synced;
    options.on_status = on_state;
    options.user = rig;
    assert_int_equal(kube_watch_new(&options, &watch, &err), ST_OK);
    kube_end(rig);
}

static void step_unwatch(struct kube_rig *rig) {
    kube_watch_stop(watch);
    kube_watch_stop(watch);
    kube_watch_free(watch);
    kube_end(rig);
}

#define STEPS(steps) (steps), sizeof(steps) / sizeof((steps)[0])

/* Compares the record of a script, from its first request to its last. */
static void check_script(const struct kube_step *steps, size_t n_steps, const char *wanted,
                         struct kube_watch_status *state) {
    struct kube_rig rig;
    struct kube_watch_status unused;
    kube_rig_init(&rig, "{\"token\": \"s3cret\"}");
    kube_rig_serve(&rig, steps, n_steps);
    kube_run(&rig, step_watch);
    kube_expect(&rig, wanted);
    kube_rig_served(&rig);
    kube_watch_report(watch, state ? state : &unused);
    kube_run(&rig, step_unwatch);
    kube_rig_fini(&rig);
}

static void options_of_pods(void) {
    options = (struct kube_watch_options){
        .resource = {.group = "", .version = "v1", .name = "pods", .name_space = "ns"},
        .retry_ns = 20000000};
}

/* ---- lists and events ------------------------------------------------------------------------ */

#define LIST(version, items)                                                                       \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version "\"},\"items\":[" items   \
    "]}"
#define PAGE(version, next, items)                                                                 \
    "{\"metadata\":{\"resourceVersion\":\"" version "\",\"continue\":\"" next                      \
    "\"},\"items\":[" items "]}"
#define POD(name) "{\"metadata\":{\"name\":\"" name "\",\"resourceVersion\":\"1\"}}"
#define EVENT(type, name, version)                                                                 \
    "{\"type\":\"" type "\",\"object\":{\"metadata\":{\"name\":\"" name                            \
    "\",\"resourceVersion\":\"" version "\"}}}\n"
#define EXPIRED                                                                                    \
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"message\":\"too old\"}}\n"
#define STATUS(code, text) "{\"kind\":\"Status\",\"message\":\"" text "\",\"code\":" #code "}"
#define HELD                                                                                       \
    { .asked = {"watch=1"}, .ending = KUBE_HOLDS }

static void watch_list_then_events_are_reported(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"GET /api/v1/namespaces/ns/pods?limit=500 HTTP", "Bearer s3cret",
                   "Accept: application/json"},
         .body = LIST("10", POD("a") "," POD("b"))},
        {.asked =
             {"GET /api/v1/namespaces/ns/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=",
              "&resourceVersion=10 HTTP"},
         .body = EVENT("ADDED", "c", "11") EVENT("MODIFIED", "a", "12") EVENT("DELETED", "b", "13")
             EVENT("BOOKMARK", "", "20"),
         .ending = KUBE_HOLDS},
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "begin a b synced [watching] +c ~a -b ", &now);
    assert_int_equal(now.phase, KUBE_WATCHING);
    assert_true(now.synced && now.heard_ns > 0);
    assert_int_equal(now.n_lists, 1);
    assert_int_equal(now.n_failures, 0);
    assert_int_equal(now.error.status, ST_OK);
}

static void watch_selectors_are_sent(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"GET /apis/x.io/v1a/things?limit=2&labelSelector=a%3Db%2Cc%20in%20%28d%29"
                   "&fieldSelector=metadata.name%3De HTTP"},
         .body = LIST("10/%", "")},
        {.asked = {"GET /apis/x.io/v1a/things?watch=1", "&labelSelector=a%3Db%2Cc%20in%20%28d%29",
                   "&fieldSelector=metadata.name%3De", "&resourceVersion=10%2F%25"},
         .body = EVENT("ADDED", "c", "11"),
         .ending = KUBE_HOLDS},
    };
    (void)state;
    options = (struct kube_watch_options){.resource = {"x.io", "v1a", "things", NULL},
                                          .label_selector = "a=b,c in (d)",
                                          .field_selector = "metadata.name=e",
                                          .page = 2};
    check_script(STEPS(steps), "begin synced [watching] +c ", NULL);
}

static void watch_paged_list_is_reported_whole(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"?limit=500 "}, .body = PAGE("10", "n+1", POD("a"))},
        {.asked = {"?limit=500&continue=n%2B1 "}, .body = PAGE("10", "n2", POD("b"))},
        {.asked = {"?limit=500&continue=n2 "}, .body = LIST("10", POD("c")), .ending = KUBE_SLOW},
        {.asked = {"watch=1", "resourceVersion=10 "},
         .body = EVENT("ADDED", "d", "11"),
         .ending = KUBE_SLOW},
        {.asked = {"watch=1", "resourceVersion=11 "}, .ending = KUBE_HOLDS},
    };
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "begin a b c synced [watching] +d ", NULL);
}

/* A list that took too long starts again, with larger pages. */
static void watch_expired_page_lists_again(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"?limit=500 "}, .body = PAGE("10", "n", POD("a"))},
        {.asked = {"continue=n "}, .status = "410 Gone", .body = STATUS(410, "expired")},
        {.asked = {"?limit=2000 "}, .body = LIST("12", POD("a"))},
        {.asked = {"resourceVersion=12 "}, .ending = KUBE_HOLDS},
    };
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "begin a begin a synced [watching] ", NULL);
}

static void watch_expired_version_lists_again(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", POD("a"))},
        {.asked = {"resourceVersion=10 "}, .body = EVENT("ADDED", "b", "11") EXPIRED},
        {.asked = {"?limit=500 "}, .body = LIST("20", POD("b"))},
        {.asked = {"resourceVersion=20 "}, .status = "410 Gone", .body = STATUS(410, "gone")},
        {.asked = {"?limit=500 "}, .body = LIST("30", POD("c"))},
        {.asked = {"resourceVersion=30 "}, .ending = KUBE_HOLDS},
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps),
                 "begin a synced [watching] +b [listing] begin b synced [watching] "
                 "[listing] begin c synced [watching] ",
                 &now);
    assert_int_equal(now.n_lists, 3);
    assert_int_equal(now.n_events, 1);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A watch whose connection is lost continues at its version, also in the middle of an event. */
static void watch_lost_connection_resumes_at_version(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", POD("a"))},
        {.asked = {"resourceVersion=10 "},
         .body = EVENT("ADDED", "b", "11") "{\"type\":\"ADDED\",\"obj",
         .ending = KUBE_BREAKS},
        {.asked = {"resourceVersion=11 "}, .body = EVENT("ADDED", "c", "12")},
        {.asked = {"resourceVersion=12 "}, .status = "", .ending = KUBE_BREAKS},
        {.asked = {"?limit=500 "}, .body = LIST("20", POD("c"))},
        HELD,
    };
    (void)state;
    options_of_pods();
    check_script(STEPS(steps),
                 "begin a synced [watching] +b +c [failing] begin c synced [watching] ", NULL);
}

/* Each wait is longer than the one before, up to half a minute, however long the failures last. */
static void watch_back_off_is_bounded(void **state) {
    static const uint64_t most_s[] = {1, 2, 4, 8, 16, 30};
    struct prng prng = {0};
    unsigned n_failures;
    uint64_t sum_ns = 0, all_ns = 12 * UINT64_C(3600) * 1000000000;
    (void)state;
    for (n_failures = 1; sum_ns < all_ns; n_failures++) {
        uint64_t most_ns = most_s[n_failures < 6 ? n_failures - 1 : 5] * 1000000000;
        uint64_t wait_ns = kube_watch_back_off_ns(&prng, 1000000000, n_failures);
        assert_in_range(wait_ns, most_ns * 3 / 4, most_ns * 5 / 4);
        sum_ns += wait_ns;
    }
    assert_in_range(n_failures, 1200, 1900);
}

static void watch_bad_server_response_is_retried(void **state) {
    static const struct kube_step steps[] = {
        {.status = "503 Service Unavailable", .fields = "Retry-After: 1\r\n", .body = "no\nmore"},
        {.body = "<html>"},
        {.asked = {"?limit=500 "}, .body = LIST("20", POD("c"))},
        HELD,
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "[failing] [failing] begin c synced [watching] ", &now);
    assert_int_equal(now.n_failures, 2);
}

static void watch_failed_list_starts_again(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("1", "5")},
        {.body = PAGE("10", "n", POD("a"))},
        {.status = "500 Internal Server Error", .body = STATUS(500, "etcd")},
        {.asked = {"?limit=500 "}, .body = LIST("20", POD("c"))},
        HELD,
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "[failing] begin a [failing] begin c synced [watching] ", &now);
    assert_int_equal(now.n_failures, 2);
}

static void watch_denied_reports_phase(void **state) {
    static const struct kube_step steps[] = {
        {.status = "403 Forbidden", .body = STATUS(403, "pods is forbidden: User \\\"me\\\"")},
        {.status = "401 Unauthorized", .body = STATUS(401, "Unauthorized")},
        {.status = "401 Unauthorized", .body = STATUS(401, "Unauthorized")},
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps), "[denied] [denied] ", &now);
    assert_int_equal(now.phase, KUBE_DENIED);
    assert_false(now.synced);
    assert_string_equal(now.error.text, "the API server says 401: Unauthorized");
}

/* A kind counts as gone after three 404 responses. */
static void watch_absent_kind_is_empty_list(void **state) {
    static const struct kube_step absent[] = {
        {.status = "404 Not Found", .body = "404 page not found\n"},
    };
    static const struct kube_step removed[] = {
        {.body = LIST("10", POD("a"))},
        {.body = EVENT("DELETED", "a", "11")},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.status = "404 Not Found", .body = "404 page not found\n"},
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(absent), "begin synced [not served] ", &now);
    assert_true(now.synced);
    assert_int_equal(now.error.status, ST_OK);
    check_script(STEPS(removed),
                 "begin a synced [watching] -a [failing] begin synced [not served] ", &now);
}

/* An API server that starts answers 404 for kinds that it has not loaded yet, between other
 * failures: these are no three in a row. */
static void watch_absent_between_failures_keeps_objects(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", POD("a"))},
        {.status = "410 Gone", .body = STATUS(410, "too old")},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.status = "503 Service Unavailable", .body = "starting\n"},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.status = "503 Service Unavailable", .body = "starting\n"},
        {.status = "404 Not Found", .body = "404 page not found\n"},
        {.body = LIST("20", POD("a"))},
        HELD,
    };
    struct kube_watch_status now;
    (void)state;
    options_of_pods();
    check_script(STEPS(steps),
                 "begin a synced [watching] [listing] [failing] [failing] [failing] [failing] "
                 "[failing] begin a synced [watching] ",
                 &now);
    assert_int_equal(now.n_lists, 2);
}

static void watch_invalid_event_lists_again(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", "")},
        {.body = EVENT("ADDED", "b", "11") "x" EVENT("ADDED", "c", "12"), .ending = KUBE_HOLDS},
        {.asked = {"?limit=500 "}, .body = LIST("20", "")},
        {.body = "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"etcd\"}}"},
        {.asked = {"?limit=500 "}, .body = LIST("30", "")},
        {.body = EVENT("ADDED", "d", "31"), .ending = KUBE_HOLDS},
    };
    (void)state;
    options_of_pods();
    check_script(
        STEPS(steps),
        "begin synced [watching] +b [failing] begin synced [failing] begin synced [watching] +d ",
        NULL);
}

/* ---- silent servers -------------------------------------------------------------------------- */

static void stop_at_object(void *user, enum kube_event event, const struct doc_node *object) {
    on_object(user, event, object);
    kube_watch_stop(watch);
}

static void step_watch_once(struct kube_rig *rig) {
    struct error err;
    options.worker = rig->worker;
    options.client = rig->client;
    options.on_list_begin = on_begin;
    options.on_list_end = on_synced;
    options.user = rig;
    assert_int_equal(kube_watch_new(&options, &watch, &err), ST_OK);
    kube_end(rig);
}

static void stop_at_c(void *user, enum kube_event event, const struct doc_node *object) {
    on_object(user, event, object);
    if (str_is(kube_metadata_text(object, "name"), "c")) {
        kube_watch_stop(watch);
    }
}

/* Runs until "c" is reported. A silence is one second. */
static void check_silence(const struct kube_step *steps, size_t n_steps, const char *wanted) {
    struct kube_rig rig;
    options_of_pods();
    options.silence_ns = 1000000000;
    options.on_object = stop_at_c;
    options.on_status = on_state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, steps, n_steps);
    kube_run(&rig, step_watch_once);
    kube_expect(&rig, wanted);
    kube_rig_served(&rig);
    kube_run(&rig, step_unwatch);
    kube_rig_fini(&rig);
}

/* A watch that was silent is resumed. */
static void watch_silent_connection_is_replaced(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", "")},
        {.asked = {"resourceVersion=10 "}, .body = EVENT("ADDED", "b", "11"), .ending = KUBE_HOLDS},
        {.asked = {"watch=1", "resourceVersion=11 "},
         .body = EVENT("ADDED", "c", "12"),
         .ending = KUBE_HOLDS},
    };
    (void)state;
    check_silence(STEPS(steps), "begin synced [watching] +b +c ");
}

/* A server that accepts connections and answers nothing does not count as watched. */
static void watch_hanging_server_is_retried(void **state) {
    static const struct kube_step steps[] = {
        {.body = LIST("10", "")},
        {.asked = {"resourceVersion=10 "}, .status = "", .ending = KUBE_HOLDS},
        {.asked = {"resourceVersion=10 "}, .status = "", .ending = KUBE_HOLDS},
        {.asked = {"?limit=500 "}, .body = LIST("20", POD("c"))},
    };
    (void)state;
    check_silence(STEPS(steps), "begin synced [watching] [failing] begin c ");
}

static void watch_stop_from_callback_ends_events(void **state) {
    static const struct kube_step listed[] = {{.body = LIST("10", POD("a") "," POD("b"))}};
    static const struct kube_step watched[] = {
        {.body = LIST("10", "")},
        {.body = EVENT("ADDED", "a", "11") EVENT("ADDED", "b", "12"), .ending = KUBE_HOLDS},
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct kube_rig rig;
        options_of_pods();
        options.on_object = stop_at_object;
        kube_rig_init(&rig, "{}");
        if (i == 0) {
            kube_rig_serve(&rig, STEPS(listed));
        } else {
            kube_rig_serve(&rig, STEPS(watched));
        }
        kube_run(&rig, step_watch_once);
        kube_expect(&rig, i == 0 ? "begin a " : "begin synced +a ");
        kube_rig_served(&rig);
        kube_run(&rig, step_unwatch);
        kube_rig_fini(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watch_list_then_events_are_reported),
        cmocka_unit_test(watch_selectors_are_sent),
        cmocka_unit_test(watch_paged_list_is_reported_whole),
        cmocka_unit_test(watch_expired_page_lists_again),
        cmocka_unit_test(watch_expired_version_lists_again),
        cmocka_unit_test(watch_lost_connection_resumes_at_version),
        cmocka_unit_test(watch_back_off_is_bounded),
        cmocka_unit_test(watch_bad_server_response_is_retried),
        cmocka_unit_test(watch_failed_list_starts_again),
        cmocka_unit_test(watch_denied_reports_phase),
        cmocka_unit_test(watch_absent_kind_is_empty_list),
        cmocka_unit_test(watch_absent_between_failures_keeps_objects),
        cmocka_unit_test(watch_invalid_event_lists_again),
        cmocka_unit_test(watch_silent_connection_is_replaced),
        cmocka_unit_test(watch_hanging_server_is_retried),
        cmocka_unit_test(watch_stop_from_callback_ends_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
