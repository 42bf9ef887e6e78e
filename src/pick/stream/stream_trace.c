/* The spans of a recorded trace are collected in an arena of their own, which is passed on with
 * them. Out of memory the trace is dropped, and counted. */
#include "pick/stream/stream_trace.h"

#include <string.h>

#include "core/base/hex.h"
#include "core/base/metric/metric.h"
#include "core/base/num.h"
#include "core/event/clock.h"

enum {
    MOST_ATTRIBUTES = 12,
    MOST_WAITS = 4,
    MOST_SPANS = 3 + PICK_MAX_STAGES + MOST_WAITS,
    MOST_TEXT_BYTES = 1024, /* of an attribute that a client chooses */
};
_Static_assert((int)MOST_SPANS <= (int)OTEL_MIN_BATCH, "a trace fits into a batch");

struct stream_trace {
    struct span_set set;
    struct prng *prng;
    bool failed; /* out of memory */
    bool was_picked;
    unsigned char trace[TRACE_ID_BYTES];
    unsigned char request_id[SPAN_ID_BYTES], picking_id[SPAN_ID_BYTES], server_id[SPAN_ID_BYTES];
    struct traceparent parent; /* with has_parent */
    bool has_parent;
    struct str state;
    struct otlp_span spans[MOST_SPANS];
    size_t n_spans;
    uint64_t begun_ns, picking_ns, picked_ns;
    uint64_t response_ns, last_ns; /* of the response's messages; 0: none was received */
    /* Of the present wait: its begin, and the begin of the pick that ended it; 0: none. */
    uint64_t wait_ns, wait_end_ns;
    int64_t priority;
    struct str method, path, operation, id, model, target, fairness_id;
    struct str address; /* of the picked endpoint */
    uint16_t port;
    uint64_t http_status; /* 0: unknown */
    struct str failure;   /* ptr NULL: the request has not failed */
    struct str error;     /* of a failure: a word for it */
};

/* ---- beginning ------------------------------------------------------------------------------- */

/* A field that occurs twice counts as absent. */
static struct str find_single(const struct ext_proc_headers *fields, struct str name) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    struct str found = {NULL, 0};
    size_t n = 0;
    while (ext_proc_header_next(&walk, &header)) {
        if (str_eq(header.key, name)) {
            found = header.value;
            n++;
        }
    }
    return n == 1 ? found : str_make(NULL, 0);
}

/* Clause: W3C Trace Context, 3.2. Returns: ptr NULL when out of memory. */
static struct str print_traceparent(struct arena *arena, const unsigned char *trace,
                                    const unsigned char *span, bool sampled) {
    char trace_text[2 * TRACE_ID_BYTES], span_text[2 * SPAN_ID_BYTES];
    hex_encode_lower(trace, TRACE_ID_BYTES, trace_text);
    hex_encode_lower(span, SPAN_ID_BYTES, span_text);
    return arena_printf(arena, "00-%.*s-%.*s-%s", 2 * TRACE_ID_BYTES, trace_text, 2 * SPAN_ID_BYTES,
                        span_text, sampled ? "01" : "00");
}

/* A copy of what a client chooses, cut where it is long. */
static struct str copy_text(struct stream_trace *trace, struct str text) {
    if (!text.ptr) {
        return text;
    }
    text.len = text.len < MOST_TEXT_BYTES ? text.len : MOST_TEXT_BYTES;
    struct str copy = arena_dup(trace->set.arena, text);
    trace->failed = trace->failed || !copy.ptr;
    return copy;
}

/* By the end of the path, without the query. Clause: semantic conventions,
 * gen_ai.operation.name. */
static struct str operation_of(struct str path) {
    static const struct str rows[][2] = {
        {STR("/chat/completions"), STR("chat")},    {STR("/messages"), STR("chat")},
        {STR("/responses"), STR("chat")},           {STR("/completions"), STR("text_completion")},
        {STR("/generate"), STR("text_completion")}, {STR("/embeddings"), STR("embeddings")}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (str_ends_with(path, rows[i][0])) {
            return rows[i][1];
        }
    }
    return str_make(NULL, 0);
}

/* Returns: NULL when out of memory. */
static struct stream_trace *trace_new(struct trace_context *context,
                                      const struct ext_proc_headers *fields) {
    struct arena *arena = arena_new(NULL, 0); /* freed on the writer's thread */
    struct stream_trace *trace = arena ? arena_calloc(arena, 1, sizeof(*trace)) : NULL;
    if (!trace) {
        arena_free(arena);
        return NULL;
    }
    trace->set.arena = arena;
    trace->prng = &context->prng;
    trace->begun_ns = clock_now_ns();
    trace->method = copy_text(trace, ext_proc_header_find(fields, STR(":method")));
    struct str rest = ext_proc_header_find(fields, STR(":path"));
    trace->path = copy_text(trace, str_cut(&rest, '?'));
    trace->operation = operation_of(trace->path);
    trace_id_fill(trace->prng, trace->request_id, SPAN_ID_BYTES);
    trace_id_fill(trace->prng, trace->picking_id, SPAN_ID_BYTES);
    return trace;
}

