/* The parameters of upstream's disaggregatedset-rollout-screener (pick/pool/rollout.h). */
#include "pick/config/plugin_list.h"

#include "core/base/num.h"
#include "pick/pool/rollout.h"

enum { MOST_SCOPE_LABELS = 16 };

/* ---- the scope ------------------------------------------------------------------------------- */

/* "a=b" or "a==b" */
static bool parse_equality(struct str text, struct pool_label *out) {
    struct str value = text, key = str_cut(&value, '=');
    if (value.ptr && value.len > 0 && value.ptr[0] == '=') {
        value = str_make(value.ptr + 1, value.len - 1);
    }
    *out = (struct pool_label){str_trim(key), str_trim(value)};
    return value.ptr && out->key.len > 0 && !memchr(out->key.ptr, '!', out->key.len) &&
           !memchr(out->key.ptr, ' ', out->key.len);
}

static void read_scope(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct pool_labels *scope = object;
    struct pool_label *items = doc_reader_calloc(reader, MOST_SCOPE_LABELS, sizeof(*items));
    struct str text = {NULL, 0}, rest;
    doc_reader_text(reader, node, &text);
    if (!text.ptr) {
        doc_reader_fail(reader, node, "expected a label selector, got nothing");
    }
    *scope = (struct pool_labels){items, 0};
    for (rest = text; doc_reader_ok(reader) && rest.ptr;) {
        struct str word = str_cut(&rest, ',');
        if (scope->n == MOST_SCOPE_LABELS || !parse_equality(word, &items[scope->n])) {
            doc_reader_fail(reader, node,
                            "expected up to %d of LABEL=VALUE, separated by commas, got \"%.*s\"",
                            MOST_SCOPE_LABELS, STR_ARG(text));
            return;
        }
        scope->n++;
    }
}

/* ---- selectors by headers -------------------------------------------------------------------- */

struct selector {
    struct rollout_selector strict;
    unsigned mode;
};

static const char *const SELECTOR_MODES[] = {"strict", "prefer", NULL};
static const struct doc_member SELECTOR[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct selector, strict.name, struct str, pool_config_read_name)},
    {"headerName",
     MEMBER_CUSTOM_FIELD(struct selector, strict.header, struct str, pool_config_read_header)},
    {"labelKey",
     MEMBER_CUSTOM_FIELD(struct selector, strict.label, struct str, pool_config_read_name)},
    {"mode", MEMBER_WORD(struct selector, mode, SELECTOR_MODES)},
    {0}};

/* One that is preferred changes no pick here: a header-label-affinity-scorer does. */
static void read_selectors(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct rollout_screener *screener = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > ROLLOUT_MOST_SELECTORS) {
        doc_reader_fail(reader, list, "expected at most %d selectors, got %zu",
                        ROLLOUT_MOST_SELECTORS, n);
    }
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        struct selector selector = {.mode = 0};
        struct doc_node header = doc_get(&item, "headerName");
        doc_reader_expect_object(reader, &item);
        doc_reader_object(reader, &item, SELECTOR, &selector);
        if (selector.strict.header.len == 0) {
            doc_reader_fail(reader, &header, "expected the name of a header, got nothing");
        }
        if (doc_reader_ok(reader) && selector.mode == 0) {
            screener->selectors[screener->n_selectors++] = selector.strict;
        }
    }
}

/* ---- gating ---------------------------------------------------------------------------------- */

static void read_roles(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct rollout_screener *screener = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > ROLLOUT_MOST_ROLES) {
        doc_reader_fail(reader, list, "expected at most %d roles, got %zu", ROLLOUT_MOST_ROLES, n);
    }
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        pool_config_read_name(reader, &item, &screener->roles[screener->n_roles]);
        screener->n_roles += doc_reader_ok(reader);
    }
}

static void check_gating(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct rollout_screener *screener = object;
    if (!node->val) {
        doc_reader_fail(reader, node, "expected sum, max-role or disabled, got nothing");
    } else if (screener->mode != ROLLOUT_DISABLED && screener->n_roles == 0) {
        doc_reader_fail(reader, node->parent, "expected `requireRoles: {values}`, got none");
    }
}

#define SCREENER struct rollout_screener
static const char *const MODES[] = {"sum", "max-role", "disabled", NULL}; /* as enum rollout_mode */
static const struct doc_member SCOPE[] = {
    {"labelSelector", MEMBER_CUSTOM_FIELD(SCREENER, scope, struct pool_labels, read_scope)}, {0}};
static const struct doc_member ROLES[] = {{"values", MEMBER_CUSTOM(read_roles)}, {0}};
static const struct doc_member GATING[] = {
    {"requireRoles", MEMBER_OBJECT(ROLES)},
    {"requiredRoles", MEMBER_CUSTOM(read_roles)}, /* in later releases */
    {"mode", MEMBER_WORD(SCREENER, mode, MODES), .check = check_gating},
    {"revisionLabelKey",
     MEMBER_CUSTOM_FIELD(SCREENER, revision_label, struct str, pool_config_read_optional_name)},
    {"roleLabelKey",
     MEMBER_CUSTOM_FIELD(SCREENER, role_label, struct str, pool_config_read_optional_name)},
    {0}};

static void read_gating(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct rollout_screener *screener = object;
    screener->revision_label = STR("disaggregatedset.x-k8s.io/revision");
    screener->role_label = STR("disaggregatedset.x-k8s.io/role");
    if (!doc_is_present(node)) {
        doc_reader_fail(reader, node, "expected `{mode, requireRoles}`, got nothing");
        return;
    }
    doc_reader_object(reader, node, GATING, object);
}

static void read_scope_object(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    if (!doc_is_present(node)) {
        doc_reader_fail(reader, node, "expected `{labelSelector}`, got nothing");
        return;
    }
    doc_reader_object(reader, node, SCOPE, object);
}

const struct doc_member PICKER_ROLLOUT[] = {
    {"scope", MEMBER_CUSTOM(read_scope_object), .members = SCOPE, .form = "`{labelSelector}`",
     .help = "of the endpoints whose readiness counts: LABEL=VALUE, separated by commas"},
    {"revisionGating", MEMBER_CUSTOM(read_gating), .members = GATING,
     .form = "`{mode, requireRoles, revisionLabelKey, roleLabelKey}`",
     .help = "how a request gets its revision, among those that have each role"},
    {"headerSelectors", MEMBER_CUSTOM(read_selectors), .members = SELECTOR,
     .form = "up to 8 of `{name, headerName, labelKey, mode}`",
     .help = "with `mode: strict` a request with the header goes to endpoints with its value only",
     .note = "response headers are not set"},
    {0}};
#undef SCREENER

void picker_read_rollout(struct doc_reader *reader) {
    const struct pool_config_reader *pool = pool_config_reader_of(reader);
    for (size_t i = 0; i < pool->plugins->n; i++) {
        const struct declared_plugin *plugin = &pool->plugins->items[i];
        if (!plugin->type || plugin->type->kind != PICKER_PLUGIN_SCREENER) {
            continue;
        }
        if (pool->spec->rollout) {
            doc_reader_fail(reader, &plugin->item, "expected one screener, got two");
        }
        struct rollout_screener *screener = plugin->settings;
        screener->name = plugin->name;
        screener->n_unmatched =
            doc_reader_calloc(reader, ROLLOUT_MOST_SELECTORS, sizeof(*screener->n_unmatched));
        pool->spec->rollout = screener;
    }
}
