/* The output of `sluice ping`: a line for each ping, and the summary, as text or JSON. */
#ifndef SLUICE_PROGRAM_COMMANDS_PING_REPORT_H
#define SLUICE_PROGRAM_COMMANDS_PING_REPORT_H

#include "core/base/buf.h"

/* Starts zeroed. */
struct ping_report {
    bool json;
    const char *url;
    uint64_t n_sent, n_answered;
    uint64_t min_ns, max_ns; /* of the answered pings */
    double mean_ns;
    double squares; /* the sum of squared differences from the mean, in ns² */
};

/* Appends the line before the first ping; none with JSON. `what` names the ping ("a ping of MIP").
 */
void ping_report_begin(const struct ping_report *report, const char *what, bool reconnect,
                       struct buf *out);
/* Counts a ping that was answered after `time_ns`, or lost because of `why` (one sentence), and
 * appends its line. */
void ping_report_answer(struct ping_report *report, uint64_t time_ns, struct buf *out);
void ping_report_loss(struct ping_report *report, const char *why, struct buf *out);
/* Appends the summary; `took_ns` is the time since the first ping. */
void ping_report_end(const struct ping_report *report, uint64_t took_ns, struct buf *out);

#endif
