/* Requests whose profile needs the prompt: how long the pick waits for it, that it is sent where
 * its beginning was sent before, and that no request is refused because of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/profile/profile.h"
#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions|content-type=application/json"
#define CHAT ":method=POST|:path=/v1/chat/completions|content-type=application/json"

enum { BLOCK = 16, MOST = 4, N = 8 };

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};

/* As a configured profile, and as the default, which does not wait for bodies. */
static const struct profile ASKING = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(BLOCK, MOST, 1000)}};
static const struct profile MODEST = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, FIXTURE_PREFIXES(BLOCK, MOST, 1000)}};

/* Takes the spec. */
static struct fake_proxy *open_stage(struct pool_spec *spec, const struct profile *profile) {
    for (uint32_t i = 0; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(100 + i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    spec->profile = profile;
    return proxy_open_with_prefixes(spec);
}

/* The picked endpoint, as a text that stays valid. */
static const char *picked(struct fake_proxy *proxy) {
    static char text[4][64];
    static int next;
    struct str got = proxy_pick(proxy_next(proxy));
    char *out = text[next++ % 4];
    snprintf(out, 64, "%.*s", STR_ARG(got));
    return out;
}

/* Where a request with this body, sent as a whole, is sent. */
static const char *ask(struct fake_proxy *proxy, const char *headers, const char *body,
                       enum ext_proc_body_mode mode) {
    struct ext_proc_config config = {.request_body = mode};
    proxy_request(proxy, headers, false, &config);
    if (mode != EXT_PROC_BODY_FULL_DUPLEX) {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    }
    proxy_body(proxy, body, true);
    const char *out = picked(proxy);
    proxy_next_stream(proxy);
    return out;
}

/* Whether many prompts are sent where their beginning was sent before; at random an eighth would
 * be. */
static void assert_same(struct fake_proxy *proxy, const char *headers, const char *one,
                        const char *other, enum ext_proc_body_mode mode, bool is_same) {
    int n_same = 0;
    for (int i = 0; i < 40; i++) {
        char text[1000];
        snprintf(text, sizeof(text), one, i, i, i, i, i);
        const char *first = ask(proxy, headers, text, mode);
        snprintf(text, sizeof(text), other, i, i, i, i, i);
        n_same += strcmp(ask(proxy, headers, text, mode), first) == 0;
    }
    if (is_same) {
        assert_int_equal(n_same, 40);
    } else {
        assert_true(n_same < 25);
    }
}

#define LONG "%020d%020d%020d%020d%020d" /* of which 64 bytes count */

/* ---- equal prompts --------------------------------------------------------------------------- */

static void prompt_same_prefix_goes_to_same_endpoint(void **state) {
    static const enum ext_proc_body_mode modes[] = {
        EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_BUFFERED_PARTIAL};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        assert_same(proxy, POST, "{\"model\":\"a\",\"prompt\":\"" LONG "\"}",
                    "{ \"prompt\" : \"" LONG " and more\", \"max_tokens\" : 5,\"model\":\"a\" }",
                    modes[i], true);
    }
    assert_same(proxy, CHAT,
                "{\"model\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"" LONG "\"}]}",
                "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" LONG
                "\"}]},{\"role\":\"assistant\",\"content\":\"x\"}],\"model\":\"a\"}",
                EXT_PROC_BODY_FULL_DUPLEX, true);
    proxy_close(proxy);
}

/* Where a request with this body is sent, in pieces of `piece` bytes. */
static const char *ask_in_pieces(struct fake_proxy *proxy, const char *headers, const char *body,
                                 size_t piece) {
    static char at[64];
    size_t n = strlen(body), n_shown = 0;
    at[0] = '\0';
    proxy_request(proxy, headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    for (; n_shown < n && at[0] == '\0'; n_shown += piece) {
        size_t left = n - n_shown;
        proxy_part(proxy, EXT_PROC_REQUEST_BODY,
                   str_make(body + n_shown, left < piece ? left : piece), left <= piece);
        if (!pick_session_is_response_pending(proxy->session)) {
            snprintf(at, sizeof(at), "%s", picked(proxy));
        }
    }
    proxy_next_stream(proxy);
    return at;
}

/* bug-N6: the same prompt, however the body is cut and its members are ordered. */
static void prompt_in_pieces_and_other_order_is_the_same(void **state) {

    static const char headers[] = ":method=POST|:path=/v1/messages";
    static const char *const bodies[] = {
        "{\"model\":\"a\",\"system\":\"%016d\",\"messages\":[{\"role\":\"user\",\"content\":\"" LONG
        "\"}]}",
        "{\"messages\":[{\"content\":\"" LONG "\",\"role\":\"user\"}],\"model\":\"a\",\"system\":"
        "\"%016d\"}"};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    for (int i = 0; i < 20; i++) {
        char text[1000], first[64];
        snprintf(text, sizeof(text), bodies[0], i, 5, 5, 5, 5, 5);
        snprintf(first, sizeof(first), "%s", ask_in_pieces(proxy, headers, text, 1000));
        for (size_t piece = 10; piece < 200; piece += 30) {
            snprintf(text, sizeof(text), bodies[0], i, 5, 5, 5, 5, 5);
            assert_string_equal(ask_in_pieces(proxy, headers, text, piece), first);
            snprintf(text, sizeof(text), bodies[1], 5, 5, 5, 5, 5, i);
            assert_string_equal(ask_in_pieces(proxy, headers, text, piece), first);
        }
    }
    proxy_close(proxy);
}

/* bug-N6: what follows the first megabyte makes no difference, also where it comes in one piece. */
static void prompt_begins_with_a_long_picture(void **state) {
    enum { N_DATA = 2 << 20 };
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    char *body = malloc(N_DATA + 200);
    (void)state;
    for (int i = 0; i < 10; i++) {
        int n = sprintf(body, "{\"messages\":[{\"content\":[{\"image_url\":\"%08d", i);
        memset(body + n, 'A', N_DATA);
        strcpy(body + n + N_DATA, "\"},{\"text\":\"What is this?\"}],\"role\":\"user\"}]}");
        char first[64];
        snprintf(first, sizeof(first), "%s", ask_in_pieces(proxy, CHAT, body, N_DATA + 200));
        for (size_t piece = 300000; piece < 2000000; piece += 400000) {
            assert_string_equal(ask_in_pieces(proxy, CHAT, body, piece), first);
        }
    }
    free(body);
    proxy_close(proxy);
}

static const struct profile_step MEDIA_STEP = {
    .plugin = &plugin_mm_embeddings_cache_scorer, .weight = 1, .name = STR("media")};
static const struct profile BY_MEDIA = {
    .scorers = &MEDIA_STEP,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true,
              .body = true,
              .media_items = true,
              .n_prefixes = 1,
              .used_prefixes = 1,
              .prefixes = {{.name = STR("media"), .kind = PREFIX_MEDIA, .capacity = 1000}}}};

/* The same picture goes where it was sent, after whatever text and of whatever form. */
static void prompt_same_picture_goes_to_same_endpoint(void **state) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &BY_MEDIA);
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        assert_same(proxy, CHAT,
                    "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"http://a/%d\"}}]}]}",
                    "{\"messages\":[{\"content\":[{\"text\":\"What?\"},{\"image_url\":{\"detail\":"
                    "\"low\",\"url\":\"http://a/%d\"}}]}],\"model\":\"m\"}",
                    modes[i], true);
        assert_same(proxy, CHAT,
                    "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"http://b/%d\"}}]}]}",
                    "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"http://c/%d\"}}]}]}",
                    modes[i], false);
    }
    proxy_close(proxy);
}

