/* The rules of a pick (pick/pool/pick.c) and of matching pools (pick/pool/match.h), evaluated one
 * by one and printed. Endpoints are read without the pool's lock, so values of two endpoints may be
 * of different moments. */
#include "pick/session/explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/event/clock.h"
#include "pick/pool/flow/wait.h"
#include "pick/pool/no_endpoint.h"
#include "pick/pool/profile/profile.h"
#include "pick/session/request.h"

enum { LABEL_COLUMNS = 12, ENDPOINT_COLUMNS = 28, HEAD_BYTES = 96, MOST_NAMED = 20 };

/* The state of one endpoint of the pool. */
struct verdict {
    const struct endpoint *endpoint;
    bool in_subset, in_selection, eligible;
    uint32_t rank, in_flight; /* each read once */
    const char *full;         /* the limit that it has reached; NULL: it has capacity */
    const struct pool_endpoint_explanation *explained; /* by the profile; NULL: not a candidate */
};

struct explanation {
    const struct pick_described_request *described;
    struct pool_reader *reader;
    const struct pool_snapshot *snapshot;
    struct arena *arena;
    struct buf *out;
    struct str model; /* named by the request; ptr NULL: none */
    struct subset subset, selection;
    bool sheddable;
    int64_t priority;
    const char *full; /* the limit that every endpoint for the request has reached; NULL: some have
                         capacity */
    struct pool_explanation profile;
    struct verdict *verdicts; /* best first; those that cannot be picked last */
    size_t n_verdicts, n_eligible;
};

static void print_label(const struct explanation *self, const char *text) {
    buf_printf(self->out, "%-*s", LABEL_COLUMNS, text);
}

