/* Requests in a pool with a profile handler: which stages are picked for, of which endpoints, what
 * the servers are told in headers, and that a client's own headers are removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "pick/pool/profile/handler.h"
#include "pick/pool/profile/topology.h"
#include "pick/pool/rollout.h"
#include "pick/session/explain.h"
#include "pick/session/pick_fixture.h"
#include "pick/session/state.h"

#define POST ":method=POST|:path=/v1/chat/completions"
#define FORGED                                                                                     \
    "|x-prefiller-host-port=6.6.6.6:6|x-encoder-hosts-ports=6.6.6.6:6"                             \
    "|x-data-parallel-host-port=6.6.6.6:6|x-kv-cache-source-host-port=6.6.6.6:6"

static const char *const SERVER_HEADERS[] = {"x-prefiller-host-port", "x-encoder-hosts-ports",
                                             "x-data-parallel-host-port",
                                             "x-kv-cache-source-host-port"};
enum { PREFILLER, ENCODER, RANK, SOURCE, N_SERVER_HEADERS };

#define ROLE_LABEL(role)                                                                           \
    { STR("llm-d.ai/role"), STR(role) }
static const struct pool_label LABELS[] = {ROLE_LABEL("decode"), ROLE_LABEL("encode"),
                                           ROLE_LABEL("prefill")};
static const struct profile_step FILTERS[] = {
    {.plugin = &plugin_decode_filter, .name = STR("decode-filter")},
    {.plugin = &plugin_encode_filter, .name = STR("encode-filter")},
    {.plugin = &plugin_prefill_filter, .name = STR("prefill-filter")}};
static const struct profile_step SCORERS[] = {
    {.plugin = &plugin_active_request_scorer, .weight = 1, .name = STR("active-request-scorer")},
    {.plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix-cache-scorer")}};

enum { BLOCK_BYTES = 64 };
#define PROFILE(role)                                                                              \
    {                                                                                              \
        .name = STR(#role), .filters = &FILTERS[STAGE_##role], .n_filters = 1, .scorers = SCORERS, \
        .n_scorers = 2, .picker = {.plugin = &plugin_max_score_picker}, .needs = {                 \
            .prompt = true,                                                                        \
            .body = true,                                                                          \
            .media = true,                                                                         \
            .n_prefixes = 1,                                                                       \
            .used_prefixes = 1,                                                                    \
            .prefixes = {{.block_bytes = BLOCK_BYTES, .max_blocks = 64, .capacity = 1000}}         \
        }                                                                                          \
    }
static const struct profile PROFILES[] = {PROFILE(DECODE), PROFILE(ENCODE), PROFILE(PREFILL)};

/* All three stages; encode and prefill run always. */
static struct profile_handler handler_of_three(void) {
    struct profile_handler handler = {
        .type = STR("disagg-profile-handler"), .profiles = PROFILES, .n_profiles = N_STAGE_ROLES};
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        handler.stages[i].profile = &PROFILES[i];
        handler.stages[i].decider.kind = i == STAGE_DECODE ? DECIDER_NEVER : DECIDER_ALWAYS;
    }
    return handler;
}