/* A picture counts wherever it is, up to the largest body. */
static void prompt_picture_after_a_long_text_counts(void **state) {
    enum { N_TEXT = 600000 };
    struct fake_proxy *proxy = open_stage(fixture_spec(), &BY_MEDIA);
    char *body = malloc(N_TEXT + 200);
    (void)state;
    for (int i = 0; i < 20; i++) {
        char first[64];
        for (int k = 0; k < 2; k++) {
            int n = sprintf(body, "{\"messages\":[{\"content\":[{\"text\":\"%d", k);
            memset(body + n, 'A', N_TEXT);
            sprintf(body + n + N_TEXT, "\"},{\"image_url\":\"http://a/%d\"}]}]}", i);
            const char *got = ask_in_pieces(proxy, CHAT, body, 100000);
            if (k == 0) {
                snprintf(first, sizeof(first), "%s", got);
            }
            assert_string_equal(got, first);
        }
    }
    free(body);
    proxy_close(proxy);
}

static void prompt_different_prefix_is_unrelated(void **state) {
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    assert_same(proxy, POST, "{\"model\":\"a\",\"prompt\":\"b" LONG "\"}",
                "{\"model\":\"b\",\"prompt\":\"b" LONG "\"}", EXT_PROC_BODY_BUFFERED, false);
    assert_same(proxy, POST, "{\"model\":\"a\",\"prompt\":\"c" LONG "\"}",
                "{\"model\":\"a\",\"prompt\":\"d" LONG "\"}", EXT_PROC_BODY_BUFFERED, false);
    proxy_close(proxy);
}

