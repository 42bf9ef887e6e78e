/* Prints the versions of several models, asked for at once in a loop of libuv: uv_loop URL MODEL…
 *
 *     cc uv_loop.c -o uv_loop $(pkg-config --cflags --libs sluice libuv)
 *
 * The client's descriptor becomes a uv_poll_t, its timeout a uv_timer_t; both step the client. */
#include <stdio.h>

#include <sluice/client.h>
#include <uv.h>

static sluice_client *client;
static uv_poll_t poll_handle;
static uv_timer_t timer;
static int n_left, n_failed;

static void finish(sluice_call *call) {
    sluice_client_error error = {.size = sizeof(error)};
    sluice_model_metadata model = {.size = sizeof(model)};
    int ok = sluice_call_status(call, &error) == SLUICE_CLIENT_OK &&
             sluice_call_model(call, &model) == SLUICE_CLIENT_OK;
    printf("%s: %s\n", (char *)sluice_call_user(call), ok ? model.version : error.text);
    n_failed += !ok;
    sluice_call_free(call);
    n_left--;
}

static void step(void);

static void on_timer(uv_timer_t *handle) {
    (void)handle;
    step();
}

static void on_readable(uv_poll_t *handle, int status, int events) {
    (void)handle, (void)status, (void)events;
    step();
}

static void step(void) {
    sluice_call *call;
    sluice_client_step(client);
    while ((call = sluice_client_next_done(client)) != NULL) {
        finish(call);
    }
    if (n_left == 0) {
        uv_stop(uv_default_loop());
        return;
    }
    uint64_t ns = sluice_client_timeout_ns(client);
    uv_timer_start(&timer, on_timer, ns / 1000000 + (ns > 0), 0);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: uv_loop URL MODEL…\n");
        return 2;
    }
    sluice_client_options options = {.size = sizeof(options), .url = argv[1]};
    sluice_client_error error = {.size = sizeof(error)};
    sluice_client_status status = sluice_client_open(&options, &client, &error);
    for (; status == SLUICE_CLIENT_OK && n_left < argc - 2; n_left++) {
        char *name = argv[2 + n_left];
        sluice_call_options of_call = {.size = sizeof(of_call), .user = name};
        sluice_call *call;
        status = sluice_client_start_model_metadata(client, name, NULL, &of_call, &call, &error);
    }
    if (status != SLUICE_CLIENT_OK) {
        fprintf(stderr, "uv_loop: %s\n", error.text);
        sluice_client_close(client);
        return 1;
    }
    uv_poll_init(uv_default_loop(), &poll_handle, sluice_client_fd(client));
    uv_poll_start(&poll_handle, UV_READABLE, on_readable);
    uv_timer_init(uv_default_loop(), &timer);
    step();
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    sluice_client_close(client);
    return n_failed > 0;
}