/* 10.0.ROLE.1 and so on. */
static struct pool_spec *spec_of(const struct profile_handler *handler,
                                 const uint32_t n_of[N_STAGE_ROLES]) {
    struct pool_spec *spec = fixture_spec();
    for (uint32_t role = 0; role < N_STAGE_ROLES; role++) {
        for (uint32_t i = 1; i <= n_of[role]; i++) {
            struct pool_spec_endpoint wanted = {.address = fixture_numbered(role << 8 | i),
                                                .labels = {&LABELS[role], 1}};
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    spec->profile = handler->stages[STAGE_DECODE].profile;
    spec->handler = handler;
    return spec;
}

static size_t count_removed(const struct ext_proc_client_response *reply, const char *key) {
    struct pb_reader reader = pb_read(reply->mutation);
    struct str removed;
    size_t n = 0;
    while (ext_proc_removed_header_next(&reader, &removed)) {
        n += str_is(removed, key);
    }
    return n;
}

/* The destination, and what each of the servers' headers is set to ("": removed). */
static void expect_reply(const struct ext_proc_client_response *reply, const char *destination,
                         const char *const values[N_SERVER_HEADERS]) {
    proxy_assert_text(proxy_pick(reply), destination);
    for (size_t i = 0; i < N_SERVER_HEADERS; i++) {
        struct str got = proxy_set(reply, SERVER_HEADERS[i]);
        if (values[i][0] != '\0') {
            proxy_assert_text(got, values[i]);
            assert_int_equal(count_removed(reply, SERVER_HEADERS[i]), 0);
        } else {
            assert_null(got.ptr);
            assert_int_equal(count_removed(reply, SERVER_HEADERS[i]), 1);
        }
    }
}

/* A whole request with a buffered body. Returns: the response to the body. */
static const struct ext_proc_client_response *send_request(struct fake_proxy *proxy,
                                                           const char *headers, const char *body) {
    proxy_request(proxy, headers, false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_body(proxy, body, true);
    return proxy_next(proxy);
}

static const char TEXT_BODY[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
                                "\"hello\"}]}";
static const char PICTURE_BODY[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"what is this?\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"http://x/y.png\"}}]}]}";

/* ---- headers --------------------------------------------------------------------------------- */

static void handler_all_stages_are_named_and_forged_headers_replaced(void **state) {
    static const char *const values[] = {"10.0.2.1:8000", "10.0.1.1:8000", "", ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    for (int first = 0; first < 2; first++) {
        handler.prefill_first = first == 1;
        struct fake_proxy *proxy =
            proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 1}));
        expect_reply(send_request(proxy, POST FORGED, TEXT_BODY), "10.0.0.1:8000", values);
        proxy_close(proxy);
    }
}

/* In each way in which a pick is sent. */
static void handler_stages_left_out_remove_forged_headers(void **state) {
    static const char *const none[] = {"", "", "", ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].decider.kind = DECIDER_MULTIMODAL;
    handler.stages[STAGE_PREFILL].decider.kind = DECIDER_PREFIX; /* 0 tokens: never */
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 1}));
    expect_reply(send_request(proxy, POST FORGED, TEXT_BODY), "10.0.0.1:8000", none);
    proxy_next_stream(proxy);
    proxy_request(proxy, ":method=GET|:path=/v1/models" FORGED, true, PROXY_CONFIG(NONE, NONE));
    expect_reply(proxy_next(proxy), "10.0.0.1:8000", none);
    proxy_next_stream(proxy);
    proxy_request(proxy, POST FORGED, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, TEXT_BODY, true);
    expect_reply(proxy_next(proxy), "10.0.0.1:8000", none);
    proxy_close(proxy);
}

/* ---- the source of a prompt ------------------------------------------------------------------ */

/* The endpoints that have a prompt, as "|IP:PORT|IP:PORT". */
static bool is_listed(const char *list, struct str endpoint) {
    char text[64];
    snprintf(text, sizeof(text), "|%.*s", STR_ARG(endpoint));
    return strstr(list, text) != NULL;
}

static void list(char *out, size_t size, struct str endpoint) {
    size_t n = strlen(out);
    if (endpoint.ptr && !is_listed(out, endpoint)) {
        snprintf(out + n, size - n, "|%.*s", STR_ARG(endpoint));
    }
}

/* Sends prompts several times each, to endpoints at random. Where the endpoint that computes does
 * not have the prompt, the header names one that does. Returns: how often it did. */
static int expect_sources(struct fake_proxy *proxy, bool is_prefill) {
    int n_named = 0;
    (void)send_request(proxy, POST, TEXT_BODY); /* the proxy shows responses */
    proxy_answer(proxy, ":status=200", true);
    proxy_next_stream(proxy);
    for (int i = 0; i < 60; i++) {
        static char having[400];
        char body[400];
        snprintf(body, sizeof(body), "{\"model\":\"m\",\"prompt\":\"%d%0300d\"}", i / 6, 0);
        having[0] = i % 6 == 0 ? '\0' : having[0];
        const struct ext_proc_client_response *reply =
            send_request(proxy, ":method=POST|:path=/v1/completions" FORGED, body);
        struct str destination = proxy_pick(reply);
        struct str prefiller = proxy_set(reply, SERVER_HEADERS[PREFILLER]);
        struct str source = proxy_set(reply, SERVER_HEADERS[SOURCE]);
        struct str computing = is_prefill ? prefiller : destination;
        bool is_named = having[0] != '\0' && !is_listed(having, computing);
        assert_int_equal(source.ptr != NULL, is_named);
        assert_true(!is_named || is_listed(having, source));
        assert_int_equal(count_removed(reply, SERVER_HEADERS[SOURCE]), !is_named);
        n_named += is_named;
        list(having, sizeof(having), destination);
        list(having, sizeof(having), prefiller);
        proxy_answer(proxy, ":status=200", true);
        proxy_next_stream(proxy);
    }
    return n_named;
}

