/* What `sluice ping` counts and prints: a line for each ping, and the summary, for people or as
 * JSON. It refuses to send anything and to look at a clock. */
#ifndef SLUICE_PROGRAM_COMMANDS_PING_REPORT_H
#define SLUICE_PROGRAM_COMMANDS_PING_REPORT_H

#include "core/base/buf.h"

/* Zero is how it begins. */
struct ping_report {
    bool json;
    const char *url;
    uint64_t n_sent, n_answered;
    uint64_t min_ns, max_ns; /* of those that were answered */
    double mean_ns;
    double squares; /* the sum of squared differences from the mean, in ns² */
};

/* The line before the first ping; none as JSON. `what` is what is asked ("a ping of MIP"). */
void ping_report_begin(const struct ping_report *report, const char *what, bool reconnect,
                       struct buf *out);
/* A ping was answered after `time_ns`, or lost because of `why` (one sentence): counts it and
 * appends its line. */
void ping_report_answer(struct ping_report *report, uint64_t time_ns, struct buf *out);
void ping_report_loss(struct ping_report *report, const char *why, struct buf *out);
/* The summary; `took_ns` is from the first ping on. */
void ping_report_end(const struct ping_report *report, uint64_t took_ns, struct buf *out);

#endif
