/* Reads Envoy's response code details and flags by the tables in attempt.def. */
#include "pick/session/attempt.h"

#include <stddef.h>

static const struct {
    struct str text;
    enum pick_attempt attempt;
} ROWS[] = {
#define DETAILS(text, attempt) {{text, sizeof(text) - 1}, attempt},
#include "pick/session/attempt.def"
#undef DETAILS
};

static bool matches(struct str details, struct str text) {
    return str_starts_with(details, text) &&
           (details.len == text.len || details.ptr[text.len] == '|' ||
            details.ptr[text.len] == '}');
}

enum pick_attempt pick_attempt_of_details(struct str details) {
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (matches(details, ROWS[i].text)) {
            return ROWS[i].attempt;
        }
    }
    return PICK_ATTEMPT_UNKNOWN;
}

enum pick_attempt pick_attempt_of_flags(uint64_t flags) {
    static const struct {
        uint64_t bit;
        enum pick_attempt attempt;
    } rows[] = {
#define FLAG(bit, attempt) {bit, attempt},
#include "pick/session/attempt.def"
#undef FLAG
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((flags & rows[i].bit) != 0) {
            return rows[i].attempt;
        }
    }
    return PICK_ATTEMPT_UNKNOWN;
}