static void handler_source_is_named_for_the_stage_that_computes(void **state) {
    static const struct {
        const char *profile;
        bool prefill_first, is_prefill;
    } rows[] = {{"PREFILL", false, true}, {"PREFILL", true, true}, {"other", false, false}};
    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        struct profile profiles[N_STAGE_ROLES];
        struct profile_handler handler = handler_of_three();
        for (int i = 0; i < N_STAGE_ROLES; i++) {
            profiles[i] = PROFILES[i];
            profiles[i].n_scorers = 1;
            profiles[i].needs.source = (struct source_producer){
                .on = true, .min_tokens = 1, .profile = str_of(rows[k].profile)};
            handler.stages[i].profile = i == STAGE_ENCODE ? NULL : &profiles[i];
        }
        handler.profiles = profiles;
        handler.prefill_first = rows[k].prefill_first;
        struct fake_proxy *proxy =
            proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){3, 0, 3}));
        assert_true(expect_sources(proxy, rows[k].is_prefill) >= 10);
        proxy_close(proxy);
    }
}

static void source_is_named_without_a_handler(void **state) {
    struct pool_spec *spec = fixture_spec_of(3);
    struct profile profile = PROFILES[STAGE_DECODE];
    (void)state;
    profile.n_filters = 0;
    profile.n_scorers = 1;
    profile.needs.source =
        (struct source_producer){.on = true, .min_tokens = 1, .profile = STR("prefill")};
    spec->profile = &profile;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    assert_true(expect_sources(proxy, false) >= 10);
    proxy_close(proxy);
}

/* ---- deciders -------------------------------------------------------------------------------- */

static void handler_multimodal_decider_encodes_pictures_only(void **state) {
    static const char *const with[] = {"", "10.0.1.1:8000", "", ""}, *const without[] = {"", "", "",
                                                                                         ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].decider.kind = DECIDER_MULTIMODAL;
    handler.stages[STAGE_PREFILL].profile = NULL;
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 1}));
    expect_reply(send_request(proxy, POST, TEXT_BODY), "10.0.0.1:8000", without);
    proxy_next_stream(proxy);
    expect_reply(send_request(proxy, POST, PICTURE_BODY), "10.0.0.1:8000", with);
    proxy_close(proxy);
}

/* A prompt is prefilled elsewhere until the decoding server has it. */
static void handler_prefix_decider_looks_at_decoding_server(void **state) {
    static const char *const with[] = {"10.0.2.1:8000", "", "", ""}, *const without[] = {"", "", "",
                                                                                         ""};
    struct profile_handler handler = handler_of_three();
    char body[2000], words[1000];
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    handler.stages[STAGE_PREFILL].decider =
        (struct stage_decider){.kind = DECIDER_PREFIX, .non_cached_tokens = 100};
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 0, 1}));
    memset(words, 'a', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    snprintf(body, sizeof(body), "{\"model\":\"m\",\"prompt\":\"%s\"}", words);
    expect_reply(send_request(proxy, ":method=POST|:path=/v1/completions", body), "10.0.0.1:8000",
                 with);
    proxy_answer(proxy, ":status=200", true);
    proxy_next_stream(proxy);
    expect_reply(send_request(proxy, ":method=POST|:path=/v1/completions", body), "10.0.0.1:8000",
                 without);
    proxy_next_stream(proxy);
    expect_reply(send_request(proxy, ":method=POST|:path=/v1/completions",
                              "{\"model\":\"m\",\"prompt\":\"short\"}"),
                 "10.0.0.1:8000", without);
    proxy_close(proxy);
}

/* ---- near each other ------------------------------------------------------------------------- */

/* The later of both stages is picked for on the host of the earlier one. */
static void handler_later_stage_is_near_earlier_one(void **state) {
    enum { HOSTS = 5 };
    static struct topology_user user = {.labels = {{STR("host")}}};
    static const struct profile_step scorer = {
        .plugin = &plugin_topology_affinity_scorer, .parameters = &user, .weight = 1};
    static const char *const names[HOSTS + 1] = {"", "a", "b", "c", "d", "e"};
    static const enum stage_role roles[] = {STAGE_DECODE, STAGE_PREFILL};
    struct profile profiles[N_STAGE_ROLES];
    struct pool_label labels[2][HOSTS + 1][2];
    struct profile_handler handler = handler_of_three();
    (void)state;
    memcpy(profiles, PROFILES, sizeof(profiles));
    handler.profiles = profiles;
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        profiles[i].scorers = &scorer;
        profiles[i].n_scorers = 1;
        handler.stages[i].profile = &profiles[i];
    }
    handler.stages[STAGE_ENCODE].profile = NULL;
    for (int first = 0; first < 2; first++) {
        struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){0, 0, 0});
        handler.prefill_first = first == 1;
        for (uint32_t k = 0; k < 2 * HOSTS; k++) {
            uint32_t host = k % HOSTS + 1, role = roles[k / HOSTS];
            struct pool_label *own = labels[k / HOSTS][host];
            own[0] = (struct pool_label){STR("host"), str_of(names[host])};
            own[1] = LABELS[role];
            struct pool_spec_endpoint wanted = {.address = fixture_numbered(role << 8 | host),
                                                .labels = {own, 2}};
            pool_spec_add_endpoint(spec, &wanted);
        }
        struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
        for (int i = 0; i < 50; i++) {
            struct endpoint_address decode, prefill;
            proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
            const struct ext_proc_client_response *reply = proxy_next(proxy);
            assert_true(endpoint_address_parse(proxy_pick(reply), &decode));
            assert_true(endpoint_address_parse(proxy_set(reply, SERVER_HEADERS[0]), &prefill));
            assert_int_equal(decode.low & 0xff, prefill.low & 0xff);
            proxy_next_stream(proxy);
        }
        proxy_close(proxy);
    }
}

