/* A line is put together on the stack, from what the note points at. */
#include "pick/session/pick_log.h"

#include <math.h>

#include "core/base/log.h"

enum { MOST_FIELDS = 12, OTHERS_BYTES = POOL_MOST_TRACED * (ENDPOINT_TEXT_BYTES + 24) };
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

static void add_request(struct line *line, const struct pick_note *note) {
    struct str id = note->id;
    id.len = id.len < MOST_ID_BYTES ? id.len : MOST_ID_BYTES;
    add_text(line, "request_id", id);
    line->fields[line->n++] = LOG_STR("request", note->line);
    add_text(line, "pool", note->pool);
    add_text(line, "model", note->model);
}

/* To four places: a sum of floats has no more to say. */
static double rounded(float score) {
    return round((double)score * 1e4) / 1e4;
}

/* "10.0.0.2:8000=4.5 10.0.0.3:8000=2" */
static void print_others(const struct pool_trace *trace, struct buf *out) {
    for (size_t i = 1; i < trace->n; i++) {
        buf_printf(out, "%s%s=%.4g", i > 1 ? " " : "", trace->first[i].endpoint->text,
                   (double)trace->first[i].score);
    }
}

static struct str way_of(const struct pool_pick *pick) {
    switch (pick->way) {
    case POOL_BY_FEWEST:
        return STR("fewest in flight");
    case POOL_BY_PROFILE:
        return STR("profile");
    case POOL_BY_LAST_CHOICE:
        break;
    }
    return STR("nothing better was left");
}

void pick_log(const struct pick_note *note) {
    struct line line = {.n = 0};
    char others[OTHERS_BYTES];
    struct buf text = {.data = others, .cap = sizeof(others)};
    add_request(&line, note);
    add_text(&line, "as", note->target);
    line.fields[line.n++] = LOG_STR("endpoint", endpoint_text(note->endpoint));
    line.fields[line.n++] = LOG_U64("in_flight", endpoint_in_flight(note->endpoint));
    line.fields[line.n++] = LOG_STR("by", way_of(note->pick));
    if (note->trace && note->trace->n > 0) {
        add_text(&line, "profile", note->trace->profile);
        line.fields[line.n++] = LOG_U64("candidates", note->trace->n_candidates);
        line.fields[line.n++] = LOG_F64("score", rounded(note->trace->first[0].score));
        print_others(note->trace, &text);
        add_text(&line, "others", buf_str(&text));
    }
    log_write(LOG_DEBUG, "picked", line.fields, line.n);
}

/* A proxy whose clients ask for nothing else does not fill the log. */
void pick_log_refusal(const struct pick_note *note, struct log_limit *limit) {
    struct line line = {.n = 0};
    if (!log_enabled(LOG_DEBUG) && !log_limit_take(limit)) {
        return;
    }
    add_request(&line, note);
    line.fields[line.n++] = LOG_U64("status", (uint64_t)status_http(note->why->status));
    line.fields[line.n++] = LOG_TEXT_OF("code", status_name(note->why->status));
    line.fields[line.n++] = LOG_TEXT_OF("reason", note->why->text);
    if (limit->n_left_out > 0) {
        line.fields[line.n++] = LOG_U64("left_out", limit->n_left_out);
        limit->n_left_out = 0;
    }
    log_write(LOG_INFO, "refused", line.fields, line.n);
}
