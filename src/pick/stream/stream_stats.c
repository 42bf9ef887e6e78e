/* A request is counted in the row that it had when it was picked for, whatever becomes of its name
 * later: so the ends of requests are counted where their beginnings are. */
#include "pick/stream/stream_stats.h"

#include "core/event/clock.h"

/* ---- rows ------------------------------------------------------------------------------------ */

/* The last row's labels are labels. */
static bool is_last_label(const struct pick_stats *stats, struct str model) {
    return stats->last && str_eq(stats->last->key.model, model);
}

/* A request that was refused for its model does not put the name on trial. */
static struct str model_label(struct stats_context *context, const struct pick_counted *counted,
                              bool may_admit) {
    if (!counted->model.ptr) {
        return PICK_MODEL_NONE;
    }
    if (counted->known || is_last_label(&context->stats, counted->model)) {
        return counted->model;
    }
    bool is_label = may_admit ? pick_label_names_admit(context->models, counted->model)
                              : pick_label_names_has(context->models, counted->model);
    return is_label ? counted->model : PICK_LABEL_OTHER;
}

static struct str fairness_label(struct stats_context *context, struct str id) {
    if (id.len == 0) {
        return PICK_FAIRNESS_NONE;
    }
    return pick_label_names_admit(context->fairness_ids, id) ? id : PICK_LABEL_OTHER;
}

