/* Reads the graph of an ensemble, and checks it: by itself, and against its members. */
#include "serve/config/ensemble.h"

#include <stdarg.h>
#include <string.h>

#include "core/base/quote.h"
#include "core/base/suggest.h"
#include "serve/config/ensemble_read.h"

/* ---- reading --------------------------------------------------------------------------------- */

struct entry {
    struct str key, value;
};

static const struct doc_member MAP[] = {
    {"key", MEMBER_TEXT(struct entry, key)}, {"value", MEMBER_TEXT(struct entry, value)}, {0}};

/* The tensors, which the maps name in any order. */
struct graph {
    struct ensemble_tensor *tensors;
    size_t n, cap;
};

struct step_reading {
    struct ensemble_step *step;
    struct graph *graph;
    struct str model;
    int64_t version;
};

/* Returns: SIZE_MAX after an error. */
static size_t get_tensor(struct doc_reader *reader, const struct doc_node *node,
                         struct graph *graph, struct str name) {
    for (size_t i = 0; i < graph->n; i++) {
        if (str_eq(graph->tensors[i].name, name)) {
            return i;
        }
    }
    if (graph->n == ENSEMBLE_MAX_TENSORS) {
        doc_reader_fail(reader, node, "expected at most %d tensors in an ensemble",
                        ENSEMBLE_MAX_TENSORS);
        return SIZE_MAX;
    }
    if (graph->n == graph->cap) {
        size_t cap = graph->cap * 2 + 16;
        struct ensemble_tensor *tensors = arena_realloc(
            reader->arena, graph->tensors, graph->cap * sizeof(*tensors), cap * sizeof(*tensors));
        if (!tensors) {
            doc_reader_no_memory(reader);
            return SIZE_MAX;
        }
        graph->tensors = tensors;
        graph->cap = cap;
    }
    graph->tensors[graph->n] = (struct ensemble_tensor){
        .name = name, .input = SIZE_MAX, .output = SIZE_MAX, .made_by = SIZE_MAX};
    return graph->n++;
}

/* An entry without a value names no tensor of the ensemble. */
static void read_entry(struct doc_reader *reader, const struct doc_node *node, struct graph *graph,
                       struct ensemble_map *out) {
    struct entry entry = {STR(""), STR("")};
    doc_reader_object(reader, node, MAP, &entry);
    if (doc_reader_ok(reader) && (entry.key.len == 0 || entry.value.len == 0)) {
        doc_reader_fail(reader, node,
                        "expected key, a tensor of the member, and value, a tensor of the "
                        "ensemble");
    }
    if (doc_reader_ok(reader)) {
        out->name = entry.key;
        out->tensor = get_tensor(reader, node, graph, entry.value);
    }
}

static struct ensemble_map *read_map(struct doc_reader *reader, const struct doc_node *node,
                                     struct graph *graph, size_t *n) {
    struct ensemble_map *map = doc_reader_list(reader, node, sizeof(*map), n);
    struct doc_node item = {0};
    if (doc_reader_ok(reader) && (*n == 0 || *n > ENSEMBLE_MAX_TENSORS)) {
        doc_reader_fail(reader, node, "expected 1 to %d entries, got %zu", ENSEMBLE_MAX_TENSORS,
                        *n);
    }
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        read_entry(reader, &item, graph, &map[i]);
        for (size_t j = 0; doc_reader_ok(reader) && j < i; j++) {
            if (str_eq(map[j].name, map[i].name)) {
                doc_reader_fail(reader, &item, "\"%.*s\" is mapped already", STR_ARG(map[i].name));
            }
        }
    }
    return map;
}

static void read_input_map(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct step_reading *reading = object;
    reading->step->inputs = read_map(reader, node, reading->graph, &reading->step->n_inputs);
}

static void read_output_map(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct step_reading *reading = object;
    reading->step->outputs = read_map(reader, node, reading->graph, &reading->step->n_outputs);
}

static void read_version(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct step_reading *reading = object;
    if (reading->version > 0 && doc_reader_ok(reader)) {
        reading->step->version = arena_printf(reader->arena, "%lld", (long long)reading->version);
        if (!reading->step->version.ptr) {
            doc_reader_no_memory(reader);
        }
    }
    (void)node;
}

