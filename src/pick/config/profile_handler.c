/* Profile handlers and their deciders, with the upstream project's parameters: of several profiles,
 * which ones a request runs. Where a part of a configuration has no effect there is a note. */
#include "pick/config/profile_handler.h"

/* ---- deciders -------------------------------------------------------------------------------- */

const struct doc_member PICKER_PREFIX_DECIDER[] = {
    {"nonCachedTokens", MEMBER_WHOLE(struct picker_prefix_decider, non_cached_tokens, 0, INT32_MAX),
     .help = "the server that prefills is used where at least so many tokens of the prompt are not "
             "in the cache of the one that decodes; 0: never"},
    {"promptTokens", MEMBER_WHOLE(struct picker_prefix_decider, prompt_tokens, 0, INT32_MAX),
     .help = "and the prompt has at least so many tokens"},
    {0}};

/* ---- the parameters of handlers -------------------------------------------------------------- */

static const char *const MISSING[] = {"skip", "refuse", NULL};

/* As upstream: "-" and "_" make no difference, and neither do capitals. */
static void read_order(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct picker_disagg *out = object;
    struct str text = {NULL, 0};
    char word[16] = "";
    size_t n = 0;
    doc_reader_view(reader, node, &text);
    for (size_t i = 0; i < text.len && n + 1 < sizeof(word); i++) {
        char c = text.ptr[i];
        if (c != '-' && c != '_') {
            word[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
        }
    }
    struct str order = str_make(word, n);
    out->prefill_first = str_is(order, "prefillfirst") || str_is(order, "prefill");
    if (!out->prefill_first && n > 0 && !str_is(order, "decodefirst") && !str_is(order, "decode")) {
        doc_reader_fail(reader, node, "expected decode-first or prefill-first");
    }
}

#define PROFILE_NAME(role) MEMBER_TEXT(struct picker_disagg, profiles[role])
#define DECIDER_NAME(role) MEMBER_TEXT(struct picker_disagg, deciders[role])

static const struct doc_member DISAGG_PROFILES[] = {{"decode", PROFILE_NAME(STAGE_DECODE)},
                                                    {"prefill", PROFILE_NAME(STAGE_PREFILL)},
                                                    {"encode", PROFILE_NAME(STAGE_ENCODE)},
                                                    {0}};
static const struct doc_member DISAGG_DECIDERS[] = {
    {"prefill", DECIDER_NAME(STAGE_PREFILL)}, {"encode", DECIDER_NAME(STAGE_ENCODE)}, {0}};

static const char *const OLD_MEMBERS[] = {"decodeProfile",
                                          "prefillProfile",
                                          "encodeProfile",
                                          "prefillDeciderPluginName",
                                          "encodeDeciderPluginName",
                                          "deciderPluginName",
                                          NULL};

/* Upstream reads one form or the other. */
static void check_form(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct doc_node profiles = doc_get(node->parent, "profiles");
    struct doc_node deciders = doc_get(node->parent, "deciders");
    struct picker_disagg *disagg = object;
    bool is_new = doc_is_present(&profiles) || doc_is_present(&deciders);
    for (size_t i = 0; is_new && OLD_MEMBERS[i]; i++) {
        struct doc_node old = doc_get(node->parent, OLD_MEMBERS[i]);
        if (doc_is_present(&old)) {
            doc_reader_fail(reader, &old,
                            "deprecated: expected either profiles and deciders, or the members "
                            "before them");
        }
    }
    if (!disagg->deciders[STAGE_PREFILL].ptr) {
        disagg->deciders[STAGE_PREFILL] = disagg->prefill_decider;
    }
    if (disagg->prefill_first && disagg->deciders[STAGE_PREFILL].ptr) {
        doc_reader_fail(reader, node->parent,
                        "expected no decider for prefill with the stageOrder prefill-first");
    }
}

const struct doc_member PICKER_DISAGG[] = {
    {"profiles", MEMBER_OBJECT(DISAGG_PROFILES), .form = "names of profiles",
     .help = "of the stages `decode`, `prefill` and `encode`, which are the defaults"},
    {"deciders", MEMBER_OBJECT(DISAGG_DECIDERS), .form = "names of plugins",
     .help = "for the stages `prefill` and `encode`; without one the stage is left out"},
    {"stageOrder", MEMBER_CUSTOM(read_order), .form = "`decode-first` or `prefill-first`",
     .help = "with `prefill-first` prefill has no decider, and always runs"},
    {"missingStage", MEMBER_WORD(struct picker_disagg, missing, MISSING),
     .help = "ours: what becomes of a request where prefill or encode has no endpoint: it does "
             "without, or is refused with 503"},
    {"decodeProfile", PROFILE_NAME(STAGE_DECODE), .help = "deprecated"},
    {"prefillProfile", PROFILE_NAME(STAGE_PREFILL), .help = "deprecated"},
    {"encodeProfile", PROFILE_NAME(STAGE_ENCODE), .help = "deprecated"},
    {"prefillDeciderPluginName", DECIDER_NAME(STAGE_PREFILL), .help = "deprecated"},
    {"encodeDeciderPluginName", DECIDER_NAME(STAGE_ENCODE), .help = "deprecated"},
    {"deciderPluginName", MEMBER_TEXT(struct picker_disagg, prefill_decider), .check = check_form,
     .help = "deprecated"},
    {0}};

const struct doc_member PICKER_PD[] = {
    {"decodeProfile", PROFILE_NAME(STAGE_DECODE)},
    {"prefillProfile", PROFILE_NAME(STAGE_PREFILL)},
    {"deciderPluginName", DECIDER_NAME(STAGE_PREFILL),
     .help = "by default prefix-based-pd-decider"},
    {"primaryPort", MEMBER_WHOLE(struct picker_disagg, primary_port, 0, UINT16_MAX),
     .help = "as of data-parallel-profile-handler; 0: the port of the endpoint"},
    {"prefixPluginType", MEMBER_IGNORED("upstream has never used it")},
    {"prefixPluginName", MEMBER_IGNORED("upstream has never used it")},
    {"prefixMatchInfoProducerName", MEMBER_IGNORED("the decider looks at the pool's prefixes")},
    {0}};

const struct doc_member PICKER_DATA_PARALLEL[] = {
    {"primaryPort", MEMBER_WHOLE(struct picker_data_parallel, primary_port, 1, UINT16_MAX),
     .preset = 8000,
     .help = "requests are sent to this port of the picked endpoint, whose own is "
             "in the header x-data-parallel-host-port"},
    {0}};

const struct doc_member PICKER_BY_HEADER[] = {
    {"headerName", MEMBER_TEXT(struct picker_by_header, header),
     .help = "the request's header that names the profile, by default EPP-Profile"},
    {"defaultProfile", MEMBER_TEXT(struct picker_by_header, default_profile),
     .help = "the profile of requests without it, by default decode"},
    {0}};

/* ---- building -------------------------------------------------------------------------------- */

struct handler_reader {
    struct doc_reader *doc;
    const struct plugin_list *list;
    const struct declared_plugin *declared;
    struct profile *profiles;
    struct profile_handler *handler;
};

static void add_note(const struct handler_reader *self, const char *why) {
    pool_spec_add_note(pool_config_reader_of(self->doc)->spec, self->declared->name, why);
}

static const struct profile *find_profile(const struct handler_reader *self, struct str name) {
    for (size_t i = 0; i < self->handler->n_profiles; i++) {
        if (str_eq(self->profiles[i].name, name)) {
            return &self->profiles[i];
        }
    }
    return NULL;
}

static void read_decider(const struct handler_reader *self, struct str name,
                         struct stage_decider *out) {
    const struct declared_plugin *decider = plugin_list_find(self->list, name);
    if (!decider || !decider->type || decider->type->kind != PICKER_PLUGIN_DECIDER) {
        doc_reader_fail(self->doc, &self->declared->item,
                        decider ? "the plugin \"%.*s\" is no decider"
                                : "no plugin has the name \"%.*s\" of a decider",
                        STR_ARG(name));
        return;
    }
    if (strcmp(decider->type->type, "always-disagg-pd-decider") == 0) {
        out->kind = DECIDER_ALWAYS;
    } else if (strcmp(decider->type->type, "always-disagg-multimodal-decider") == 0) {
        out->kind = DECIDER_MULTIMODAL;
    } else {
        const struct picker_prefix_decider *settings = decider->settings;
        out->kind = DECIDER_PREFIX;
        if (settings) {
            out->non_cached_tokens = settings->non_cached_tokens;
            out->prompt_tokens = settings->prompt_tokens;
        }
        if (out->non_cached_tokens == 0) {
            add_note(self, "nonCachedTokens of its decider is 0: the stage never runs");
        }
    }
}

static void note_stage(const struct handler_reader *self, enum stage_role role, bool is_named) {
    const struct handler_stage *stage = &self->handler->stages[role];
    if (!stage->profile && (stage->decider.kind != DECIDER_NEVER || is_named)) {
        add_note(self, role == STAGE_PREFILL ? "no profile has the name for prefill: it never runs"
                                             : "no profile has the name for encode: it never runs");
    } else if (stage->profile && stage->decider.kind == DECIDER_NEVER) {
        add_note(self, role == STAGE_PREFILL ? "prefill has no decider: it never runs"
                                             : "encode has no decider: it never runs");
    }
}

static void read_stage(const struct handler_reader *self, const struct picker_disagg *disagg,
                       enum stage_role role) {
    struct handler_stage *stage = &self->handler->stages[role];
    struct str name = disagg->profiles[role];
    bool is_named = name.len > 0;
    name = is_named ? name : str_of(stage_role_name(role));
    stage->profile = find_profile(self, name);
    if (role == STAGE_DECODE) {
        if (!stage->profile) {
            doc_reader_fail(self->doc, &self->declared->item,
                            "no profile has the name \"%.*s\": requests are sent to its endpoint",
                            STR_ARG(name));
        }
        return;
    }
    if (disagg->deciders[role].len > 0) {
        read_decider(self, disagg->deciders[role], &stage->decider);
    }
    if (role == STAGE_PREFILL && disagg->prefill_first) {
        stage->decider.kind = DECIDER_ALWAYS;
    }
    note_stage(self, role, is_named);
    if (stage->decider.kind == DECIDER_NEVER) {
        stage->profile = NULL;
    }
}

static void read_disagg(const struct handler_reader *self, struct picker_disagg *disagg) {
    bool is_pd = strcmp(self->declared->type->type, "pd-profile-handler") == 0;
    if (is_pd && disagg->deciders[STAGE_PREFILL].len == 0) {
        disagg->deciders[STAGE_PREFILL] = STR("prefix-based-pd-decider");
    }
    self->handler->is_disagg = true;
    self->handler->prefill_first = disagg->prefill_first;
    self->handler->refuses = disagg->missing == 1;
    self->handler->primary_port = disagg->primary_port;
    for (enum stage_role role = 0; role < N_STAGE_ROLES; role++) {
        read_stage(self, disagg, role);
    }
}

/* Names of headers are compared in lower case. */
static struct str lower_case(struct doc_reader *doc, struct str text) {
    char *copy = doc_reader_calloc(doc, text.len + 1, 1);
    for (size_t i = 0; copy && i < text.len; i++) {
        char c = text.ptr[i];
        copy[i] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
    }
    return copy ? str_make(copy, text.len) : str_make(NULL, 0);
}

static void read_by_header(const struct handler_reader *self,
                           const struct picker_by_header *by_header) {
    struct profile_handler *handler = self->handler;
    struct str header = str_trim(by_header->header), name = str_trim(by_header->default_profile);
    handler->header = lower_case(self->doc, header.len > 0 ? header : STR("epp-profile"));
    handler->default_profile = name.len > 0 ? name : STR("decode");
    const struct profile *profile = find_profile(self, handler->default_profile);
    if (!profile && handler->n_profiles > 1) {
        add_note(self, "no profile has the name of defaultProfile: requests without the header are "
                       "refused");
    }
    handler->stages[STAGE_DECODE].profile = profile ? profile : self->profiles;
}

static void expect_one_profile(const struct handler_reader *self) {
    if (self->handler->n_profiles > 1) {
        doc_reader_fail(self->doc, &self->declared->item,
                        "%.*s is for one profile, and there are %zu", STR_ARG(self->declared->name),
                        self->handler->n_profiles);
    }
}

static void read_handler(const struct handler_reader *self) {
    const char *type = self->declared->type->type;
    void *settings = self->declared->settings;
    self->handler->type = str_of(type);
    self->handler->name = self->declared->name;
    self->handler->stages[STAGE_DECODE].profile = self->profiles;
    if (strcmp(type, "header-profile-handler") == 0) {
        read_by_header(self, settings);
    } else if (strcmp(type, "data-parallel-profile-handler") == 0) {
        self->handler->primary_port = ((const struct picker_data_parallel *)settings)->primary_port;
        expect_one_profile(self);
    } else {
        read_disagg(self, settings);
    }
}

/* Deciders read the request's body. One looks at what the first stage's endpoint has of the prompt,
 * by the default producer. The needs of the first profile become those of all. */
static enum status add_decider_needs(const struct handler_reader *self, struct error *err) {
    struct pool_request_needs *needs = &self->profiles->needs;
    enum status st = ST_OK;
    for (size_t i = 0; i < N_STAGE_ROLES && st == ST_OK; i++) {
        struct prefix_user user = {.index = 0};
        enum decider_kind kind = self->handler->stages[i].decider.kind;
        if (kind == DECIDER_PREFIX) {
            st = pool_needs_use_prefix(needs, &user, err);
        } else if (kind == DECIDER_MULTIMODAL) {
            needs->prompt = needs->body = needs->media = true;
        }
    }
    return st;
}

static const struct declared_plugin *find_handler(struct doc_reader *reader,
                                                  const struct plugin_list *list) {
    const struct declared_plugin *found = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *plugin = &list->items[i];
        if (!plugin->type || plugin->type->kind != PICKER_PLUGIN_PROFILE_HANDLER) {
            continue;
        }
        if (found) {
            doc_reader_fail(reader, &plugin->item,
                            "expected one profile handler, got \"%.*s\" and \"%.*s\"",
                            STR_ARG(found->name), STR_ARG(plugin->name));
        }
        found = plugin;
    }
    return found;
}

