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

enum { STAGE_MAX_SENT = 4096, STAGE_MAX_PIECES = 8 };

struct stage_sent {
    char *bytes; /* a copy from when it was sent */
    size_t n_bytes;
    struct piece pieces[STAGE_MAX_PIECES];
    size_t n_pieces;
    void (*release)(void *user);
    void *user;
    bool left;
    struct ext_proc_client_response reply;
};

struct stage {
    struct fixture pool;
    struct pool_wakeup wakeup;
    struct pool_waited waited;
    int n_notified; /* since stage_resume */
    struct arena *arena;
    struct pick_session *session;
    struct stage_sent sent[STAGE_MAX_SENT];
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
};

/* ---- callbacks of the session ---------------------------------------------------------------- */

static void stage_on_send(void *user, const struct piece *pieces, size_t n_pieces,
                          void (*release)(void *release_user), void *release_user) {
    struct stage *stage = user;
    struct stage_sent *sent = &stage->sent[stage->n_sent++];
    assert_true(stage->n_sent < STAGE_MAX_SENT && n_pieces <= STAGE_MAX_PIECES);
    assert_false(stage->finished);
    *sent = (struct stage_sent){.n_pieces = n_pieces, .release = release, .user = release_user};
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

static void stage_on_finish(void *user, const struct error *err) {
    struct stage *stage = user;
    assert_false(stage->finished);
    stage->finished = true;
    stage->why = err ? *err : (struct error){.status = ST_OK};
}

static void stage_on_resumed(void *user) {
    const struct stage *stage = user;
    if (stage->resume_ns > 0) {
        clock_set_fake_ns(clock_now_ns() + stage->resume_ns);
    }
}

static inline size_t stage_copy(char *to, size_t n, size_t most, struct str text) {
    for (size_t i = 0; i < text.len && n + 1 < most; i++) {
        to[n++] = text.ptr[i];
    }
    to[n] = '\0';
    return n;
}

/* Reads all of it, as a log does: so that the sanitizer finds a released byte. */
static void stage_on_note(void *user, const struct pick_outcome *outcome) {
    struct stage *stage = user;
    const struct str parts[] = {outcome->request_line,
                                STR("|"),
                                outcome->model,
                                STR("|"),
                                outcome->target,
                                STR("|"),
                                str_of(outcome->why ? outcome->why->text : "")};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        n = stage_copy(stage->last_outcome, n, sizeof(stage->last_outcome), parts[i]);
    }
}