static void check_model_name(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct step_reading *reading = object;
    if (reading->model.len == 0) {
        doc_reader_fail(reader, node->parent, "has no model_name");
    }
    reading->step->model = reading->model;
}

static const char MAP_FORM[] = "entries of key and value";

static const struct doc_member STEP[] = {
    {"model_name", MEMBER_TEXT(struct step_reading, model), .check = check_model_name,
     .form = "text, required"},
    {"model_version", MEMBER_WHOLE(struct step_reading, version, -1, INT64_MAX), .preset = -1,
     .check = read_version},
    {"input_map", MEMBER_CUSTOM(read_input_map), .members = MAP, .form = MAP_FORM},
    {"output_map", MEMBER_CUSTOM(read_output_map), .members = MAP, .form = MAP_FORM},
    {"model_namespace", MEMBER_IGNORED("all models have one namespace")},
    {0}};

static struct ensemble_step *read_steps(struct doc_reader *reader, const struct doc_node *node,
                                        struct graph *graph, size_t *n) {
    if (doc_count(node) > ENSEMBLE_MAX_STEPS) {
        doc_reader_fail(reader, node, "expected at most %d steps, got %zu", ENSEMBLE_MAX_STEPS,
                        doc_count(node));
    }
    struct ensemble_step *steps = doc_reader_list(reader, node, sizeof(*steps), n);
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        struct step_reading reading = {&steps[i], graph, STR(""), -1};
        steps[i].place = doc_reader_place(reader, &item);
        doc_reader_object(reader, &item, STEP, &reading);
    }
    return steps;
}

/* ---- the graph by itself --------------------------------------------------------------------- */

/* The graph while it is checked, and the node of ensemble_scheduling. */
struct checking {
    struct doc_reader *reader;
    const struct doc_node *node;
    const struct model_config *config;
    const struct ensemble_step *steps;
    size_t n_steps;
    struct graph graph;
};

