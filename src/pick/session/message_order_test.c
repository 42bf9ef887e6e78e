/* Legal and illegal orders of messages: some by hand, then every legal one up to a length, in every
 * mode, checked against a second, simpler implementation of the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/session/pick_fixture.h"

#define GET ":method=GET|:path=/v1/models|:scheme=http|accept=*/*"
#define POST ":method=POST|:path=/v1/completions|content-type=application/json|content-length=42"
#define POST_GRPC ":method=POST|:path=/v1/completions|content-type=application/grpc"

static struct pool_spec *one(void) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    return spec;
}

/* ---- orders ---------------------------------------------------------------------------------- */

enum act {
    NO_MORE,
    HEAD,
    HEAD_END,
    BODY,
    BODY_END,
    TRAILERS,
    ANSWER,
    ANSWER_END,
    PART,
    PART_END,
    ATRAILERS
};

static void act(struct fake_proxy *proxy, enum act what) {
    switch (what) {
    case NO_MORE:
        break;
    case HEAD:
    case HEAD_END:
        proxy_request(proxy, GET, what == HEAD_END, PROXY_CONFIG(NONE, NONE));
        break;
    case BODY:
    case BODY_END:
        proxy_body(proxy, "x", what == BODY_END);
        break;
    case TRAILERS:
        proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
        break;
    case ANSWER:
    case ANSWER_END:
        proxy_answer(proxy, ":status=200", what == ANSWER_END);
        break;
    case PART:
    case PART_END:
        proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("y"), what == PART_END);
        break;
    case ATRAILERS:
        proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
        break;
    }
}

/* An illegal message ends the stream with a status and a text, and nothing else. */
static void message_order_illegal_ends_stream(void **state) {
    static const struct {
        enum act acts[4];
        const char *why;
    } cases[] = {
        {{BODY}, "headers must be sent first"},
        {{TRAILERS}, "headers must be sent first"},
        {{HEAD, HEAD}, "headers twice"},
        {{HEAD_END, BODY}, "after its end"},
        {{HEAD, BODY_END, BODY}, "after its end"},
        {{HEAD, BODY_END, TRAILERS}, "after its end"},
        {{HEAD, TRAILERS, BODY}, "after its end"},
        {{HEAD, TRAILERS, TRAILERS}, "after its end"},
        {{ANSWER, HEAD}, "after the response's"},
        {{HEAD, ANSWER, ANSWER}, "headers twice"},
        {{HEAD, PART, ANSWER}, "after its body"},
        {{HEAD, ANSWER_END, PART}, "after its end"},
        {{HEAD, ANSWER, PART_END, PART}, "after its end"},
        {{HEAD, ANSWER, PART_END, ATRAILERS}, "after its end"},
        {{HEAD, ATRAILERS, ATRAILERS}, "after its end"},
    };
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t k = 0; k < 4; k++) {
            assert_false(proxy->finished && cases[i].acts[k]);
            act(proxy, cases[i].acts[k]);
        }
        assert_true(proxy->finished);
        assert_int_equal(proxy->why.status, ST_BAD_REQUEST);
        assert_non_null(strstr(proxy->why.text, cases[i].why));
        act(proxy, BODY); /* further messages are released */
        pick_session_half_close(proxy->session);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* A late error is logged after the message that named the model was released. */
