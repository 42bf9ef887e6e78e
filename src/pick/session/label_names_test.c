/* Admission of label values: the limits, names on trial, and real names beside made-up ones. */
#include "pick/session/label_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Returns: how many of the made-up names are admitted. */
static unsigned admit_made_up(struct pick_label_names *names, unsigned n) {
    unsigned n_admitted = 0;
    for (unsigned i = 0; i < n; i++) {
        char text[32];
        int len = snprintf(text, sizeof(text), "made-up-%u", i);
        n_admitted += pick_label_names_admit(names, str_make(text, (size_t)len));
    }
    return n_admitted;
}

static void label_names_on_trial_are_limited(void **state) {
    struct pick_label_names *names = pick_label_names_new(10, 4);
    (void)state;
    assert_true(pick_label_names_admit(names, STR("a")));
    assert_true(pick_label_names_admit(names, STR("a")));
    assert_true(pick_label_names_has(names, STR("a")));
    assert_int_equal(admit_made_up(names, 1000), 3);
    assert_false(pick_label_names_has(names, STR("b")));
    assert_false(pick_label_names_admit(names, STR("b")));
    pick_label_names_free(names);
}

static void label_names_real_one_is_admitted_beside_made_up_ones(void **state) {
    struct pick_label_names *names = pick_label_names_new(10, 4);
    (void)state;
    assert_int_equal(admit_made_up(names, 1000), 4);
    pick_label_names_prove(names, STR("real"));
    assert_true(pick_label_names_has(names, STR("real")));
    assert_true(pick_label_names_admit(names, STR("real")));
    assert_true(pick_label_names_admit(names, STR("made-up-0"))); /* stays */
    pick_label_names_free(names);
}

static void label_names_proven_one_makes_room_for_trial(void **state) {
    struct pick_label_names *names = pick_label_names_new(3, 1);
    (void)state;
    assert_true(pick_label_names_admit(names, STR("a")));
    assert_false(pick_label_names_admit(names, STR("b")));
    pick_label_names_prove(names, STR("a"));
    pick_label_names_prove(names, STR("a"));
    assert_true(pick_label_names_admit(names, STR("b")));
    assert_false(pick_label_names_admit(names, STR("c")));
    pick_label_names_prove(names, STR("c"));
    pick_label_names_prove(names, STR("d")); /* there are as many as may be */
    assert_true(pick_label_names_has(names, STR("c")));
    assert_false(pick_label_names_has(names, STR("d")));
    pick_label_names_free(names);
}

static void label_names_unfit_texts_are_refused(void **state) {
    struct pick_label_names *names = pick_label_names_new(10, 10);
    char longest[PICK_LABEL_BYTES + 1];
    (void)state;
    memset(longest, 'x', sizeof(longest));
    assert_true(pick_label_names_admit(names, str_make(longest, PICK_LABEL_BYTES)));
    assert_false(pick_label_names_admit(names, str_make(longest, PICK_LABEL_BYTES + 1)));
    assert_false(pick_label_names_admit(names, STR("\xff")));
    pick_label_names_prove(names, STR("\xff"));
    assert_false(pick_label_names_has(names, STR("\xff")));
    pick_label_names_free(names);
    names = pick_label_names_new(0, 0);
    assert_false(pick_label_names_admit(names, STR("a")));
    pick_label_names_free(names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_names_on_trial_are_limited),
        cmocka_unit_test(label_names_real_one_is_admitted_beside_made_up_ones),
        cmocka_unit_test(label_names_proven_one_makes_room_for_trial),
        cmocka_unit_test(label_names_unfit_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