/* Without a target of the configuration the model is its own. */
static struct pick_stats_row *find_row(struct stats_context *context,
                                       const struct pick_counted *counted, bool may_admit) {
    struct str model = model_label(context, counted, may_admit);
    struct pick_stats_key key = {.pool = counted->pool,
                                 .model = model,
                                 .target = counted->target.ptr ? counted->target : model,
                                 .fairness_id = fairness_label(context, counted->fairness_id),
                                 .priority = counted->priority};
    return pick_stats_get_row(&context->stats, &key);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void end_queue(struct stream_stats *self, const struct pick_queue_event *event) {
    struct pick_stats_row *row = self->queue_row;
    metric_cell_add(&row->n_dequeued, 1);
    metric_cell_add(&row->n_bytes_dequeued, self->n_queue_bytes);
    pick_stats_row_add(row, PICK_HISTOGRAM_QUEUED + (enum pick_histogram)event->outcome,
                       event->waited_ns);
    self->queue_row = NULL;
}

void stream_stats_on_queue(struct stream_stats *self, struct stats_context *context,
                           const struct pick_queue_event *event) {
    if (event->what == PICK_QUEUE_BEGUN) {
        self->queue_row = find_row(context, &event->counted, true);
        if (!self->was_queued) {
            self->enqueued_row = self->queue_row;
            self->enqueued = PICK_HISTOGRAM_ENQUEUED;
        }
        self->was_queued = true;
    }
    if (!self->queue_row) { /* out of memory */
        return;
    }
    switch (event->what) {
    case PICK_QUEUE_BEGUN:
        metric_cell_add(&self->queue_row->n_queued, 1);
        metric_cell_add(&self->queue_row->n_bytes_queued, event->n_bytes);
        self->n_queue_bytes = event->n_bytes;
        break;
    case PICK_QUEUE_GROWN:
        metric_cell_add(&self->queue_row->n_bytes_queued, event->n_bytes);
        self->n_queue_bytes += event->n_bytes;
        break;
    case PICK_QUEUE_ENDED:
        end_queue(self, event);
        break;
    }
}

/* Flow control decides on every request; most do not wait. */
static void count_unqueued(struct stream_stats *self, struct pick_stats_row *row,
                           const struct pick_outcome *outcome) {
    bool is_full = outcome->why && outcome->why->status == ST_SATURATED;
    if (!outcome->why || is_full) {
        self->enqueued_row = row;
        self->enqueued = is_full ? PICK_HISTOGRAM_NOT_ENQUEUED : PICK_HISTOGRAM_ENQUEUED;
    }
    enum pick_histogram which = PICK_HISTOGRAM_QUEUED + (enum pick_histogram)FLOW_DISPATCHED;
    if (outcome->why) {
        which = is_full ? PICK_HISTOGRAM_QUEUE_FULL
                        : PICK_HISTOGRAM_QUEUED + (enum pick_histogram)FLOW_REFUSED;
    }
    pick_stats_row_add(row, which, 0);
}

/* ---- the pick -------------------------------------------------------------------------------- */

void stream_stats_on_outcome(struct stream_stats *self, struct stats_context *context,
                             struct arena *arena, const struct pick_outcome *outcome) {
    const struct pick_counted *counted = &outcome->counted;
    bool may_admit = !outcome->why || outcome->why->status == ST_NO_ENDPOINT;
    bool is_evicted = outcome->why && outcome->why->status == ST_EVICTED;
    struct pick_stats_row *row =
        is_evicted && self->row ? self->row : find_row(context, counted, may_admit);
    if (!row) {
        return;
    }
    if (counted->is_queue && !self->was_queued && !self->row) {
        count_unqueued(self, row, outcome);
    }
    if (outcome->why) {
        metric_cell_add(&row->n_refused[outcome->why->status], 1);
        return;
    }
    metric_cell_add(&row->n_picked, 1);
    if (outcome->decision < N_PICK_DECISIONS) {
        metric_cell_add(&row->n_decisions[outcome->decision], 1);
    }
    if (!self->row && outcome->pick->ticket.endpoint) {
        endpoint_targets_add(&outcome->pick->ticket.endpoint->targets, row->target_hash);
    }
    self->row = row;
    self->response.format = outcome->format;
    self->response.is_streamed = outcome->is_streamed;
    if (counted->model.ptr && counted->model.len <= PICK_LABEL_BYTES &&
        str_eq(row->key.model, PICK_LABEL_OTHER)) {
        self->unlabelled_model = arena_dup(arena, counted->model);
    }
}

/* ---- the response ---------------------------------------------------------------------------- */

static bool is_success(const struct ext_proc_request *message) {
    struct str status = ext_proc_header_find(&message->fields, STR(":status"));
    return status.len == 3 && status.ptr[0] == '2';
}

static void prove_model(struct stream_stats *self, const struct stats_context *context) {
    struct pick_stats_row *row = self->row;
    if (self->unlabelled_model.ptr) {
        pick_label_names_prove(context->models, self->unlabelled_model);
    } else if (!row->is_proven) {
        if (pick_label_names_has(context->models, row->key.model)) { /* not a configured one */
            pick_label_names_prove(context->models, row->key.model);
        }
        row->is_proven = true;
    }
}

static void on_first_part(struct stream_stats *self, const struct stats_context *context,
                          const struct ext_proc_request *message) {
    struct response_meter *response = &self->response;
    self->has_response = true;
    if (message->kind != EXT_PROC_RESPONSE_HEADERS) { /* the proxy does not show them */
        return;
    }
    struct str type = ext_proc_header_find(&message->fields, STR("content-type"));
    struct str encoding = ext_proc_header_find(&message->fields, STR("content-encoding"));
    response->is_streamed |= str_starts_with(type, STR("text/event-stream"));
    response->is_opaque = (encoding.len > 0 && !str_is(encoding, "identity")) ||
                          str_starts_with(type, STR("application/octet-stream"));
    if (is_success(message)) {
        prove_model(self, context);
    } else {
        metric_cell_add(&self->row->n_server_errors, 1);
    }
}

static void on_body(struct stream_stats *self, struct arena *arena, struct str body,
                    uint64_t now_ns) {
    struct response_meter *response = &self->response;
    if (body.len == 0) {
        return;
    }
    if (response->first_ns == 0) {
        response->first_ns = now_ns;
        response->usage =
            response->is_opaque ? NULL : arena_calloc(arena, 1, sizeof(*response->usage));
        if (response->usage) {
            response->usage->format = response->format;
        }
    } else if (response->is_streamed) {
        pick_stats_row_add(self->row, PICK_HISTOGRAM_BETWEEN_CHUNKS,
                           clock_between_ns(response->last_ns, now_ns));
    }
    response->last_ns = now_ns;
    response->n_bytes += body.len;
    if (response->usage) {
        usage_scan_feed(response->usage, body);
    }
}

static void count_tokens(struct pick_stats_row *row, const struct usage_scan *usage) {
    if (usage->n_input > 0) {
        pick_stats_row_add(row, PICK_HISTOGRAM_INPUT_TOKENS, usage->n_input);
    }
    if (usage->n_output > 0) {
        pick_stats_row_add(row, PICK_HISTOGRAM_OUTPUT_TOKENS, usage->n_output);
    }
    if (usage->has_cached) {
        pick_stats_row_add(row, PICK_HISTOGRAM_CACHED_TOKENS, usage->n_cached);
    }
}

/* A response that is not streamed has its first token at its end, as upstream has it. */
static void on_whole_response(struct stream_stats *self, const struct stream_times *times) {
    const struct response_meter *response = &self->response;
    struct pick_stats_row *row = self->row;
    uint64_t all_ns = clock_between_ns(times->begun_ns, times->now_ns);
    uint64_t n_output = response->usage ? response->usage->n_output : 0;
    pick_stats_row_add(row, PICK_HISTOGRAM_RESPONSE_BYTES, response->n_bytes);
    if (response->is_streamed) {
        pick_stats_row_add(row, PICK_HISTOGRAM_FIRST_TOKEN_STREAMED,
                           clock_between_ns(times->begun_ns, response->first_ns));
    } else {
        pick_stats_row_add(row, PICK_HISTOGRAM_FIRST_TOKEN, all_ns);
    }
    if (response->usage) {
        count_tokens(row, response->usage);
    }
    if (n_output > 0) {
        pick_stats_row_add(row, PICK_HISTOGRAM_TIME_PER_TOKEN, all_ns / n_output);
    }
    if (n_output > 1 && response->is_streamed) {
        pick_stats_row_add(row, PICK_HISTOGRAM_STREAMED_TOKEN,
                           clock_between_ns(response->first_ns, times->now_ns) / (n_output - 1));
    }
}

void stream_stats_on_response(struct stream_stats *self, const struct stats_context *context,
                              struct arena *arena, const struct ext_proc_request *message,
                              const struct stream_times *times) {
    struct response_meter *response = &self->response;
    if (!self->row || response->is_over) {
        return;
    }
    if (!self->has_response) {
        on_first_part(self, context, message);
    }
    if (message->kind == EXT_PROC_RESPONSE_BODY) {
        on_body(self, arena, message->body, times->now_ns);
    }
    response->is_over = message->end_of_stream || message->end_without_message ||
                        message->kind == EXT_PROC_RESPONSE_TRAILERS;
    if (response->is_over && response->first_ns > 0) {
        on_whole_response(self, times);
    }
}

void stream_stats_end(struct stream_stats *self, uint64_t duration_ns, uint64_t n_body_bytes) {
    if (self->row) {
        pick_stats_row_add(self->row, PICK_HISTOGRAM_DURATION, duration_ns);
        pick_stats_row_add(self->row, PICK_HISTOGRAM_REQUEST_BYTES, n_body_bytes);
        metric_cell_add(&self->row->n_ended, 1);
    }
}
