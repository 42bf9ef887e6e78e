/* Sends N inferences of one client at the same time, in the program's epoll loop, and prints the
 * sum of the results: many_calls URL MODEL INPUT N
 *
 *     cc many_calls.c -o many_calls $(pkg-config --cflags --libs sluice)
 *
 * The model's input is FP32 and takes a row of any length, and so is its output: call I sends the
 * number I. Up to 16 connections are used; further calls wait for one. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <sluice/client.h>

enum { CONNECTIONS = 16, MOST = 1000 };

static float numbers[MOST]; /* borrowed until the calls are done */
static double sum;
static int n_left, failed;

static void on_done(sluice_call *call, void *user) {
    sluice_client_error error = {.size = sizeof(error)};
    sluice_tensor output = {.size = sizeof(output)};
    float value = 0;
    (void)user;
    if (sluice_call_status(call, &error) != SLUICE_CLIENT_OK) {
        if (!failed++) {
            fprintf(stderr, "many_calls: %s\n", error.text);
        }
    } else if (sluice_call_output(call, 0, &output) == SLUICE_CLIENT_OK &&
               sluice_tensor_read(&output, SLUICE_FP32, &value, 1) == SLUICE_CLIENT_OK) {
        sum += (double)value;
    }
    sluice_call_free(call);
    n_left--;
}

static void start(sluice_client *client, char **argv, int n) {
    static const int64_t dims[] = {1};
    const sluice_call_options options = {.size = sizeof(options), .on_done = on_done};
    for (int i = 0; i < n; i++) {
        sluice_tensor input = sluice_tensor_f32(argv[3], &numbers[i], dims, 1);
        sluice_infer_request request = {.size = sizeof(request), .model = argv[2]};
        sluice_call *call;
        request.inputs = &input, request.n_inputs = 1;
        numbers[i] = (float)i;
        n_left +=
            sluice_client_start_infer(client, &request, &options, &call, NULL) == SLUICE_CLIENT_OK;
    }
}

int main(int argc, char **argv) {
    int n = argc == 5 ? atoi(argv[4]) : 0;
    if (n <= 0 || n > MOST) {
        fprintf(stderr, "usage: many_calls URL MODEL INPUT N (at most %d)\n", MOST);
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client *client;
    sluice_client_error error = {.size = sizeof(error)};
    options.max_connections = CONNECTIONS;
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        fprintf(stderr, "many_calls: %s\n", error.text);
        return 1;
    }
    start(client, argv, n);
    struct epoll_event event = {.events = EPOLLIN};
    int loop = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(loop, EPOLL_CTL_ADD, sluice_client_fd(client), &event);
    while (n_left > 0) { /* other descriptors may be in the loop too */
        uint64_t ns = sluice_client_timeout_ns(client);
        epoll_wait(loop, &event, 1, (int)(ns / 1000000 + (ns > 0)));
        sluice_client_step(client);
    }
    if (!failed) {
        printf("%g\n", sum);
    }
    sluice_client_close(client);
    return failed > 0;
}
