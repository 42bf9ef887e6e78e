/* Requests to a server that follows a script: what is sent, and what responses result in. */
#include "pick/discovery/kube/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "codec/kube/stream.h"
#include "pick/discovery/kube/kube_fixture.h"

#define STEPS(steps) (steps), sizeof(steps) / sizeof((steps)[0])

/* ---- requests -------------------------------------------------------------------------------- */

static struct kube_request ask;
static struct kube_call *call;
static int n_calls;

/* Records "200 name" or "0 IO message". */
static void on_done(void *user, const struct kube_response *answer) {
    if (answer->error.status == ST_OK) {
        struct str name = kube_metadata_text(&answer->object, "name");
        kube_note(user, "%d %s%.*s;", answer->status, answer->object.val ? "" : "nothing",
                  STR_ARG(name));
    } else {
        kube_note(user, "%d %s %s;", answer->status, status_name(answer->error.status),
                  answer->error.text);
    }
    if (answer->retry_after_ns > 0) {
        kube_note(user, "after %d;", (int)(answer->retry_after_ns / 1000000000));
    }
}

static void step_ask(struct kube_rig *rig) {
    struct error err;
    ask.done = on_done;
    ask.user = rig;
    ask.path = ask.path.ptr ? ask.path : STR("/x");
    for (int i = 0; i < n_calls; i++) {
        assert_int_equal(kube_call_start(rig->client, &ask, &call, &err), ST_OK);
    }
    kube_end(rig);
}

static void ask_for(struct kube_rig *rig, const char *wanted) {
    n_calls = n_calls > 0 ? n_calls : 1;
    kube_run(rig, step_ask);
    kube_expect(rig, wanted);
}

static int clear(void **state) {
    (void)state;
    ask = (struct kube_request){.method = NULL};
    n_calls = 1;
    return 0;
}

/* ---- responses ------------------------------------------------------------------------------- */

static void client_response_maps_to_status_and_object(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"GET /x HTTP/1.1\r\n", "Accept: application/json"},
         .body = "{\"metadata\":{\"name\":\"a\"}}"},
        {.status = "201 Created"},
        {.body = "[]"},
        {.body = "{\"a\""},
        {.status = "403 Forbidden", .body = "{\"message\":\"you may not\"}"},
        {.status = "502 Bad Gateway", .fields = "Retry-After: 7\r\n", .body = "<html>\nhello"},
        {.status = "500 No"},
        {.status = "301 Moved", .fields = "Location: /y\r\n"},
        {.body = "{\"metadata\":{\"name\":\"cut", .ending = KUBE_BREAKS},
    };
    static const char *const wanted[] = {
        "200 a;",
        "201 nothing;",
        "200 BAD_ANSWER the API server: sent JSON that is no object;",
        NULL,
        "403 REFUSED the API server says 403: you may not;",
        "502 REFUSED the API server says 502: <html>;after 7;",
        "500 REFUSED the API server says 500;",
        "301 REFUSED the API server says 301;",
        NULL,
    };
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, STEPS(steps));
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        kube_run(&rig, step_ask);
        if (wanted[i]) {
            kube_expect(&rig, wanted[i]);
        } else {
            kube_expect_start(&rig, "200 BAD_ANSWER ");
        }
    }
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

static void client_request_has_path_body_and_type(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"PATCH /apis/g/v1/namespaces/n/things/a%2Fb/status?x=1 HTTP",
                   "Content-Type: application/merge-patch+json\r\n", "\r\n\r\n{\"a\":1}"}},
        {.asked = {"POST /api/v1/pods HTTP", "Content-Type: application/json\r\n", "\r\n\r\n{}"}},
    };
    struct kube_resource things = {"g", "v1", "things", "n"}, pods = {"", "v1", "pods", NULL};
    struct arena *arena = arena_new(NULL, 0);
    struct kube_rig rig;
    struct buf path;
    (void)state;
    buf_init(&path, arena, 100);
    kube_path_print(&path, &things, "a/b", "status");
    buf_add_str(&path, STR("?x=1"));
    kube_rig_init(&rig, "{\"username\": \"me\", \"password\": \"s3cret\", \"as\": \"you\"}");
    kube_rig_serve(&rig, STEPS(steps));
    ask = (struct kube_request){.method = "PATCH",
                                .path = buf_str(&path),
                                .body = STR("{\"a\":1}"),
                                .content_type = "application/merge-patch+json"};
    ask_for(&rig, "200 nothing;");
    assert_non_null(strstr(rig.seen, "Authorization: Basic bWU6czNjcmV0\r\n"));
    assert_non_null(strstr(rig.seen, "Impersonate-User: you\r\n"));
    buf_init(&path, arena, 100);
    kube_path_print(&path, &pods, NULL, NULL);
    ask = (struct kube_request){.method = "POST", .path = buf_str(&path), .body = STR("{}")};
    ask_for(&rig, "200 nothing;");
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
    arena_free(arena);
}