/* ---- a stage without an endpoint ------------------------------------------------------------- */

static void handler_missing_stage_is_skipped_or_refused(void **state) {
    static const char *const none[] = {"", "10.0.1.1:8000", "", ""};
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct profile_handler handler = handler_of_three();
        int64_t before = metric_read(METRIC_PICK_PREFILL_MISSING);
        handler.prefill_first = first == 1;
        struct fake_proxy *proxy =
            proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 0}));
        expect_reply(send_request(proxy, POST FORGED, TEXT_BODY), "10.0.0.1:8000", none);
        assert_int_equal(metric_read(METRIC_PICK_PREFILL_MISSING), before + 1);
        proxy_close(proxy);
        handler.refuses = true;
        proxy = proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 0}));
        proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_body(proxy, TEXT_BODY, true);
        proxy_expect_refusal(proxy, 503);
        proxy_close(proxy);
    }
}

/* The destination cannot be left out. */
static void handler_missing_decode_is_refused(void **state) {
    struct profile_handler handler = handler_of_three();
    (void)state;
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){0, 1, 1}));
    proxy_request(proxy, POST, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
    proxy_body(proxy, TEXT_BODY, true);
    proxy_expect_refusal(proxy, 503);
    proxy_close(proxy);
}

/* ---- other handlers -------------------------------------------------------------------------- */

static void handler_primary_port_replaces_destinations(void **state) {
    static const char *const values[] = {"", "", "10.0.0.1:8000", ""};
    struct profile_handler handler = {.type = STR("data-parallel-profile-handler"),
                                      .profiles = PROFILES,
                                      .n_profiles = 1,
                                      .stages[STAGE_DECODE].profile = PROFILES,
                                      .primary_port = 9000};
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 0, 0}));
    (void)state;
    expect_reply(send_request(proxy, POST FORGED, TEXT_BODY), "10.0.0.1:9000", values);
    proxy_close(proxy);
}

static void handler_header_names_profile(void **state) {
    static const char *const none[] = {"", "", "", ""};
    static const char *const rows[][2] = {{POST, "10.0.0.1:8000"},
                                          {POST "|epp-profile= PREFILL ", "10.0.2.1:8000"},
                                          {POST "|epp-profile=ENCODE", "10.0.1.1:8000"}};
    struct profile_handler handler = {.type = STR("header-profile-handler"),
                                      .profiles = PROFILES,
                                      .n_profiles = N_STAGE_ROLES,
                                      .stages[STAGE_DECODE].profile = PROFILES,
                                      .header = STR("epp-profile"),
                                      .default_profile = STR("DECODE")};
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 1, 1}));
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect_reply(send_request(proxy, rows[i][0], TEXT_BODY), rows[i][1], none);
        proxy_next_stream(proxy);
    }
    proxy_request(proxy, POST "|epp-profile=other", true, PROXY_CONFIG(NONE, NONE));
    proxy_expect_refusal(proxy, 400);
    proxy_close(proxy);
}