/* ---- responses ------------------------------------------------------------------------------- */

/* Where the prompt numbered `i` is sent, which is answered with `status`. */
static const char *ask_numbered(struct fake_proxy *proxy, int i, const char *status) {
    char text[200];
    snprintf(text, sizeof(text), "{\"model\":\"a\",\"prompt\":\"%016d%016d%016d%016d\"}", i, i, i,
             i);
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, text, true);
    const char *out = picked(proxy);
    proxy_answer(proxy, status, true);
    proxy_next_stream(proxy);
    return out;
}

/* bug-N14: a client whose prompts the endpoints refuse takes nothing away from others. */
static void prompt_refused_by_endpoints_replaces_none(void **state) {
    enum { N_KNOWN = 20, N_REFUSED = 4000 }; /* twice what the endpoints hold */
    static const char *const statuses[] = {":status=400", ":status=413", ":status=422"};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    char first[N_KNOWN][64];
    int n_repeated = 0;
    (void)state;
    for (int i = 0; i < N_KNOWN; i++) {
        snprintf(first[i], sizeof(first[i]), "%s", ask_numbered(proxy, i, ":status=200"));
    }
    for (int i = 0; i < N_REFUSED; i++) {
        ask_numbered(proxy, 1000 + i, statuses[i % 3]);
    }
    for (int i = 0; i < N_KNOWN; i++) {
        assert_string_equal(ask_numbered(proxy, i, ":status=200"), first[i]);
    }
    for (int i = 0; i < 40; i++) { /* a refused prompt attracts none */
        char before[64];
        snprintf(before, sizeof(before), "%s", ask_numbered(proxy, 9000 + i, ":status=400"));
        n_repeated += strcmp(ask_numbered(proxy, 9000 + i, ":status=400"), before) == 0;
    }
    assert_true(n_repeated < 25);
    proxy_close(proxy);
}

/* ---- how long the pick waits ----------------------------------------------------------------- */

static void prompt_pick_waits_for_first_bytes(void **state) {
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    char text[BLOCK * MOST + 1];
    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"model\":\"m\",\"prompt\":\"x", false);
    proxy_expect_no_message(proxy);
    assert_true(pick_session_is_response_pending(proxy->session));
    proxy_body(proxy, text, false); /* more than all blocks; the body continues */
    picked(proxy);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"model\":\"m\",\"prompt\":\"x", false);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, text, false);
    proxy_body(proxy, "\"}", true);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "\"}", true);
    proxy_close(proxy);
}

