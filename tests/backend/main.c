/* The conformance suite of the backend interface for one backend, and the tests of that backend
 * only. It loads the built library as the server does.
 *
 * usage: conformance BACKEND BACKEND_DIR [MODELS_DIR REFUSED_DIR]
 *
 * A backend that is not in the table below runs the suite alone; without model directories it is
 * one that needs no files. */
#include <stdio.h>
#include <string.h>

#include "under_test.h"

static const struct {
    const char *name;
    int (*run)(struct backend_under_test *subject);
    bool in_place, no_strings, narrow;
} backends[] = {{"identity", identity_run, true, false, false},
                {"onnxruntime", onnxruntime_run, false, false, false},
                {"openvino", openvino_run, false, true, true}};

static int run(struct backend_under_test *subject, int (*own)(struct backend_under_test *subject)) {
    subject->backend = subject->entry(host_get());
    if (!subject->backend) {
        fprintf(stderr, "the backend refused this host\n");
        return 1;
    }
    int failed = suite_run(subject);
    return (own ? failed + own(subject) : failed) > 0;
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: conformance BACKEND BACKEND_DIR [MODELS_DIR REFUSED_DIR]\n");
        return 2;
    }
    struct backend_under_test subject = {.name = argv[1],
                                         .models = argc == 5 ? argv[3] : argv[2],
                                         .refused = argc == 5 ? argv[4] : argv[2],
                                         .entry = host_load(argv[2], argv[1])};
    for (size_t i = 0; argc == 5 && i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(argv[1], backends[i].name) == 0) {
            subject.in_place = backends[i].in_place;
            subject.no_strings = backends[i].no_strings;
            subject.narrow = backends[i].narrow;
            return run(&subject, backends[i].run);
        }
    }
    return run(&subject, NULL);
}
