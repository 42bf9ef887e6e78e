/* The rules of a pick (pick/pool/pick.c), one by one and in words. What is said of endpoints is
 * read without the pool's lock: between two of them the world goes on. */
#include "pick/session/explain.h"

#include <math.h>
#include <stdlib.h>

#include "codec/prompt/pick_path.h"
#include "core/event/clock.h"
#include "pick/pool/flow/wait.h"
#include "pick/session/explain_profile.h"

enum { LABEL_COLUMNS = 12, ENDPOINT_COLUMNS = 28 };

/* What is known of one endpoint of the pool. */
struct verdict {
    const struct endpoint *endpoint;
    bool in_subset, in_selection, eligible;
    uint32_t rank, in_flight;            /* as they were once */
    const char *full;                    /* a limit that it has reached; NULL: it has room */
    const struct pool_judgement *judged; /* by the profile; NULL: it was no candidate of it */
};

struct explanation {
    const struct pick_question *question;
    struct pool_reader *reader;
    const struct pool_snapshot *snapshot;
    struct arena *arena;
    struct buf *out;
    struct str model; /* that the request names; ptr NULL: none */
    struct subset subset, selection;
    bool sheddable;
    const char *full; /* every endpoint that the request may go to has reached it; NULL: not all */
    struct pool_explanation profile;
    struct verdict *verdicts; /* the best first, those that can't be picked last */
    size_t n_verdicts, n_eligible;
};

static void label(const struct explanation *self, const char *text) {
    buf_printf(self->out, "%-*s", LABEL_COLUMNS, text);
}

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for the explanation");
}