static void handler_prefer_available_needs_cached_prefix(void **state) {
    static const char *const none[] = {"", "", "", ""};
    struct profile_handler handler = handler_of_three();
    char body[2000], words[1000];
    (void)state;
    handler.stages[STAGE_ENCODE].profile = handler.stages[STAGE_PREFILL].profile = NULL;
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 0, 0}));
    memset(words, 'a', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    snprintf(body, sizeof(body), "{\"model\":\"m\",\"prompt\":\"%s\"}", words);
    for (int i = 0; i < 3; i++) {
        static const char path[] = ":method=POST|:path=/v1/completions";
        const char *headers = i == 1 ? path
                                     : ":method=POST|:path=/v1/completions|prefer=respond-async, "
                                       "If-Available;x";
        proxy_request(proxy, headers, false, PROXY_CONFIG(FULL_DUPLEX, NONE));
        proxy_body(proxy, body, true);
        if (i == 0) {
            proxy_expect_refusal(proxy, 412);
        } else {
            expect_reply(proxy_next(proxy), "10.0.0.1:8000", none);
            proxy_answer(proxy, ":status=200", true);
        }
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

/* Upstream's configuration, without a handler; a profile that compares no prompts has nothing of
 * any. */
static void handler_prefer_available_is_of_upstreams_configuration(void **state) {
    static const char headers[] = ":method=POST|:path=/v1/completions|prefer=if-available";
    (void)state;
    for (int refuses = 0; refuses <= 1; refuses++) {
        struct pool_spec *spec = fixture_spec_of(2);
        spec->refuses_uncached = refuses;
        struct fake_proxy *proxy = proxy_open(spec);
        proxy_request(proxy, headers, true, PROXY_CONFIG(NONE, NONE));
        if (refuses) {
            proxy_expect_refusal(proxy, 412);
        } else {
            assert_true(proxy_pick(proxy_next(proxy)).len > 0);
        }
        proxy_close(proxy);
    }
}

static void handler_explanation_has_each_stage(void **state) {
    struct profile_handler handler = handler_of_three();
    struct pick_described_request described = {.method = STR("POST"),
                                               .path = STR("/v1/chat/completions")};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct error err;
    (void)state;
    handler.stages[STAGE_ENCODE].decider.kind = DECIDER_MULTIMODAL;
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 0, 2}));
    buf_init(&out, arena, 0);
    assert_int_equal(pick_explain(proxy->pool.reader, &described, &out, &err), ST_OK);
    buf_add_char(&out, '\0');
    assert_non_null(strstr(out.data, "outcome     10.0.0.1:8000\n\nencode"));
    assert_non_null(strstr(out.data, "if the prompt has pictures, sound or video\n"));
    assert_non_null(strstr(out.data, "outcome     no endpoint: the request does without it\n"));
    assert_non_null(strstr(out.data, "(    0)         ?  removed "
                                     "by prefill-filter\n"));
    assert_non_null(strstr(out.data, "outcome     10.0.2.1:8000, or another of the 2 with rank 1, "
                                     "at random\n"));
    arena_free(arena);
    proxy_close(proxy);
}

/* ---- flow control and outlier detection ------------------------------------------------------ */

static struct pool_pick take(struct fake_proxy *proxy, enum stage_role stage) {
    struct pool_request request = {.stage = stage};
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_pick(proxy->pool.reader, &request, &pick, &err), ST_OK);
    return pick;
}

/* A request waits for a server that prefills while another one waits for one that decodes: each
 * gets what becomes free for it, whichever came first. */
static void handler_waiters_get_endpoints_of_their_stage(void **state) {
    static const char *const values[] = {"10.0.2.1:8000", "", "", ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){1, 0, 1});
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    struct pool_waiter waiter = {.wakeup = &proxy->wakeup};
    struct pool_pick prefill = take(proxy, STAGE_PREFILL);
    proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE)); /* has the one that decodes */
    proxy_expect_no_message(proxy);
    struct pool_request other = {.waiter = &waiter};
    struct pool_pick pick;
    struct error err;
    assert_int_equal(pool_pick(proxy->pool.reader, &other, &pick, &err), ST_OK);
    assert_null(pick.ticket.endpoint); /* waits for the one that decodes */
    pool_release_ticket(proxy->pool.pool, &prefill.ticket);
    proxy_resume(proxy);
    expect_reply(proxy_next(proxy), "10.0.0.1:8000", values);
    pool_dequeue(proxy->pool.pool, &waiter, FLOW_ABORTED);
    proxy_close(proxy);
}

struct seen {
    unsigned n_queued, n_picked, n_refused;
    struct pick_counted queued, outcome; /* of the last ones; their texts are not to be read */
    bool has_target;
};

static struct seen *seen; /* the callbacks' user is the proxy */

static void on_queue(void *user, const struct pick_queue_event *event) {
    (void)user;
    if (event->what == PICK_QUEUE_BEGUN) {
        seen->n_queued++;
        seen->queued = event->counted;
        seen->has_target = event->counted.target.len > 0;
    }
}

static void on_outcome(void *user, const struct pick_outcome *outcome) {
    (void)user;
    seen->n_picked += outcome->why == NULL;
    seen->n_refused += outcome->why != NULL;
    seen->outcome = outcome->counted;
}