/* The error is one of that step. */
static void fail_step(const struct checking *checking, size_t step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail_step(const struct checking *checking, size_t step, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    struct doc_node list = doc_get(checking->node, "step");
    struct doc_node node = doc_at(&list, step);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    doc_reader_fail(checking->reader, &node, "%s", text);
}

static void note_ends(struct checking *checking) {
    const struct model_config *config = checking->config;
    struct graph *graph = &checking->graph;
    for (size_t i = 0; i < config->n_inputs && doc_reader_ok(checking->reader); i++) {
        size_t at = get_tensor(checking->reader, checking->node, graph, config->inputs[i].name);
        if (at != SIZE_MAX) {
            graph->tensors[at].input = i;
        }
    }
    for (size_t i = 0; i < config->n_outputs && doc_reader_ok(checking->reader); i++) {
        size_t at = get_tensor(checking->reader, checking->node, graph, config->outputs[i].name);
        if (at != SIZE_MAX) {
            graph->tensors[at].output = i;
        }
    }
}

static void note_makers(struct checking *checking) {
    struct ensemble_tensor *tensors = checking->graph.tensors;
    for (size_t i = 0; i < checking->n_steps; i++) {
        const struct ensemble_step *step = &checking->steps[i];
        for (size_t j = 0; j < step->n_outputs && doc_reader_ok(checking->reader); j++) {
            struct ensemble_tensor *tensor = &tensors[step->outputs[j].tensor];
            if (tensor->input != SIZE_MAX) {
                fail_step(
                    checking, i,
                    "output_map: \"%.*s\" is an input of the ensemble, which no step can make",
                    STR_ARG(tensor->name));
            } else if (tensor->made_by != SIZE_MAX) {
                fail_step(checking, i, "output_map: \"%.*s\" is made by step[%zu] already",
                          STR_ARG(tensor->name), tensor->made_by);
            }
            tensor->made_by = i;
        }
        for (size_t j = 0; j < step->n_inputs && doc_reader_ok(checking->reader); j++) {
            tensors[step->inputs[j].tensor].n_used_by++;
        }
    }
}

static void note_users(struct checking *checking) {
    struct graph *graph = &checking->graph;
    for (size_t i = 0; i < graph->n && doc_reader_ok(checking->reader); i++) {
        graph->tensors[i].used_by = doc_reader_calloc(checking->reader, graph->tensors[i].n_used_by,
                                                      sizeof(*graph->tensors[i].used_by));
        graph->tensors[i].n_used_by = 0;
    }
    for (size_t i = 0; i < checking->n_steps && doc_reader_ok(checking->reader); i++) {
        const struct ensemble_step *step = &checking->steps[i];
        for (size_t j = 0; j < step->n_inputs; j++) {
            struct ensemble_tensor *tensor = &graph->tensors[step->inputs[j].tensor];
            tensor->used_by[tensor->n_used_by++] = i;
        }
    }
}

/* "; did you mean …" among the tensors that are there: inputs of the ensemble, outputs of steps. */
static const char *hint_tensor(const struct checking *checking, struct str name,
                               char out[SUGGEST_HINT_BYTES]) {
    struct suggestion suggestion = {0};
    for (size_t i = 0; i < checking->graph.n; i++) {
        const struct ensemble_tensor *tensor = &checking->graph.tensors[i];
        if (tensor->input != SIZE_MAX || tensor->made_by != SIZE_MAX) {
            suggest_consider(&suggestion, name, tensor->name);
        }
    }
    return suggest_hint(&suggestion, out);
}

static void check_tensor(const struct checking *checking, const struct ensemble_tensor *tensor) {
    char hint[SUGGEST_HINT_BYTES];
    struct doc_reader *reader = checking->reader;
    bool is_there = tensor->input != SIZE_MAX || tensor->made_by != SIZE_MAX;
    if (!is_there && tensor->n_used_by > 0) {
        fail_step(checking, tensor->used_by[0],
                  "input_map: \"%.*s\" is no input of the ensemble, and no step makes it%s",
                  STR_ARG(tensor->name), hint_tensor(checking, tensor->name, hint));
    } else if (tensor->output != SIZE_MAX && tensor->made_by == SIZE_MAX) {
        doc_reader_fail(reader, checking->node, "no step makes output \"%.*s\" of the ensemble%s",
                        STR_ARG(tensor->name),
                        is_there ? "" : hint_tensor(checking, tensor->name, hint));
    } else if (tensor->input != SIZE_MAX && tensor->n_used_by == 0) {
        doc_reader_fail(reader, checking->node, "no step uses input \"%.*s\" of the ensemble",
                        STR_ARG(tensor->name));
    } else if (tensor->output == SIZE_MAX && tensor->n_used_by == 0) {
        fail_step(checking, tensor->made_by,
                  "output_map: \"%.*s\" is no output of the ensemble, and no step uses it",
                  STR_ARG(tensor->name));
    }
}

/* What the step makes is not missing any more. */
static void run_step(const struct checking *checking, size_t step, size_t *n_missing) {
    const struct ensemble_step *ran = &checking->steps[step];
    for (size_t i = 0; i < ran->n_outputs; i++) {
        const struct ensemble_tensor *tensor = &checking->graph.tensors[ran->outputs[i].tensor];
        for (size_t j = 0; j < tensor->n_used_by; j++) {
            n_missing[tensor->used_by[j]]--;
        }
    }
}

/* Returns: how many steps can run, one after the other; `ran` says which. */
static size_t run_steps(const struct checking *checking, bool *ran, size_t *n_missing) {
    const struct ensemble_tensor *tensors = checking->graph.tensors;
    size_t n_ran = 0, n_before;
    for (size_t i = 0; i < checking->n_steps; i++) {
        const struct ensemble_step *step = &checking->steps[i];
        for (size_t j = 0; j < step->n_inputs; j++) {
            n_missing[i] += tensors[step->inputs[j].tensor].made_by != SIZE_MAX;
        }
    }
    do {
        n_before = n_ran;
        for (size_t i = 0; i < checking->n_steps; i++) {
            if (!ran[i] && n_missing[i] == 0) {
                ran[i] = true;
                n_ran++;
                run_step(checking, i, n_missing);
            }
        }
    } while (n_ran > n_before);
    return n_ran;
}

/* A step that waits for itself, by way of others. Those that only wait for such steps are passed:
 * going back from any of them leads into the circle. */
static size_t find_circle(const struct checking *checking, const bool *ran, size_t *tensor) {
    const struct ensemble_tensor *tensors = checking->graph.tensors;
    size_t step = 0;
    while (ran[step]) {
        step++;
    }
    for (size_t i = 0; i <= checking->n_steps; i++) { /* so many steps back it is in the circle */
        const struct ensemble_step *at = &checking->steps[step];
        for (size_t j = 0; j < at->n_inputs; j++) {
            size_t made_by = tensors[at->inputs[j].tensor].made_by;
            if (made_by != SIZE_MAX && !ran[made_by]) {
                *tensor = at->inputs[j].tensor;
                step = made_by;
                break;
            }
        }
    }
    return step;
}

static void check_order(const struct checking *checking) {
    bool *ran = doc_reader_calloc(checking->reader, checking->n_steps, sizeof(*ran));
    size_t *n_missing = doc_reader_calloc(checking->reader, checking->n_steps, sizeof(*n_missing));
    if (!ran || !n_missing || run_steps(checking, ran, n_missing) == checking->n_steps) {
        return;
    }
    size_t tensor = 0, step = find_circle(checking, ran, &tensor);
    fail_step(checking, step,
              "makes \"%.*s\", which it waits for itself, by way of other steps or at once: a "
              "circle",
              STR_ARG(checking->graph.tensors[tensor].name));
}

static void check_graph(struct checking *checking) {
    note_ends(checking);
    note_makers(checking);
    note_users(checking);
    /* The ends first: what is wrong between them follows from that. */
    for (size_t i = 0; i < checking->graph.n && doc_reader_ok(checking->reader); i++) {
        if (checking->graph.tensors[i].output != SIZE_MAX) {
            check_tensor(checking, &checking->graph.tensors[i]);
        }
    }
    for (size_t i = 0; i < checking->graph.n && doc_reader_ok(checking->reader); i++) {
        check_tensor(checking, &checking->graph.tensors[i]);
    }
    if (doc_reader_ok(checking->reader)) {
        check_order(checking);
    }
}

static void read_step_list(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct checking *checking = object;
    checking->steps = read_steps(reader, node, &checking->graph, &checking->n_steps);
}

/* The members are read into `struct checking`, but for the limit. */
struct scheduling {
    struct checking checking;
    uint64_t max_inflight_requests;
};

const struct doc_member ENSEMBLE_SCHEDULING[] = {
    {"step", MEMBER_CUSTOM(read_step_list), .members = STEP},
    {"max_inflight_requests",
     MEMBER_WHOLE(struct scheduling, max_inflight_requests, 0, UINT32_MAX)},
    {0}};

static void check_ends(struct doc_reader *reader, const struct doc_node *node, const char *list,
                       const struct model_config_tensor *tensors, size_t n) {
    if (n == 0) {
        doc_reader_fail(reader, node->parent, "an ensemble needs the field %s", list);
    }
    for (size_t i = 0; i < n && doc_reader_ok(reader); i++) {
        if (tensors[i].datatype == DT_INVALID || !tensors[i].has_dims) {
            struct doc_node items = doc_get(node->parent, list);
            struct doc_node item = doc_at(&items, i);
            doc_reader_fail(reader, &item, "an ensemble's %s needs data_type and dims", list);
        }
    }
}

void ensemble_read(struct doc_reader *reader, const struct doc_node *node,
                   struct model_config *config) {
    struct scheduling scheduling = {.checking = {.reader = reader, .node = node, .config = config}};
    struct checking *checking = &scheduling.checking;
    check_ends(reader, node, "input", config->inputs, config->n_inputs);
    check_ends(reader, node, "output", config->outputs, config->n_outputs);
    doc_reader_object(reader, node, ENSEMBLE_SCHEDULING, &scheduling);
    if (doc_reader_ok(reader) && checking->n_steps == 0) {
        doc_reader_fail(reader, node, "expected at least one step");
    }
    if (doc_reader_ok(reader)) {
        check_graph(checking);
    }
    config->ensemble = (struct model_ensemble){
        .steps = checking->steps,
        .n_steps = checking->n_steps,
        .tensors = checking->graph.tensors,
        .n_tensors = checking->graph.n,
        .max_inflight_requests = scheduling.max_inflight_requests,
    };
}

/* ---- the graph and its members --------------------------------------------------------------- */

/* What is known of a tensor of the ensemble, and from whom. */
struct known {
    const struct tensor_spec *spec; /* of a member; NULL: nothing is known yet */
    struct tensor_spec end;         /* of the ensemble's own input or output */
    bool batches;                   /* the shape begins with the batch dimension */
    struct str model;               /* whose it is; ptr NULL: the ensemble's */
    size_t origin; /* the decoupled step that its values come from, by way of others; SIZE_MAX:
                      none */
    bool has_origin;
};

struct fitting {
    const struct model_config *config;
    ensemble_find_fn *find;
    void *user;
    struct arena *arena;
    struct known *known;
    bool decoupled;
    struct error *err;
};

bool ensemble_shapes_agree(struct shape a, struct shape b) {
    bool agree = a.rank == b.rank;
    for (size_t i = 0; agree && i < a.rank; i++) {
        agree = a.dims[i] == b.dims[i] || a.dims[i] == -1 || b.dims[i] == -1;
    }
    return agree;
}

/* Without the batch dimension, where there is one. */
static struct shape row_of(struct shape shape, bool batches) {
    return batches ? (struct shape){shape.dims + 1, shape.rank - 1} : shape;
}

static enum status fail_map(const struct ensemble_step *step, const char *map, struct error *err,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
static enum status fail_map(const struct ensemble_step *step, const char *map, struct error *err,
                            const char *format, ...) {
    va_list args;
    va_start(args, format);
    error_setv(err, ST_BAD_MODEL, format, args);
    va_end(args);
    return error_prefix(err, "%.*s.%s", STR_ARG(step->place), map);
}

/* The name of a model for messages; the ensemble's own tensors have none. */
static const char *print_owner(struct str model, char out[QUOTED_NAME_BYTES + 8]) {
    char name[QUOTED_NAME_BYTES];
    if (!model.ptr) {
        return "the ensemble";
    }
    (void)snprintf(out, QUOTED_NAME_BYTES + 8, "model %s", quote_name(model, name));
    return out;
}

/* `spec` is the member's side of an entry. What is known of the ensemble's tensor must agree with
 * it, or is known from then on. */
static enum status fit_entry(struct fitting *fitting, const struct ensemble_step *step,
                             const char *map, const struct ensemble_map *entry,
                             const struct tensor_spec *spec, bool batches) {
    struct known *known = &fitting->known[entry->tensor];
    char name[QUOTED_NAME_BYTES], owner[QUOTED_NAME_BYTES + 8], member[QUOTED_NAME_BYTES + 8];
    if (!known->spec) {
        known->spec = spec;
        known->batches = batches;
        known->model = step->model;
        return ST_OK;
    }
    quote_name(fitting->config->ensemble.tensors[entry->tensor].name, name);
    if (known->spec->datatype != spec->datatype) {
        return fail_map(step, map, fitting->err, "tensor %s is %s in %s and %s in %s", name,
                        datatype_name(known->spec->datatype), print_owner(known->model, owner),
                        datatype_name(spec->datatype), print_owner(step->model, member));
    }
    if (!ensemble_shapes_agree(row_of(known->spec->shape, known->batches),
                               row_of(spec->shape, batches)) &&
        !ensemble_shapes_agree(known->spec->shape, spec->shape)) {
        char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];
        bool mixed = known->batches != batches;
        return fail_map(step, map, fitting->err, "tensor %s has shape %s%s in %s and %s%s in %s",
                        name, shape_print(known->spec->shape, a),
                        mixed && known->batches ? " (with the batch dimension)" : "",
                        print_owner(known->model, owner), shape_print(spec->shape, b),
                        mixed && batches ? " (with the batch dimension)" : "",
                        print_owner(step->model, member));
    }
    return ST_OK;
}

static enum status fail_unknown(const struct fitting *fitting, const struct ensemble_step *step,
                                const char *map, const char *kind, struct str name,
                                const struct tensor_spec *specs, size_t n) {
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES], quoted[QUOTED_NAME_BYTES], model[QUOTED_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        suggest_consider(&suggestion, name, specs[i].name);
    }
    return fail_map(step, map, fitting->err, "model %s has no %s %s%s",
                    quote_name(step->model, model), kind, quote_name(name, quoted),
                    suggest_hint(&suggestion, hint));
}