static enum status refuse(struct explanation *self, const struct error *err) {
    label(self, "outcome");
    buf_printf(self->out, "refused with %d (gRPC: %d) %s: %s\n", status_http(err->status),
               status_grpc(err->status), status_name(err->status), err->text);
    return err->status;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* "Where does the request name its model?" */
static enum status say_where(struct explanation *self, struct error *err) {
    const struct pick_question *question = self->question;
    struct pick_path path;
    enum status st = pick_path_parse(self->arena, question->method, question->path, &path, err);
    label(self, "model");
    if (st != ST_OK) {
        buf_printf(self->out, "none: the path can't be read\n");
        return st;
    }
    if (path.kind == PICK_PATH_V2) {
        self->model = path.model;
        buf_printf(self->out, "%.*s, as the path says\n", STR_ARG(path.model));
    } else if (path.kind == PICK_PATH_OTHER) {
        buf_printf(self->out, "none: requests with this method and path name no model%s\n",
                   question->model.ptr ? ", and their body is not looked into" : "");
    } else if (question->model.ptr) {
        self->model = question->model;
        buf_printf(self->out, "%.*s, as the body says\n", STR_ARG(self->model));
    } else {
        buf_printf(self->out, "would be named by the body; here none is\n");
    }
    return ST_OK;
}

static void say_targets(const struct explanation *self, struct pool_targets targets,
                        uint64_t total) {
    label(self, "");
    buf_printf(self->out, "goes on as ");
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
static enum status match_model(struct explanation *self, struct error *err) {
    const struct pool_snapshot *snapshot = self->snapshot;
    const struct pool_name *name = pool_snapshot_name(snapshot, self->model);
    const struct pool_rewrite *rewrite = name ? name->rewrite : snapshot->rest;
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
    label(self, "");
    buf_printf(self->out, "%s%s\n", pool_criticality_name(criticality),
               name || rewrite ? "" : ", as every model that the configuration doesn't know");
    uint64_t total = 0;
    for (size_t i = 0; i < targets.n; i++) {
        total += targets.items[i].weight;
    }
    if (targets.n > 0) {
        say_targets(self, targets, total);
    }
    return targets.n == 0 || total > 0
               ? ST_OK
               : error_set(err, ST_UNKNOWN_MODEL, "no target of \"%.*s\" has a weight above 0",
                           STR_ARG(self->model));
}

static void say_objective(struct explanation *self) {
    struct str name = self->question->objective;
    const struct pool_objective *objective =
        name.ptr ? pool_snapshot_objective(self->snapshot, name) : NULL;
    label(self, "objective");
    if (objective) {
        self->sheddable = objective->priority < 0;
        buf_printf(self->out, "%.*s, priority %lld", STR_ARG(name), (long long)objective->priority);
    } else if (name.ptr) {
        buf_printf(self->out, "%.*s, which the configuration doesn't know", STR_ARG(name));
    } else {
        buf_printf(self->out, "none");
    }
    buf_printf(self->out, "%s\n", self->sheddable ? "; sheddable" : "");
}

/* ---- the endpoints --------------------------------------------------------------------------- */

static enum status read_list(struct explanation *self, const char *what, struct str text,
                             bool any_port, struct subset *out, struct error *err) {
    subset_init(out, any_port);
    if (!text.ptr) {
        return ST_OK;
    }
    enum status st = subset_add_list(out, self->arena, text, err);
    label(self, what);
    buf_printf(self->out, "%zu address%s%s", out->n, out->n == 1 ? "" : "es",
               out->n + out->n_unreadable == 0 ? ": it names nothing" : "");
    if (out->n_unreadable > 0) {
        buf_printf(self->out, ", and %zu that can't be read (expected IP:PORT)", out->n_unreadable);
    }
    buf_add_char(self->out, '\n');
    return st;
}

static bool is_eligible(const struct explanation *self, const struct verdict *verdict) {
    return self->profile.profile
               ? verdict->judged && !verdict->judged->taker
               : verdict->in_subset && verdict->in_selection && verdict->rank != ENDPOINT_OUT;
}

/* The lower the better: by the profile's sums, or else by rank. */
static double order_of(const struct verdict *verdict) {
    return !verdict->eligible ? INFINITY
           : verdict->judged  ? -(double)verdict->judged->score
                              : (double)verdict->rank;
}

/* What can be picked first; then by address, which is the order they came in. */
static int compare(const void *a, const void *b) {
    const struct verdict *left = a, *right = b;
    double l = order_of(left), r = order_of(right);
    return l < r   ? -1
           : l > r ? 1
                   : endpoint_address_compare(&left->endpoint->address, &right->endpoint->address);
}

/* There is one: "name: value". */
static struct str find_header(const void *of, struct str name) {
    struct str value = *(const struct str *)of, own = str_cut(&value, ':');
    return str_eq_nocase(str_trim(own), name) && value.ptr ? str_trim(value) : str_make(NULL, 0);
}

static enum status ask_profile(struct explanation *self, struct error *err) {
    const struct pick_question *question = self->question;
    struct pool_prompt prompt = {.text = question->prompt, .arena = self->arena};
    struct pool_request request = {
        .model = self->model,
        .session = question->session,
        .prompt = question->prompt.ptr ? &prompt : NULL,
        .headers = {.find = find_header, .of = &question->header},
        .subset = question->subset.ptr ? &self->subset : NULL,
        .selection = question->selection.ptr ? &self->selection : NULL,
    };
    return pool_explain(self->reader, &request, self->arena, &self->profile, err);
}

/* What the profile says of the member; it has those of the pool in their order. */
static const struct pool_judgement *find_judgement(const struct explanation *self, uint32_t member,
                                                   size_t *next) {
    while (*next < self->profile.n && self->profile.items[*next].member < member) {
        *next += 1;
    }
    bool found = *next < self->profile.n && self->profile.items[*next].member == member;
    return found ? &self->profile.items[*next] : NULL;
}

static bool is_named(const struct verdict *verdict) {
    return verdict->in_subset && verdict->in_selection && verdict->rank != ENDPOINT_OUT;
}

/* An endpoint that is avoided counts where there is no other. */
static bool has_better(const struct explanation *self) {
    for (size_t i = 0; i < self->n_verdicts; i++) {
        if (is_named(&self->verdicts[i]) && self->verdicts[i].rank < ENDPOINT_REFUSED) {
            return true;
        }
    }
    return false;
}

/* Where requests can wait those that are full are not picked while there are others. */
static void leave_out_full(struct explanation *self) {
    for (size_t i = 0; i < self->n_verdicts; i++) {
        struct verdict *verdict = &self->verdicts[i];
        if (verdict->full && verdict->eligible) {
            verdict->eligible = false;
            self->n_eligible--;
        }
    }
}

/* Of those that the profile leaves one is waited for. */
static void judge_room_of_profile(struct explanation *self) {
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < self->n_verdicts && self->profile.full; i++) {
        const struct verdict *verdict = &self->verdicts[i];
        const char *full = pool_full_of(self->snapshot, (uint32_t)i, verdict->in_flight, now_ns);
        self->full = verdict->eligible && full ? full : self->full;
    }
}

static void judge_room(struct explanation *self) {
    uint64_t now_ns = clock_now_ns();
    bool better = has_better(self), room = false;
    for (size_t i = 0; i < self->n_verdicts; i++) {
        struct verdict *verdict = &self->verdicts[i];
        verdict->full = pool_full_of(self->snapshot, (uint32_t)i, verdict->in_flight, now_ns);
        if (is_named(verdict) && (!better || verdict->rank < ENDPOINT_REFUSED)) {
            room = room || !verdict->full;
            self->full = verdict->full ? verdict->full : self->full;
        }
    }
    if (room) {
        self->full = NULL;
    }
    if (room && self->snapshot->spec->flow_control.on) {
        leave_out_full(self);
    }
}

static enum status judge(struct explanation *self, struct error *err) {
    const struct pool_snapshot *snapshot = self->snapshot;
    self->verdicts = arena_calloc(self->arena, snapshot->n_members + 1, sizeof(*self->verdicts));
    if (!self->verdicts) {
        return no_memory(err);
    }
    size_t next = 0;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct pool_member *member = &snapshot->members[i];
        struct verdict *verdict = &self->verdicts[self->n_verdicts++];
        *verdict = (struct verdict){
            .endpoint = member->endpoint,
            .in_subset = !self->question->subset.ptr || subset_has(&self->subset, &member->address),
            .in_selection =
                !self->question->selection.ptr || subset_has(&self->selection, &member->address),
            .rank = endpoint_rank(member->endpoint),
            .in_flight = endpoint_in_flight(member->endpoint),
            .judged = find_judgement(self, i, &next),
        };
        verdict->eligible = is_eligible(self, verdict);
        self->n_eligible += verdict->eligible;
    }
    if (self->profile.profile) {
        judge_room_of_profile(self);
    } else {
        judge_room(self);
    }
    qsort(self->verdicts, self->n_verdicts, sizeof(*self->verdicts), compare);
    return ST_OK;
}