static enum status print_refusal(struct explanation *self, const struct error *err) {
    print_label(self, "outcome");
    buf_printf(self->out, "refused with %d (gRPC: %d) %s: %s\n", status_http(err->status),
               status_grpc(err->status), status_name(err->status), err->text);
    return err->status;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* "Where does the request name its model?" */
static enum status print_model(struct explanation *self, struct error *err) {
    const struct pick_described_request *described = self->described;
    struct model_location path;
    enum status st = pick_request_find_model(self->arena, self->snapshot->spec, described->method,
                                             described->path, &path, err);
    print_label(self, "model");
    if (st != ST_OK) {
        buf_printf(self->out, "none: invalid path\n");
        return st;
    }
    if (path.kind == MODEL_LOCATION_PATH) {
        self->model = path.model;
        buf_printf(self->out, "%.*s, from the path\n", STR_ARG(path.model));
    } else if (path.kind == MODEL_LOCATION_NONE) {
        buf_printf(self->out, "none: requests with this method and path name no model%s\n",
                   described->model.ptr ? ", and their body is not read" : "");
    } else if (described->model.ptr) {
        self->model = described->model;
        buf_printf(self->out, "%.*s, from the body\n", STR_ARG(self->model));
    } else {
        buf_printf(self->out, "named by the body; none is given\n");
    }
    return ST_OK;
}

static void print_targets(const struct explanation *self, struct pool_targets targets,
                          uint64_t total) {
    print_label(self, "");
    buf_printf(self->out, "sent on as ");
    for (size_t i = 0; i < targets.n; i++) {
        const struct pool_target *target = &targets.items[i];
        buf_printf(self->out, "%s%.*s", i > 0 ? ", " : "", STR_ARG(target->model));
        if (targets.n > 1) {
            buf_printf(self->out, " (%u of %llu)", target->weight, (unsigned long long)total);
        }
    }
    buf_add_char(self->out, '\n');
}

/* "Matching An InferenceModel". */
static enum status print_matched_model(struct explanation *self, struct error *err) {
    const struct pool_snapshot *snapshot = self->snapshot;
    const struct pool_model_entry *name = pool_snapshot_find_name(snapshot, self->model);
    const struct pool_rewrite *rewrite = name ? name->rewrite : snapshot->default_rewrite;
    if (!name && !rewrite && snapshot->spec->strict_models) {
        return error_set(err, ST_UNKNOWN_MODEL, "no model is called \"%.*s\"",
                         STR_ARG(self->model));
    }
    enum pool_criticality criticality =
        name && name->model ? name->model->criticality : POOL_STANDARD;
    struct pool_targets targets = {NULL, 0};
    if (rewrite || (name && name->model)) {
        targets = rewrite ? rewrite->targets : name->model->targets;
    }
    self->sheddable = criticality == POOL_SHEDDABLE;
    self->priority = pool_criticality_priority(criticality);
    print_label(self, "");
    buf_printf(self->out, "%s%s\n", pool_criticality_name(criticality),
               name || rewrite ? "" : ", as every model unknown to the configuration");
    uint64_t total = 0;
    for (size_t i = 0; i < targets.n; i++) {
        total += targets.items[i].weight;
    }
    if (targets.n > 0) {
        print_targets(self, targets, total);
    }
    return targets.n == 0 || total > 0
               ? ST_OK
               : error_set(err, ST_UNKNOWN_MODEL, "no target of \"%.*s\" has a weight above 0",
                           STR_ARG(self->model));
}

static void print_objective(struct explanation *self) {
    struct str name = self->described->objective;
    const struct pool_objective *objective =
        name.ptr ? pool_snapshot_find_objective(self->snapshot, name) : NULL;
    print_label(self, "objective");
    if (objective) {
        self->sheddable = objective->priority < 0;
        self->priority = objective->priority;
        buf_printf(self->out, "%.*s, priority %lld", STR_ARG(name), (long long)objective->priority);
    } else if (name.ptr) {
        buf_printf(self->out, "%.*s, unknown to the configuration", STR_ARG(name));
    } else {
        buf_printf(self->out, "none");
    }
    buf_printf(self->out, "%s\n", self->sheddable ? "; sheddable" : "");
}

/* ---- the endpoints --------------------------------------------------------------------------- */

static enum status print_subset(struct explanation *self, const char *what, struct str text,
                                bool any_port, struct subset *out, struct error *err) {
    subset_init(out, any_port);
    if (!text.ptr) {
        return ST_OK;
    }
    enum status st = subset_add_list(out, self->arena, text, err);
    print_label(self, what);
    buf_printf(self->out, "%zu address%s%s", out->n, out->n == 1 ? "" : "es",
               out->n + out->n_unreadable == 0 ? ": empty" : "");
    if (out->n_unreadable > 0) {
        buf_printf(self->out, ", and %zu invalid (expected IP:PORT)", out->n_unreadable);
    }
    buf_add_char(self->out, '\n');
    return st;
}

static bool is_eligible(const struct explanation *self, const struct verdict *verdict) {
    return self->profile.profile
               ? verdict->explained && !verdict->explained->removed_by
               : verdict->in_subset && verdict->in_selection && verdict->rank != ENDPOINT_OUT;
}

/* Lower is better: by the profile's scores, or else by rank. */
static double order_of(const struct verdict *verdict) {
    return !verdict->eligible   ? INFINITY
           : verdict->explained ? -(double)verdict->explained->score
                                : (double)verdict->rank;
}

/* Eligible ones first; equal ones by address, the order of the members. */
static int compare_verdicts(const void *a, const void *b) {
    const struct verdict *left = a, *right = b;
    double l = order_of(left), r = order_of(right);
    return l < r   ? -1
           : l > r ? 1
                   : endpoint_address_compare(&left->endpoint->address, &right->endpoint->address);
}

/* The one header of a described request: "name: value". */
static struct str find_header(const void *of, struct str name) {
    struct str value = *(const struct str *)of, own = str_cut(&value, ':');
    return str_eq_nocase(str_trim(own), name) && value.ptr ? str_trim(value) : str_make(NULL, 0);
}

static enum status run_profile(const struct explanation *self, enum stage_role stage,
                               struct pool_explanation *out, struct error *err) {
    const struct pick_described_request *described = self->described;
    struct pool_prompt prompt;
    struct pool_request request = {
        .model = self->model,
        .session = described->session,
        .prompt = described->prompt.ptr
                      ? pool_prompt_init(&prompt, self->reader, self->arena, described->prompt)
                      : NULL,
        .headers = {.find = find_header, .of = &described->header},
        .subset = described->subset.ptr ? &self->subset : NULL,
        .selection = described->selection.ptr ? &self->selection : NULL,
        .stage = stage,
    };
    return pool_explain(self->reader, &request, self->arena, out, err);
}

/* The profile's result for a member; both are in the order of members. */
static const struct pool_endpoint_explanation *find_explanation(const struct explanation *self,
                                                                uint32_t member, size_t *next) {
    while (*next < self->profile.n && self->profile.items[*next].member < member) {
        *next += 1;
    }
    bool found = *next < self->profile.n && self->profile.items[*next].member == member;
    return found ? &self->profile.items[*next] : NULL;
}

static bool is_named(const struct verdict *verdict) {
    return verdict->in_subset && verdict->in_selection && verdict->rank != ENDPOINT_OUT;
}

/* Avoided endpoints count only where there is no other. */
static bool has_better(const struct explanation *self) {
    for (size_t i = 0; i < self->n_verdicts; i++) {
        if (is_named(&self->verdicts[i]) && self->verdicts[i].rank < ENDPOINT_LIMITED) {
            return true;
        }
    }
    return false;
}

/* With flow control full endpoints are not picked while others have capacity. */
static void exclude_full(struct explanation *self) {
    for (size_t i = 0; i < self->n_verdicts; i++) {
        struct verdict *verdict = &self->verdicts[i];
        if (verdict->full && verdict->eligible) {
            verdict->eligible = false;
            self->n_eligible--;
        }
    }
}

/* With flow control the request waits for one of those that the profile's filters kept. */
static void check_capacity_of_profile(struct explanation *self) {
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < self->n_verdicts && self->profile.full; i++) {
        const struct verdict *verdict = &self->verdicts[i];
        const char *full = pool_reached_limit(self->reader, (uint32_t)i, self->priority,
                                              verdict->in_flight, now_ns);
        self->full = verdict->eligible && full ? full : self->full;
    }
}

