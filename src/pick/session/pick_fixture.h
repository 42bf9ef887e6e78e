/* For tests of sessions: a simulated proxy that records what is sent, and a pool in a line. Each
 * message is in memory of exactly its size, which is freed when it is released; each sent message
 * is decoded when it is sent, and compared again when it is released. Include cmocka.h before. */
#ifndef SLUICE_PICK_SESSION_PICK_FIXTURE_H
#define SLUICE_PICK_SESSION_PICK_FIXTURE_H

#include <stdlib.h>

#include "core/event/clock.h"
#include "lib/ext_proc/client.h"
#include "pick/pool/pool_fixture.h"
#include "pick/session/session.h"

enum { PROXY_MAX_SENT = 4096, PROXY_MAX_PIECES = 8 };

struct proxy_sent {
    char *bytes; /* a copy from when it was sent */
    size_t n_bytes;
    struct piece pieces[PROXY_MAX_PIECES];
    size_t n_pieces;
    void (*release)(void *user);
    void *user;
    bool left;
    struct ext_proc_client_response reply;
};

struct fake_proxy {
    struct fixture pool;
    struct pool_wakeup wakeup;
    struct pool_waited waited;
    int n_notified; /* since proxy_resume */
    struct arena *arena;
    struct pick_session *session;
    struct proxy_sent sent[PROXY_MAX_SENT];
    size_t n_sent, n_read; /* `n_read`: those that the test has read */
    bool finished;
    struct error why;                     /* ST_OK: no error */
    int n_messages;                       /* of the proxy, not released */
    int n_slices;                         /* scanned after the first one of a message */
    bool by_slice;                        /* the test scans them itself */
    const struct pick_stage_plan *stages; /* of the next stream's requests */
    size_t n_stages;
    uint64_t resume_ns;      /* of the fake clock: what a resumed request takes */
    char last_outcome[1024]; /* the last outcome: "LINE|MODEL|TARGET|why" */
    char last_model[64];     /* and of it: */
    enum prompt_format last_format;
    bool last_is_streamed;
    /* Of the next stream: a stage was picked for, and the pick is still in use. NULL: no traces. */
    void (*on_stage)(struct fake_proxy *proxy);
};

/* ---- callbacks of the session ---------------------------------------------------------------- */

static void proxy_on_send(void *user, const struct piece *pieces, size_t n_pieces,
                          void (*release)(void *release_user), void *release_user) {
    struct fake_proxy *proxy = user;
    struct proxy_sent *sent = &proxy->sent[proxy->n_sent++];
    assert_true(proxy->n_sent < PROXY_MAX_SENT && n_pieces <= PROXY_MAX_PIECES);
    assert_false(proxy->finished);
    *sent = (struct proxy_sent){.n_pieces = n_pieces, .release = release, .user = release_user};
    for (size_t i = 0; i < n_pieces; i++) {
        sent->pieces[i] = pieces[i];
        sent->n_bytes += pieces[i].n_bytes;
    }
    sent->bytes = malloc(sent->n_bytes + 1);
    sent->bytes[sent->n_bytes] = '\0'; /* for strstr */
    for (size_t i = 0, at = 0; i < n_pieces; at += pieces[i++].n_bytes) {
        memcpy(sent->bytes + at, pieces[i].data, pieces[i].n_bytes);
    }
    struct error err = {0};
    enum status st =
        ext_proc_client_response_decode(str_make(sent->bytes, sent->n_bytes), &sent->reply, &err);
    if (st != ST_OK) {
        fail_msg("the proxy can't read an answer: %s", err.text);
    }
}

static void proxy_on_finish(void *user, const struct error *err) {
    struct fake_proxy *proxy = user;
    assert_false(proxy->finished);
    proxy->finished = true;
    proxy->why = err ? *err : (struct error){.status = ST_OK};
}

static void proxy_on_resumed(void *user) {
    const struct fake_proxy *proxy = user;
    if (proxy->resume_ns > 0) {
        clock_set_fake_ns(clock_now_ns() + proxy->resume_ns);
    }
}

static inline size_t proxy_copy(char *to, size_t n, size_t most, struct str text) {
    for (size_t i = 0; i < text.len && n + 1 < most; i++) {
        to[n++] = text.ptr[i];
    }
    to[n] = '\0';
    return n;
}

/* Reads all of it, as a log does: so that the sanitizer finds a released byte. */
static void proxy_on_note(void *user, const struct pick_outcome *outcome) {
    struct fake_proxy *proxy = user;
    const struct str parts[] = {outcome->request_line,
                                STR("|"),
                                outcome->counted.model,
                                STR("|"),
                                outcome->target,
                                STR("|"),
                                str_of(outcome->why ? outcome->why->text : "")};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        n = proxy_copy(proxy->last_outcome, n, sizeof(proxy->last_outcome), parts[i]);
    }
    (void)proxy_copy(proxy->last_model, 0, sizeof(proxy->last_model), outcome->counted.model);
    proxy->last_format = outcome->format;
    proxy->last_is_streamed = outcome->is_streamed;
}

