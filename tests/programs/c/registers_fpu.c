// Proves: every register of a running thread survives, in mid-loop: general, carry flag, x87 stack and control word,
// MXCSR, XMM/YMM/ZMM, mask registers, and the GS base.
// How: a thread loads known patterns into all of them, spins for some milliseconds on a counter in memory, stores
// them and compares; it does so for ever. The main thread, blocked in read(), holds unusual rounding modes.
#include "program.h"
#include <asm/prctl.h>

struct registers {
    uint64_t general[13]; // rax rbx rcx rdx rsi rdi rbp r8..r13
    uint64_t mask[8]; // k0..k7
    uint16_t x87_control, padding[3];
    uint32_t mxcsr, carry;
    uint64_t more_padding;
    double x87[4];
    uint8_t vector[32][64]; // zmm0..zmm31
} __attribute__((aligned(64)));

#define GENERAL(op)                                                                                                    \
    op(rax, 0) op(rbx, 8) op(rcx, 16) op(rdx, 24) op(rsi, 32) op(rdi, 40) op(rbp, 48) op(r8, 56) op(r9, 64)            \
        op(r10, 72) op(r11, 80) op(r12, 88) op(r13, 96)
#define LOAD_GENERAL(register, offset) "mov " #offset "(%r14), %" #register "\n"
#define STORE_GENERAL(register, offset) "mov %" #register ", " #offset "(%r15)\n"
#define REPEAT8(op, kind, from)                                                                                        \
    op(kind, from##0) op(kind, from##1) op(kind, from##2) op(kind, from##3) op(kind, from##4) op(kind, from##5)        \
        op(kind, from##6) op(kind, from##7)
#define LOAD_VECTOR(kind, n) "vmovdqu64 224+64*" #n "(%r14), %" #kind #n "\n"
#define STORE_VECTOR(kind, n) "vmovdqu64 %" #kind #n ", 224+64*" #n "(%r15)\n"
#define LOAD_AVX(kind, n) "vmovdqu 224+64*" #n "(%r14), %" #kind #n "\n"
#define STORE_AVX(kind, n) "vmovdqu %" #kind #n ", 224+64*" #n "(%r15)\n"
#define LOAD_SSE(kind, n) "movdqu 224+64*" #n "(%r14), %" #kind #n "\n"
#define STORE_SSE(kind, n) "movdqu %" #kind #n ", 224+64*" #n "(%r15)\n"
#define LOAD_MASK(kind, n) "kmovq 104+8*" #n "(%r14), %" #kind #n "\n"
#define STORE_MASK(kind, n) "kmovq %" #kind #n ", 104+8*" #n "(%r15)\n"
#define FIRST16(op, kind)                                                                                              \
    REPEAT8(op, kind, )                                                                                                \
    op(kind, 8) op(kind, 9) op(kind, 10) op(kind, 11) op(kind, 12) op(kind, 13) op(kind, 14) op(kind, 15)
#define LAST16(op, kind)                                                                                               \
    op(kind, 16) op(kind, 17) op(kind, 18) op(kind, 19) op(kind, 20) op(kind, 21) op(kind, 22) op(kind, 23)            \
        op(kind, 24) op(kind, 25) op(kind, 26) op(kind, 27) op(kind, 28) op(kind, 29) op(kind, 30) op(kind, 31)

// void NAME(const struct registers *in, struct registers *out, volatile uint64_t *counter)
// During the spin only rsp, r14 (the counter) and r15 (where to store) carry no pattern.
// `decq` leaves the carry flag alone, so that one is part of the pattern too.
// clang-format off
#define SPIN(name, load, store) __asm__( \
    ".text\n.globl " name "\n" name ":\n" \
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n" \
    "sub $24, %rsp\n fnstcw (%rsp)\n stmxcsr 8(%rsp)\n" \
    "mov %rdi, %r14\n mov %rsi, %r15\n push %rdx\n" \
    "fldl 192(%r14)\n fldl 200(%r14)\n fldl 208(%r14)\n fldl 216(%r14)\n" \
    "fldcw 168(%r14)\n ldmxcsr 176(%r14)\n" \
    load GENERAL(LOAD_GENERAL) \
    "mov (%rsp), %r14\n stc\n" \
    "1: decq (%r14)\n jnz 1b\n" \
    "movl $0, 180(%r15)\n jnc 2f\n movl $1, 180(%r15)\n 2:\n" \
    GENERAL(STORE_GENERAL) store \
    "fnstcw 168(%r15)\n stmxcsr 176(%r15)\n" \
    "fstpl 216(%r15)\n fstpl 208(%r15)\n fstpl 200(%r15)\n fstpl 192(%r15)\n" \
    "pop %rdx\n fldcw (%rsp)\n ldmxcsr 8(%rsp)\n add $24, %rsp\n" \
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n")
// clang-format on
SPIN("spin_sse", FIRST16(LOAD_SSE, xmm), FIRST16(STORE_SSE, xmm));
SPIN("spin_avx", FIRST16(LOAD_AVX, ymm), FIRST16(STORE_AVX, ymm) "vzeroupper\n");
SPIN("spin_avx512", FIRST16(LOAD_VECTOR, zmm) LAST16(LOAD_VECTOR, zmm) REPEAT8(LOAD_MASK, k, ),
     FIRST16(STORE_VECTOR, zmm) LAST16(STORE_VECTOR, zmm) REPEAT8(STORE_MASK, k, ) "vzeroupper\n");
void spin_sse(const struct registers *, struct registers *, volatile uint64_t *);
void spin_avx(const struct registers *, struct registers *, volatile uint64_t *);
void spin_avx512(const struct registers *, struct registers *, volatile uint64_t *);
_Static_assert(__builtin_offsetof(struct registers, mask) == 104, "the assembly knows the layout");
_Static_assert(__builtin_offsetof(struct registers, x87_control) == 168, "the assembly knows the layout");
_Static_assert(__builtin_offsetof(struct registers, mxcsr) == 176, "the assembly knows the layout");
_Static_assert(__builtin_offsetof(struct registers, vector) == 224, "the assembly knows the layout");

static _Atomic uint64_t seed = 1, rounds;
static const uint64_t gs_base = 0x123456789000;

static void prepare(struct registers *in, uint64_t from, int level) {
    memset(in, 0, sizeof *in);
    fill(in->general, sizeof in->general, from);
    in->x87_control = 0x037f | (from % 4) << 10; // the four rounding modes in turn
    in->mxcsr = 0x1f80 | (from % 4) << 13 | (from & 4 ? 0x8040 : 0);
    in->carry = 1;
    for (int i = 0; i < 4; i++) in->x87[i] = 1.5 + (mix(from + i) % 1000); // exact in any rounding mode
    int width = level == 2 ? 64 : level == 1 ? 32 : 16;
    for (int i = 0; i < (level == 2 ? 32 : 16); i++) fill(in->vector[i], width, from * 100 + i);
    if (level == 2) fill(in->mask, sizeof in->mask, from + 7);
}

static void *spin(void *unused_) {
    (void)unused_;
    int level = __builtin_cpu_supports("avx512bw") ? 2 : __builtin_cpu_supports("avx") ? 1 : 0;
    static struct registers in, out;
    syscall(SYS_arch_prctl, ARCH_SET_GS, gs_base);
    for (;;) {
        volatile uint64_t counter = 8000000; // some milliseconds: nearly all the time is spent in the spin
        prepare(&in, atomic_load(&seed), level);
        memset(&out, 0, sizeof out);
        (level == 2 ? spin_avx512 : level == 1 ? spin_avx : spin_sse)(&in, &out, &counter);
        for (size_t i = 0; i < sizeof in / 8; i++) {
            uint64_t expected = ((uint64_t *)&in)[i], got = ((uint64_t *)&out)[i];
            CHECK(expected == got, "register word %zu (level %d), expected %" PRIx64 ", got %" PRIx64, i, level,
                  expected, got);
        }
        uint64_t base = 0;
        syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
        CHECK(base == gs_base, "gs base, expected %" PRIx64 ", got %" PRIx64, gs_base, base);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

// By hand, as fesetround() would need another library.
static void set_rounding(unsigned mode) {
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    control = (control & ~0xc00) | mode << 10;
    __asm__ volatile("fldcw %0" : : "m"(control));
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x6000) | mode << 13);
}
static unsigned rounding(void) { return atomic_load(&seed) % 2 ? 2 : 1; } // up, or down

static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, spin, NULL), "pthread_create");
    set_rounding(rounding()); // in the main thread only, where it stays while blocked in read()
}
static void check(void) {
    uint64_t before = atomic_load(&rounds);
    CHECK(WITHIN_PATIENCE(atomic_load(&rounds) >= before + 2),
          "spinning thread, expected to go on, got stuck at %" PRIu64, before);
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    CHECK_EQ(control >> 10 & 3, rounding(), "x87 rounding of the main thread");
    CHECK_EQ(__builtin_ia32_stmxcsr() >> 13 & 3, rounding(), "SSE rounding of the main thread");
}
static void step(void) {
    atomic_fetch_add(&seed, 1);
    set_rounding(rounding());
}
static void digest(void) { digest_number(atomic_load(&seed)); }
PROGRAM(setup, check, step, digest)