static void check_capacity(struct explanation *self) {
    uint64_t now_ns = clock_now_ns();
    bool better = has_better(self), room = false;
    for (size_t i = 0; i < self->n_verdicts; i++) {
        struct verdict *verdict = &self->verdicts[i];
        verdict->full = pool_reached_limit(self->reader, (uint32_t)i, self->priority,
                                           verdict->in_flight, now_ns);
        if (is_named(verdict) && (!better || verdict->rank < ENDPOINT_LIMITED)) {
            room = room || !verdict->full;
            self->full = verdict->full ? verdict->full : self->full;
        }
    }
    if (room) {
        self->full = NULL;
    }
    if (room && self->snapshot->spec->flow_control.on) {
        exclude_full(self);
    }
}

static enum status evaluate_endpoints(struct explanation *self, struct error *err) {
    const struct pool_snapshot *snapshot = self->snapshot;
    self->verdicts = arena_calloc(self->arena, snapshot->n_members + 1, sizeof(*self->verdicts));
    if (!self->verdicts) {
        return error_no_memory(err, "the explanation");
    }
    size_t next = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        struct verdict *verdict = &self->verdicts[self->n_verdicts++];
        *verdict = (struct verdict){
            .endpoint = member->endpoint,
            .in_subset =
                !self->described->subset.ptr || subset_has(&self->subset, &member->address),
            .in_selection =
                !self->described->selection.ptr || subset_has(&self->selection, &member->address),
            .rank = endpoint_rank(member->endpoint),
            .in_flight = endpoint_in_flight(member->endpoint),
            .explained = find_explanation(self, i, &next),
        };
        verdict->eligible = is_eligible(self, verdict);
        self->n_eligible += verdict->eligible;
    }
    if (self->profile.profile) {
        check_capacity_of_profile(self);
    } else {
        check_capacity(self);
    }
    qsort(self->verdicts, self->n_verdicts, sizeof(*self->verdicts), compare_verdicts);
    return ST_OK;
}