static void message_order_late_error_is_reported(void **state) {
    const struct {
        const char *headers;
        const struct ext_proc_config *config;
        const char *body, *line;
    } cases[] = {
        {":method=GET|:path=/v2/models/m/ready", PROXY_CONFIG(NONE, NONE), NULL,
         "GET /v2/models/m/ready"},
        {POST "|x-gateway-model-name=old", PROXY_CONFIG(FULL_DUPLEX, NONE), "{\"model\":\"x\"}",
         "POST /v1/completions"},
        {POST "|x-gateway-model-name=old", PROXY_CONFIG(NONE, NONE), "{\"model\":\"x\"}",
         "POST /v1/completions"},
    };
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        proxy_request(proxy, cases[i].headers, false, cases[i].config);
        if (cases[i].body) {
            proxy_body(proxy, cases[i].body, true);
        }
        proxy_pick(proxy_next(proxy));
        proxy_request(proxy, cases[i].headers, true, NULL);
        assert_int_equal(proxy->why.status, ST_BAD_REQUEST);
        assert_non_null(strstr(proxy->last_outcome, "headers twice"));
        assert_memory_equal(proxy->last_outcome, cases[i].line, strlen(cases[i].line));
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

static void message_undecodable_ends_stream(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_take(proxy, STR("\x12\x05\x01"));
    assert_true(proxy->finished);
    assert_int_equal(proxy->why.status, ST_BAD_REQUEST);
    proxy_expect_no_message(proxy);
    proxy_close(proxy);
}

/* Messages of unknown kinds are ignored. */
static void message_unknown_is_skipped(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    (void)state;
    proxy_take(proxy, STR(""));
    proxy_take(proxy, STR("\xa2\x06\x02hi")); /* field 100 */
    proxy_expect_no_message(proxy);
    proxy_request(proxy, GET, true, PROXY_CONFIG(NONE, NONE));
    proxy_pick(proxy_next(proxy));
    proxy_close(proxy);
}

/* observability_mode: the proxy does not wait, and nothing may be sent. */
static void observability_mode_sends_nothing(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    struct ext_proc_header header = {STR(":method"), STR("GET")};
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = &header,
                                               .n_headers = 1,
                                               .observability_mode = true};
    struct pool_stats pool_counts;
    (void)state;
    proxy_send(proxy, &question);
    question.kind = EXT_PROC_RESPONSE_BODY;
    proxy_send(proxy, &question);
    proxy_send(proxy, &question);
    proxy_expect_no_message(proxy);
    pool_get_stats(proxy->pool.pool, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    assert_false(proxy->finished);
    pick_session_half_close(proxy->session);
    assert_int_equal(proxy->why.status, ST_OK);
    proxy_close(proxy);
}

/* Nor where a message of such a proxy is rejected. */
static void observability_mode_rejected_message_sends_nothing(void **state) {
    struct fake_proxy *proxy = proxy_open(one());
    struct ext_proc_header header = {STR(":method"), STR("POST")};
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = &header,
                                               .n_headers = 1,
                                               .observability_mode = true};
    struct error why;
    (void)state;
    proxy_send(proxy, &question);
    error_set(&why, ST_OVERLOADED, "no memory");
    pick_session_on_message_rejected(proxy->session, &why);
    proxy_expect_no_message(proxy);
    assert_int_equal(proxy->why.status, ST_OVERLOADED);
    proxy_close(proxy);
}

/* ---- describe -------------------------------------------------------------------------------- */

static void assert_described(struct fake_proxy *proxy, const char *expected) {
    struct buf out;
    buf_init(&out, proxy->arena, 0);
    pick_session_describe(proxy->session, &out);
    proxy_assert_text(buf_str(&out), expected);
}

static void session_describe_names_the_phase(void **state) {
    struct fake_proxy *proxy = proxy_open(proxy_models());
    (void)state;
    assert_described(proxy, "waiting for the headers");
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    assert_described(proxy, "POST /v1/completions, waiting for the model's name in the body");
    proxy_body(proxy, "{\"model\":\"m\"", false);
    assert_described(proxy, "POST /v1/completions → 10.0.0.1:8000, in the request");
    act(proxy, ANSWER);
    assert_described(proxy, "POST /v1/completions → 10.0.0.1:8000, in the response");
    act(proxy, PART_END);
    assert_described(proxy, "POST /v1/completions, answered");
    pick_session_half_close(proxy->session);
    assert_described(proxy, "POST /v1/completions, ended");
    proxy_close(proxy);
}