static inline struct pick_trace_choice proxy_on_request(void *user,
                                                        const struct ext_proc_headers *fields) {
    (void)user;
    (void)fields;
    return (struct pick_trace_choice){.is_recorded = true};
}

static inline void proxy_on_stage(void *user, const struct pick_stage_event *event) {
    struct fake_proxy *proxy = user;
    (void)event;
    proxy->on_stage(proxy);
}

/* Releases what was sent; until now its bytes must be unchanged. */
static inline void proxy_flush(struct fake_proxy *proxy) {
    for (size_t i = 0; i < proxy->n_sent; i++) {
        struct proxy_sent *sent = &proxy->sent[i];
        size_t at = 0;
        for (size_t k = 0; k < sent->n_pieces && !sent->left; k++) {
            assert_memory_equal(sent->bytes + at, sent->pieces[k].data, sent->pieces[k].n_bytes);
            at += sent->pieces[k].n_bytes;
        }
        if (!sent->left && sent->release) {
            sent->release(sent->user);
        }
        sent->left = true;
    }
}

/* ---- open, close ----------------------------------------------------------------------------- */

/* Another stream in the same pool. */
static inline void proxy_stream(struct fake_proxy *proxy, const struct pick_limits *limits) {
    struct pick_context context = {.wakeup = &proxy->wakeup,
                                   .waited = &proxy->waited,
                                   .pool = proxy->pool.pool,
                                   .reader = proxy->pool.reader,
                                   .stages = proxy->stages,
                                   .n_stages = proxy->n_stages,
                                   .limits = *limits};
    struct pick_callbacks out = {.send = proxy_on_send,
                                 .finish = proxy_on_finish,
                                 .on_resumed = proxy_on_resumed,
                                 .on_outcome = proxy_on_note,
                                 .user = proxy};
    if (proxy->on_stage) {
        out.on_request = proxy_on_request;
        out.on_stage = proxy_on_stage;
    }
    proxy->arena = arena_new(NULL, 0);
    proxy->session = pick_session_new(proxy->arena, &context, &out);
    proxy->finished = false;
    proxy->why = (struct error){.status = ST_OK};
    assert_non_null(proxy->session);
}

static const struct pick_limits proxy_limits = {.max_body_size = 1 << 20,
                                                .answer_timeout_ns = 1000000000};

static void proxy_on_call(void *user) {
    struct fake_proxy *proxy = user;
    proxy->n_notified++;
}

/* Scans the rest of a large body. */
static inline void proxy_scan(struct fake_proxy *proxy) {
    while (!proxy->by_slice && pick_session_has_more(proxy->session)) {
        pick_session_go_on(proxy->session);
        proxy->n_slices++;
    }
}

/* Notified waiters pick again. */
static inline void proxy_resume(struct fake_proxy *proxy) {
    struct pool_waiter *waiter;
    while ((waiter = pool_wakeup_pop(&proxy->wakeup))) {
        pick_session_resume(waiter);
    }
    proxy_scan(proxy);
    proxy->n_notified = 0;
}

static inline struct fake_proxy *proxy_open_in(struct pool_spec *spec,
                                               void (*open)(struct fixture *fixture,
                                                            struct pool_spec *spec)) {
    struct fake_proxy *proxy = calloc(1, sizeof(*proxy));
    assert_non_null(proxy);
    open(&proxy->pool, spec);
    pool_wakeup_init(&proxy->wakeup, proxy_on_call, proxy);
    proxy_stream(proxy, &proxy_limits);
    return proxy;
}

/* Takes the spec. Owns: the proxy, until proxy_close. */
static inline struct fake_proxy *proxy_open(struct pool_spec *spec) {
    return proxy_open_in(spec, fixture_open);
}

/* The same, in a pool with a table of prompt prefixes. */
static inline struct fake_proxy *proxy_open_with_prefixes(struct pool_spec *spec) {
    return proxy_open_in(spec, fixture_open_with_prefixes);
}