/* ---- the profile's table --------------------------------------------------------------------- */

/* "queue-scorer x 2"; long names are cut. */
static int scorer_title(const struct profile_step *step, char head[HEAD_BYTES]) {
    int n = snprintf(head, HEAD_BYTES, "%.64s x %g", step->name.ptr, (double)step->weight);
    return n < HEAD_BYTES ? n : HEAD_BYTES - 1;
}

static void print_profile_header(const struct profile *profile, struct buf *out) {
    buf_printf(out, "  %-*s  waiting  running  KV cache", ENDPOINT_COLUMNS, "profile");
    for (size_t i = 0; i < profile->n_scorers; i++) {
        char head[HEAD_BYTES];
        scorer_title(&profile->scorers[i], head);
        buf_printf(out, "  %s", head);
    }
    buf_printf(out, "  %7s\n", "sum");
}

/* In brackets where the endpoint does not report it: our own count. */
static void print_count(bool known, float n, struct buf *out) {
    buf_printf(out, known ? "  %7.0f" : "  (%5.0f)", (double)n);
}

static void print_load(const struct pool_endpoint_explanation *seen, struct buf *out) {
    print_count(seen->known & LOAD_WAITING, seen->n_waiting, out);
    print_count(seen->known & LOAD_RUNNING, seen->n_running, out);
    if (seen->known & LOAD_KV_CACHE) {
        bool least = seen->known & LOAD_KV_CACHE_LEAST;
        buf_printf(out, "  %c%5.1f %%", least ? '>' : ' ', (double)seen->kv_cache_used * 100);
    } else {
        buf_printf(out, "  %8s", "?");
    }
}

static void print_profile_row(const struct pool_snapshot *snapshot, const struct profile *profile,
                              const struct pool_endpoint_explanation *item, struct buf *out) {
    buf_printf(out, "  %-*s", ENDPOINT_COLUMNS, snapshot->members[item->member].endpoint->text);
    print_load(item, out);
    if (item->removed_by) {
        buf_printf(out, "  removed by %.*s\n", STR_ARG(item->removed_by->name));
        return;
    }
    for (size_t i = 0; i < profile->n_scorers; i++) {
        char head[HEAD_BYTES];
        buf_printf(out, "  %*.3f", scorer_title(&profile->scorers[i], head),
                   (double)item->scores[i]);
    }
    buf_printf(out, "  %7.3f\n", (double)item->score);
}

static void print_profile(const struct pool_snapshot *snapshot,
                          const struct pool_explanation *explanation, struct buf *out) {
    print_profile_header(explanation->profile, out);
    for (size_t i = 0; i < explanation->n; i++) {
        print_profile_row(snapshot, explanation->profile, &explanation->items[i], out);
    }
    buf_printf(out, "  picker: %.*s\n\n", STR_ARG(explanation->profile->picker.name));
}

/* ---- the table of endpoints ------------------------------------------------------------------ */

static const char *yes_no(bool yes) {
    return yes ? "yes" : "no";
}

static void print_verdict(const struct explanation *self, const struct verdict *verdict,
                          size_t place) {
    const char *ready = verdict->rank == ENDPOINT_OUT              ? "no"
                        : endpoint_is_unchecked(verdict->endpoint) ? "not checked yet"
                        : endpoint_is_ejected(verdict->endpoint)   ? "ejected"
                        : endpoint_is_shedding(verdict->endpoint)  ? "sheds load"
                        : verdict->rank >= ENDPOINT_REFUSED        ? "conn refused"
                        : verdict->rank >= ENDPOINT_LIMITED        ? "window used up"
                                                                   : "yes";
    buf_printf(self->out, "  %-*s  yes   ", ENDPOINT_COLUMNS, verdict->endpoint->text);
    if (self->described->subset.ptr) {
        buf_printf(self->out, "%-8s", yes_no(verdict->in_subset));
    }
    if (self->described->selection.ptr) {
        buf_printf(self->out, "%-11s", yes_no(verdict->in_selection));
    }
    buf_printf(self->out, "%-15s %9u  ", ready, verdict->in_flight);
    if (place > 0) {
        buf_printf(self->out, "%4zu\n", place);
    } else {
        buf_printf(self->out, "   -\n");
    }
}