/* A proxy that waits for an answer gets one. */
static void prompt_wait_ends_at_timeout(void **state) {
    struct pick_limits limits = proxy_limits;
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    char text[101];
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":\"x", false);
    proxy_expect_no_message(proxy);
    pick_session_on_timeout(proxy->session);
    picked(proxy);
    proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"prompt\":\"x", false);
    proxy_end(proxy);
    /* A body that reaches the limit. */
    limits.max_body_size = 100;
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    memset(text, ' ', 100);
    text[100] = '\0';
    proxy_body(proxy, text, false);
    proxy_expect_no_message(proxy);
    proxy_body(proxy, text, false);
    picked(proxy);
    proxy_end(proxy);
    /* One that is sent as a whole, and is too large. */
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST "|content-length=200", false, PROXY_CONFIG(BUFFERED, NONE));
    picked(proxy);
    proxy_end(proxy);
    proxy_stream(proxy, &limits);
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY,
               STR("{\"prompt\":\""
                   "0123456789012345678901234567890123456789012345678901234567890123456789012345678"
                   "901234567"
                   "89\"}"),
               true);
    picked(proxy);
    proxy_close(proxy);
}

/* The memory for prompts that never end is bounded. */
static void prompt_wait_ends_after_one_megabyte(void **state) {
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    static char text[(1 << 19) + 1];
    (void)state;
    memset(text, ' ', sizeof(text) - 1);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, text, false);
    proxy_expect_no_message(proxy);
    proxy_body(proxy, text, false);
    picked(proxy);
    proxy_close(proxy);
}

/* Modes in which no body is sent, and other bodies than prompts: no body is requested. */
static void prompt_not_requested_without_visible_body(void **state) {
    static const char *const headers[] = {
        ":method=GET|:path=/v1/models", ":method=POST|:path=/v1/audio/speech",
        POST "|content-encoding=gzip", ":method=POST|:path=/v2/models/m/infer"};
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_NONE, EXT_PROC_BODY_STREAMED,
                                                    EXT_PROC_BODY_GRPC};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        proxy_request(proxy, headers[i], false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        picked(proxy);
        proxy_next_stream(proxy);
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        struct ext_proc_config config = {.request_body = modes[i]};
        proxy_request(proxy, POST, false, &config);
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        proxy_pick(reply);
        assert_false(reply->has_mode_override);
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, POST, true, PROXY_CONFIG(FULL_DUPLEX, NONE)); /* no body */
    picked(proxy);
    proxy_close(proxy);
}

/* The default profile requests no body, and uses one that is scanned anyway. */
static void prompt_default_profile_requests_no_body(void **state) {
    struct fake_proxy *proxy = open_stage(fixture_spec(), &MODEST);
    (void)state;
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    picked(proxy);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED, NONE));
    picked(proxy);
    proxy_close(proxy);
    struct pool_spec *spec = fixture_spec();
    proxy_add_model(spec, "a", POOL_CRITICAL);
    proxy = open_stage(spec, &MODEST);
    assert_same(proxy, POST, "{\"model\":\"a\",\"prompt\":\"" LONG "\"}",
                "{\"model\":\"a\",\"prompt\":\"" LONG "\"}", EXT_PROC_BODY_FULL_DUPLEX, true);
    /* It does not wait for the prompt after the model. */
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"model\":\"a\"", false);
    picked(proxy);
    proxy_close(proxy);
}

/* ---- invalid bodies are left to the server --------------------------------------------------- */

