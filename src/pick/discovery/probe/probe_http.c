/* A check over HTTP: GET, and an answer of 200 to 299. What the answer says besides is not read. */
#include <stdio.h>
#include <stdlib.h>

#include "pick/discovery/probe/probe_check.h"

static void on_fetched(void *user, const struct http_fetch_result *fetched) {
    struct probe_check *check = user;
    char why[40];
    if (fetched->error.status != ST_OK) {
        probe_check_fail(check, &fetched->error, fetched->refused);
    } else if (fetched->status >= 200 && fetched->status < 300) {
        probe_check_finish(check, PROBE_OK, NULL);
    } else {
        snprintf(why, sizeof(why), "answered %d", fetched->status);
        probe_check_finish(check, PROBE_STATUS, why);
    }
}

static enum status begin(struct probe_check *check, const struct pool_health *health,
                         struct error *err) {
    char *url = NULL;
    if (!check->fetcher ||
        asprintf(&url, "http://%s%.*s", check->target, STR_ARG(health->path)) < 0) {
        return error_set(err, ST_NO_MEMORY, "no memory for a check");
    }
    struct http_fetch_request ask = {
        .url = url,
        .timeout_ns = check->timeout_ns,
        .own_connection = !check->keep_alive,
        .done = on_fetched,
        .user = check,
    };
    enum status st = http_fetch_start(check->fetcher, &ask, &check->io.fetch, err);
    free(url);
    return st;
}

static void cancel(struct probe_check *check) {
    http_fetch_cancel(check->io.fetch);
    probe_check_finish(check, PROBE_BROKEN, "given up");
}

const struct probe_method PROBE_HTTP = {begin, cancel};