/* ---- every order ----------------------------------------------------------------------------- */

/* The messages so far and the expected state, by the rules alone. */
struct opinion {
    enum ext_proc_body_mode request, response;
    bool has_config, matters;
    bool is_grpc;                             /* by its content-type */
    bool head, ended, answer, response_ended; /* received */
    bool told;                                /* the pick was sent */
    bool overridden, pieces;                  /* mode overridden; the body arrived in pieces */
    bool over, passed;                        /* the stream ended; the request passed without a
                                                 pick */
    size_t n_parts;                           /* of the request's body */
    size_t n_bytes;
};

static const char *const texts[] = {"{\"prompt\":1,\"mod", "el\":\"old", "\",\"n\":", "2}", ""};
enum { N_TEXTS = 5, KNOWN_AT = 25, MOST_ACTS = 6 };

/* The request's body so far. */
static struct str sent_body(size_t n_parts, bool is_new, char out[64]) {
    size_t n = 0;
    for (size_t i = 0; i < n_parts && i < N_TEXTS; i++) {
        n += (size_t)snprintf(out + n, 64 - n, "%s", texts[i]);
    }
    char *old = is_new ? strstr(out, "old\"") : NULL;
    if (old && n_parts > 0) {
        memcpy(old, "new", 3);
    }
    return str_make(out, n);
}

/* A gRPC message without a prefix: no text here starts with one. */
static bool is_message(const struct opinion *o, enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_GRPC && (!o->head || o->is_grpc);
}

static bool is_duplex(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_FULL_DUPLEX;
}

static bool is_buffered(enum ext_proc_body_mode mode) {
    return mode == EXT_PROC_BODY_BUFFERED || mode == EXT_PROC_BODY_BUFFERED_PARTIAL;
}

static bool is_legal(const struct opinion *o, enum act what) {
    switch (what) {
    case HEAD:
    case HEAD_END:
        return !o->head && !o->answer;
    case BODY:
    case BODY_END:
    case TRAILERS:
        return o->head && !o->ended;
    case ANSWER:
    case ANSWER_END:
        return !o->answer;
    case PART:
    case PART_END:
    case ATRAILERS:
        return !o->response_ended;
    case NO_MORE:
        break;
    }
    return false;
}

static void refused(struct opinion *o, struct fake_proxy *proxy, unsigned status) {
    proxy_expect_refusal(proxy, status);
    o->over = true;
}

static void picked(struct opinion *o, struct fake_proxy *proxy, enum ext_proc_kind kind,
                   bool modes) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, kind);
    proxy_assert_text(proxy_pick(reply), "10.0.0.1:8000");
    assert_int_equal(reply->has_mode_override, modes);
    o->told = true;
}

static void of_head(struct opinion *o, struct fake_proxy *proxy, bool ends) {
    o->head = true;
    o->ended = ends;
    if (!o->matters) {
        picked(o, proxy, EXT_PROC_REQUEST_HEADERS, false);
    } else if (ends) {
        refused(o, proxy, 400);
    } else if (is_buffered(o->request)) {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    } else if (!is_duplex(o->request)) {
        o->overridden = true;
        picked(o, proxy, EXT_PROC_REQUEST_HEADERS, true);
    }
}

static void sent_back(struct fake_proxy *proxy, enum ext_proc_kind kind, struct str text,
                      bool ends) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_int_equal(reply->kind, kind);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_STREAMED_RESPONSE);
    assert_true(str_eq(reply->body, text));
    assert_int_equal(reply->end_of_stream, ends);
}

/* Duplex mode: buffered messages are sent as soon as the model is known. */
static void of_duplex(struct opinion *o, struct fake_proxy *proxy, struct str text, bool ends) {
    char bytes[64];
    if (o->told) {
        if (text.len > 0 || ends) {
            sent_back(proxy, EXT_PROC_REQUEST_BODY, text, ends);
        }
    } else if (o->n_bytes >= KNOWN_AT) {
        picked(o, proxy, EXT_PROC_REQUEST_HEADERS, false);
        proxy_expect_body(proxy, EXT_PROC_REQUEST_BODY, sent_body(o->n_parts, true, bytes), ends);
    } else if (ends) {
        refused(o, proxy, 400);
    }
}

