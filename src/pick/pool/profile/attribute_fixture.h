/* For tests of plugins that read attributes of endpoints. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_ATTRIBUTE_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_ATTRIBUTE_FIXTURE_H

#include "pick/pool/profile/attribute_user.h"
#include "pick/pool/profile/plugin_text_fixture.h"

/* Opens a fixture with an endpoint for each value; one that is NaN is missing. `parameters` begin
 * with a struct attribute_user. `profile` must live until the fixture is closed. */
static inline void attribute_fixture_open(struct plugin_fixture *fixture,
                                          const struct plugin *plugin, const char *parameters,
                                          struct profile *profile, const double *values,
                                          uint32_t n) {
    struct error err;
    plugin_fixture_open(fixture, plugin, n);
    fixture_tell(fixture, plugin, parameters);
    *profile = PROFILE_DEFAULT;
    profile->needs.n_attributes = 0;
    struct attribute_key other = {STR("other"), STR("p")};
    uint32_t index;
    assert_int_equal(pool_needs_use_attribute(&profile->needs, &other, &index, &err), ST_OK);
    assert_int_equal(plugin->add_needs(fixture->parameters, &profile->needs, &err), ST_OK);
    assert_int_equal(((const struct attribute_user *)fixture->parameters)->index, 1);
    struct pool_spec *spec = fixture_spec_of(n);
    spec->profile = profile;
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
    fixture->candidates.now_ns = 100;
    for (uint32_t i = 0; i < n; i++) {
        struct attribute_report report = {.until_ns = 101, .known = 2, .values = {1, values[i]}};
        if (!isnan(values[i])) {
            pool_set_attributes(fixture->pool.pool, fixture_member(fixture, i),
                                profile->needs.attributes, 2, &report);
        }
    }
}

#endif
