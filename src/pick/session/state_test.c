/* The states of a pick follow the table of docs/decisions/049-states-of-a-pick.md. */
#include "pick/session/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N = PICK_ENDED + 1 };

static void state_successors_are_those_of_table(void **state) {
    static const unsigned at_body =
        1U << PICK_QUEUED | 1U << PICK_PICKED | 1U << PICK_LOCAL_REPLY | 1U << PICK_ENDED;
    static const unsigned successors[N] = {
        [PICK_HEADERS_EXPECTED] = 1U << PICK_OBSERVED | 1U << PICK_HEADERS_HELD |
                                  1U << PICK_BODY_PENDING | 1U << PICK_QUEUED |
                                  1U << PICK_UNCHECKED | 1U << PICK_PICKED | 1U << PICK_ENDED,
        [PICK_OBSERVED] = 1U << PICK_ENDED,
        [PICK_HEADERS_HELD] = at_body,
        [PICK_BODY_PENDING] = at_body,
        [PICK_QUEUED] =
            1U << PICK_UNCHECKED | 1U << PICK_PICKED | 1U << PICK_LOCAL_REPLY | 1U << PICK_ENDED,
        [PICK_UNCHECKED] = 1U << PICK_CHECKING | 1U << PICK_PICKED | 1U << PICK_ENDED,
        [PICK_CHECKING] = 1U << PICK_PICKED | 1U << PICK_ENDED,
        [PICK_PICKED] = 1U << PICK_ENDED,
        [PICK_LOCAL_REPLY] = 1U << PICK_ENDED,
        [PICK_ENDED] = 0,
    };
    (void)state;
    for (int from = 0; from < N; from++) {
        for (int to = 0; to < N; to++) {
            bool follows = pick_state_follows((enum pick_state)from, (enum pick_state)to);
            assert_int_equal(follows, successors[from] >> to & 1);
        }
    }
}

/* "Picked" is every state in which the pick was sent and the stream goes on, and no other. */
static void state_picked_states_are_those_after_pick(void **state) {
    struct pick_session session;
    (void)state;
    for (int at = 0; at < N; at++) {
        session.state = (enum pick_state)at;
        bool expected = at == PICK_UNCHECKED || at == PICK_CHECKING || at == PICK_PICKED;
        assert_int_equal(pick_session_is_picked(&session), expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_successors_are_those_of_table),
        cmocka_unit_test(state_picked_states_are_those_after_pick),
    };
    return cmocka_run_group_tests_name("pick/session/state", tests, NULL, NULL);
}
