/* For client tests: expected result and error of a call. Include after cmocka.h. */
#ifndef SLUICE_CLIENT_TEST_EXPECT_H
#define SLUICE_CLIENT_TEST_EXPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sluice/client.h"

/* For calls that must succeed: bounds a failure and measures nothing. Under valgrind, on a busy
 * machine, a million items have taken half a minute. */
#define TEST_TIMEOUT_NS UINT64_C(600000000000)

/* `is` must be `status`; unless that is SLUICE_CLIENT_OK, the error must have it too, and `says`
 * in its text. */
static inline void test_expect(const sluice_client_error *error, sluice_client_status is,
                               sluice_client_status status, const char *says) {
    bool fits = is == status;
    if (fits && status != SLUICE_CLIENT_OK) {
        fits = error->status == status && strstr(error->text, says);
    }
    if (!fits) {
        fail_msg("expected %d \"%s\", got %d \"%s\"", (int)status, says ? says : "", (int)is,
                 error->text);
    }
}

#endif
