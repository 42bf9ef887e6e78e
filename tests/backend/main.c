/* The conformance suite of the backend interface for one backend, then the tests of what only that
 * one does. It loads the built library as the server does, and links none of it.
 *
 * usage: conformance BACKEND BACKEND_DIR MODELS_DIR REFUSED_DIR */
#include <stdio.h>
#include <string.h>

#include "subject.h"

static const struct {
    const char *name;
    int (*run)(struct subject *subject);
    bool in_place, no_strings, narrow;
} backends[] = {{"identity", identity_run, true, false, false},
                {"onnxruntime", onnxruntime_run, false, false, false},
                {"openvino", openvino_run, false, true, true}};

static int run(size_t row, char **argv) {
    struct subject subject = {.name = argv[1],
                              .models = argv[3],
                              .refused = argv[4],
                              .entry = host_load(argv[2], argv[1]),
                              .in_place = backends[row].in_place,
                              .no_strings = backends[row].no_strings,
                              .narrow = backends[row].narrow};
    subject.backend = subject.entry(host_get());
    if (!subject.backend) {
        fprintf(stderr, "the backend refused this host\n");
        return 1;
    }
    return suite_run(&subject) + backends[row].run(&subject) > 0;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 5 && i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(argv[1], backends[i].name) == 0) {
            return run(i, argv);
        }
    }
    fprintf(stderr, "usage: conformance BACKEND BACKEND_DIR MODELS_DIR REFUSED_DIR\n");
    return 2;
}