/* Ends the stream; it must leave nothing. */
static inline void proxy_end(struct fake_proxy *proxy) {
    struct pool_stats pool_counts;
    pick_session_free(proxy->session);
    proxy_flush(proxy);
    arena_free(proxy->arena);
    for (size_t i = 0; i < proxy->n_sent; i++) {
        free(proxy->sent[i].bytes);
    }
    proxy->n_sent = proxy->n_read = 0;
    assert_int_equal(proxy->n_messages, 0);
    assert_true(pool_waited_is_empty(&proxy->waited));
    pool_get_stats(proxy->pool.pool, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
}

static inline void proxy_next_stream(struct fake_proxy *proxy) {
    proxy_end(proxy);
    proxy_stream(proxy, &proxy_limits);
}

static inline void proxy_close(struct fake_proxy *proxy) {
    proxy_end(proxy);
    fixture_close(&proxy->pool);
    pool_wakeup_fini(&proxy->wakeup);
    free(proxy);
}

/* ---- messages of the proxy ------------------------------------------------------------------- */

struct proxy_message {
    struct fake_proxy *proxy;
    char bytes[];
};

static void proxy_release(void *user) {
    struct proxy_message *message = user;
    message->proxy->n_messages--;
    free(message);
}

static inline void proxy_take(struct fake_proxy *proxy, struct str bytes) {
    struct proxy_message *message = malloc(sizeof(*message) + bytes.len);
    assert_non_null(message);
    message->proxy = proxy;
    memcpy(message->bytes, bytes.ptr, bytes.len);
    proxy->n_messages++;
    pick_session_on_message(
        proxy->session,
        &(struct pick_message){str_make(message->bytes, bytes.len), proxy_release, message});
    proxy_scan(proxy);
}

static inline void proxy_send(struct fake_proxy *proxy,
                              const struct ext_proc_client_request *question) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 256);
    ext_proc_client_request_encode(&out, question);
    proxy_take(proxy, out.len > 0 ? buf_str(&out) : STR(""));
    arena_free(arena);
}

/* "key=value|key=value" */
static inline size_t proxy_headers(const char *text, struct ext_proc_header *out, size_t most) {
    struct str rest = str_of(text);
    size_t n = 0;
    while (rest.ptr && rest.len > 0) {
        struct str value = str_cut(&rest, '|');
        assert_true(n < most);
        out[n].key = str_cut(&value, '=');
        out[n++].value = value.ptr ? value : STR("");
    }
    return n;
}

#define PROXY_CONFIG(request, response)                                                            \
    (&(const struct ext_proc_config){EXT_PROC_BODY_##request, EXT_PROC_BODY_##response, false})

/* The first message. `config` NULL: an older proxy. */
static inline void proxy_request(struct fake_proxy *proxy, const char *headers, bool ends,
                                 const struct ext_proc_config *config) {
    struct ext_proc_header list[32];
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = list,
                                               .n_headers = proxy_headers(headers, list, 32),
                                               .end_of_stream = ends,
                                               .config = config,
                                               .has_metadata = true};
    proxy_send(proxy, &question);
}

static inline void proxy_part(struct fake_proxy *proxy, enum ext_proc_kind kind, struct str body,
                              bool ends) {
    struct ext_proc_client_request question = {
        .kind = kind, .body = body, .end_of_stream = ends, .has_metadata = true};
    proxy_send(proxy, &question);
}

static inline void proxy_body(struct fake_proxy *proxy, const char *body, bool ends) {
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_of(body), ends);
}

static inline void proxy_trailers(struct fake_proxy *proxy, enum ext_proc_kind kind) {
    struct ext_proc_client_request question = {.kind = kind, .has_metadata = true};
    proxy_send(proxy, &question);
}

static inline void proxy_answer(struct fake_proxy *proxy, const char *headers, bool ends) {
    struct ext_proc_header list[32];
    struct ext_proc_client_request question = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                               .headers = list,
                                               .n_headers = proxy_headers(headers, list, 32),
                                               .end_of_stream = ends,
                                               .has_metadata = true};
    proxy_send(proxy, &question);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static inline void proxy_add_model(struct pool_spec *spec, const char *name,
                                   enum pool_criticality criticality) {
    struct pool_model model = {.name = str_of(name), .criticality = criticality};
    pool_spec_add_model(spec, &model);
}

/* `target` must outlive the pool. */
static inline void proxy_add_target(struct pool_spec *spec, const char *name,
                                    const struct pool_target *target) {
    struct pool_model model = {.name = str_of(name), .targets = {target, 1}};
    pool_spec_add_model(spec, &model);
}

/* One endpoint, 10.0.0.1:8000, and the models m (unchanged), old (sent on as new) and cheap
 * (sheddable); others are refused. */