/* Releases what was sent; until now its bytes must be unchanged. */
static inline void stage_flush(struct stage *stage) {
    for (size_t i = 0; i < stage->n_sent; i++) {
        struct stage_sent *sent = &stage->sent[i];
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
static inline void stage_stream(struct stage *stage, const struct pick_limits *limits) {
    struct pick_context context = {.wakeup = &stage->wakeup,
                                   .waited = &stage->waited,
                                   .pool = stage->pool.pool,
                                   .reader = stage->pool.reader,
                                   .stages = stage->stages,
                                   .n_stages = stage->n_stages,
                                   .limits = *limits};
    struct pick_callbacks out = {.send = stage_on_send,
                                 .finish = stage_on_finish,
                                 .on_resumed = stage_on_resumed,
                                 .on_outcome = stage_on_note,
                                 .user = stage};
    stage->arena = arena_new(NULL, 0);
    stage->session = pick_session_new(stage->arena, &context, &out);
    stage->finished = false;
    stage->why = (struct error){.status = ST_OK};
    assert_non_null(stage->session);
}

static const struct pick_limits stage_limits = {.max_body_size = 1 << 20,
                                                .answer_timeout_ns = 1000000000};

static void stage_on_call(void *user) {
    struct stage *stage = user;
    stage->n_notified++;
}

/* Scans the rest of a large body. */
static inline void stage_scan(struct stage *stage) {
    while (!stage->by_slice && pick_session_has_more(stage->session)) {
        pick_session_go_on(stage->session);
        stage->n_slices++;
    }
}

/* Notified waiters pick again. */
static inline void stage_resume(struct stage *stage) {
    struct pool_waiter *waiter;
    while ((waiter = pool_wakeup_pop(&stage->wakeup))) {
        pick_session_resume(waiter);
    }
    stage_scan(stage);
    stage->n_notified = 0;
}

/* Takes the spec. Owns: the stage, until stage_close. */
static inline struct stage *stage_open(struct pool_spec *spec) {
    struct stage *stage = calloc(1, sizeof(*stage));
    assert_non_null(stage);
    fixture_open(&stage->pool, spec);
    pool_wakeup_init(&stage->wakeup, stage_on_call, stage);
    stage_stream(stage, &stage_limits);
    return stage;
}

/* Ends the stream; it must leave nothing. */
static inline void stage_end(struct stage *stage) {
    struct pool_stats pool_counts;
    pick_session_free(stage->session);
    stage_flush(stage);
    arena_free(stage->arena);
    for (size_t i = 0; i < stage->n_sent; i++) {
        free(stage->sent[i].bytes);
    }
    stage->n_sent = stage->n_read = 0;
    assert_int_equal(stage->n_messages, 0);
    assert_true(pool_waited_is_empty(&stage->waited));
    pool_get_stats(stage->pool.pool, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
}

static inline void stage_close(struct stage *stage) {
    stage_end(stage);
    fixture_close(&stage->pool);
    pool_wakeup_fini(&stage->wakeup);
    free(stage);
}

/* ---- messages of the proxy ------------------------------------------------------------------- */

struct stage_message {
    struct stage *stage;
    char bytes[];
};

static void stage_release(void *user) {
    struct stage_message *message = user;
    message->stage->n_messages--;
    free(message);
}

static inline void stage_take(struct stage *stage, struct str bytes) {
    struct stage_message *message = malloc(sizeof(*message) + bytes.len);
    assert_non_null(message);
    message->stage = stage;
    memcpy(message->bytes, bytes.ptr, bytes.len);
    stage->n_messages++;
    pick_session_on_message(
        stage->session,
        &(struct pick_message){str_make(message->bytes, bytes.len), stage_release, message});
    stage_scan(stage);
}

static inline void stage_send(struct stage *stage, const struct ext_proc_client_request *question) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 256);
    ext_proc_client_request_encode(&out, question);
    stage_take(stage, out.len > 0 ? buf_str(&out) : STR(""));
    arena_free(arena);
}

/* "key=value|key=value" */
static inline size_t stage_headers(const char *text, struct ext_proc_header *out, size_t most) {
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

#define STAGE_CONFIG(request, response)                                                            \
    (&(const struct ext_proc_config){EXT_PROC_BODY_##request, EXT_PROC_BODY_##response, false})

/* The first message. `config` NULL: an older proxy. */
static inline void stage_request(struct stage *stage, const char *headers, bool ends,
                                 const struct ext_proc_config *config) {
    struct ext_proc_header list[32];
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = list,
                                               .n_headers = stage_headers(headers, list, 32),
                                               .end_of_stream = ends,
                                               .config = config,
                                               .has_metadata = true};
    stage_send(stage, &question);
}

static inline void stage_part(struct stage *stage, enum ext_proc_kind kind, struct str body,
                              bool ends) {
    struct ext_proc_client_request question = {
        .kind = kind, .body = body, .end_of_stream = ends, .has_metadata = true};
    stage_send(stage, &question);
}

static inline void stage_body(struct stage *stage, const char *body, bool ends) {
    stage_part(stage, EXT_PROC_REQUEST_BODY, str_of(body), ends);
}

static inline void stage_trailers(struct stage *stage, enum ext_proc_kind kind) {
    struct ext_proc_client_request question = {.kind = kind, .has_metadata = true};
    stage_send(stage, &question);
}

static inline void stage_answer(struct stage *stage, const char *headers, bool ends) {
    struct ext_proc_header list[32];
    struct ext_proc_client_request question = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                               .headers = list,
                                               .n_headers = stage_headers(headers, list, 32),
                                               .end_of_stream = ends,
                                               .has_metadata = true};
    stage_send(stage, &question);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static inline void stage_add_model(struct pool_spec *spec, const char *name,
                                   enum pool_criticality criticality) {
    struct pool_model model = {.name = str_of(name), .criticality = criticality};
    struct error err;
    assert_int_equal(pool_spec_add_model(spec, &model, &err), ST_OK);
}

/* `target` must outlive the pool. */
static inline void stage_add_target(struct pool_spec *spec, const char *name,
                                    const struct pool_target *target) {
    struct pool_model model = {.name = str_of(name), .targets = {target, 1}};
    struct error err;
    assert_int_equal(pool_spec_add_model(spec, &model, &err), ST_OK);
}

/* One endpoint, 10.0.0.1:8000, and the models m (unchanged), old (sent on as new) and cheap
 * (sheddable); others are refused. */
static inline struct pool_spec *stage_models(void) {
    static const struct pool_target target = {{"new", 3}, 1};
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "10.0.0.1:8000");
    spec->strict_models = true;
    stage_add_model(spec, "m", POOL_STANDARD);
    stage_add_model(spec, "cheap", POOL_SHEDDABLE);
    stage_add_target(spec, "old", &target);
    return spec;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The next answer that the test has not read. */
static inline const struct ext_proc_client_response *stage_next(struct stage *stage) {
    assert_true(stage->n_read < stage->n_sent);
    return &stage->sent[stage->n_read++].reply;
}

static inline void stage_expect_no_message(const struct stage *stage) {
    assert_int_equal(stage->n_read, stage->n_sent);
}

static inline struct str stage_set(const struct ext_proc_client_response *reply, const char *key) {
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

static inline size_t stage_n_set(const struct ext_proc_client_response *reply) {
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

#define STAGE_DESTINATION "x-gateway-destination-endpoint"

static inline void stage_assert_text(struct str got, const char *expected) {
    if (!got.ptr || !str_is(got, expected)) {
        fail_msg("expected \"%s\", got \"%.*s\"", expected, STR_ARG(got));
    }
}

/* The answer has a pick, with the same bytes in header and metadata. Returns: these. */
static inline struct str stage_pick(const struct ext_proc_client_response *reply) {
    struct str header = stage_set(reply, STAGE_DESTINATION);
    struct ext_proc_value value =
        ext_proc_client_response_metadata_find(reply, STR("envoy.lb"), STR(STAGE_DESTINATION));
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
static inline void stage_expect_continue(struct stage *stage, enum ext_proc_kind kind) {
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_false(reply->is_immediate);
    assert_int_equal(reply->kind, kind);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_UNCHANGED);
    assert_int_equal(stage_n_set(reply), 0);
    assert_int_equal(reply->metadata.len, 0);
    assert_false(reply->has_mode_override || reply->clear_route_cache);
}

/* The next piece of a body in a duplex mode. */
static inline void stage_expect_chunk(struct stage *stage, enum ext_proc_kind kind,
                                      const char *body, bool ends) {
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_false(reply->is_immediate);
    assert_int_equal(reply->kind, kind);
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_STREAMED_RESPONSE);
    stage_assert_text(reply->body, body);
    assert_int_equal(reply->end_of_stream, ends);
}

/* The pieces of a body up to the next answer of another kind are `body`; end_of_stream is set on
 * the last one only, if at all. */
static inline void stage_expect_body(struct stage *stage, enum ext_proc_kind kind, struct str body,
                                     bool ends) {
    size_t at = 0;
    bool ended = false;
    while (stage->n_read < stage->n_sent && !stage->sent[stage->n_read].reply.is_immediate &&
           stage->sent[stage->n_read].reply.kind == kind) {
        const struct ext_proc_client_response *reply = stage_next(stage);
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
static inline const struct ext_proc_client_response *stage_expect_refusal(struct stage *stage,
                                                                          unsigned status) {
    const struct ext_proc_client_response *reply = stage_next(stage);
    assert_true(reply->is_immediate);
    assert_int_equal(reply->http_status, status);
    assert_true(stage->finished);
    assert_int_equal(stage->why.status, ST_OK);
    stage_expect_no_message(stage);
    return reply;
}

#endif