static enum status fit_map(struct fitting *fitting, const struct ensemble_step *step,
                           const struct model_spec *member, bool is_input) {
    const struct ensemble_map *map = is_input ? step->inputs : step->outputs;
    const struct tensor_spec *specs = is_input ? member->inputs : member->outputs;
    const char *field = is_input ? "input_map" : "output_map";
    size_t n = is_input ? step->n_inputs : step->n_outputs;
    size_t n_specs = is_input ? member->n_inputs : member->n_outputs;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        size_t at = tensor_spec_find(specs, n_specs, map[i].name);
        st = at == SIZE_MAX
                 ? fail_unknown(fitting, step, field, is_input ? "input" : "output", map[i].name,
                                specs, n_specs)
                 : fit_entry(fitting, step, field, &map[i], &specs[at], member->max_batch_size > 0);
    }
    return st;
}

static enum status check_needed_inputs(const struct fitting *fitting,
                                       const struct ensemble_step *step,
                                       const struct model_spec *member) {
    for (size_t i = 0; i < member->n_inputs; i++) {
        bool mapped = member->inputs[i].optional;
        for (size_t j = 0; j < step->n_inputs && !mapped; j++) {
            mapped = str_eq(step->inputs[j].name, member->inputs[i].name);
        }
        if (!mapped) {
            char model[QUOTED_NAME_BYTES], input[QUOTED_NAME_BYTES];
            return fail_map(
                step, "input_map", fitting->err, "model %s needs input %s, which no entry has",
                quote_name(step->model, model), quote_name(member->inputs[i].name, input));
        }
    }
    return ST_OK;
}