static void prompt_unreadable_is_not_refused(void **state) {
    static const char *const bodies[] = {"",
                                         "hello",
                                         "[1]",
                                         "{\"prompt\":",
                                         "{\"prompt\":\"\\q\"}",
                                         "{\"model\":7,\"prompt\":7}",
                                         "{\"prompt\":{}}",
                                         "\x1f\x8b\x08",
                                         "{}"};
    static const enum ext_proc_body_mode modes[] = {
        EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_BUFFERED, EXT_PROC_BODY_BUFFERED_PARTIAL};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        for (size_t k = 0; k < sizeof(modes) / sizeof(*modes); k++) {
            ask(proxy, POST, bodies[i], modes[k]);
        }
    }
    /* A proxy whose buffer ends before the prompt does. */
    proxy_request(proxy, POST, false, PROXY_CONFIG(BUFFERED_PARTIAL, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, "{\"prompt\":\"x", false);
    picked(proxy);
    proxy_next_stream(proxy);
    /* Trailers end a body. */
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":\"x", false);
    proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
    picked(proxy);
    proxy_close(proxy);
}

/* But a model that must be named is still required. */
static void prompt_scan_keeps_model_required(void **state) {
    struct pool_spec *spec = fixture_spec();
    struct fake_proxy *proxy;
    (void)state;
    spec->strict_models = true;
    proxy_add_model(spec, "m", POOL_STANDARD);
    proxy = open_stage(spec, &ASKING);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":\"x\"}", true);
    proxy_expect_refusal(proxy, 400);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, "{\"prompt\":\"x\",\"model\":\"n\"", false);
    proxy_body(proxy, "}", true);
    proxy_expect_refusal(proxy, 404);
    proxy_close(proxy);
}

/* ---- estimated tokens ------------------------------------------------------------------------ */