static void client_timeout_and_size_limit_fail_call(void **state) {
    static const struct kube_step steps[] = {{.status = "", .ending = KUBE_HOLDS},
                                             {.body = "{\"a\":\"0123456789\"}"}};
    struct kube_rig rig;
    char wanted[200], text[ADDRESS_TEXT_BYTES];
    (void)state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, STEPS(steps));
    const char *server = address_print(&rig.address, text);
    ask.timeout_ns = 100000000;
    snprintf(wanted, sizeof(wanted), "0 DEADLINE_EXCEEDED http://%s: timed out;", server);
    ask_for(&rig, wanted);
    ask.timeout_ns = 0;
    ask.max_bytes = 10;
    snprintf(wanted, sizeof(wanted),
             "200 BODY_TOO_LARGE http://%s: answered with more than 10 bytes;", server);
    ask_for(&rig, wanted);
    kube_rig_served(&rig);
    close(rig.fd);
    rig.fd = -1;
    snprintf(wanted, sizeof(wanted), "0 IO http://%s: refused the connection;", server);
    ask_for(&rig, wanted);
    kube_rig_fini(&rig);
}

/* ---- cancelled calls ------------------------------------------------------------------------- */

static void step_cancel(struct kube_rig *rig) {
    kube_call_cancel(call);
    kube_end(rig);
}

/* Running calls report their end when the client stops; cancelled calls do not. */
static void client_cancelled_calls_report_nothing(void **state) {
    static const struct kube_step steps[] = {{.status = "", .ending = KUBE_HOLDS},
                                             {.status = "", .ending = KUBE_HOLDS}};
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, STEPS(steps));
    n_calls = 2;
    kube_run(&rig, step_ask);
    kube_rig_served(&rig);
    kube_run(&rig, step_cancel);
    kube_rig_end(&rig);
    kube_expect(&rig, "0 CANCELLED given up;");
    kube_rig_clean(&rig);
}

/* Within a body callback nothing is started or ended at once, but soon after. */
static void on_piece(void *user, struct str bytes) {
    struct kube_rig *rig = user;
    struct kube_request other = {.path = STR("/other"), .done = on_done, .user = rig};
    struct error err;
    kube_note(rig, "%.*s;", STR_ARG(bytes));
    kube_call_cancel(call);
    assert_int_equal(kube_call_start(rig->client, &other, NULL, &err), ST_OK);
}

static void on_never(void *user, const struct kube_response *answer) {
    (void)answer;
    kube_note(user, "told in spite of it;");
}

static void step_pieces(struct kube_rig *rig) {
    struct error err;
    ask =
        (struct kube_request){.path = STR("/x"), .piece = on_piece, .done = on_never, .user = rig};
    assert_int_equal(kube_call_start(rig->client, &ask, &call, &err), ST_OK);
    kube_end(rig);
}

static void client_streamed_body_arrives_in_pieces(void **state) {
    static const struct kube_step steps[] = {
        {.body = "first", .ending = KUBE_HOLDS},
        {.asked = {"GET /other "}, .status = "400 No", .body = "second"},
    };
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, STEPS(steps));
    kube_run(&rig, step_pieces);
    kube_expect(&rig, "first;400 REFUSED the API server says 400: second;");
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

