/* Connections of libsluice, as the rows of bench_call's table want them. */
#ifndef SLUICE_CLI_BENCH_CLIENT_H
#define SLUICE_CLI_BENCH_CLIENT_H

#include "cli/bench_call.h"

enum { BENCH_MAX_ANSWER_BYTES = 1 << 30 };

/* See struct bench_protocol; `connection` is a sluice_client. */
sluice_client_status bench_client_open(const struct bench_call *call, void **connection,
                                       sluice_client_error *error);
void bench_client_close(void *connection);
sluice_client_status bench_client_step(void *connection, sluice_client_error *error);
void bench_client_wait(const void *connection, sluice_client_waiting *waiting);

/* What libsluice says, in our own vocabulary: ST_REFUSED with the server's message, ST_BAD_CONFIG
 * for what can't be sent, else ST_IO. */
enum status bench_client_refuse(const sluice_client_error *error, struct error *err);

#endif