/* Endpoints that the selector leaves out. */
static void print_unselected(const struct explanation *self) {
    const struct pool_spec *spec = self->snapshot->spec;
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        const struct endpoint_address *address = &spec->endpoints[i].address;
        char text[ENDPOINT_TEXT_BYTES];
        if (!pool_snapshot_find(self->snapshot, address)) {
            buf_printf(self->out, "  %-*s  no: its labels do not match the selector\n",
                       ENDPOINT_COLUMNS, endpoint_address_print(address, text).ptr);
        }
    }
}

static void print_verdicts(const struct explanation *self) {
    size_t place = 0;
    print_label(self, "endpoints");
    buf_printf(self->out, "%zu in the pool, of which %zu are eligible\n\n", self->n_verdicts,
               self->n_eligible);
    buf_printf(self->out, "  %-*s  pool  %s%s%-15s in flight  rank\n", ENDPOINT_COLUMNS, "endpoint",
               self->described->subset.ptr ? "subset  " : "",
               self->described->selection.ptr ? "selection  " : "", "ready");
    for (size_t i = 0; i < self->n_verdicts; i++) {
        if (i == 0 || order_of(&self->verdicts[i]) != order_of(&self->verdicts[i - 1])) {
            place = i + 1;
        }
        print_verdict(self, &self->verdicts[i], i < self->n_eligible ? place : 0);
    }
    print_unselected(self);
    buf_add_char(self->out, '\n');
    if (self->profile.profile) {
        print_profile(self->snapshot, &self->profile, self->out);
    }
}

/* ---- the outcome ----------------------------------------------------------------------------- */

static bool picks_other_than_the_best(const struct explanation *self) {
    const struct profile *profile = self->profile.profile;
    return profile && profile->picker.plugin != &plugin_max_score_picker;
}

static enum status print_outcome(struct explanation *self, struct error *err) {
    const struct pool_spec *spec = self->snapshot->spec;
    size_t n_best = 0;
    if (self->n_eligible == 0) {
        (void)pool_no_endpoint_error(
            &(struct pool_no_endpoint){.n_endpoints = self->n_verdicts, .is_explained = true}, err);
        return print_refusal(self, err);
    }
    const struct verdict *best = self->verdicts;
    if (self->full && self->sheddable &&
        !(spec->flow_control.on && spec->flow_control.sheddable_waits)) {
        error_set(err, ST_SATURATED, "the request is sheddable, and every endpoint is full (%s)",
                  self->full);
        return print_refusal(self, err);
    }
    if (self->full && spec->flow_control.on) {
        print_label(self, "outcome");
        buf_printf(self->out, "queued: every endpoint is full (%s)\n", self->full);
        return ST_OK;
    }
    while (n_best < self->n_eligible && order_of(&best[n_best]) == order_of(best)) {
        n_best++;
    }
    print_label(self, "outcome");
    if (picks_other_than_the_best(self)) {
        buf_printf(self->out, "one of the %zu, chosen by %s\n", self->n_eligible,
                   self->profile.profile->picker.plugin->type);
        return ST_OK;
    }
    buf_printf(self->out, "%s", best->endpoint->text);
    if (n_best > 1) {
        buf_printf(self->out, ", or another of the %zu with rank 1, at random", n_best);
    }
    buf_add_char(self->out, '\n');
    return ST_OK;
}

/* ---- the other stages ------------------------------------------------------------------------ */