static enum status fit_step(struct fitting *fitting, size_t i) {
    const struct ensemble_step *step = &fitting->config->ensemble.steps[i];
    const struct model_config *config = fitting->config;
    const struct model_spec *member = fitting->find(fitting->user, step, fitting->err);
    char name[QUOTED_NAME_BYTES];
    if (!member) {
        return error_prefix(fitting->err, "%.*s", STR_ARG(step->place));
    }
    if (member->max_batch_size > 0 && member->max_batch_size < config->max_batch_size) {
        error_set(fitting->err, ST_BAD_MODEL,
                  "the ensemble's max_batch_size is %llu, that of model %s is %llu",
                  (unsigned long long)config->max_batch_size, quote_name(step->model, name),
                  (unsigned long long)member->max_batch_size);
        return error_prefix(fitting->err, "%.*s", STR_ARG(step->place));
    }
    enum status st = fit_map(fitting, step, member, true);
    if (st == ST_OK) {
        st = check_needed_inputs(fitting, step, member);
    }
    if (st == ST_OK) {
        st = fit_map(fitting, step, member, false);
    }
    return st;
}

/* What the configuration says of the ensemble's own tensors, with the batch dimension. */
static enum status know_ends(struct fitting *fitting) {
    const struct model_config *config = fitting->config;
    const struct model_ensemble *ensemble = &config->ensemble;
    bool batches = config->max_batch_size > 0;
    for (size_t i = 0; i < ensemble->n_tensors; i++) {
        const struct ensemble_tensor *tensor = &ensemble->tensors[i];
        const struct model_config_tensor *end =
            tensor->input != SIZE_MAX    ? &config->inputs[tensor->input]
            : tensor->output != SIZE_MAX ? &config->outputs[tensor->output]
                                         : NULL;
        if (!end) {
            continue;
        }
        struct shape row = end->has_reshape ? end->reshape : end->dims;
        int64_t *dims = arena_calloc(fitting->arena, row.rank + 1, sizeof(*dims));
        if (!dims) {
            return error_no_memory(fitting->err, "checking an ensemble");
        }
        dims[0] = -1;
        for (size_t d = 0; d < row.rank; d++) {
            dims[d + (batches ? 1 : 0)] = row.dims[d];
        }
        struct known *known = &fitting->known[i];
        known->end = (struct tensor_spec){.name = end->name,
                                          .datatype = end->datatype,
                                          .shape = {dims, row.rank + (batches ? 1 : 0)}};
        known->spec = &known->end;
        known->batches = batches;
    }
    return ST_OK;
}