/* The body of an error response is not streamed. */
static void client_error_body_is_not_streamed(void **state) {
    static const struct kube_step steps[] = {
        {.status = "410 Gone", .body = "{\"message\":\"too old\"}", .ending = KUBE_SLOW}};
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, "{}");
    kube_rig_serve(&rig, STEPS(steps));
    ask.piece = on_piece;
    ask_for(&rig, "410 REFUSED the API server says 410: too old;");
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

/* ---- token files ----------------------------------------------------------------------------- */

/* A replaced token is used by the next request; while the file is missing the old one is used. */
static void client_token_file_is_read_again(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"Authorization: Bearer first\r\n"}},
        {.asked = {"Authorization: Bearer second\r\n"}},
        {.asked = {"Authorization: Bearer second\r\n"}},
        {.asked = {"Authorization: Bearer third\r\n"}},
    };
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, "{\"tokenFile\": \"token\"}");
    kube_run(&rig, step_ask);
    kube_expect_start(&rig, "0 IO ");
    kube_write(&rig, "token", "first\n");
    kube_rig_serve(&rig, STEPS(steps));
    ask_for(&rig, "200 nothing;");
    kube_write(&rig, "token", "  second");
    ask_for(&rig, "200 nothing;");
    kube_write(&rig, "token", "");
    ask_for(&rig, "200 nothing;");
    kube_write(&rig, "token", "third");
    ask_for(&rig, "200 nothing;");
    kube_write(&rig, "token", "a\nb");
    ask_for(&rig, "0 BAD_CONFIG expected a token without control characters, got 0x0a;");
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

/* ---- exec programs --------------------------------------------------------------------------- */

#define EXEC(more)                                                                                 \
    "{\"exec\": {\"apiVersion\": \"client.authentication.k8s.io/v1\", \"command\": \"./program\"," \
    " \"args\": [\"an arg\"], \"env\": [{\"name\": \"GIVEN\", \"value\": \"x\"}],"                 \
    " \"interactiveMode\": \"Never\"" more "}}"

/* A program that counts its runs: each of its tokens has the number. */
static void write_program(const struct kube_rig *rig, const char *rest) {
    char text[2000], path[128];
    snprintf(text, sizeof(text),
             "#!/bin/sh\n"
             "echo run >> %s/runs\n"
             "n=$(wc -l < %s/runs | tr -d ' ')\n"
             "say() { echo '{\"kind\": \"ExecCredential\", \"apiVersion\":"
             " \"client.authentication.k8s.io/v1\", \"status\": {'\"$1\"'}}'; }\n"
             "%s\n",
             rig->folder, rig->folder, rest);
    kube_write(rig, "program", text);
    snprintf(path, sizeof(path), "%s/program", rig->folder);
    assert_int_equal(chmod(path, 0700), 0);
}

/* Concurrent requests wait for one run; a token is used until it is rejected. */
static void client_exec_program_runs_again_after_401(void **state) {
    static const struct kube_step steps[] = {
        {.asked = {"Bearer token-1\r\n"}},
        {.asked = {"Bearer token-1\r\n"}},
        {.asked = {"Bearer token-1\r\n"}, .status = "401 Unauthorized"},
        {.asked = {"Bearer token-2\r\n"}},
        {.asked = {"Bearer token-2\r\n"}, .status = "403 Forbidden"},
        {.asked = {"Bearer token-2\r\n"}},
    };
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, EXEC(""));
    write_program(&rig, "say '\"token\": \"token-'$n'\"'");
    kube_rig_serve(&rig, STEPS(steps));
    n_calls = 2;
    ask_for(&rig, "200 nothing;200 nothing;");
    n_calls = 1;
    ask_for(&rig, "401 REFUSED the API server says 401;");
    ask_for(&rig, "200 nothing;");
    ask_for(&rig, "403 REFUSED the API server says 403;");
    ask_for(&rig, "200 nothing;");
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

