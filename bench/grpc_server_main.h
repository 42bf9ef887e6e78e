/* What the floors that speak gRPC have in common: a server of one worker with one method, which
 * prints its address and ends when its standard input does. */
#ifndef SLUICE_BENCH_GRPC_SERVER_MAIN_H
#define SLUICE_BENCH_GRPC_SERVER_MAIN_H

#include "net/server/grpc/server.h"

/* argv[1]: where it listens, "127.0.0.1:0" by default. Returns: the exit code. */
int grpc_server_main(const struct grpc_method *method, int argc, char **argv);

#endif
