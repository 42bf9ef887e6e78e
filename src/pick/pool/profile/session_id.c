/* An endpoint's number in the tables is a hash of its name, so that a pod that comes back with
 * another address keeps its sessions. */
#include "pick/pool/profile/session_id.h"

#include "core/base/hash.h"
#include "pick/pool/profile/handler.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* The attributes that upstream's plugins set. */
static const char AGENT[] = "agent-identity", PRODUCED[] = "SessionIDDataKey";
static const char DEFAULT_HEADER[] = "x-session-id";
enum { MOST_HEADER_BYTES = 256, TTL_S = 300, SWEEP_S = 10, MOST_S = 1000000000 };
static const double NS_PER_S = 1e9;

/* Header or attribute, as texts that may be empty, as upstream. */
static const struct doc_member SOURCE[] = {{"header", MEMBER_BY_CALLER},
                                           {"attribute", MEMBER_BY_CALLER},
                                           {"producer", MEMBER_BY_CALLER},
                                           {0}};

static void read_source_header(struct doc_reader *reader, const struct doc_node *node,
                               struct str text, struct session_id_source *out) {
    text = str_trim(text);
    bool fits = text.len > 0 && text.len <= MOST_HEADER_BYTES;
    for (size_t i = 0; fits && i < text.len; i++) {
        fits = text.ptr[i] > ' ' && text.ptr[i] < 0x7f && text.ptr[i] != ':';
    }
    if (!fits) {
        doc_reader_fail(reader, node, "expected the name of a header, got \"%.*s\"", STR_ARG(text));
    }
    doc_reader_dup_lower(reader, text, &out->header);
}

static void read_source(struct doc_reader *reader, const struct doc_node *item,
                        struct session_id_source *out) {
    struct doc_node header = doc_get(item, "header"), attribute = doc_get(item, "attribute");
    struct doc_node producer = doc_get(item, "producer");
    struct str name = STR(""), key = STR(""), from = STR("");
    doc_reader_expect_object(reader, item);
    doc_reader_object(reader, item, SOURCE, NULL);
    doc_reader_view(reader, &header, &name);
    doc_reader_view(reader, &attribute, &key);
    doc_reader_view(reader, &producer, &from);
    if ((name.len > 0) == (key.len > 0)) {
        doc_reader_fail(reader, item, "expected `header` or `attribute`, got %s",
                        name.len > 0 ? "both" : "neither");
    } else if (name.len > 0) {
        read_source_header(reader, &header, name, out);
    } else if (str_is(key, PRODUCED) && from.len > 0) {
        doc_reader_dup(reader, from, &out->producer);
    } else if (!str_is(key, AGENT) || from.len > 0) {
        doc_reader_fail(reader, &attribute,
                        "no plugin sets the attribute \"%.*s\" of \"%.*s\"; there are %s, and %s "
                        "with the name of a session-id-producer as its `producer`",
                        STR_ARG(key), STR_ARG(from), AGENT, PRODUCED);
    }
}

static void read_sources(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct session_id_parameters *parameters = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > SESSION_ID_MAX_SOURCES) {
        doc_reader_fail(reader, list, "expected at most %d sources, got %zu",
                        SESSION_ID_MAX_SOURCES, n);
        return;
    }
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item);) {
        read_source(reader, &item, &parameters->sources[parameters->n_sources++]);
    }
    if (n == 0) {
        parameters->sources[parameters->n_sources++].header = str_of(DEFAULT_HEADER);
    }
}

/* 0 is the default. */
static void read_seconds(struct doc_reader *reader, const struct doc_node *node, double usual,
                         uint64_t *out) {
    double seconds = 0;
    doc_reader_f64(reader, node, &seconds);
    if (!(seconds >= 0 && seconds <= MOST_S)) {
        doc_reader_fail(reader, node, "expected a number of seconds above 0, %d at most", MOST_S);
        seconds = 0;
    }
    double ns = (seconds > 0 ? seconds : usual) * NS_PER_S;
    *out = ns >= 1 ? (uint64_t)ns : 1;
}