static void watch(struct fake_proxy *proxy, struct seen *into) {
    struct pick_callbacks *callbacks = &proxy->session->send_queue.callbacks;
    seen = into;
    callbacks->on_queue = on_queue;
    callbacks->on_outcome = on_outcome;
}

#define GOLD POST "|x-gateway-inference-objective=gold|x-llm-d-inference-objective=gold"

static void add_objective(struct pool_spec *spec, int64_t priority) {
    pool_spec_add_objective(spec, &(struct pool_objective){STR("gold"), priority});
}

/* Whichever stage waits, what is reported of the wait is its pick's. */
static void handler_first_stage_that_waits_is_reported(void **state) {
    (void)state;
    for (int prefill_first = 0; prefill_first < 2; prefill_first++) {
        struct profile_handler handler = handler_of_three();
        struct seen found = {.n_queued = 0};
        handler.stages[STAGE_ENCODE].profile = NULL;
        handler.prefill_first = prefill_first == 1;
        struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){1, 0, 1});
        spec->max_in_flight = 1;
        spec->flow_control.on = true;
        add_objective(spec, 7);
        struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
        struct pool_pick prefill = take(proxy, STAGE_PREFILL);
        watch(proxy, &found);
        proxy_request(proxy, GOLD, true, PROXY_CONFIG(NONE, NONE));
        assert_int_equal(found.n_queued, 1);
        assert_int_equal(found.queued.priority, 7);
        assert_false(found.has_target);
        pool_release_ticket(proxy->pool.pool, &prefill.ticket);
        proxy_resume(proxy);
        assert_int_equal(found.n_picked, 1);
        assert_int_equal(found.outcome.priority, 7);
        proxy_close(proxy);
    }
}

/* Servers of both roles: a request that has one to decode does not wait for its own slot, nor for
 * those of others that wait like it. */
static void handler_stages_of_shared_servers_do_not_wait_for_each_other(void **state) {
    static const struct pool_label both = ROLE_LABEL("prefill-decode");
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){0, 0, 0});
    struct pool_spec_endpoint shared = {.address = fixture_numbered(1), .labels = {&both, 1}};
    pool_spec_add_endpoint(spec, &shared);
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    assert_true(str_is(proxy_pick(reply), "10.0.0.1:8000"));
    assert_true(str_is(proxy_set(reply, SERVER_HEADERS[PREFILLER]), "10.0.0.1:8000"));
    proxy_close(proxy);
}

/* A stage that waits goes on waiting when the configuration changes to one by which it would not
 * have begun to. */
static void handler_stage_waits_over_a_change_of_the_profiles(void **state) {
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){1, 0, 1});
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    struct pool_pick prefill = take(proxy, STAGE_PREFILL);
    proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
    proxy_expect_no_message(proxy);
    struct pool_spec *other = spec_of(&handler, (const uint32_t[]){1, 0, 1});
    other->handler = NULL;
    other->profile = NULL;
    other->max_in_flight = 1;
    other->flow_control.on = true;
    fixture_update(proxy->pool.pool, other);
    pool_release_ticket(proxy->pool.pool, &prefill.ticket);
    proxy_resume(proxy);
    assert_int_equal(proxy->n_sent, 1);
    proxy_close(proxy); /* asserts that nothing is queued */
}

static void handler_waits_for_the_stage_that_is_not_ready(void **state) {
    static const char *const values[] = {"10.0.2.1:8000", "", "", ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){1, 0, 1});
    spec->flow_control.on = true;
    spec->flow_control.no_endpoint_wait_ns = UINT64_C(10000000000);
    spec->health = (struct pool_health){.kind = POOL_HEALTH_TCP,
                                        .interval_ns = 1,
                                        .timeout_ns = 1,
                                        .n_healthy = 1,
                                        .n_unhealthy = 1};
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    struct endpoint *decode = fixture_endpoint(&proxy->pool, "10.0.0.1:8000");
    struct endpoint *prefill = fixture_endpoint(&proxy->pool, "10.0.2.1:8000");
    pool_set_ready(proxy->pool.pool, decode, false);
    pool_set_ready(proxy->pool.pool, prefill, false);
    proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
    proxy_expect_no_message(proxy);
    pool_set_ready(proxy->pool.pool, prefill, true);
    proxy_resume(proxy);
    proxy_expect_no_message(proxy);
    pool_set_ready(proxy->pool.pool, decode, true);
    proxy_resume(proxy);
    expect_reply(proxy_next(proxy), "10.0.0.1:8000", values);
    proxy_close(proxy);
}

