/* Profile handlers of configurations: the handler that they result in, as it is printed, the notes,
 * and the errors. The configurations have the plugins and values of the upstream project's samples
 * for stages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file_fixture.h"

#define KIND "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
#define ROLES "- type: encode-filter\n- type: prefill-filter\n- type: decode-filter\n"
#define DECIDERS                                                                                   \
    "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}\n"                       \
    "- type: always-disagg-multimodal-decider\n- type: always-disagg-pd-decider\n"
#define HANDLER(parameters) "- {type: disagg-profile-handler, parameters: {" parameters "}}\n"
#define PROFILE(name, filter) "- {name: " name ", plugins: [{pluginRef: " filter "}]}\n"
#define PROFILES                                                                                   \
    "schedulingProfiles:\n" PROFILE("encode", "encode-filter")                                     \
        PROFILE("prefill", "prefill-filter") PROFILE("decode", "decode-filter")
#define BY_PREFIX                                                                                  \
    "if much of the prompt is not in the cache of the decoding server: 16 tokens or more, of a "   \
    "prompt of 0 or more\n"
#define BY_MEDIA "if the prompt has pictures, sound or video\n"
#define DISAGG "handler     disagg-profile-handler\n"
#define DECODE "  decode                        profile decode\n"
#define ENCODE "  encode                        profile encode, "
#define PREFILL "  prefill                       profile prefill, "
#define SKIPS                                                                                      \
    "  missingStage                  a request whose prefill or encode has no endpoint does "

static const struct {
    const char *text, *printed; /* "!TEXT": TEXT must not be printed */
} taken[] = {
    /* P/D, E/PD, E/P/D */
    {KIND ROLES DECIDERS HANDLER("deciders: {prefill: prefix-based-pd-decider}") PROFILES,
     DISAGG DECODE PREFILL BY_PREFIX SKIPS},
    {KIND ROLES DECIDERS HANDLER("deciders: {encode: always-disagg-multimodal-decider}") PROFILES,
     DISAGG DECODE ENCODE BY_MEDIA SKIPS},
    {KIND ROLES DECIDERS HANDLER("deciders: {encode: always-disagg-multimodal-decider, prefill: "
                                 "prefix-based-pd-decider}") PROFILES,
     DISAGG DECODE ENCODE BY_MEDIA PREFILL BY_PREFIX SKIPS},
    {KIND ROLES DECIDERS HANDLER("deciders: {prefill: always-disagg-pd-decider}") PROFILES,
     PREFILL "always\n"},
    /* the declaration of a decider may follow */
    {KIND ROLES HANDLER("deciders: {prefill: always-disagg-pd-decider}") DECIDERS PROFILES,
     PREFILL "always\n"},
    /* names */
    {KIND ROLES DECIDERS HANDLER(
         "profiles: {decode: d, prefill: p}, deciders: {prefill: "
         "always-disagg-pd-decider}") "schedulingProfiles:\n" PROFILE("p", "prefill-filter")
         PROFILE("d", "decode-filter"),
     DISAGG "  decode                        profile d\n"
            "  prefill                       profile p, always\n"},
    /* the order */
    {KIND ROLES DECIDERS HANDLER("stageOrder: Prefill_First, deciders: {encode: "
                                 "always-disagg-multimodal-decider}") PROFILES,
     DISAGG PREFILL "always\n" ENCODE BY_MEDIA DECODE},
    {KIND ROLES DECIDERS HANDLER("stageOrder: decode-first, deciders: {prefill: "
                                 "always-disagg-pd-decider}") PROFILES,
     DISAGG DECODE PREFILL},
    /* a stage without an endpoint */
    {KIND ROLES DECIDERS HANDLER("missingStage: refuse, deciders: {prefill: "
                                 "always-disagg-pd-decider}") PROFILES,
     "has no endpoint is refused\n"},
    /* deprecated */
    {KIND ROLES DECIDERS HANDLER("deciderPluginName: always-disagg-pd-decider") PROFILES,
     PREFILL "always\n"},
    {KIND ROLES DECIDERS HANDLER("prefillDeciderPluginName: prefix-based-pd-decider, "
                                 "deciderPluginName: always-disagg-pd-decider") PROFILES,
     PREFILL BY_PREFIX},
    {KIND ROLES DECIDERS HANDLER("decodeProfile: prefill, encodeDeciderPluginName: "
                                 "always-disagg-multimodal-decider") PROFILES,
     DISAGG "  decode                        profile prefill\n" ENCODE BY_MEDIA},
    {KIND ROLES DECIDERS
     "- {type: pd-profile-handler, parameters: {primaryPort: 9000}}\n"
     "- type: prefill-header-handler\n- type: disagg-headers-handler\n" PROFILES,
     "handler     pd-profile-handler: requests are sent to port 9000 of the picked "
     "endpoint\n" DECODE PREFILL BY_PREFIX},
    /* what has no effect */
    {KIND ROLES DECIDERS HANDLER("profiles: {prefill: p}, deciders: {prefill: "
                                 "always-disagg-pd-decider}") PROFILES,
     "disagg-profile-handler (no profile has the name for prefill: it never runs)"},
    {KIND ROLES DECIDERS HANDLER("deciders: {prefill: always-disagg-pd-decider}") PROFILES,
     "disagg-profile-handler (encode has no decider: it never runs)"},
    {KIND ROLES "- type: prefix-based-pd-decider\n" HANDLER(
         "deciders: {prefill: prefix-based-pd-decider}") PROFILES,
     "nonCachedTokens of its decider is 0: the stage never runs"},
    /* other handlers */
    {KIND ROLES "- type: data-parallel-profile-handler\nschedulingProfiles:\n" PROFILE(
         "default", "decode-filter"),
     "handler     data-parallel-profile-handler: requests are sent to port 8000 of the picked "
     "endpoint\n"},
    {KIND ROLES "- type: header-profile-handler\n" PROFILES,
     "handler     header-profile-handler: the header epp-profile names the profile, by default "
     "decode\nprofile     encode\n  encode-filter                 filter\n  max-score-picker       "
     "       picker\nprofile     prefill\n"},
    {KIND ROLES "- {type: header-profile-handler, parameters: {headerName: ' X-Stage ', "
                "defaultProfile: other}}\n" PROFILES,
     "header-profile-handler (no profile has the name of defaultProfile: requests without the "
     "header are refused)"},
    {KIND ROLES
     "- type: single-profile-handler\nschedulingProfiles:\n" PROFILE("p", "decode-filter"),
     "!handler"},
    /* topology */
    {KIND ROLES
     "- type: topology-affinity-filter\n- {type: topology-extractor, parameters: {rack: "
     "r}}\n- type: topology-affinity-scorer\n" DECIDERS
         HANDLER("deciders: {prefill: prefix-based-pd-decider}") "schedulingProfiles:\n" PROFILE(
             "decode", "decode-filter") "- {name: prefill, plugins: [{pluginRef: prefill-filter}, "
                                        "{pluginRef: "
                                        "topology-affinity-filter}, {pluginRef: "
                                        "topology-affinity-scorer, weight: 2}]}\n",
     "profile     prefill\n  prefill-filter                filter\n  topology-affinity-filter      "
     "filter\n  topology-affinity-scorer      scorer, weight 2\n"},
    {KIND ROLES
     "- {type: topology-affinity-scorer, parameters: {topologyProducerName: t}}\n- type: "
     "topology-extractor\n",
     "plugins[3] (no topology-extractor has the name: the places of endpoints are unknown)"},
    {KIND ROLES "- type: topology-affinity-scorer\n- type: topology-extractor\n", "!notes"},
    /* producers in a profile */
    {KIND ROLES "- type: approx-prefix-cache-producer\n"
                "schedulingProfiles:\n- {name: p, plugins: [{pluginRef: decode-filter}, "
                "{pluginRef: approx-prefix-cache-producer}]}\n",
     "profile     as configured\n  decode-filter                 filter\n  max-score-picker"},
    /* our own format */
    {"profile:\n  plugins: [{type: decode-filter}, {type: prefill-filter}, {type: "
     "always-disagg-pd-decider}, {type: disagg-profile-handler, parameters: {deciders: {prefill: "
     "always-disagg-pd-decider}}}]\n  schedulingProfiles: [{name: decode, plugins: [{pluginRef: "
     "decode-filter}]}, {name: prefill, plugins: [{pluginRef: prefill-filter}]}]\n",
     DISAGG DECODE PREFILL "always\n"},
};