static const char *yes_no(bool yes) {
    return yes ? "yes" : "no";
}

static void say_verdict(const struct explanation *self, const struct verdict *verdict,
                        size_t place) {
    const char *ready = verdict->rank == ENDPOINT_OUT              ? "no"
                        : endpoint_is_unchecked(verdict->endpoint) ? "not checked yet"
                        : verdict->rank >= ENDPOINT_REFUSED        ? "refused lately"
                                                                   : "yes";
    buf_printf(self->out, "  %-*s  yes   ", ENDPOINT_COLUMNS, verdict->endpoint->text);
    if (self->question->subset.ptr) {
        buf_printf(self->out, "%-8s", yes_no(verdict->in_subset));
    }
    if (self->question->selection.ptr) {
        buf_printf(self->out, "%-11s", yes_no(verdict->in_selection));
    }
    buf_printf(self->out, "%-15s %9u  ", ready, verdict->in_flight);
    if (place > 0) {
        buf_printf(self->out, "%4zu\n", place);
    } else {
        buf_printf(self->out, "   -\n");
    }
}

/* Those that the selector leaves out. */
static void say_others(const struct explanation *self) {
    const struct pool_spec *spec = self->snapshot->spec;
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        const struct endpoint_address *address = &spec->endpoints[i].address;
        char text[ENDPOINT_TEXT_BYTES];
        if (!pool_snapshot_find(self->snapshot, address)) {
            buf_printf(self->out, "  %-*s  no: its labels are not those of the selector\n",
                       ENDPOINT_COLUMNS, endpoint_address_print(address, text).ptr);
        }
    }
}

