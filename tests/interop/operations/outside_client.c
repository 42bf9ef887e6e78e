/* A program outside, written from sluice/client.h alone, in what C11 and C++17 have in common. It
 * asks the model that it is told for three numbers, in both ways there are, and prints them. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <sluice/client.h>

static const float numbers[] = {1.5f, -2.0f, 3.25f};
static const int64_t dims[] = {3};

static int failed(const sluice_client_error *error) {
    fprintf(stderr, "outside_client: %s\n", error->text);
    return 1;
}

static void print(const char *how, const sluice_call *call) {
    sluice_tensor output;
    memset(&output, 0, sizeof(output));
    output.size = sizeof(output);
    printf("%s:", how);
    for (size_t i = 0; sluice_call_output(call, i, &output) == SLUICE_CLIENT_OK; i++) {
        float value;
        for (size_t at = 0; at < output.n_bytes; at += sizeof(value)) {
            memcpy(&value, (const char *)output.data + at, sizeof(value));
            printf(" %g", (double)value);
        }
    }
    printf("\n");
}

static sluice_client_status drive(sluice_client *client, const sluice_call *call,
                                  sluice_client_error *error) {
    sluice_client_status status;
    sluice_client_step(client);
    while ((status = sluice_call_status(call, error)) == SLUICE_CLIENT_PENDING) {
        uint64_t timeout_ns = sluice_client_timeout_ns(client);
        struct pollfd fd;
        fd.fd = sluice_client_fd(client);
        fd.events = POLLIN;
        poll(&fd, 1, (int)(timeout_ns / 1000000 + (timeout_ns > 0)));
        sluice_client_step(client);
    }
    return status;
}

static int ask(sluice_client *client, const char *model, const char *name) {
    sluice_client_error error;
    sluice_tensor input;
    sluice_infer_request request;
    sluice_call *call;
    memset(&input, 0, sizeof(input));
    error.size = sizeof(error);
    input.size = sizeof(input);
    input.name = name;
    input.datatype = SLUICE_FP32;
    input.dims = dims;
    input.rank = 1;
    input.data = numbers;
    input.n_bytes = sizeof(numbers);
    memset(&request, 0, sizeof(request));
    request.size = sizeof(request);
    request.model = model;
    request.inputs = &input;
    request.n_inputs = 1;
    if (sluice_client_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK) {
        return failed(&error);
    }
    print("waiting", call);
    sluice_call_free(call);
    if (sluice_client_start_infer(client, &request, NULL, &call, &error) != SLUICE_CLIENT_OK ||
        drive(client, call, &error) != SLUICE_CLIENT_OK) {
        return failed(&error);
    }
    print("stepping", call);
    sluice_call_free(call);
    return 0;
}

int main(int argc, char **argv) {
    sluice_client *client;
    sluice_client_error error;
    sluice_client_options options;
    error.size = sizeof(error);
    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.url = argc == 4 ? argv[1] : "";
    if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK) {
        return failed(&error);
    }
    int result = ask(client, argv[2], argv[3]);
    sluice_client_close(client);
    return result;
}
