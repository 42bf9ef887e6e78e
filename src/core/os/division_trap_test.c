/* Divisions whose quotient does not fit, with operands in all places. */
#include "core/os/division_trap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__x86_64__)

struct result {
    int64_t quotient, remainder;
};

/* rdx:rax = INT_MIN, divided by the operand -1 */
#define DIVIDE_32(operand, ...)                                                                    \
    int32_t low = INT32_MIN, high = -1;                                                            \
    __asm__ volatile("idivl " operand : "+a"(low), "+d"(high) : __VA_ARGS__ : "cc", "memory");     \
    return (struct result) {                                                                       \
        low, high                                                                                  \
    }
#define DIVIDE_64(operand, ...)                                                                    \
    int64_t low = INT64_MIN, high = -1;                                                            \
    __asm__ volatile("idivq " operand : "+a"(low), "+d"(high) : __VA_ARGS__ : "cc", "memory");     \
    return (struct result) {                                                                       \
        low, high                                                                                  \
    }

static int32_t all_ones[256];
static int32_t near_one = -1;

static struct result by_register_32(void) {
    DIVIDE_32("%2", "c"(-1));
}
static struct result by_high_register_32(void) {
    register int32_t divisor __asm__("r13") = -1;
    DIVIDE_32("%2", "r"(divisor));
}
static struct result by_register_64(void) {
    DIVIDE_64("%2", "c"(INT64_C(-1)));
}
static struct result by_high_register_64(void) {
    register int64_t divisor __asm__("r12") = -1;
    DIVIDE_64("%2", "r"(divisor));
}
static struct result by_base_32(void) {
    DIVIDE_32("(%2)", "c"(&all_ones[128]));
}
static struct result by_r13_32(void) {
    register int32_t *base __asm__("r13") = &all_ones[128];
    DIVIDE_32("(%2)", "r"(base));
}
static struct result by_r12_64(void) {
    register int32_t *base __asm__("r12") = &all_ones[128];
    DIVIDE_64("(%2)", "r"(base));
}
static struct result by_base_near_64(void) {
    DIVIDE_64("-16(%2)", "c"(&all_ones[128]));
}
static struct result by_base_far_32(void) {
    DIVIDE_32("-512(%2)", "c"(&all_ones[128]));
}
static struct result by_index_32(void) {
    DIVIDE_32("(%2,%3,4)", "c"(all_ones), "S"(INT64_C(9)));
}
static struct result by_index_near_64(void) {
    register int64_t index __asm__("r9") = 9;
    DIVIDE_64("8(%2,%3,8)", "c"(all_ones), "r"(index));
}
static struct result by_index_alone_32(void) {
    DIVIDE_32("0(,%2,4)", "c"((int64_t)(uintptr_t)all_ones / 4));
}
static struct result by_rip_32(void) {
    DIVIDE_32("%2", "m"(near_one));
}

static void division_overflow_wraps(void **state) {
    static struct result (*const divide_32[])(void) = {
        by_register_32, by_high_register_32, by_base_32, by_r13_32,
        by_base_far_32, by_index_32,         by_rip_32,  by_index_alone_32};
    static struct result (*const divide_64[])(void) = {
        by_register_64, by_high_register_64, by_r12_64, by_base_near_64, by_index_near_64};
    (void)state;
    memset(all_ones, 0xff, sizeof(all_ones));
    division_trap_handle();
    for (size_t i = 0; i < sizeof(divide_32) / sizeof(divide_32[0]); i++) {
        struct result result = divide_32[i]();
        assert_int_equal(result.quotient, INT32_MIN);
        assert_int_equal(result.remainder, 0);
    }
    for (size_t i = 0; i < sizeof(divide_64) / sizeof(divide_64[0]); i++) {
        struct result result = divide_64[i]();
        assert_int_equal(result.quotient, INT64_MIN);
        assert_int_equal(result.remainder, 0);
    }
}

static void division_by_zero_ends_process(void **state) {
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGFPE, SIG_DFL);
        division_trap_handle();
        int32_t low = 1, high = 0;
        __asm__ volatile("idivl %2" : "+a"(low), "+d"(high) : "c"(0) : "cc");
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGFPE);
}

#else

static void division_overflow_wraps(void **state) {
    (void)state;
    division_trap_handle();
}
static void division_by_zero_ends_process(void **state) {
    (void)state;
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(division_overflow_wraps),
        cmocka_unit_test(division_by_zero_ends_process),
    };
    return cmocka_run_group_tests_name("core/os/division_trap", tests, NULL, NULL);
}