struct pick_trace_choice stream_trace_begin(struct trace_context *context, struct arena *arena,
                                            const struct ext_proc_headers *fields,
                                            struct stream_trace **out) {
    struct traceparent parent;
    unsigned char trace[TRACE_ID_BYTES], server[SPAN_ID_BYTES];
    bool has_parent = traceparent_parse(find_single(fields, STR("traceparent")), &parent);
    trace_id_fill(&context->prng, trace, TRACE_ID_BYTES);
    trace_id_fill(&context->prng, server, SPAN_ID_BYTES);
    if (has_parent) {
        memcpy(trace, parent.trace, TRACE_ID_BYTES);
    }
    bool sampled = otel_is_sampled(context->sampler, has_parent ? &parent : NULL, trace);
    bool is_wanted = sampled && context->writer;
    bool has_place = context->n_open < STREAM_TRACE_MOST_OPEN;
    struct stream_trace *self = is_wanted && has_place ? trace_new(context, fields) : NULL;
    *out = self;
    if (is_wanted && !self) {
        metric_add(METRIC_TRACES_DROPPED, 1);
    }
    if (self) {
        context->n_open++;
        struct str state = find_single(fields, STR("tracestate"));
        self->has_parent = has_parent;
        memcpy(self->trace, trace, TRACE_ID_BYTES);
        memcpy(self->server_id, server, SPAN_ID_BYTES);
        if (has_parent) {
            self->parent = parent;
            self->state = tracestate_is_valid(state) ? copy_text(self, state) : STR("");
        }
    }
    return (struct pick_trace_choice){
        .traceparent = print_traceparent(arena, trace, server, sampled), .is_recorded = self};
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* Returns: a span with space for attributes; NULL when there is no place, or no memory. */
static struct otlp_span *add_span(struct stream_trace *trace, struct str name,
                                  enum otlp_span_kind kind, const unsigned char *parent) {
    struct otlp_attribute *attributes =
        arena_calloc(trace->set.arena, MOST_ATTRIBUTES, sizeof(*attributes));
    if (!attributes || trace->n_spans == MOST_SPANS) {
        trace->failed = trace->failed || !attributes;
        return NULL;
    }
    struct otlp_span *span = &trace->spans[trace->n_spans++];
    *span = (struct otlp_span){
        .name = name, .kind = kind, .state = trace->state, .attributes = attributes};
    memcpy(span->trace, trace->trace, TRACE_ID_BYTES);
    if (parent) {
        span->has_parent = true;
        memcpy(span->parent, parent, SPAN_ID_BYTES);
    }
    trace_id_fill(trace->prng, span->id, SPAN_ID_BYTES);
    return span;
}

static struct otlp_attribute *add_attribute(struct otlp_span *span, struct str key) {
    struct otlp_attribute *attribute =
        (struct otlp_attribute *)(uintptr_t)&span->attributes[span->n_attributes++];
    attribute->key = key;
    return attribute;
}

/* None for an empty text. */
static void add_text(struct otlp_span *span, struct str key, struct str text) {
    if (text.len > 0) {
        add_attribute(span, key)->text = text;
    }
}

static void add_integer(struct otlp_span *span, struct str key, int64_t number) {
    struct otlp_attribute *attribute = add_attribute(span, key);
    attribute->kind = OTLP_INTEGER;
    attribute->integer = number;
}

static void add_endpoint(struct otlp_span *span, struct str address, uint16_t port) {
    if (address.len > 0) {
        add_text(span, STR("server.address"), address);
        add_integer(span, STR("server.port"), port);
    }
}

/* "10.0.0.1:8000" or "[::1]:8000": the address. */
static struct str host_of(struct stream_trace *trace, const struct endpoint *endpoint) {
    struct str text = endpoint_text(endpoint);
    while (text.len > 0 && text.ptr[text.len - 1] != ':') {
        text.len--;
    }
    text.len -= text.len > 0;
    bool is_v6 = text.len > 1 && text.ptr[0] == '[';
    return copy_text(trace, is_v6 ? str_make(text.ptr + 1, text.len - 2) : text);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_picking(struct stream_trace *trace, uint64_t now_ns) {
    if (trace->picking_ns == 0) {
        trace->picking_ns = now_ns;
    }
}

/* The best candidates, with their scores. */
static void add_scores(struct stream_trace *trace, struct otlp_span *span,
                       const struct pool_trace *of) {
    struct str *names = arena_calloc(trace->set.arena, of->n, sizeof(*names));
    double *scores = arena_calloc(trace->set.arena, of->n, sizeof(*scores));
    if (!names || !scores) {
        trace->failed = true;
        return;
    }
    for (size_t i = 0; i < of->n; i++) {
        names[i] = copy_text(trace, endpoint_text(of->first[i].endpoint));
        scores[i] = (double)of->first[i].score;
    }
    struct otlp_attribute *attribute = add_attribute(span, STR("llm_d.epp.picker.top_endpoints"));
    attribute->kind = OTLP_TEXTS;
    attribute->texts = names;
    attribute->n = of->n;
    attribute = add_attribute(span, STR("llm_d.epp.picker.top_scores"));
    attribute->kind = OTLP_NUMBERS;
    attribute->numbers = scores;
    attribute->n = of->n;
}

void stream_trace_on_stage(struct stream_trace *trace, const struct pick_stage_event *event) {
    static const struct str name = STR("run_scheduler_profile");
    begin_picking(trace, event->begun_ns);
    trace->wait_end_ns = event->begun_ns;
    struct otlp_span *span = add_span(trace, name, OTLP_SPAN_INTERNAL, trace->picking_id);
    if (!span) {
        return;
    }
    span->start_ns = event->begun_ns;
    span->end_ns = event->ended_ns;
    add_text(span, STR("llm_d.epp.stage"), str_of(stage_role_name(event->role)));
    add_text(span, STR("gen_ai.request.model"), copy_text(trace, event->model));
    add_endpoint(span, host_of(trace, event->endpoint), event->endpoint->address.port);
    if (event->trace->n > 0) {
        add_text(span, STR("llm_d.epp.scheduling.profile.name"),
                 copy_text(trace, event->trace->profile));
        add_integer(span, STR("llm_d.epp.picker.candidate_endpoints"), event->trace->n_candidates);
        add_scores(trace, span, event->trace);
    }
}

void stream_trace_on_queue(struct stream_trace *trace, const struct pick_queue_event *event) {
    static const struct str outcomes[N_FLOW_OUTCOMES] = {[FLOW_DISPATCHED] = STR("dispatched"),
                                                         [FLOW_EXPIRED] = STR("expired"),
                                                         [FLOW_ABORTED] = STR("aborted"),
                                                         [FLOW_REFUSED] = STR("refused"),
                                                         [FLOW_DISPLACED] = STR("displaced")};
    if (event->what == PICK_QUEUE_BEGUN) {
        trace->wait_ns = clock_read_ns();
        trace->wait_end_ns = 0;
        begin_picking(trace, trace->wait_ns);
        trace->priority = event->counted.priority;
        trace->fairness_id = copy_text(trace, event->counted.fairness_id);
    } else if (event->what == PICK_QUEUE_ENDED && trace->wait_ns > 0) {
        struct otlp_span *span = add_span(trace, STR("llm_d.epp.flow_control.queue"),
                                          OTLP_SPAN_INTERNAL, trace->picking_id);
        if (span) {
            span->start_ns = trace->wait_ns;
            span->end_ns = trace->wait_end_ns > 0 ? trace->wait_end_ns : clock_read_ns();
            add_text(span, STR("llm_d.epp.flow_control.outcome"), outcomes[event->outcome]);
            add_text(span, STR("llm_d.epp.flow_control.fairness_id"), trace->fairness_id);
            add_integer(span, STR("llm_d.epp.flow_control.priority"), trace->priority);
            span->failed = event->outcome != FLOW_DISPATCHED;
        }
        trace->wait_ns = 0;
    }
}

void stream_trace_on_outcome(struct stream_trace *trace, const struct pick_outcome *outcome) {
    trace->id = copy_text(trace, outcome->id);
    trace->model = copy_text(trace, outcome->counted.model);
    trace->priority = outcome->counted.priority;
    if (outcome->why) {
        trace->failure = copy_text(trace, str_of(outcome->why->text));
        trace->error = str_of(status_name(outcome->why->status));
        trace->http_status = (uint64_t)status_http(outcome->why->status);
        return;
    }
    trace->was_picked = true;
    trace->picked_ns = clock_read_ns();
    trace->target = copy_text(trace, outcome->target);
    if (outcome->endpoint) {
        trace->address = host_of(trace, outcome->endpoint);
        trace->port = outcome->endpoint->address.port;
    }
}

void stream_trace_on_response(struct stream_trace *trace, const struct ext_proc_request *message,
                              uint64_t now_ns) {
    if (trace->response_ns == 0) {
        trace->response_ns = now_ns;
        (void)num_parse_u64(ext_proc_header_find(&message->fields, STR(":status")),
                            &trace->http_status);
    }
    trace->last_ns = now_ns;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Of the request's span and the server's. */
static void add_request_attributes(const struct stream_trace *trace, struct otlp_span *span,
                                   struct str model, const struct usage_scan *usage) {
    add_text(span, STR("gen_ai.operation.name"), trace->operation);
    add_text(span, STR("gen_ai.request.model"), model);
    if (trace->http_status > 0) {
        add_integer(span, STR("http.response.status_code"), (int64_t)trace->http_status);
    }
    if (usage && usage->n_input > 0) {
        add_integer(span, STR("gen_ai.usage.input_tokens"), (int64_t)usage->n_input);
    }
    if (usage && usage->n_output > 0) {
        add_integer(span, STR("gen_ai.usage.output_tokens"), (int64_t)usage->n_output);
    }
}

static void add_picking_span(struct stream_trace *trace, uint64_t now_ns) {
    static const struct str name = STR("gateway.request_orchestration");
    if (trace->picking_ns == 0) {
        return;
    }
    struct otlp_span *span = add_span(trace, name, OTLP_SPAN_SERVER, trace->request_id);
    if (span) {
        memcpy(span->id, trace->picking_id, SPAN_ID_BYTES);
        span->start_ns = trace->picking_ns;
        span->end_ns = trace->was_picked ? trace->picked_ns : now_ns;
        span->failed = !trace->was_picked;
        span->failure = trace->failure;
        add_text(span, STR("target_model"), trace->target.ptr ? trace->target : trace->model);
        add_integer(span, STR("request_prio"), trace->priority);
    }
}

/* Clause: semantic conventions, generative AI: "{gen_ai.operation.name} {gen_ai.request.model}". */
static struct str server_span_name(struct stream_trace *trace, struct str model) {
    struct str operation = trace->operation.ptr ? trace->operation : STR("model_server");
    if (model.len == 0) {
        return operation;
    }
    struct str name =
        arena_printf(trace->set.arena, "%.*s %.*s", STR_ARG(operation), STR_ARG(model));
    trace->failed = trace->failed || !name.ptr;
    return name;
}

static void add_server_span(struct stream_trace *trace, const struct response_meter *response,
                            uint64_t now_ns) {
    if (!trace->was_picked) {
        return;
    }
    struct str model = trace->target.ptr ? trace->target : trace->model;
    struct otlp_span *span =
        add_span(trace, server_span_name(trace, model), OTLP_SPAN_CLIENT, trace->request_id);
    struct otlp_event *events = arena_calloc(trace->set.arena, 2, sizeof(*events));
    if (!span || !events) {
        trace->failed = trace->failed || !events;
        return;
    }
    memcpy(span->id, trace->server_id, SPAN_ID_BYTES);
    span->start_ns = trace->picked_ns;
    span->end_ns = response->is_over ? trace->last_ns : now_ns;
    span->failed = trace->http_status >= 500;
    span->events = events;
    if (trace->response_ns > 0) {
        events[span->n_events++] = (struct otlp_event){trace->response_ns, STR("response.begin")};
    }
    if (response->first_ns > 0) {
        events[span->n_events++] =
            (struct otlp_event){response->first_ns, STR("response.first_byte")};
    }
    add_request_attributes(trace, span, model, response->usage);
    add_endpoint(span, trace->address, trace->port);
}

static void add_request_span(struct stream_trace *trace, const struct usage_scan *usage,
                             uint64_t now_ns) {
    struct otlp_span *span = add_span(trace, STR("gateway.request"), OTLP_SPAN_SERVER,
                                      trace->has_parent ? trace->parent.span : NULL);
    if (!span) {
        return;
    }
    memcpy(span->id, trace->request_id, SPAN_ID_BYTES);
    span->start_ns = trace->begun_ns;
    span->end_ns = now_ns;
    bool is_cut = !trace->failure.ptr && trace->http_status == 0;
    span->failed = trace->failure.ptr || trace->http_status >= 500 || is_cut;
    span->failure = is_cut ? STR("the stream ended without a response") : trace->failure;
    add_text(span, STR("http.request.method"), trace->method);
    add_text(span, STR("url.path"), trace->path);
    add_text(span, STR("gen_ai.request.id"), trace->id);
    add_text(span, STR("error.type"), trace->error);
    add_request_attributes(trace, span, trace->model, usage);
}

void stream_trace_end(struct stream_trace *trace, struct trace_context *context,
                      const struct response_meter *response, uint64_t now_ns) {
    add_picking_span(trace, now_ns);
    add_server_span(trace, response, now_ns);
    add_request_span(trace, response->usage, now_ns);
    context->n_open--;
    if (trace->failed) {
        metric_add(METRIC_TRACES_DROPPED, 1);
        arena_free(trace->set.arena);
        return;
    }
    trace->set.spans = (struct trace_spans){trace->spans, trace->n_spans};
    span_writer_add(context->writer, &trace->set);
}
