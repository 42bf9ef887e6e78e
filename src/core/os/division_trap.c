/* The handler of SIGFPE decodes the instruction that trapped. When it is an idiv of 32 or 64 bits
 * that overflowed, it sets the result and continues after it. */
#include "core/os/division_trap.h"

#if defined(__x86_64__)

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum {
    PREFIX_REX = 0x40, /* 0x40 to 0x4f */
    REX_W = 8,         /* 64 bits */
    REX_X = 2,         /* the index is r8 to r15 */
    REX_B = 1,         /* the base is */
    OPCODE_GROUP_3 = 0xf7,
    GROUP_3_IDIV = 7,
    RM_SIB = 4, /* a byte with scale, index and base follows */
    RM_RIP = 5, /* without a displacement: relative to the next instruction */
    NO_INDEX = 4,
};

static struct sigaction before; /* a handler has no argument of ours */

struct instruction {
    const uint8_t *at; /* the next byte */
    uint8_t rex, mod, rm;
};

/* The general registers in the order of their codes. */
static uint64_t read_register(const greg_t *registers, unsigned code) {
    static const int numbers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)registers[numbers[code]];
}

/* Of 0, 1 or 4 bytes, with a sign. */
static uint64_t read_displacement(struct instruction *instruction, size_t n_bytes) {
    int8_t near = 0;
    int32_t far = 0;
    if (n_bytes == sizeof(near)) {
        memcpy(&near, instruction->at, sizeof(near));
    } else if (n_bytes == sizeof(far)) {
        memcpy(&far, instruction->at, sizeof(far));
    }
    instruction->at += n_bytes;
    return (uint64_t)(int64_t)near + (uint64_t)(int64_t)far;
}

/* Returns: the address of an operand in memory; `at` is then after the instruction. */
static uint64_t read_address(struct instruction *instruction, const greg_t *registers) {
    unsigned base_high = instruction->rex & REX_B ? 8 : 0;
    unsigned base = instruction->rm;
    uint64_t address = 0;
    bool has_base = true;
    size_t n_displacement = instruction->mod == 1 ? 1 : instruction->mod == 2 ? 4 : 0;
    if (base == RM_SIB) {
        uint8_t sib = *instruction->at++;
        unsigned index = ((sib >> 3) & 7u) | (instruction->rex & REX_X ? 8u : 0u);
        base = sib & 7u;
        if (index != NO_INDEX) {
            address += read_register(registers, index) << (sib >> 6);
        }
        if (base == RM_RIP && instruction->mod == 0) {
            has_base = false;
            n_displacement = 4;
        }
    } else if (base == RM_RIP && instruction->mod == 0) {
        address = (uint64_t)(uintptr_t)instruction->at + 4; /* nothing follows the displacement */
        has_base = false;
        n_displacement = 4;
    }
    if (has_base) {
        address += read_register(registers, base | base_high);
    }
    return address + read_displacement(instruction, n_displacement);
}

/* Returns: false for another instruction than an idiv of 32 or 64 bits. */
static bool decode_idiv(struct instruction *instruction) {
    if ((*instruction->at & 0xf0u) == PREFIX_REX) {
        instruction->rex = *instruction->at++ & 0x0fu;
    }
    if (*instruction->at++ != OPCODE_GROUP_3) {
        return false;
    }
    uint8_t modrm = *instruction->at++;
    instruction->mod = modrm >> 6;
    instruction->rm = modrm & 7u;
    return ((modrm >> 3) & 7u) == GROUP_3_IDIV;
}

static uint64_t read_divisor(struct instruction *instruction, const greg_t *registers) {
    uint64_t divisor = 0;
    if (instruction->mod == 3) {
        return read_register(registers, instruction->rm | (instruction->rex & REX_B ? 8u : 0u));
    }
    const void *operand = (const void *)(uintptr_t)read_address(instruction, registers);
    memcpy(&divisor, operand, instruction->rex & REX_W ? 8 : 4);
    return divisor;
}

/* Returns: false when the trap has another cause. */
static bool finish_division(greg_t *registers) {
    struct instruction instruction = {.at = (const uint8_t *)(uintptr_t)registers[REG_RIP]};
    if (!decode_idiv(&instruction)) {
        return false;
    }
    uint64_t divisor = read_divisor(&instruction, registers);
    uint64_t high = (uint64_t)registers[REG_RDX], low = (uint64_t)registers[REG_RAX];
    bool overflows = instruction.rex & REX_W
                         ? divisor == UINT64_MAX && high == UINT64_MAX && low == UINT64_C(1) << 63
                         : (uint32_t)divisor == UINT32_MAX && (uint32_t)high == UINT32_MAX &&
                               (uint32_t)low == UINT32_C(1) << 31;
    if (overflows) { /* the quotient is in rax already */
        registers[REG_RDX] = 0;
        registers[REG_RIP] = (greg_t)(uintptr_t)instruction.at;
    }
    return overflows;
}

static void on_trap(int signum, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    if (info->si_code != FPE_INTDIV || !finish_division(at->uc_mcontext.gregs)) {
        sigaction(signum, &before, NULL); /* the instruction traps again */
    }
}

void division_trap_handle(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGFPE, &action, &before);
}

#else

void division_trap_handle(void) {
}

#endif
