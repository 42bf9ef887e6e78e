/* A line is put together on the stack, from what the note points at. */
#include "pick/session/pick_log.h"

#include <math.h>

#include "core/base/log.h"

enum { MOST_FIELDS = 12, OTHERS_BYTES = POOL_MAX_TRACED * (ENDPOINT_TEXT_BYTES + 24) };
enum { MOST_ID_BYTES = 128 };

struct line {
    struct log_field fields[MOST_FIELDS];
    unsigned n;
};

static void add_text(struct line *line, const char *name, struct str text) {
    if (text.len > 0) {
        line->fields[line->n++] = LOG_STR(name, text);
    }
}

static void add_request(struct line *line, const struct pick_outcome *outcome) {
    struct str id = outcome->id;
    id.len = id.len < MOST_ID_BYTES ? id.len : MOST_ID_BYTES;
    add_text(line, "request_id", id);
    line->fields[line->n++] = LOG_STR("request", outcome->request_line);
    add_text(line, "pool", outcome->pool);
    add_text(line, "model", outcome->model);
}

/* To four places: a sum of floats has no more to say. */
static double round_score(float score) {
    return round((double)score * 1e4) / 1e4;
}

/* "10.0.0.2:8000=4.5 10.0.0.3:8000=2" */
static void print_others(const struct pool_trace *trace, struct buf *out) {
    for (size_t i = 1; i < trace->n; i++) {
        buf_printf(out, "%s%s=%.4g", i > 1 ? " " : "", trace->first[i].endpoint->text,
                   (double)trace->first[i].score);
    }
}

static struct str picked_by_text(const struct pool_pick *pick) {
    switch (pick->picked_by) {
    case POOL_BY_LEAST_REQUESTS:
        return STR("fewest in flight");
    case POOL_BY_PROFILE:
        return STR("profile");
    case POOL_BY_LAST_RESORT:
        break;
    }
    return STR("nothing better was left");
}

void pick_log(const struct pick_outcome *outcome) {
    struct line line = {.n = 0};
    char others[OTHERS_BYTES];
    struct buf text = {.data = others, .cap = sizeof(others)};
    add_request(&line, outcome);
    add_text(&line, "as", outcome->target);
    line.fields[line.n++] = LOG_STR("endpoint", endpoint_text(outcome->endpoint));
    line.fields[line.n++] = LOG_U64("in_flight", endpoint_in_flight(outcome->endpoint));
    line.fields[line.n++] = LOG_STR("by", picked_by_text(outcome->pick));
    if (outcome->trace && outcome->trace->n > 0) {
        add_text(&line, "profile", outcome->trace->profile);
        line.fields[line.n++] = LOG_U64("candidates", outcome->trace->n_candidates);
        line.fields[line.n++] = LOG_F64("score", round_score(outcome->trace->first[0].score));
        print_others(outcome->trace, &text);
        add_text(&line, "others", buf_str(&text));
    }
    log_write(LOG_DEBUG, "picked", line.fields, line.n);
}

/* A proxy whose clients ask for nothing else does not fill the log. */
void pick_log_refusal(const struct pick_outcome *outcome, struct log_limit *limit) {
    struct line line = {.n = 0};
    if (!log_enabled(LOG_DEBUG) && !log_limit_allow(limit)) {
        return;
    }
    add_request(&line, outcome);
    line.fields[line.n++] = LOG_U64("status", (uint64_t)status_http(outcome->why->status));
    line.fields[line.n++] = LOG_CSTR("code", status_name(outcome->why->status));
    line.fields[line.n++] = LOG_CSTR("reason", outcome->why->text);
    if (limit->n_suppressed > 0) {
        line.fields[line.n++] = LOG_U64("left_out", limit->n_suppressed);
        limit->n_suppressed = 0;
    }
    log_write(LOG_INFO, "refused", line.fields, line.n);
}