/* A request is admitted once, however many stages it has. */
static void handler_requests_are_admitted_once(void **state) {
    struct profile_handler handler = handler_of_three();
    struct seen found = {.n_queued = 0};
    (void)state;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){1, 1, 1});
    add_objective(spec, -1);
    spec->admitter =
        (struct pool_admitter){.on = true, .queue_depth = 5, .kv_cache = 0.8, .power = 1, .k = 1};
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    for (int role = 0; role < N_STAGE_ROLES; role++) {
        char text[32];
        struct endpoint_load load = {
            .until_ns = UINT64_MAX, .known = LOAD_KV_CACHE, .kv_cache_used = 0.24f};
        snprintf(text, sizeof(text), "10.0.%d.1:8000", role);
        pool_set_load(proxy->pool.pool, fixture_endpoint(&proxy->pool, text), &load);
    }
    for (int i = 0; i < 4000; i++) {
        watch(proxy, &found);
        proxy_request(proxy, GOLD, true, PROXY_CONFIG(NONE, NONE));
        proxy_next_stream(proxy);
    }
    assert_in_range(found.n_refused, 1080, 1320); /* 30 % */
    proxy_close(proxy);
}

/* All stages have the revision of the one that was picked for first, in either order. */
static void handler_stages_have_one_revision(void **state) {
    static const struct rollout_screener screener = {
        .mode = ROLLOUT_SUM,
        .revision_label = STR("rev"),
        .role_label = STR("llm-d.ai/role"),
        .roles = {STR("decode"), STR("encode"), STR("prefill")},
        .n_roles = N_STAGE_ROLES};
    static struct pool_label labels[2][N_STAGE_ROLES][2];
    (void)state;
    for (int prefill_first = 0; prefill_first < 2; prefill_first++) {
        struct profile_handler handler = handler_of_three();
        handler.prefill_first = prefill_first == 1;
        struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){0, 0, 0});
        spec->rollout = &screener;
        for (uint32_t i = 0; i < 2 * N_STAGE_ROLES; i++) {
            uint32_t revision = i / N_STAGE_ROLES, role = i % N_STAGE_ROLES;
            labels[revision][role][0] =
                (struct pool_label){STR("rev"), revision == 0 ? STR("a") : STR("b")};
            labels[revision][role][1] = LABELS[role];
            struct pool_spec_endpoint wanted = {.address =
                                                    fixture_numbered(role << 8 | (revision + 1)),
                                                .labels = {labels[revision][role], 2}};
            pool_spec_add_endpoint(spec, &wanted);
        }
        struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
        for (int i = 0; i < 200; i++) {
            proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
            const struct ext_proc_client_response *reply = proxy_next(proxy);
            char revision = proxy_pick(reply).ptr[sizeof("10.0.0.") - 1];
            for (int k = PREFILLER; k <= PREFILLER + 1; k++) {
                assert_int_equal(proxy_set(reply, SERVER_HEADERS[k]).ptr[sizeof("10.0.0.") - 1],
                                 revision);
            }
            proxy_next_stream(proxy);
        }
        proxy_close(proxy);
    }
}

/* The only server that decodes is avoided: it is the last choice, though one that prefills is
 * not. */
static void handler_stage_of_avoided_servers_gets_one(void **state) {
    static const char *const values[] = {"10.0.2.1:8000", "", "", ""};
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct fake_proxy *proxy =
        proxy_open_with_prefixes(spec_of(&handler, (const uint32_t[]){1, 0, 1}));
    pool_report_refused(proxy->pool.pool, fixture_endpoint(&proxy->pool, "10.0.0.1:8000"));
    proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
    expect_reply(proxy_next(proxy), "10.0.0.1:8000", values);
    proxy_close(proxy);
}

/* A response does not say whose the error is: that of the server that prefills ejects it, as it has
 * part in each failure. */
static void handler_errors_count_for_each_stage(void **state) {
    struct profile_handler handler = handler_of_three();
    (void)state;
    handler.stages[STAGE_ENCODE].profile = NULL;
    struct pool_spec *spec = spec_of(&handler, (const uint32_t[]){4, 0, 4});
    spec->outlier_detection.consecutive_5xx = 3;
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec);
    struct endpoint *bad = fixture_endpoint(&proxy->pool, "10.0.2.1:8000");
    for (int i = 0; i < 200; i++) {
        proxy_request(proxy, POST, true, PROXY_CONFIG(NONE, NONE));
        struct str prefiller = proxy_set(proxy_next(proxy), SERVER_HEADERS[PREFILLER]);
        proxy_answer(proxy,
                     str_is(prefiller, "10.0.2.1:8000")
                         ? ":status=500|x-envoy-upstream-service-time=1"
                         : ":status=200|x-envoy-upstream-service-time=1",
                     true);
        proxy_next_stream(proxy);
    }
    assert_true(endpoint_is_ejected(bad));
    for (uint32_t i = 1; i <= 4; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.0.0.%u:8000", i);
        assert_false(endpoint_is_ejected(fixture_endpoint(&proxy->pool, text)));
    }
    proxy_close(proxy);
}