/* Each response of a decoupled member runs the steps after it once. So the inputs of a step must
 * come from one decoupled step, or from none, and the ensemble's outputs as well. Steps are visited
 * until nothing more is learned. Returns: whether something was. */
static enum status trace_step(struct fitting *fitting, size_t i, bool *learned) {
    const struct ensemble_step *step = &fitting->config->ensemble.steps[i];
    size_t origin = SIZE_MAX;
    for (size_t j = 0; j < step->n_inputs; j++) {
        const struct known *known = &fitting->known[step->inputs[j].tensor];
        if (!known->has_origin) {
            return ST_OK;
        }
        if (j > 0 && known->origin != origin) {
            char name[QUOTED_NAME_BYTES];
            return fail_map(step, "input_map", fitting->err,
                            "the inputs of model %s come from different decoupled models, or from "
                            "one and from none: their responses cannot be told which belong "
                            "together",
                            quote_name(step->model, name));
        }
        origin = known->origin;
    }
    const struct model_spec *member = fitting->find(fitting->user, step, fitting->err);
    if (!member) {
        return error_prefix(fitting->err, "%.*s", STR_ARG(step->place));
    }
    for (size_t j = 0; j < step->n_outputs; j++) {
        struct known *known = &fitting->known[step->outputs[j].tensor];
        *learned = *learned || !known->has_origin;
        known->has_origin = true;
        known->origin = member->decoupled ? i : origin;
        fitting->decoupled = fitting->decoupled || member->decoupled;
    }
    return ST_OK;
}

