/* CONTAINER_OF finds the structure around a member. */
#include "core/base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct node {
    struct node *prev, *next;
};

struct request {
    char name[3];
    struct node first;
    uint64_t id;
    struct {
        struct node second;
    } inner;
};

static void container_of_member_returns_structure(void **state) {
    (void)state;
    struct request request = {.id = 7};
    struct node *first = &request.first, *second = &request.inner.second;
    assert_ptr_equal(CONTAINER_OF(first, struct request, first), &request);
    assert_ptr_equal(CONTAINER_OF(second, struct request, inner.second), &request);
    assert_ptr_equal(CONTAINER_OF(&request.id, struct request, id), &request);
    CONTAINER_OF(first, struct request, first)->id = 8;
    assert_int_equal(request.id, 8);
}

static void container_of_const_member_is_const(void **state) {
    (void)state;
    const struct request request = {.id = 7};
    const struct node *first = &request.first;
    assert_int_equal(CONTAINER_OF(first, struct request, first)->id, 7);
    assert_true(_Generic(CONTAINER_OF(first, struct request, first), const struct request * : 1,
                         struct request * : 0));
    struct request *changeable = NULL;
    assert_true(_Generic(CONTAINER_OF(&changeable->first, struct request, first),
                         const struct request * : 0, struct request * : 1));
}

static void container_of_evaluates_argument_once(void **state) {
    (void)state;
    struct request requests[2] = {{.id = 1}, {.id = 2}};
    uint64_t *ids[] = {&requests[0].id, &requests[1].id, NULL}, **next = ids;
    assert_ptr_equal(CONTAINER_OF(*next++, struct request, id), &requests[0]);
    assert_ptr_equal(CONTAINER_OF(*next++, struct request, id), &requests[1]);
    assert_null(*next);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_of_member_returns_structure),
        cmocka_unit_test(container_of_const_member_is_const),
        cmocka_unit_test(container_of_evaluates_argument_once),
    };
    return cmocka_run_group_tests_name("core/base/compiler", tests, NULL, NULL);
}