static void of_raised(struct opinion *o, struct fake_proxy *proxy, bool ends) {
    bool known = o->n_bytes >= KNOWN_AT;
    bool at_once = o->request == EXT_PROC_BODY_NONE || o->request == EXT_PROC_BODY_GRPC;
    if (o->has_config && at_once && !o->pieces) {
        refused(o, proxy, 400); /* as a whole the first piece is truncated */
    } else if (!o->pieces && ends) {
        refused(o, proxy, 400);
    } else if (known && o->overridden) {
        refused(o, proxy, 500); /* the model cannot be replaced any more */
    } else if (ends && !known) {
        refused(o, proxy, 400);
    } else {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    }
    o->pieces = true;
}

static void of_body(struct opinion *o, struct fake_proxy *proxy, struct str text, bool ends) {
    o->ended = ends;
    o->n_bytes += text.len;
    if (o->passed) {
        return;
    }
    if (is_duplex(o->request)) {
        of_duplex(o, proxy, text, ends);
    } else if (is_buffered(o->request) && !o->told) {
        /* The head of gRPC has no content-length, and the piece is too short to fill a buffer. */
        bool cut_off = o->request == EXT_PROC_BODY_BUFFERED_PARTIAL && !ends && !o->is_grpc;
        refused(o, proxy, cut_off ? 413 : 400);
    } else if (o->overridden) {
        of_raised(o, proxy, ends);
    } else if (is_message(o, o->request)) {
        sent_back(proxy, EXT_PROC_REQUEST_BODY, text, ends);
    } else {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_BODY);
    }
}

static void of_trailers(struct opinion *o, struct fake_proxy *proxy) {
    o->ended = true;
    if (o->passed) {
        return;
    }
    if (!o->told || (o->overridden && o->pieces)) {
        refused(o, proxy, 400);
    } else {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_TRAILERS);
    }
}

static void of_answer(struct opinion *o, struct fake_proxy *proxy, enum act what) {
    o->answer = true;
    o->response_ended = what == ANSWER_END || what == PART_END || what == ATRAILERS;
    o->passed = o->passed || (o->head && !o->told);
    if (what == ANSWER || what == ANSWER_END) {
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    } else if (what == ATRAILERS) {
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_TRAILERS);
    } else if (is_duplex(o->response) || is_message(o, o->response)) {
        proxy_expect_chunk(proxy, EXT_PROC_RESPONSE_BODY, "y", what == PART_END);
    } else {
        proxy_expect_continue(proxy, EXT_PROC_RESPONSE_BODY);
    }
}

static const enum ext_proc_kind kinds[] = {
    [HEAD] = EXT_PROC_REQUEST_HEADERS,        [HEAD_END] = EXT_PROC_REQUEST_HEADERS,
    [BODY] = EXT_PROC_REQUEST_BODY,           [BODY_END] = EXT_PROC_REQUEST_BODY,
    [TRAILERS] = EXT_PROC_REQUEST_TRAILERS,   [ANSWER] = EXT_PROC_RESPONSE_HEADERS,
    [ANSWER_END] = EXT_PROC_RESPONSE_HEADERS, [PART] = EXT_PROC_RESPONSE_BODY,
    [PART_END] = EXT_PROC_RESPONSE_BODY,      [ATRAILERS] = EXT_PROC_RESPONSE_TRAILERS,
};

static bool ends(enum act what) {
    return what == HEAD_END || what == BODY_END || what == ANSWER_END || what == PART_END;
}