static enum status check_origins(struct fitting *fitting) {
    const struct model_ensemble *ensemble = &fitting->config->ensemble;
    enum status st = ST_OK;
    bool learned = true;
    const struct known *first = NULL;
    for (size_t i = 0; i < ensemble->n_tensors; i++) {
        fitting->known[i].origin = SIZE_MAX;
        fitting->known[i].has_origin = ensemble->tensors[i].input != SIZE_MAX;
    }
    while (learned && st == ST_OK) {
        learned = false;
        for (size_t i = 0; i < ensemble->n_steps && st == ST_OK; i++) {
            st = trace_step(fitting, i, &learned);
        }
    }
    for (size_t i = 0; i < ensemble->n_tensors && st == ST_OK; i++) {
        const struct known *known = &fitting->known[i];
        if (ensemble->tensors[i].output == SIZE_MAX) {
            continue;
        }
        if (first && first->origin != known->origin) {
            const struct ensemble_step *step = &ensemble->steps[ensemble->tensors[i].made_by];
            st = fail_map(step, "output_map", fitting->err,
                          "the outputs of the ensemble come from different decoupled models, or "
                          "from one and from none: their responses cannot be told which belong "
                          "together");
        }
        first = known;
    }
    return st;
}

enum status ensemble_check(const struct model_config *config, ensemble_find_fn *find, void *user,
                           bool *decoupled, struct error *err) {
    const struct model_ensemble *ensemble = &config->ensemble;
    struct arena *arena = arena_new(NULL, 0);
    struct known *known = arena ? arena_calloc(arena, ensemble->n_tensors, sizeof(*known)) : NULL;
    if (!known) {
        arena_free(arena);
        return error_no_memory(err, "checking an ensemble");
    }
    struct fitting fitting = {
        .config = config, .find = find, .user = user, .arena = arena, .known = known, .err = err};
    enum status st = know_ends(&fitting);
    for (size_t i = 0; i < ensemble->n_steps && st == ST_OK; i++) {
        st = fit_step(&fitting, i);
    }
    if (st == ST_OK) {
        st = check_origins(&fitting);
    }
    arena_free(arena);
    *decoupled = fitting.decoupled;
    return st;
}