static void prompt_tokens_are_estimated(void **state) {
    static const struct {
        const char *headers, *body;
        uint64_t wanted;
    } rows[] = {
        {POST, "{\"prompt\":\"0123456789abcdefg\",\"max_tokens\":100}", 5},
        {POST, "{\"prompt\":[1,2,3],\"max_tokens\":7}", 3},
        {POST "|content-length=4000", "{\"prompt\":[1,2,3],\"max_tokens\":7}", 3},
        {POST "|content-length=4000", "nothing", 1000},
        {POST "|content-encoding=gzip|content-length=400", NULL, 100},
        {":method=GET|:path=/", NULL, 0},
        {POST, "{\"prompt\":\"\",\"max_tokens\":4000000000}", 0},
    };
    struct fake_proxy *proxy = open_stage(fixture_spec(), &ASKING);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        proxy_request(proxy, rows[i].headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        if (rows[i].body) {
            proxy_body(proxy, rows[i].body, true);
        }
        const struct endpoint *endpoint = fixture_endpoint(&proxy->pool, picked(proxy));
        assert_int_equal(endpoint_n_tokens(endpoint), rows[i].wanted);
        pick_session_half_close(proxy->session);
        assert_int_equal(endpoint_n_tokens(endpoint), 0);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* Response times start at the pick; failed responses do not count. */
/* With a token-producer: the request's headers say what its videos are. */
static void prompt_videos_count_by_headers(void **state) {
    static const struct {
        const char *headers;
        uint64_t wanted;
    } rows[] = {
        {CHAT, 4500},
        {CHAT "|x-llm-d-video-duration-seconds=3.5", 7 * 225},
        {CHAT "|x-llm-d-video-duration-seconds=2|x-llm-d-video-resolution=1280x720", 4 * 900},
        {CHAT "|x-llm-d-video-duration-seconds=-1|x-llm-d-video-resolution=big", 4500},
    };
    struct profile profile = ASKING;
    profile.needs.estimate = &MEDIA_ESTIMATE_DEFAULT;
    struct fake_proxy *proxy = open_stage(fixture_spec(), &profile);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        proxy_request(proxy, rows[i].headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_body(proxy, "{\"messages\":[{\"content\":[{\"video_url\":{\"url\":\"http://a\"}}]}]}",
                   true);
        const struct endpoint *endpoint = fixture_endpoint(&proxy->pool, picked(proxy));
        assert_int_equal(endpoint_n_tokens(endpoint), rows[i].wanted);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* The tokens of the prompt count until the first bytes of the response's body, those with the
 * output until the end, and only as far as the endpoint does not have the prompt. */
static void prompt_tokens_count_until_the_body(void **state) {
    static const struct {
        bool adds_output;
        double ratio;
        uint64_t max_output;
        const char *body;
        uint64_t first, again, in_body; /* tokens */
    } rows[] = {
        {false, 1.5, UINT64_MAX, "{\"prompt\":\"%080d\",\"max_tokens\":100}", 20, 4, 0},
        {true, 1.5, UINT64_MAX, "{\"prompt\":\"%080d\",\"max_tokens\":100}", 50, 34, 34},
        {true, 1.5, UINT64_MAX, "{\"prompt\":\"%080d\",\"max_tokens\":10}", 30, 14, 14},
        {true, 1.5, UINT64_MAX, "{\"prompt\":\"%080d\"}", 50, 34, 34},
        {true, 0.5, 7, "{\"prompt\":\"%080d\"}", 27, 11, 11},
        {true, 1.5, 0, "{\"prompt\":\"%080d\"}", 20, 4, 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct profile profile = ASKING;
        profile.needs.tokens = true;
        profile.needs.load = (struct load_producer){.adds_output = rows[i].adds_output,
                                                    .output_ratio = rows[i].ratio,
                                                    .max_output = rows[i].max_output};
        struct fake_proxy *proxy = open_stage(fixture_spec(), &profile);
        for (int k = 0; k < 2; k++) {
            char body[200];
            snprintf(body, sizeof(body), rows[i].body, 7);
            proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, STREAMED));
            proxy_body(proxy, body, true);
            struct endpoint *endpoint = fixture_endpoint(&proxy->pool, picked(proxy));
            assert_int_equal(endpoint_n_tokens(endpoint), k == 0 ? rows[i].first : rows[i].again);
            proxy_answer(proxy, ":status=200", false);
            assert_int_equal(endpoint_n_tokens(endpoint), k == 0 ? rows[i].first : rows[i].again);
            proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("data: 1"), false);
            if (k == 1) {
                assert_int_equal(endpoint_n_tokens(endpoint), rows[i].in_body);
            }
            proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("data: 2"), true);
            proxy_next_stream(proxy);
            assert_int_equal(endpoint_n_tokens(endpoint), 0);
        }
        proxy_close(proxy);
    }
}

/* Where only the body names the model: its beginning is waited for, and the endpoint with the
 * adapter is picked. */
static void prompt_model_of_body_counts_for_adapters(void **state) {
    static const struct profile_step lora = {
        .plugin = &plugin_lora_affinity_scorer, .weight = 1, .name = STR("lora")};
    struct profile profile = {.scorers = &lora, .n_scorers = 1};
    struct error err;
    (void)state;
    profile.picker = (struct profile_step){.plugin = &plugin_max_score_picker};
    assert_int_equal(profile_collect_needs(&profile, &err), ST_OK);
    struct fake_proxy *proxy = open_stage(fixture_spec(), &profile);
    for (uint32_t i = 0; i < N; i++) {
        char text[32];
        struct endpoint_load load = {
            .until_ns = UINT64_MAX, .known = LOAD_ADAPTERS, .max_adapters = 2};
        load_add_adapter(&load, i == 5 ? STR("sql") : STR("poems"), false);
        load_add_adapter(&load, STR("jokes"), false);
        snprintf(text, sizeof(text), "10.0.0.%u:8000", 100 + i);
        pool_set_load(proxy->pool.pool, fixture_endpoint(&proxy->pool, text), &load);
    }
    for (int i = 0; i < 8; i++) {
        proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_expect_no_message(proxy);
        proxy_body(proxy, "{\"prompt\": \"a\", \"model\": \"sql\"}", true);
        assert_string_equal(picked(proxy), "10.0.0.105:8000");
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

static void session_response_times_start_at_pick(void **state) {
    static const uint64_t second = 1000000000;
    static const struct profile profile = {.picker = {.plugin = &plugin_random_picker},
                                           .needs = {.latency = true}};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &profile);
    (void)state;
    for (int i = 0; i < 2; i++) {
        clock_set_fake_ns(second);
        proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
        const struct endpoint *endpoint = fixture_endpoint(&proxy->pool, picked(proxy));
        clock_set_fake_ns(3 * second);
        proxy_answer(proxy, i == 0 ? ":status=503" : ":status=200", false);
        clock_set_fake_ns(13 * second);
        proxy_trailers(proxy, EXT_PROC_RESPONSE_TRAILERS);
        assert_int_equal(endpoint->answered_ns, i == 0 ? 0 : 3 * second);
        assert_float_equal(endpoint->first_byte_s, i == 0 ? 0.f : 2.f, 0.001);
        assert_float_equal(endpoint->answer_s, i == 0 ? 0.f : 3.f, 0.001);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
    clock_set_fake_ns(0);
}

/* A client that sends its body slowly does not make the endpoint look slow. */
static void session_response_times_leave_out_the_upload(void **state) {
    static const uint64_t second = 1000000000;
    static const struct profile profile = {.picker = {.plugin = &plugin_random_picker},
                                           .needs = {.latency = true}};
    struct fake_proxy *proxy = open_stage(fixture_spec(), &profile);
    (void)state;
    for (int by_trailers = 0; by_trailers < 2; by_trailers++) {
        clock_set_fake_ns(second);
        proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        struct endpoint *endpoint = fixture_endpoint(&proxy->pool, picked(proxy));
        atomic_store(&endpoint->answered_ns, 0);
        clock_set_fake_ns(31 * second);
        proxy_body(proxy, "{\"prompt\": \"slowly\"}", !by_trailers);
        proxy_expect_chunk(proxy, EXT_PROC_REQUEST_BODY, "{\"prompt\": \"slowly\"}", !by_trailers);
        if (by_trailers) {
            proxy_trailers(proxy, EXT_PROC_REQUEST_TRAILERS);
        }
        clock_set_fake_ns(33 * second);
        proxy_answer(proxy, ":status=200", true);
        assert_float_equal(endpoint->first_byte_s, 2.f, 0.001);
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_same_prefix_goes_to_same_endpoint),
        cmocka_unit_test(prompt_in_pieces_and_other_order_is_the_same),
        cmocka_unit_test(prompt_begins_with_a_long_picture),
        cmocka_unit_test(prompt_same_picture_goes_to_same_endpoint),
        cmocka_unit_test(prompt_picture_after_a_long_text_counts),
        cmocka_unit_test(prompt_different_prefix_is_unrelated),
        cmocka_unit_test(prompt_refused_by_endpoints_replaces_none),
        cmocka_unit_test(prompt_pick_waits_for_first_bytes),
        cmocka_unit_test(prompt_wait_ends_at_timeout),
        cmocka_unit_test(prompt_wait_ends_after_one_megabyte),
        cmocka_unit_test(prompt_not_requested_without_visible_body),
        cmocka_unit_test(prompt_default_profile_requests_no_body),
        cmocka_unit_test(prompt_unreadable_is_not_refused),
        cmocka_unit_test(prompt_scan_keeps_model_required),
        cmocka_unit_test(prompt_tokens_are_estimated),
        cmocka_unit_test(prompt_tokens_count_until_the_body),
        cmocka_unit_test(prompt_videos_count_by_headers),
        cmocka_unit_test(prompt_model_of_body_counts_for_adapters),
        cmocka_unit_test(session_response_times_start_at_pick),
        cmocka_unit_test(session_response_times_leave_out_the_upload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
