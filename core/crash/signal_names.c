/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/signal_names.c - signals and their si_code in words.
 * Any thread, signal handlers too.  Source: sigaction(2) and asm-generic/siginfo.h.
 */
#include <signal.h>
#include <stddef.h>

#include "core/crash/crash.h"

struct word {
    int signo, code; /* signo 0: of every signal */
    const char *name, *meaning;
};

static const struct word words[] = {
    {SIGSEGV, SEGV_MAPERR, "SEGV_MAPERR", "nothing is mapped there"},
    {SIGSEGV, SEGV_ACCERR, "SEGV_ACCERR", "no permission for that access"},
    {SIGSEGV, 3, "SEGV_BNDERR", "outside of its bounds"},
    {SIGSEGV, 4, "SEGV_PKUERR", "a protection key forbids it"},
    {SIGSEGV, 8, "SEGV_MTEAERR", "a memory tag does not match"},
    {SIGSEGV, 9, "SEGV_MTESERR", "a memory tag does not match"},
    {SIGBUS, BUS_ADRALN, "BUS_ADRALN", "misaligned address"},
    {SIGBUS, BUS_ADRERR, "BUS_ADRERR", "beyond the end of a mapped file, or no room behind it"},
    {SIGBUS, BUS_OBJERR, "BUS_OBJERR", "hardware error"},
    {SIGBUS, 4, "BUS_MCEERR_AR", "memory is broken: hardware error"},
    {SIGBUS, 5, "BUS_MCEERR_AO", "memory is broken: hardware error"},
    {SIGFPE, FPE_INTDIV, "FPE_INTDIV", "integer division by zero"},
    {SIGFPE, FPE_INTOVF, "FPE_INTOVF", "integer overflow"},
    {SIGFPE, FPE_FLTDIV, "FPE_FLTDIV", "floating point division by zero"},
    {SIGFPE, FPE_FLTOVF, "FPE_FLTOVF", "floating point overflow"},
    {SIGFPE, FPE_FLTUND, "FPE_FLTUND", "floating point underflow"},
    {SIGFPE, FPE_FLTRES, "FPE_FLTRES", "inexact floating point result"},
    {SIGFPE, FPE_FLTINV, "FPE_FLTINV", "invalid floating point operation"},
    {SIGILL, ILL_ILLOPC, "ILL_ILLOPC", "illegal instruction"},
    {SIGILL, ILL_ILLOPN, "ILL_ILLOPN", "illegal operand"},
    {SIGILL, ILL_ILLADR, "ILL_ILLADR", "illegal addressing mode"},
    {SIGILL, ILL_ILLTRP, "ILL_ILLTRP", "illegal trap"},
    {SIGILL, ILL_PRVOPC, "ILL_PRVOPC", "privileged instruction"},
    {SIGILL, ILL_PRVREG, "ILL_PRVREG", "privileged register"},
    {SIGTRAP, TRAP_BRKPT, "TRAP_BRKPT", "breakpoint"},
    {SIGTRAP, TRAP_TRACE, "TRAP_TRACE", "single step"},
    {SIGSYS, 1, "SYS_SECCOMP", "a system call that a sandbox forbids"},
    {SIGSYS, 2, "SYS_USER_DISPATCH", "a system call that is dispatched to the program"},
    {0, SI_USER, "SI_USER", "sent by kill"},
    {0, SI_QUEUE, "SI_QUEUE", "sent by sigqueue"},
    {0, SI_TKILL, "SI_TKILL", "sent by raise, abort or tgkill"},
    {0, SI_KERNEL, "SI_KERNEL",
     "by the kernel: a non-canonical address or a forbidden instruction"},
};

const char *crash_signal_name(int signo)
{
    switch (signo) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    case SIGABRT:
        return "SIGABRT";
    case SIGTRAP:
        return "SIGTRAP";
    case SIGSYS:
        return "SIGSYS";
    }
    return NULL;
}

const char *crash_code_name(int signo, int code, const char **ret_meaning)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (words[i].code == code && (words[i].signo == signo || words[i].signo == 0)) {
            *ret_meaning = words[i].meaning;
            return words[i].name;
        }
    return NULL;
}
