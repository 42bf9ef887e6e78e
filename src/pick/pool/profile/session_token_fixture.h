/* For tests of the plugins that read the token of a session: three endpoints, two of which have
 * names, and a request with a token. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_FIXTURE_H

#include "pick/pool/profile/plugin_text_fixture.h"
#include "pick/pool/profile/session_token.h"

enum { SESSION_ENDPOINTS = 3 };

static inline struct str session_find_header(const void *of, struct str name) {
    return str_is(name, "x-token") ? str_of(of) : str_make(NULL, 0);
}

/* A plugin that reads the header X-Token. */
static inline void session_fixture_open(struct plugin_fixture *fixture,
                                        const struct plugin *plugin) {
    plugin_fixture_open(fixture, plugin, SESSION_ENDPOINTS);
    fixture_tell(fixture, plugin, "{encodedEndpointHeaderConfig: {header: X-Token}}");
}

/* Endpoint 0 has no name. */
static inline void session_fixture_open_named(struct plugin_fixture *fixture,
                                              const struct plugin *plugin) {
    struct pool_spec *spec = fixture_spec();
    session_fixture_open(fixture, plugin);
    for (uint32_t i = 0; i < SESSION_ENDPOINTS; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (i > 0) {
            wanted.name = (struct pool_endpoint_name){.pod = STR("llama"),
                                                      .text = i == 1 ? STR("llama-rank-0")
                                                                     : STR("llama-rank-1"),
                                                      .name_space = STR("models")};
        }
        pool_spec_add_endpoint(spec, &wanted);
    }
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
}

/* Calls `expect` with the token of each endpoint. */
static inline void assert_tokens_name_endpoints(const struct plugin *plugin,
                                                void (*expect)(struct plugin_fixture *fixture,
                                                               uint32_t endpoint)) {
    for (uint32_t i = 0; i < SESSION_ENDPOINTS; i++) {
        struct plugin_fixture fixture;
        session_fixture_open_named(&fixture, plugin);
        struct arena *arena = arena_new(NULL, 0);
        struct str token = session_token_print(&fixture.candidates.snapshot->members[i], arena);
        assert_int_equal(token.len % 4, 0);
        assert_true(i != 1 || str_is(token, "bW9kZWxzL2xsYW1hLXJhbmstMA=="));
        fixture.candidates.headers = (struct pool_headers){
            .find = session_find_header, .of = arena_printf(arena, "%.*s", STR_ARG(token)).ptr};
        expect(&fixture, i);
        arena_free(arena);
        plugin_fixture_close(&fixture);
    }
}

/* Calls `expect` with tokens that name no endpoint. */
static inline void assert_other_tokens(const struct plugin *plugin,
                                       void (*expect)(struct plugin_fixture *fixture)) {
    static const char *const tokens[] = {"", "bW9kZWxz", "!!!!",
                                         "bW9kZWxzL2xsYW1hLXJhbmstMg==", "MTA="};
    for (size_t k = 0; k < sizeof(tokens) / sizeof(tokens[0]); k++) {
        struct plugin_fixture fixture;
        session_fixture_open_named(&fixture, plugin);
        fixture.candidates.headers =
            (struct pool_headers){.find = session_find_header, .of = tokens[k]};
        expect(&fixture);
        plugin_fixture_close(&fixture);
    }
}

static inline void assert_session_parameters_refused(const struct plugin *plugin) {
    static const char *const texts[][2] = {
        {"{strategy: cookie}", "expected encoded_endpoint_header or session_id, got \"cookie\""},
        {"{strategy: session_id, encodedEndpointHeaderConfig: {header: a}}",
         "it is of the strategy encoded_endpoint_header"},
        {"{strategy: session_id, sessionIdConfig: {sources: [{}]}}", "got neither"},
        {"{strategy: session_id, sessionIdConfig: {sources: [{header: a, attribute: b}]}}",
         "got both"},
        {"{strategy: session_id, sessionIdConfig: {sources: [{header: 'a b'}]}}",
         "expected the name of a header"},
        {"{strategy: session_id, sessionIdConfig: {sources: [{attribute: b}]}}",
         "no plugin sets the attribute \"b\" of \"\"; there are agent-identity, and "
         "SessionIDDataKey with the name"},
        {"{strategy: session_id, sessionIdConfig: {sources: [{attribute: SessionIDDataKey}]}}",
         "no plugin sets the attribute \"SessionIDDataKey\" of \"\""},
        {"{strategy: session_id, sessionIdConfig: {sources: [{attribute: agent-identity, producer: "
         "p}]}}",
         "no plugin sets the attribute \"agent-identity\" of \"p\""},
        {"{strategy: session_id, sessionIdConfig: {sources: [5]}}", "expected an object"},
        {"{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: -1}}",
         "expected a number of seconds above 0"},
        {"{strategy: session_id, sessionIdConfig: {evictionSweepSeconds: x}}", "expected a number"},
        {"{strategy: session_id, sessionIdConfig: {ttl: 1}}", "unknown field"},
        {"{encodedEndpointHeaderConfig: {header: 'a b'}}", "expected the name of a header"},
        {"{encodedEndpointHeaderConfig: {name: a}}", "unknown field"},
        {"{profileName: prefill}", "a token names the request's destination"},
        {"{sessionIdConfig: {sources: [{header: a}]}}", "it is of the strategy session_id"},
    };
    assert_refused(plugin, texts, sizeof(texts) / sizeof(*texts));
}

#endif
