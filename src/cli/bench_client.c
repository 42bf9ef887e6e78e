/* libsluice behind the table of protocols. */
#include "cli/bench_client.h"

enum status bench_client_refuse(const sluice_client_error *error, struct error *err) {
    enum status status = ST_IO;
    if (error->status == SLUICE_CLIENT_REFUSED) {
        status = ST_REFUSED;
    } else if (error->status == SLUICE_CLIENT_INVALID) {
        status = ST_BAD_CONFIG;
    }
    return error_set(err, status, "%s", error->text);
}

sluice_client_status bench_client_open(const struct bench_call *call, void **connection,
                                       sluice_client_error *error) {
    sluice_client_options options = {.size = sizeof(options),
                                     .url = call->url,
                                     .connect_timeout_ns = call->timeout_ns,
                                     .timeout_ns = call->timeout_ns,
                                     .max_answer_bytes = BENCH_MAX_ANSWER_BYTES};
    sluice_client *client;
    sluice_client_status status = sluice_client_open(&options, &client, error);
    *connection = client;
    return status;
}

void bench_client_close(void *connection) {
    sluice_client_close(connection);
}

sluice_client_status bench_client_step(void *connection, sluice_client_error *error) {
    return sluice_client_step(connection, error);
}

void bench_client_wait(const void *connection, sluice_client_waiting *waiting) {
    sluice_client_wait(connection, waiting);
}