static void read_ttl(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct session_id_parameters *parameters = object;
    read_seconds(reader, node, TTL_S, &parameters->expiry.ttl_ns);
}

static void read_sweep(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct session_id_parameters *parameters = object;
    read_seconds(reader, node, SWEEP_S, &parameters->expiry.sweep_ns);
}

static const struct doc_member CONFIG[] = {{"sources", MEMBER_CUSTOM(read_sources)},
                                           {"evictionTtlSeconds", MEMBER_CUSTOM(read_ttl)},
                                           {"evictionSweepSeconds", MEMBER_CUSTOM(read_sweep)},
                                           {0}};

void session_id_read(struct doc_reader *reader, const struct doc_node *node,
                     struct session_id_parameters *out) {
    if (doc_is_present(node)) {
        doc_reader_expect_object(reader, node);
        doc_reader_object(reader, node, CONFIG, out);
    } else {
        doc_reader_members(reader, node, CONFIG, out);
    }
}

/* Plugins of one type with the same sources, for the same profile, have one table: so it stays when
 * the configuration is read again. */
static uint64_t owner_of(const struct session_id_parameters *parameters, const char *type) {
    uint64_t hash = hash_text(parameters->profile, hash_text(str_of(type), 1));
    for (size_t i = 0; i < parameters->n_sources; i++) {
        hash = hash_text(parameters->sources[i].header, hash + 1);
        hash = hash_text(parameters->sources[i].cookie, hash + 1);
    }
    return hash;
}

enum status session_id_add_needs(struct session_id_parameters *parameters, const char *type,
                                 struct pool_request_needs *needs, struct error *err) {
    uint64_t owner = owner_of(parameters, type);
    uint32_t i = 0;
    while (i < needs->n_sessions && needs->sessions[i].owner != owner) {
        i++;
    }
    if (i == SESSION_TABLES_MAX) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected plugins of session affinity for %d kinds of sessions at most",
                         SESSION_TABLES_MAX);
    }
    if (i == needs->n_sessions) {
        needs->sessions[needs->n_sessions++] = (struct session_need){owner, parameters};
    }
    parameters->index = i;
    return ST_OK;
}

/* ---- the tables of a snapshot ---------------------------------------------------------------- */

static uint64_t number_of(const struct pool_member *member) {
    const struct pool_endpoint_name *name = &member->name;
    uint64_t hash = name->text.len > 0 ? hash_text(name->text, hash_text(name->name_space, 1))
                                       : endpoint_address_hash(&member->address);
    return hash != 0 ? hash : 1;
}

static struct session_table *find_table(const struct pool_snapshot *snapshot, uint64_t owner) {
    for (uint32_t i = 0; i < snapshot->n_sessions; i++) {
        if (session_table_owner(snapshot->sessions[i]) == owner) {
            session_table_ref(snapshot->sessions[i]);
            return snapshot->sessions[i];
        }
    }
    return session_table_new(owner);
}

enum status session_tables_attach(struct pool_snapshot *snapshot, const struct pool_snapshot *old,
                                  struct error *err) {
    const struct pool_spec *spec = snapshot->spec;
    const struct pool_request_needs *needs = spec->profile ? &spec->profile->needs : NULL;
    if (!needs || needs->n_sessions == 0) {
        return ST_OK;
    }
    snapshot->session_numbers =
        arena_calloc(spec->arena, snapshot->n_members + 1U, sizeof(*snapshot->session_numbers));
    if (!snapshot->session_numbers) {
        return error_no_memory(err, "sessions");
    }
    while (snapshot->n_sessions < needs->n_sessions) {
        struct session_table *table = find_table(old, needs->sessions[snapshot->n_sessions].owner);
        if (!table) {
            return error_no_memory(err, "sessions");
        }
        snapshot->sessions[snapshot->n_sessions++] = table;
    }
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        snapshot->session_numbers[i] = number_of(&snapshot->members[i]);
    }
    return ST_OK;
}

