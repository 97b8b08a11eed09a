/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/usdt.h - a place in the code that tools outside of the process may watch.
 *
 * It is a nop, and a note in the section .note.stapsdt that says where it is, what it is called and
 * which registers hold its arguments: the form that SystemTap introduced, and bpftrace, perf, bcc
 * and OpenTelemetry's eBPF profiler read.  Who watches has the kernel put a breakpoint there.
 *
 * Arguments are in the registers of a call's first ones, as some readers do not look at the note.
 *                                                                                    [signal]
 */
#ifndef MEMORY_SAMPLE_USDT_H
#define MEMORY_SAMPLE_USDT_H

#include <stdint.h>

/* The note: sizes of name and content, type 3; the name; then the nop's address, that of a section
 * by which readers see whether addresses have been moved since, no counter of watchers, and texts.
 * 991 to 994 are its own labels. */
#define USDT_NOTE(provider, name, arguments)                                \
    "990: nop\n"                                                            \
    ".pushsection .note.stapsdt,\"\",\"note\"\n"                            \
    ".balign 4\n"                                                           \
    ".4byte 992f - 991f, 994f - 993f, 3\n"                                  \
    "991: .asciz \"stapsdt\"\n"                                             \
    "992: .balign 4\n"                                                      \
    "993: .8byte 990b, _.stapsdt.base, 0\n"                                 \
    ".asciz \"" provider "\", \"" name "\", \"" arguments "\"\n"            \
    "994: .balign 4\n"                                                      \
    ".popsection\n"                                                         \
    ".ifndef _.stapsdt.base\n"                                              \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n"                                                \
    ".hidden _.stapsdt.base\n"                                              \
    "_.stapsdt.base: .space 1\n"                                            \
    ".size _.stapsdt.base, 1\n"                                             \
    ".popsection\n"                                                         \
    ".endif\n"

#if defined(__x86_64__)
#define USDT_1 "8@%%rdi"
#define USDT_3 "8@%%rdi 8@%%rsi 8@%%rdx"
#define USDT_REGISTER_1 __asm__("rdi")
#define USDT_REGISTER_2 __asm__("rsi")
#define USDT_REGISTER_3 __asm__("rdx")
#elif defined(__aarch64__)
#define USDT_1 "8@x0"
#define USDT_3 "8@x0 8@x1 8@x2"
#define USDT_REGISTER_1 __asm__("x0")
#define USDT_REGISTER_2 __asm__("x1")
#define USDT_REGISTER_3 __asm__("x2")
#endif

#ifdef USDT_1
#define USDT_PROBE_1(provider, name, first)                               \
    do {                                                                  \
        uint64_t usdt_a = (first);                                        \
        register uint64_t usdt_1 USDT_REGISTER_1 = usdt_a;                \
        __asm__ volatile(USDT_NOTE(provider, name, USDT_1)::"r"(usdt_1)); \
    } while (0)
#define USDT_PROBE_3(provider, name, first, second, third)                            \
    do {                                                                              \
        uint64_t usdt_a = (first), usdt_b = (second), usdt_c = (third);               \
        register uint64_t usdt_1 USDT_REGISTER_1 = usdt_a;                            \
        register uint64_t usdt_2 USDT_REGISTER_2 = usdt_b;                            \
        register uint64_t usdt_3 USDT_REGISTER_3 = usdt_c;                            \
        __asm__ volatile(USDT_NOTE(provider, name, USDT_3)::"r"(usdt_1), "r"(usdt_2), \
                         "r"(usdt_3));                                                \
    } while (0)
#else /* no such tools there either */
#define USDT_PROBE_1(provider, name, first) ((void)(first))
#define USDT_PROBE_3(provider, name, first, second, third) \
    ((void)(first), (void)(second), (void)(third))
#endif

#endif
