/* For tests of plugins with parameters: parameters as in the configuration, and endpoints with
 * labels. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_TEXT_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_TEXT_FIXTURE_H

#include <string.h>

#include "pick/pool/profile/plugin_fixture.h"

/* Parses the parameters of the plugin. Returns: as plugin_read_parameters. */
static inline enum status fixture_read(struct plugin_fixture *fixture, const struct plugin *plugin,
                                       const char *text, struct error *err) {
    struct doc *doc;
    assert_int_equal(doc_parse(DOC_YAML, "p", str_of(text), &doc, err), ST_OK);
    struct doc_node node = doc_root(doc);
    enum status st =
        plugin_read_parameters(plugin, &node, fixture->arena, &fixture->parameters, err);
    doc_free(doc); /* the parameters do not point into it */
    return st;
}

static inline void fixture_tell(struct plugin_fixture *fixture, const struct plugin *plugin,
                                const char *text) {
    struct error err = {0};
    if (fixture_read(fixture, plugin, text, &err) != ST_OK) {
        fail_msg("%s: %s", text, err.text);
    }
}

/* Each text is refused, with a message that contains the second text. */
static inline void assert_refused(const struct plugin *plugin, const char *const (*texts)[2],
                                  size_t n) {
    struct plugin_fixture fixture;
    struct error err;
    plugin_fixture_open(&fixture, plugin, 1);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fixture_read(&fixture, plugin, texts[i][0], &err), ST_BAD_CONFIG);
        if (!strstr(err.text, texts[i][1])) {
            fail_msg("%s: %s", texts[i][0], err.text);
        }
    }
    plugin_fixture_close(&fixture);
}

/* Endpoint i has labels[i]. */
static inline void fixture_label(struct plugin_fixture *fixture, const struct pool_labels *labels,
                                 uint32_t n) {
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = 0; i < n; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i), .labels = labels[i]};
        pool_spec_add_endpoint(spec, &wanted);
    }
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
}

/* The remaining members, one bit each. */
static inline unsigned fixture_left(const struct plugin_fixture *fixture) {
    unsigned left = 0;
    for (uint32_t i = 0; i < fixture->candidates.n; i++) {
        left |= 1u << fixture->candidates.columns->member[i];
    }
    return left;
}

static inline struct endpoint *fixture_member(const struct plugin_fixture *fixture, uint32_t i) {
    return fixture->candidates.snapshot->members[i].endpoint;
}

/* Member `member` was sent the first n_blocks of the prompt's `of` blocks. */
static inline void fixture_hit(struct plugin_fixture *fixture, uint32_t member, uint32_t n_blocks,
                               uint32_t of) {
    struct prefix_matches *prefix = &fixture->prefix;
    prefix->n_blocks = of;
    prefix->hits[prefix->n].member = member;
    prefix->hits[prefix->n++].n_blocks = n_blocks;
}

/* Asserts the scores. */
static inline void assert_scores(struct plugin_fixture *fixture, const struct plugin *plugin,
                                 const float *wanted) {
    memset(fixture->score, 0, sizeof(fixture->score));
    plugin->score(fixture->parameters, &fixture->candidates, 1);
    for (uint32_t i = 0; i < fixture->candidates.n; i++) {
        assert_near(fixture->score[i], wanted[i]);
    }
}

#endif