static void say_verdicts(const struct explanation *self) {
    size_t place = 0;
    label(self, "endpoints");
    buf_printf(self->out, "%zu in the pool, of which %zu can take this request\n\n",
               self->n_verdicts, self->n_eligible);
    buf_printf(self->out, "  %-*s  pool  %s%s%-15s in flight  rank\n", ENDPOINT_COLUMNS, "endpoint",
               self->question->subset.ptr ? "subset  " : "",
               self->question->selection.ptr ? "selection  " : "", "ready");
    for (size_t i = 0; i < self->n_verdicts; i++) {
        if (i == 0 || order_of(&self->verdicts[i]) != order_of(&self->verdicts[i - 1])) {
            place = i + 1;
        }
        say_verdict(self, &self->verdicts[i], i < self->n_eligible ? place : 0);
    }
    say_others(self);
    buf_add_char(self->out, '\n');
    if (self->profile.profile) {
        explain_profile(self->snapshot, &self->profile, self->out);
    }
}

/* ---- the outcome ----------------------------------------------------------------------------- */

static bool picks_other_than_the_best(const struct explanation *self) {
    const struct profile *profile = self->profile.profile;
    return profile && profile->picker.plugin != &plugin_max_score_picker;
}

static enum status outcome(struct explanation *self, struct error *err) {
    const struct pool_spec *spec = self->snapshot->spec;
    size_t n_best = 0;
    if (self->n_eligible == 0) {
        error_set(err, ST_NO_ENDPOINT,
                  "of the pool's %zu endpoints none is both ready and one that the request may be "
                  "sent to",
                  self->n_verdicts);
        return refuse(self, err);
    }
    const struct verdict *best = self->verdicts;
    if (self->full && self->sheddable) {
        error_set(err, ST_SATURATED, "the request is sheddable, and every endpoint is full (%s)",
                  self->full);
        return refuse(self, err);
    }
    if (self->full && spec->flow_control.on) {
        label(self, "outcome");
        buf_printf(self->out, "it would wait: every endpoint is full (%s)\n", self->full);
        return ST_OK;
    }
    while (n_best < self->n_eligible && order_of(&best[n_best]) == order_of(best)) {
        n_best++;
    }
    label(self, "outcome");
    if (picks_other_than_the_best(self)) {
        buf_printf(self->out, "one of the %zu, as the %s chooses\n", self->n_eligible,
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

/* All but the outcome. */
static enum status examine(struct explanation *self, struct error *err) {
    const struct pick_question *question = self->question;
    label(self, "request");
    buf_printf(self->out, "%.*s %.*s\n", STR_ARG(question->method), STR_ARG(question->path));
    enum status st = say_where(self, err);
    if (st == ST_OK && self->model.ptr) {
        st = match_model(self, err);
    }
    if (st == ST_OK) {
        say_objective(self);
        st = read_list(self, "subset", question->subset, false, &self->subset, err);
    }
    if (st == ST_OK) {
        st = read_list(self, "selection", question->selection, true, &self->selection, err);
    }
    if (st == ST_OK) {
        st = ask_profile(self, err);
    }
    if (st == ST_OK) {
        st = judge(self, err);
    }
    return st;
}

enum status pick_explain(struct pool_reader *reader, const struct pick_question *question,
                         struct buf *out, struct error *err) {
    struct explanation self = {.question = question,
                               .reader = reader,
                               .snapshot = pool_look(reader),
                               .arena = out->arena,
                               .out = out};
    enum status st = examine(&self, err);
    if (st == ST_OK) {
        say_verdicts(&self);
        st = outcome(&self, err);
    } else if (st != ST_NO_MEMORY) {
        refuse(&self, err);
    }
    return out->failed ? no_memory(err) : st;
}
