/* Numbers that are computed from the usage of a response, in the dynamic metadata of the last
 * message of it: rate limiters of proxies count by them. As upstream, 0 and -1 are not reported,
 * and neither is a value of an expression that fails. */
#include "codec/cel/cel.h"
#include "core/base/log.h"
#include "pick/session/state.h"

enum { N_MEMBERS = 4 };

/* What expressions see: numbers of type double, as upstream's come through JSON. The total is the
 * sum. */
struct usage_map {
    struct cel_entry details[1], members[N_MEMBERS];
    struct cel_map map;
};

static struct cel_value number(uint64_t n) {
    return (struct cel_value){.type = CEL_DOUBLE, .real = (double)n};
}

static void fill_usage(const struct pick_usage *usage, struct usage_map *out) {
    *out = (struct usage_map){
        .details = {{STR("cached_tokens"), number(usage->n_cached)}},
        .members = {{STR("prompt_tokens"), number(usage->n_prompt)},
                    {STR("completion_tokens"), number(usage->n_output)},
                    {STR("total_tokens"), number(usage->n_prompt + usage->n_output)}}};
    out->members[N_MEMBERS - 1].key = STR("prompt_tokens_details");
    out->members[N_MEMBERS - 1].value =
        (struct cel_value){.type = CEL_MAP, .map = {out->details, 1}};
    out->map = (struct cel_map){out->members, usage->has_cached ? N_MEMBERS : N_MEMBERS - 1};
}

/* Returns: false where there is none: it is cut at its point, as upstream. */
static bool whole_of(const struct cel_value *value, double *out) {
    double real = value->type == CEL_INT ? (double)value->integer : value->real;
    bool is_number = value->type == CEL_INT || value->type == CEL_DOUBLE;
    if (!is_number || !(real > -9223372036854775808.0 && real < 9223372036854775808.0)) {
        return false;
    }
    *out = (double)(int64_t)real;
    return true;
}

static bool compute(const struct pool_reporter *reporter, const struct cel_map *usage,
                    struct arena *arena, double *out) {
    struct cel_value value = {.type = CEL_BOOL, .boolean = true};
    struct error why = {.status = ST_OK};
    enum status st = ST_OK;
    if (reporter->condition) {
        st = cel_evaluate(reporter->condition, usage, arena, &value, &why);
    }
    if (st == ST_OK && (value.type != CEL_BOOL || !value.boolean)) {
        return false;
    }
    if (st == ST_OK) {
        st = cel_evaluate(reporter->expression, usage, arena, &value, &why);
    }
    if (st == ST_OK && !whole_of(&value, out)) {
        st = error_set(&why, ST_BAD_ANSWER, "the value is no number, or out of range");
    }
    if (st != ST_OK && log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "attribute not reported", LOG_STR("key", reporter->key),
                  LOG_CSTR("reason", why.text));
    }
    return st == ST_OK && (*out < -1 || *out > -1) && (*out < 0 || *out > 0);
}

/* Each namespace is there once. */
struct metadata {
    struct ext_proc_entry entries[POOL_MAX_REPORTERS][POOL_MAX_REPORTERS];
    struct ext_proc_number numbers[POOL_MAX_REPORTERS][POOL_MAX_REPORTERS]; /* of the entries */
    struct ext_proc_namespace spaces[POOL_MAX_REPORTERS];
    size_t n;
};

/* Of two numbers with one key the later one counts, as upstream. */
static void add_number(struct metadata *metadata, const struct pool_reporter *reporter,
                       double value) {
    size_t i = 0, k = 0;
    while (i < metadata->n && !str_eq(metadata->spaces[i].name, reporter->name_space)) {
        i++;
    }
    struct ext_proc_entry *entries = metadata->entries[i];
    struct ext_proc_namespace *space = &metadata->spaces[i];
    if (i == metadata->n) {
        *space = (struct ext_proc_namespace){.name = reporter->name_space, .entries = entries};
        metadata->n++;
    }
    while (k < space->n_entries && !str_eq(entries[k].key, reporter->key)) {
        k++;
    }
    space->n_entries += k == space->n_entries;
    metadata->numbers[i][k] = (struct ext_proc_number){.number = value};
    entries[k] = (struct ext_proc_entry){
        .key = reporter->key, .numbers = &metadata->numbers[i][k], .n_list = 1};
}

void pick_session_report_usage(struct pick_session *session) {
    const struct pool_spec *spec = pick_session_spec(session);
    struct pick_send_queue *queue = &session->send_queue;
    struct usage_map usage;
    if (spec->n_reporters == 0 || !session->usage.is_known || session->has_reported) {
        return;
    }
    session->has_reported = true;
    fill_usage(&session->usage, &usage);
    struct metadata *metadata = arena_calloc(session->arena, 1, sizeof(*metadata));
    for (size_t i = 0; metadata && i < spec->n_reporters; i++) {
        double value = 0;
        if (compute(&spec->reporters[i], &usage.map, session->arena, &value)) {
            add_number(metadata, &spec->reporters[i], value);
        }
    }
    if (metadata && metadata->n > 0) {
        queue->metadata = metadata->spaces;
        queue->n_metadata = metadata->n;
    }
}