static void print_best(const struct explanation *self, const struct pool_explanation *stage) {
    const struct pool_endpoint_explanation *best = NULL;
    size_t n = 0;
    for (size_t i = 0; i < stage->n; i++) {
        const struct pool_endpoint_explanation *item = &stage->items[i];
        if (!item->removed_by && (!best || item->score >= best->score)) {
            n = best && item->score <= best->score ? n + 1 : 1;
            best = n == 1 ? item : best;
        }
    }
    if (!best) {
        buf_printf(self->out, "no endpoint: the request %s\n",
                   self->snapshot->spec->handler->refuses ? "is refused with 503"
                                                          : "does without it");
        return;
    }
    buf_printf(self->out, "%s", self->snapshot->members[best->member].endpoint->text);
    if (n > 1) {
        buf_printf(self->out, ", or another of the %zu with rank 1, at random", n);
    }
    buf_printf(self->out, "\n");
}

/* Without the endpoint of an earlier stage, and without the decider's answer. */
static enum status print_stage(const struct explanation *self, enum stage_role role,
                               struct error *err) {
    const struct profile_handler *handler = self->snapshot->spec->handler;
    struct pool_explanation stage;
    enum status st = run_profile(self, role, &stage, err);
    if (st != ST_OK) {
        return st;
    }
    buf_add_char(self->out, '\n');
    print_label(self, stage_role_name(role));
    buf_printf(self->out, "%s\n\n", decider_kind_name(handler->stages[role].decider.kind));
    print_profile(self->snapshot, &stage, self->out);
    print_label(self, "outcome");
    print_best(self, &stage);
    return ST_OK;
}

static enum status print_stages(const struct explanation *self, struct error *err) {
    const struct profile_handler *handler = self->snapshot->spec->handler;
    enum status st = ST_OK;
    for (enum stage_role role = STAGE_DECODE + 1; handler && st == ST_OK && role < N_STAGE_ROLES;
         role++) {
        st = handler->stages[role].profile ? print_stage(self, role, err) : ST_OK;
    }
    return st;
}

/* Everything except the outcome. */
static enum status explain_request(struct explanation *self, struct error *err) {
    const struct pick_described_request *described = self->described;
    print_label(self, "request");
    buf_printf(self->out, "%.*s %.*s\n", STR_ARG(described->method), STR_ARG(described->path));
    enum status st = print_model(self, err);
    if (st == ST_OK && self->model.ptr) {
        st = print_matched_model(self, err);
    }
    if (st == ST_OK) {
        print_objective(self);
        st = print_subset(self, "subset", described->subset, false, &self->subset, err);
    }
    if (st == ST_OK) {
        st = print_subset(self, "selection", described->selection, true, &self->selection, err);
    }
    if (st == ST_OK) {
        st = run_profile(self, STAGE_DECODE, &self->profile, err);
    }
    if (st == ST_OK) {
        st = evaluate_endpoints(self, err);
    }
    return st;
}

enum status pick_explain(struct pool_reader *reader, const struct pick_described_request *described,
                         struct buf *out, struct error *err) {
    struct explanation self = {.described = described,
                               .reader = reader,
                               .snapshot = pool_reader_refresh(reader),
                               .arena = out->arena,
                               .out = out};
    enum status st = explain_request(&self, err);
    if (st == ST_OK) {
        print_verdicts(&self);
        st = print_outcome(&self, err);
        if (st == ST_OK) {
            st = print_stages(&self, err);
        }
    } else if (st != ST_NO_MEMORY) {
        print_refusal(&self, err);
    }
    return out->failed ? error_no_memory(err, "the explanation") : st;
}

static void print_pool_label(struct buf *out) {
    buf_printf(out, "%-*s", LABEL_COLUMNS, "pool");
}

/* ---- the pool, by its name ------------------------------------------------------------------- */