/* ---- endpoints that come and go -------------------------------------------------------------- */

enum { CHURN_PICKS = 100000, CHURN_STEP = 100, MOST_OF_ROLE = 6 };

/* Whether 10.0.ROLE.I with this text is in the pool. */
static void expect_of_role(struct str text, enum stage_role role,
                           const uint32_t n_of[N_STAGE_ROLES]) {
    struct endpoint_address address;
    assert_true(endpoint_address_parse(text, &address));
    uint64_t i = address.low & 0xff;
    assert_int_equal(address.low >> 8 & 0xff, role);
    assert_in_range(i, 1, n_of[role]);
}

static void handler_churn_each_stage_has_its_role(void **state) {
    struct profile_handler handler = handler_of_three();
    uint32_t n_of[N_STAGE_ROLES] = {3, 2, 3};
    struct fake_proxy *proxy = proxy_open_with_prefixes(spec_of(&handler, n_of));
    struct prng prng = {5};
    (void)state;
    for (int i = 0; i < CHURN_PICKS; i++) {
        if (i % CHURN_STEP == 0) {
            for (size_t role = 0; role < N_STAGE_ROLES; role++) {
                n_of[role] = (uint32_t)(prng_next(&prng) % MOST_OF_ROLE) + (role == STAGE_DECODE);
            }
            fixture_update(proxy->pool.pool, spec_of(&handler, n_of));
        }
        proxy_request(proxy, POST FORGED, true, PROXY_CONFIG(NONE, NONE));
        const struct ext_proc_client_response *reply = proxy_next(proxy);
        expect_of_role(proxy_pick(reply), STAGE_DECODE, n_of);
        for (size_t k = 0; k < N_SERVER_HEADERS; k++) {
            struct str got = proxy_set(reply, SERVER_HEADERS[k]);
            enum stage_role role = k == PREFILLER ? STAGE_PREFILL : STAGE_ENCODE;
            bool is_there = k <= ENCODER && n_of[role] > 0;
            assert_int_equal(got.ptr != NULL, is_there);
            assert_int_equal(count_removed(reply, SERVER_HEADERS[k]), !is_there);
            if (is_there) {
                expect_of_role(got, role, n_of);
            }
        }
        if (i % 3 > 0) {
            proxy_answer(proxy, ":status=200|x-envoy-upstream-service-time=1", i % 3 == 1);
        }
        proxy_next_stream(proxy);
    }
    proxy_close(proxy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handler_source_is_named_for_the_stage_that_computes),
        cmocka_unit_test(source_is_named_without_a_handler),
        cmocka_unit_test(handler_all_stages_are_named_and_forged_headers_replaced),
        cmocka_unit_test(handler_stages_left_out_remove_forged_headers),
        cmocka_unit_test(handler_multimodal_decider_encodes_pictures_only),
        cmocka_unit_test(handler_prefix_decider_looks_at_decoding_server),
        cmocka_unit_test(handler_later_stage_is_near_earlier_one),
        cmocka_unit_test(handler_missing_stage_is_skipped_or_refused),
        cmocka_unit_test(handler_missing_decode_is_refused),
        cmocka_unit_test(handler_primary_port_replaces_destinations),
        cmocka_unit_test(handler_header_names_profile),
        cmocka_unit_test(handler_prefer_available_needs_cached_prefix),
        cmocka_unit_test(handler_prefer_available_is_of_upstreams_configuration),
        cmocka_unit_test(handler_explanation_has_each_stage),
        cmocka_unit_test(handler_waiters_get_endpoints_of_their_stage),
        cmocka_unit_test(handler_first_stage_that_waits_is_reported),
        cmocka_unit_test(handler_stages_of_shared_servers_do_not_wait_for_each_other),
        cmocka_unit_test(handler_stage_waits_over_a_change_of_the_profiles),
        cmocka_unit_test(handler_waits_for_the_stage_that_is_not_ready),
        cmocka_unit_test(handler_requests_are_admitted_once),
        cmocka_unit_test(handler_stages_have_one_revision),
        cmocka_unit_test(handler_stage_of_avoided_servers_gets_one),
        cmocka_unit_test(handler_errors_count_for_each_stage),
        cmocka_unit_test(handler_churn_each_stage_has_its_role),
    };
    return cmocka_run_group_tests_name("pick/session/handler", tests, NULL, NULL);
}