/* One more message, and the expected answer. */
static void step(struct opinion *o, struct fake_proxy *proxy, enum act what) {
    const struct ext_proc_config config = {o->request, o->response, false};
    struct str text = str_of(texts[o->n_parts % N_TEXTS]);
    bool first = !o->head && !o->answer, legal = is_legal(o, what);
    struct ext_proc_header headers[8];
    struct ext_proc_client_request question = {.kind = kinds[what],
                                               .headers = headers,
                                               .body = what <= BODY_END ? text : STR("y"),
                                               .end_of_stream = ends(what),
                                               .config = first && o->has_config ? &config : NULL,
                                               .has_metadata = true};
    if (what == HEAD || what == HEAD_END) {
        question.n_headers = proxy_headers(o->is_grpc ? POST_GRPC : POST, headers, 8);
    }
    proxy_send(proxy, &question);
    if (!legal) {
        assert_true(proxy->finished && proxy->why.status == ST_BAD_REQUEST);
        o->over = true;
    } else if (what == HEAD || what == HEAD_END) {
        of_head(o, proxy, what == HEAD_END);
    } else if (what == BODY || what == BODY_END) {
        o->n_parts++;
        of_body(o, proxy, text, what == BODY_END);
    } else if (what == TRAILERS) {
        of_trailers(o, proxy);
    } else {
        of_answer(o, proxy, what);
    }
    assert_int_equal(proxy->finished, o->over);
    proxy_expect_no_message(proxy);
}

/* Each message that can follow, and each that cannot, once. Returns: the number of orders. */
static size_t every_order(struct fake_proxy *proxy, const struct opinion *begun, enum act *acts,
                          size_t n) {
    size_t n_orders = 0;
    for (enum act what = HEAD; what <= ATRAILERS; what++) {
        struct opinion o = *begun;
        acts[n] = what;
        for (size_t i = 0; i <= n; i++) {
            step(&o, proxy, acts[i]);
        }
        proxy_end(proxy); /* nothing is left at any end */
        proxy_stream(proxy, &proxy_limits);
        n_orders++;
        if (!o.over && n + 1 < MOST_ACTS) {
            n_orders += every_order(proxy, begun, acts, n + 1);
        }
    }
    return n_orders;
}

static void message_order_every_order_is_handled(void **state) {
    static const enum ext_proc_body_mode responses[] = {
        EXT_PROC_BODY_NONE, EXT_PROC_BODY_STREAMED, EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_GRPC};
    size_t n_orders = 0;
    (void)state;
    for (int matters = 0; matters < 2; matters++) {
        struct fake_proxy *proxy = proxy_open(matters ? proxy_models() : one());
        for (int mode = 0; mode < 8 * EXT_PROC_BODY_OTHER; mode++) {
            struct opinion begun = {.request = (enum ext_proc_body_mode)(mode / 8),
                                    .response = responses[mode % 4],
                                    .has_config = true,
                                    .is_grpc = mode % 8 >= 4,
                                    .matters = matters};
            enum act acts[MOST_ACTS];
            n_orders += every_order(proxy, &begun, acts, 0);
        }
        struct opinion older = {.request = EXT_PROC_BODY_STREAMED,
                                .response = EXT_PROC_BODY_STREAMED,
                                .matters = matters};
        enum act acts[MOST_ACTS];
        n_orders += every_order(proxy, &older, acts, 0);
        proxy_close(proxy);
    }
    print_message("%zu orders\n", n_orders);
    assert_true(n_orders > 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_order_illegal_ends_stream),
        cmocka_unit_test(message_order_late_error_is_reported),
        cmocka_unit_test(message_undecodable_ends_stream),
        cmocka_unit_test(message_unknown_is_skipped),
        cmocka_unit_test(observability_mode_sends_nothing),
        cmocka_unit_test(observability_mode_rejected_message_sends_nothing),
        cmocka_unit_test(session_describe_names_the_phase),
        cmocka_unit_test(message_order_every_order_is_handled),
    };
    return cmocka_run_group_tests_name("pick/session/message_order", tests, NULL, NULL);
}