/* An expired token is requested again; $KUBERNETES_EXEC_INFO is set. */
static void client_expired_exec_token_is_renewed(void **state) {
    static const struct kube_step steps[] = {
        {.asked =
             {"Bearer 1-x-an arg-"
              "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\","
              "\"spec\":{\"interactive\":false,\"cluster\":{\"server\":\"http://127.0.0.1:"}},
        {.asked = {"Bearer 2-x-", "\",\"config\":null}}}\r\n"}},
        {.asked = {"Bearer 3-x-"}},
        {.asked = {"Bearer 3-x-"}},
    };
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, EXEC(", \"provideClusterInfo\": true"));
    write_program(&rig,
                  "info=$(echo \"$KUBERNETES_EXEC_INFO\" | sed 's/\"/\\\\\"/g')\n"
                  "end=2020-01-01T00:00:00Z; [ $n -gt 2 ] && end=2120-01-01T00:00:00.5+01:00\n"
                  "say '\"expirationTimestamp\": \"'$end'\", "
                  "\"token\": \"'$n-$GIVEN-\"$1-$info\"'\"'");
    kube_rig_serve(&rig, STEPS(steps));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        ask_for(&rig, "200 nothing;");
    }
    kube_rig_served(&rig);
    kube_rig_fini(&rig);
}

static void client_failing_exec_program_fails_call(void **state) {
    static const struct {
        const char *rest, *wanted;
    } rows[] = {
        {"echo 's3cret'; echo 'log in first' >&2; exit 4",
         "0 IO the program %s/./program exited with code 4: log in first;"},
        {"echo s3cret",
         "0 BAD_ANSWER the program %s/./program: printed something that is no JSON object;"},
        {"echo '{\"kind\": \"s3cret\"}'",
         "0 BAD_ANSWER the program %s/./program: printed something that is no ExecCredential;"},
        {"echo '{\"kind\": \"ExecCredential\", \"apiVersion\": \"s3cret\"}'",
         "0 BAD_ANSWER the program %s/./program: printed an ExecCredential of another apiVersion "
         "than client.authentication.k8s.io/v1;"},
        {"say",
         "0 BAD_ANSWER the program %s/./program: printed neither a token nor a certificate;"},
        {"say '\"clientKeyData\": \"s3cret\", \"token\": \"a\"'",
         "0 BAD_ANSWER the program %s/./program: printed a certificate or a key without the "
         "other;"},
        {"say '\"expirationTimestamp\": \"tomorrow\", \"token\": \"a\"'",
         "0 BAD_ANSWER the program %s/./program: printed an expirationTimestamp that is no time;"},
        {NULL, "0 IO %s/./program can't be run: permission denied. Install it;"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kube_rig rig;
        char wanted[300], path[128];
        kube_rig_init(&rig, EXEC(", \"installHint\": \"Install it\""));
        write_program(&rig, rows[i].rest ? rows[i].rest : "");
        snprintf(path, sizeof(path), "%s/program", rig.folder);
        assert_int_equal(chmod(path, rows[i].rest ? 0700 : 0), 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(wanted, sizeof(wanted), rows[i].wanted, rig.folder);
#pragma GCC diagnostic pop
        ask_for(&rig, wanted);
        kube_rig_fini(&rig);
    }
}

/* Stopping the client kills the program that it waits for. */
static void client_hanging_exec_program_is_killed_on_stop(void **state) {
    struct kube_rig rig;
    (void)state;
    kube_rig_init(&rig, EXEC(""));
    write_program(&rig, "sleep 1000");
    n_calls = 2;
    kube_run(&rig, step_ask);
    kube_run(&rig, step_cancel);
    kube_rig_end(&rig);
    kube_expect(&rig, "0 CANCELLED given up;");
    kube_rig_clean(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(client_response_maps_to_status_and_object, clear),
        cmocka_unit_test_setup(client_request_has_path_body_and_type, clear),
        cmocka_unit_test_setup(client_timeout_and_size_limit_fail_call, clear),
        cmocka_unit_test_setup(client_cancelled_calls_report_nothing, clear),
        cmocka_unit_test_setup(client_streamed_body_arrives_in_pieces, clear),
        cmocka_unit_test_setup(client_error_body_is_not_streamed, clear),
        cmocka_unit_test_setup(client_token_file_is_read_again, clear),
        cmocka_unit_test_setup(client_exec_program_runs_again_after_401, clear),
        cmocka_unit_test_setup(client_expired_exec_token_is_renewed, clear),
        cmocka_unit_test_setup(client_failing_exec_program_fails_call, clear),
        cmocka_unit_test_setup(client_hanging_exec_program_is_killed_on_stop, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