static void profile_handler_valid_is_printed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        bool absent = taken[i].printed[0] == '!';
        struct pool_specs specs;
        struct error err;
        struct buf out;
        struct arena *arena = arena_new(NULL, 0);
        if (pool_file_parse("f", str_of(taken[i].text), &specs, &err) != ST_OK) {
            fail_msg("%s\n%s", taken[i].text, err.text);
        }
        buf_init(&out, arena, 0);
        pool_specs_print(&specs, &out);
        buf_add_char(&out, '\0');
        if ((strstr(out.data, taken[i].printed + absent) != NULL) == absent) {
            fail_msg("%s\nprinted  %s\nexpected %s", taken[i].text, out.data, taken[i].printed);
        }
        pool_specs_free(&specs);
        arena_free(arena);
    }
}

static void profile_handler_invalid_is_refused(void **state) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {KIND ROLES PROFILES, "8: schedulingProfiles: expected a profile handler for 3 profiles: "
                              "disagg-profile-handler or header-profile-handler"},
        {KIND ROLES "- type: single-profile-handler\n" PROFILES,
         "9: schedulingProfiles: single-profile-handler is for one profile, and there are 3"},
        {KIND ROLES "- type: data-parallel-profile-handler\n" PROFILES,
         "7: plugins[3]: data-parallel-profile-handler is for one profile, and there are 3"},
        {KIND ROLES
         "- type: data-parallel-profile-handler\n- type: header-profile-handler\n" PROFILES,
         "8: plugins[4]: expected one profile handler, got \"data-parallel-profile-handler\" and "
         "\"header-profile-handler\""},
        {KIND ROLES "- {type: data-parallel-profile-handler, parameters: {primaryPort: "
                    "65536}}\n" PROFILES,
         "7: plugins[3].parameters.primaryPort: expected a whole number from 1 to 65535, got "
         "65536"},
        {KIND ROLES HANDLER("deciders: {prefill: other}") PROFILES,
         "7: plugins[3]: no plugin has the name \"other\" of a decider"},
        {KIND ROLES HANDLER("deciders: {prefill: decode-filter}") PROFILES,
         "7: plugins[3]: the plugin \"decode-filter\" is no decider"},
        {KIND ROLES DECIDERS HANDLER("deciders: {}, deciderPluginName: "
                                     "always-disagg-pd-decider") PROFILES,
         "10: plugins[6].parameters.deciderPluginName: deprecated: expected either profiles and "
         "deciders, or the members before them"},
        {KIND ROLES DECIDERS HANDLER("stageOrder: prefill-first, deciders: {prefill: "
                                     "always-disagg-pd-decider}") PROFILES,
         "10: plugins[6].parameters: expected no decider for prefill with the "
         "stageOrder prefill-first"},
        {KIND ROLES HANDLER("stageOrder: encode-first") PROFILES,
         "7: plugins[3].parameters.stageOrder: expected decode-first or prefill-first"},
        {KIND ROLES HANDLER("profiles: {decode: other}") PROFILES,
         "7: plugins[3]: no profile has the name \"other\": requests are sent to its endpoint"},
        {KIND ROLES HANDLER("stages: []") PROFILES,
         "7: unknown field \"plugins[3].parameters.stages\""},
        {KIND ROLES
         "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: -1}}\n" PROFILES,
         "7: plugins[3].parameters.nonCachedTokens: expected a whole number from 0 to 2147483647, "
         "got -1"},
        {KIND ROLES HANDLER("") "schedulingProfiles:\n" PROFILE("a", "decode-filter")
             PROFILE("a", "decode-filter"),
         "10: schedulingProfiles[1]: the profile \"a\" is there twice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_file_refused(rows[i].text, rows[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_handler_valid_is_printed),
        cmocka_unit_test(profile_handler_invalid_is_refused),
    };
    return cmocka_run_group_tests_name("pick/config/profile_handler", tests, NULL, NULL);
}
