/* A check that is a connection, and nothing else. */
#include "pick/discovery/probe/probe_check.h"

static void on_dialed(void *user, const struct dial_result *dialed) {
    struct probe_check *check = user;
    if (dialed->error.status == ST_OK) {
        probe_check_finish(check, PROBE_OK, NULL);
    } else {
        probe_check_fail(check, &dialed->error, dialed->refused);
    }
}

static enum status begin(struct probe_check *check, const struct pool_health *health,
                         struct error *err) {
    (void)health;
    return dial_start(check->worker, str_of(check->target), check->timeout_ns, on_dialed, check,
                      &check->io.dial, err);
}

static void cancel(struct probe_check *check) {
    dial_cancel(check->io.dial);
    probe_check_finish(check, PROBE_BROKEN, "given up");
}

const struct probe_method PROBE_TCP = {begin, cancel};