static inline struct pool_spec *proxy_models(void) {
    static const struct pool_target target = {{"new", 3}, 1};
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    spec->strict_models = true;
    proxy_add_model(spec, "m", POOL_STANDARD);
    proxy_add_model(spec, "cheap", POOL_SHEDDABLE);
    proxy_add_target(spec, "old", &target);
    return spec;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The next answer that the test has not read. */
static inline const struct ext_proc_client_response *proxy_next(struct fake_proxy *proxy) {
    assert_true(proxy->n_read < proxy->n_sent);
    return &proxy->sent[proxy->n_read++].reply;
}

static inline void proxy_expect_no_message(const struct fake_proxy *proxy) {
    assert_int_equal(proxy->n_read, proxy->n_sent);
}

static inline struct str proxy_set(const struct ext_proc_client_response *reply, const char *key) {
    struct pb_reader reader = pb_read(reply->mutation);
    struct ext_proc_header header;
    struct str found = {NULL, 0};
    while (ext_proc_set_header_next(&reader, &header)) {
        if (str_is(header.key, key)) {
            assert_null(found.ptr); /* set once */
            found = header.value.ptr ? header.value : STR("");
        }
    }
    return found;
}

static inline size_t proxy_n_set(const struct ext_proc_client_response *reply) {
    struct pb_reader reader = pb_read(reply->mutation);
    struct ext_proc_header header;
    struct str removed;
    size_t n = 0;
    while (ext_proc_set_header_next(&reader, &header)) {
        n++;
    }
    reader = pb_read(reply->mutation);
    while (ext_proc_removed_header_next(&reader, &removed)) {
        n++;
    }
    return n;
}

#define PROXY_DESTINATION "x-gateway-destination-endpoint"

static inline void proxy_assert_text(struct str got, const char *expected) {
    if (!got.ptr || !str_is(got, expected)) {
        fail_msg("expected \"%s\", got \"%.*s\"", expected, STR_ARG(got));
    }
}

/* The answer has a pick, with the same bytes in header and metadata. Returns: these. */
static inline struct str proxy_pick(const struct ext_proc_client_response *reply) {
    struct str header = proxy_set(reply, PROXY_DESTINATION);
    struct ext_proc_value value =
        ext_proc_client_response_metadata_find(reply, STR("envoy.lb"), STR(PROXY_DESTINATION));
    if (reply->is_immediate) {
        fail_msg("expected a pick, got %u: %.*s", reply->http_status, STR_ARG(reply->body));
    }
    assert_non_null(header.ptr);
    assert_int_equal(value.kind, EXT_PROC_STRING);
    assert_true(str_eq(value.text, header));
    assert_true(reply->clear_route_cache);
    assert_false(reply->continue_and_replace);
    return header;
}

/* "Nothing changed", in answer to `kind`. */
static inline void proxy_expect_continue(struct fake_proxy *proxy, enum ext_proc_kind kind) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_false(reply->is_immediate);
    assert_int_equal(reply->kind, kind);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_UNCHANGED);
    assert_int_equal(proxy_n_set(reply), 0);
    assert_int_equal(reply->metadata.len, 0);
    assert_false(reply->has_mode_override || reply->clear_route_cache);
}

/* The next piece of a body in a duplex mode. */
static inline void proxy_expect_chunk(struct fake_proxy *proxy, enum ext_proc_kind kind,
                                      const char *body, bool ends) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_false(reply->is_immediate);
    assert_int_equal(reply->kind, kind);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_STREAMED_RESPONSE);
    proxy_assert_text(reply->body, body);
    assert_int_equal(reply->end_of_stream, ends);
}

/* The pieces of a body up to the next answer of another kind are `body`; end_of_stream is set on
 * the last one only, if at all. */
static inline void proxy_expect_body(struct fake_proxy *proxy, enum ext_proc_kind kind,
                                     struct str body, bool ends) {
    size_t at = 0;
    bool ended = false;
    while (proxy->n_read < proxy->n_sent && !proxy->sent[proxy->n_read].reply.is_immediate &&
           proxy->sent[proxy->n_read].reply.kind == kind) {
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        assert_int_equal(reply->body_mutation, EXT_PROC_BODY_STREAMED_RESPONSE);
        assert_false(ended);
        assert_in_range(reply->body.len, 0, EXT_PROC_MAX_CHUNK_BYTES);
        assert_in_range(at + reply->body.len, 0, body.len);
        assert_memory_equal(body.ptr + at, reply->body.ptr, reply->body.len);
        at += reply->body.len;
        ended = reply->end_of_stream;
    }
    assert_int_equal(at, body.len);
    assert_int_equal(ended, ends);
}

/* An immediate response, and the stream ends with OK. */
static inline const struct ext_proc_client_response *proxy_expect_refusal(struct fake_proxy *proxy,
                                                                          unsigned status) {
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_true(reply->is_immediate);
    assert_int_equal(reply->http_status, status);
    assert_true(proxy->finished);
    assert_int_equal(proxy->why.status, ST_OK);
    proxy_expect_no_message(proxy);
    return reply;
}

#endif
