/* Pools for tests whose profile is one filter and a random choice. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_FILTER_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_FILTER_FIXTURE_H

#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

/* As fixture_spec_of; `parameters` is YAML. */
static inline struct pool_spec *fixture_spec_with_filter(uint32_t n, const struct plugin *plugin,
                                                         const char *parameters) {
    struct pool_spec *spec = fixture_spec_of(n);
    struct profile *profile = arena_calloc(spec->arena, 1, sizeof(*profile));
    struct profile_step *step = arena_calloc(spec->arena, 1, sizeof(*step));
    struct doc *doc;
    struct error err;
    assert_int_equal(doc_parse(DOC_YAML, "p", str_of(parameters), &doc, &err), ST_OK);
    struct doc_node node = doc_root(doc);
    step->plugin = plugin;
    assert_int_equal(plugin_read_parameters(plugin, &node, spec->arena, &step->parameters, &err),
                     ST_OK);
    doc_free(doc);
    *profile = (struct profile){.name = STR("default"),
                                .filters = step,
                                .n_filters = 1,
                                .picker = {.plugin = &plugin_random_picker}};
    assert_int_equal(profile_collect_needs(profile, &err), ST_OK);
    spec->profile = profile;
    return spec;
}

#endif