void session_tables_detach(struct pool_snapshot *snapshot) {
    while (snapshot->n_sessions > 0) {
        session_table_unref(snapshot->sessions[--snapshot->n_sessions]);
    }
}

/* ---- a request ------------------------------------------------------------------------------- */

static struct str header_of(const struct pool_headers *headers, struct str name) {
    struct str value = headers->find ? headers->find(headers->of, name) : str_make(NULL, 0);
    return str_trim(value.ptr ? value : STR(""));
}

static struct str cookie_of(const struct pool_headers *headers, struct str name) {
    struct str value = headers->cookie ? headers->cookie(headers->of, name) : str_make(NULL, 0);
    return str_trim(value.ptr ? value : STR(""));
}

/* Of an agent the first header that is there counts, also if it has only spaces. */
static struct str agent_of(const struct pool_spec *spec, const struct pool_headers *headers) {
    for (size_t i = 0; headers->find && i < spec->agent_headers.n; i++) {
        struct str value = headers->find(headers->of, spec->agent_headers.names[i]);
        if (value.len > 0) {
            return str_trim(value);
        }
    }
    return STR("");
}

static struct str session_of(const struct session_id_parameters *parameters,
                             const struct pool_spec *spec, const struct pool_headers *headers) {
    struct str id = STR("");
    for (size_t i = 0; i < parameters->n_sources && id.len == 0; i++) {
        const struct session_id_source *source = &parameters->sources[i];
        id = source->header.len > 0   ? header_of(headers, source->header)
             : source->cookie.len > 0 ? cookie_of(headers, source->cookie)
                                      : agent_of(spec, headers);
    }
    return id;
}

void session_choices_begin(const struct pool_snapshot *snapshot, const struct pool_headers *headers,
                           uint64_t now_ns, struct session_choice *out) {
    const struct pool_spec *spec = snapshot->spec;
    for (uint32_t i = 0; i < snapshot->n_sessions; i++) {
        const struct session_id_parameters *parameters =
            spec->profile->needs.sessions[i].parameters;
        struct str id = session_of(parameters, spec, headers);
        out[i] = (struct session_choice){.has_session = id.len > 0};
        if (id.len > 0) {
            out[i].session = session_table_hash(snapshot->sessions[i], id);
            out[i].bound = session_table_find(snapshot->sessions[i], out[i].session, now_ns,
                                              &parameters->expiry);
        }
    }
}

uint32_t session_id_find(const struct session_id_parameters *parameters,
                         struct candidate_set *candidates) {
    struct session_choice *choice =
        candidates->sessions ? &candidates->sessions[parameters->index] : NULL;
    const uint64_t *numbers = candidates->snapshot->session_numbers;
    uint32_t i = choice && choice->bound != 0 ? 0 : candidates->n;
    while (i < candidates->n && numbers[candidates->columns->member[i]] != choice->bound) {
        i++;
    }
    if (choice) {
        choice->was_absent = choice->bound != 0 && i == candidates->n;
    }
    return i;
}

void session_choices_commit(const struct pool_snapshot *snapshot,
                            const struct session_choice *choices, bool is_reduced,
                            const struct profile *profile, bool is_destination, uint32_t member,
                            uint64_t now_ns) {
    for (uint32_t i = 0; i < snapshot->n_sessions; i++) {
        const struct session_id_parameters *parameters =
            snapshot->spec->profile->needs.sessions[i].parameters;
        bool is_own = parameters->profile.len == 0 ? is_destination
                                                   : str_eq(parameters->profile, profile->name);
        if (is_own && choices[i].has_session) {
            session_table_bind(snapshot->sessions[i], choices[i].session,
                               snapshot->session_numbers[member],
                               choices[i].was_absent && !is_reduced, now_ns, &parameters->expiry);
        }
    }
}
