/* Envoy's response code details: those of 1.40 as observed, and what must not count for an
 * endpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/session/attempt.h"

#define RESET "upstream_reset_before_response_started"

static void attempt_details_tell_what_the_endpoint_did(void **state) {
    static const struct {
        const char *details;
        enum pick_attempt attempt;
    } rows[] = {
        {"via_upstream", PICK_ATTEMPT_ANSWERED},
        {RESET "{remote_connection_failure|delayed_connect_error:_Connection_refused}",
         PICK_ATTEMPT_NOT_CONNECTED},
        {RESET "{remote_connection_failure}", PICK_ATTEMPT_NOT_CONNECTED},
        {RESET "{remote_connection_failure|TLS_error:|1:CERTIFICATE_VERIFY_FAILED:TLS_error_end}",
         PICK_ATTEMPT_NOT_CONNECTED},
        {RESET "{connection_timeout}", PICK_ATTEMPT_NOT_CONNECTED},
        {RESET "{connection_termination}", PICK_ATTEMPT_FAILED},
        {RESET "{remote_reset}", PICK_ATTEMPT_FAILED},
        {RESET "{remote_reset_(no_error)}", PICK_ATTEMPT_FAILED},
        {RESET "{remote_refused_stream_reset}", PICK_ATTEMPT_FAILED},
        {RESET "{protocol_error}", PICK_ATTEMPT_FAILED},
        {"response_timeout", PICK_ATTEMPT_FAILED},
        {"upstream_per_try_timeout", PICK_ATTEMPT_FAILED},
        {"upstream_per_try_idle_timeout", PICK_ATTEMPT_FAILED},
        {"upstream_max_stream_duration_reached", PICK_ATTEMPT_FAILED},
        /* what Envoy lacks, or does itself */
        {RESET "{overflow}", PICK_ATTEMPT_UNKNOWN},
        {RESET "{local_connection_failure}", PICK_ATTEMPT_UNKNOWN},
        {RESET "{local_reset}", PICK_ATTEMPT_UNKNOWN},
        {RESET "{overload_manager_reset}", PICK_ATTEMPT_UNKNOWN},
        {RESET, PICK_ATTEMPT_UNKNOWN},
        {RESET "{remote", PICK_ATTEMPT_UNKNOWN},
        {"no_healthy_upstream", PICK_ATTEMPT_UNKNOWN},
        {"route_not_found", PICK_ATTEMPT_UNKNOWN},
        {"stream_idle_timeout", PICK_ATTEMPT_UNKNOWN},
        {"downstream_remote_disconnect", PICK_ATTEMPT_UNKNOWN},
        {"via_upstream_of_another", PICK_ATTEMPT_UNKNOWN},
        {"", PICK_ATTEMPT_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (pick_attempt_of_details(str_of(rows[i].details)) != rows[i].attempt) {
            fail_msg("%s", rows[i].details);
        }
    }
    assert_int_equal(pick_attempt_of_details(str_make(NULL, 0)), PICK_ATTEMPT_UNKNOWN);
}

static void attempt_flags_tell_what_the_endpoint_did(void **state) {
    static const struct {
        uint64_t flags;
        enum pick_attempt attempt;
    } rows[] = {
        {0, PICK_ATTEMPT_UNKNOWN},
        {0x20, PICK_ATTEMPT_NOT_CONNECTED},
        {0x8020, PICK_ATTEMPT_NOT_CONNECTED}, /* and no more retries */
        {0x28, PICK_ATTEMPT_UNKNOWN},
        {0x80, PICK_ATTEMPT_UNKNOWN},
        {0x02, PICK_ATTEMPT_UNKNOWN},
        {0x04, PICK_ATTEMPT_FAILED},
        {0x8010, PICK_ATTEMPT_FAILED},
        {0x40, PICK_ATTEMPT_FAILED},
        {0x800000, PICK_ATTEMPT_FAILED},
        {0x100, PICK_ATTEMPT_UNKNOWN}, /* no route */
        {UINT64_MAX, PICK_ATTEMPT_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(pick_attempt_of_flags(rows[i].flags), rows[i].attempt);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempt_details_tell_what_the_endpoint_did),
        cmocka_unit_test(attempt_flags_tell_what_the_endpoint_did),
    };
    return cmocka_run_group_tests_name("pick/session/attempt", tests, NULL, NULL);
}