static enum status print_unknown_pool(const struct pool_list *list, struct str name,
                                      struct buf *out, struct error *err) {
    print_pool_label(out);
    if (!list->is_list) {
        buf_printf(out, "there is one, without a name\n");
        return error_set(err, ST_NO_POOL, "there is one pool, without a name");
    }
    buf_printf(out, "there is none called \"%.*s\"", STR_ARG(name));
    for (size_t i = 0; i < list->n && i < MOST_NAMED; i++) {
        buf_printf(out, "%s%.*s", i > 0 ? ", " : "; there are ", STR_ARG(list->entries[i].name));
    }
    buf_printf(out, "%s\n", list->n > MOST_NAMED ? " and others" : "");
    return error_set(err, ST_NO_POOL, "there is no pool called \"%.*s\"", STR_ARG(name));
}

/* ---- the pool, by what it matches ------------------------------------------------------------ */

/* "name: value" */
static void read_header(const struct pool_index *index, struct str text,
                        struct pool_match_input *out) {
    struct str value = text, name = str_trim(str_cut(&value, ':'));
    for (size_t i = 0; i < index->headers.n; i++) {
        if (value.ptr && str_eq_nocase(index->headers.items[i].name, name)) {
            out->headers[i] = str_trim(value);
        }
    }
}

/* "namespace/key=value" */
static void read_metadata(const struct pool_index *index, struct str text,
                          struct pool_match_input *out) {
    struct str value = text, key = str_cut(&value, '='), space = str_cut(&key, '/');
    for (size_t i = 0; i < index->metadata.n; i++) {
        const struct pool_match_name *wanted = &index->metadata.items[i];
        if (value.ptr && str_eq(wanted->space, space) && str_eq(wanted->name, key)) {
            out->metadata[i] = value;
        }
    }
}

static size_t find_pool(const struct pool_index *index,
                        const struct pick_described_request *described) {
    struct pool_match_input input = {.authority = described->authority, .path = described->path};
    read_header(index, described->header, &input);
    read_metadata(index, described->metadata, &input);
    return index->is_single_catch_all ? index->catch_all : pool_index_find(index, &input);
}

static enum status print_no_pool(const struct pool_list *list, struct buf *out, struct error *err) {
    print_pool_label(out);
    buf_printf(out, "none of the %zu matches this request\n", list->n);
    error_set(err, ST_NO_POOL, "none of the %zu pools matches this request (`match`)", list->n);
    buf_printf(out, "%-*srefused with %d (gRPC: %d) %s: %s\n", LABEL_COLUMNS, "outcome",
               status_http(err->status), status_grpc(err->status), status_name(err->status),
               err->text);
    return err->status;
}

static void print_match(const struct pool_entry *entry, bool by_name, struct buf *out) {
    print_pool_label(out);
    buf_printf(out, "%.*s, %s", STR_ARG(entry->name), by_name ? "by name; it takes " : "for ");
    pool_match_print(&entry->match, out);
    buf_add_char(out, '\n');
}

/* Returns: NULL: see `*st`. */
static const struct pool_entry *choose_pool(const struct pool_list *list,
                                            const struct pick_described_request *described,
                                            struct buf *out, enum status *st, struct error *err) {
    bool by_name = described->pool.len > 0;
    const struct pool_entry *entry = by_name ? pool_list_find(list, described->pool) : NULL;
    if (by_name && !entry) {
        *st = print_unknown_pool(list, described->pool, out, err);
        return NULL;
    }
    size_t found = by_name ? 0 : find_pool(&list->index, described);
    if (found == SIZE_MAX) {
        *st = print_no_pool(list, out, err);
        return NULL;
    }
    entry = by_name ? entry : &list->entries[found];
    if (list->is_list) {
        print_match(entry, by_name, out);
    }
    return entry;
}

enum status pick_explain_pools(struct pool_set_reader *pools,
                               const struct pick_described_request *described, struct buf *out,
                               struct error *err) {
    enum status st = ST_OK;
    const struct pool_list *list = pool_set_reader_refresh(pools);
    const struct pool_entry *entry = choose_pool(list, described, out, &st, err);
    if (!entry) {
        return out->failed ? error_no_memory(err, "the explanation") : st;
    }
    struct pool_reader *reader = pool_set_reader_get(pools, entry);
    return reader ? pick_explain(reader, described, out, err)
                  : error_no_memory(err, "the explanation");
}
