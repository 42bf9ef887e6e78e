/* For the tests of this room: what a call must have come to. To be included after cmocka.h. */
#ifndef SLUICE_CLIENT_TEST_EXPECT_H
#define SLUICE_CLIENT_TEST_EXPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sluice/client.h"

/* Of a call that is to end well: bounds a failure and measures nothing. Under valgrind, on a
 * machine with other work, a million items have taken half a minute. */
#define TEST_TIMEOUT_NS UINT64_C(600000000000)

/* `is` must be `status`, and unless that is SLUICE_CLIENT_OK the error must be one of it, whose
 * text has `says` in it. */
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
