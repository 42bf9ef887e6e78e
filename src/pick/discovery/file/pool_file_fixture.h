/* For tests of the pool's file. Include cmocka.h first. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_FIXTURE_H
#define SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "pick/discovery/file/pool_file.h"

/* Asserts that the text is rejected with this message, which follows "pool.yaml:". */
static inline void assert_file_refused(const char *text, const char *message) {
    struct pool_specs specs;
    struct error err = {.status = ST_OK};
    char expected[600];
    snprintf(expected, sizeof(expected), "pool.yaml:%s", message);
    enum status st = pool_file_parse("pool.yaml", str_of(text), &specs, &err);
    if (st != ST_BAD_CONFIG || strcmp(err.text, expected) != 0) {
        fail_msg("%s\ngot      %s\nexpected %s", text, err.text, expected);
    }
    assert_int_equal(specs.n, 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

#endif