struct profile_handler *pool_config_read_handler(struct doc_reader *reader,
                                                 const struct doc_node *node,
                                                 const struct plugin_list *list,
                                                 struct profile *profiles, size_t n) {
    struct handler_reader self = {.doc = reader, .list = list, .profiles = profiles};
    struct doc_node all = doc_get(node, "schedulingProfiles");
    struct error why = {.status = ST_OK};
    self.declared = find_handler(reader, list);
    bool is_single =
        !self.declared || strcmp(self.declared->type->type, "single-profile-handler") == 0;
    if (is_single && n > 1) {
        doc_reader_fail(reader, &all,
                        self.declared
                            ? "single-profile-handler is for one profile, and there are %zu"
                            : "expected a profile handler for %zu profiles: "
                              "disagg-profile-handler or header-profile-handler",
                        n);
    }
    if (is_single || !doc_reader_ok(reader)) {
        return NULL;
    }
    self.handler = doc_reader_calloc(reader, 1, sizeof(*self.handler));
    if (!self.handler) {
        return NULL;
    }
    self.handler->profiles = profiles;
    self.handler->n_profiles = n;
    read_handler(&self);
    if (doc_reader_ok(reader) && (add_decider_needs(&self, &why) != ST_OK ||
                                  profile_handler_collect_needs(profiles, n, &why) != ST_OK)) {
        doc_reader_fail(reader, node, "%s", why.text);
    }
    return doc_reader_ok(reader) ? self.handler : NULL;
}
