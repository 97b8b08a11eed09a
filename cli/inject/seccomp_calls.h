/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp_calls.h - the system calls of the core, of our plugins and of the thread that
 * brings them, in rows.
 *
 * A thread of ours lives under the filter of the one that began it, so a call that the program
 * itself never makes may be its end.  NEEDED: without it nothing starts.  ARGUMENT: which values
 * that one, counted from 0, has where filters look at it; any other argument may be anything.
 * tests/e2e/test_seccomp.py sees what is called and holds it against this list.
 */
#ifndef NEEDED
#define NEEDED(call)
#define CALLED(call)
#endif
#ifndef ARGUMENT
#define ARGUMENT(call, index, ...)
#endif

NEEDED(accept4) NEEDED(bind) NEEDED(clone) NEEDED(eventfd2) NEEDED(fcntl) NEEDED(ftruncate)
NEEDED(getdents64) NEEDED(getpid) NEEDED(getsockname) NEEDED(gettid) NEEDED(listen) NEEDED(madvise)
NEEDED(memfd_create) NEEDED(mkdirat) NEEDED(mmap) NEEDED(mprotect) NEEDED(munmap) NEEDED(openat)
NEEDED(ppoll) NEEDED(prctl) NEEDED(pread64) NEEDED(pwrite64) NEEDED(recvmsg) NEEDED(renameat)
NEEDED(rt_sigprocmask) NEEDED(rt_sigreturn) NEEDED(sendto) NEEDED(socket) NEEDED(statfs)
NEEDED(tgkill) NEEDED(unlinkat)
CALLED(clock_gettime) CALLED(clock_nanosleep) CALLED(close) CALLED(connect) CALLED(epoll_create1)
CALLED(epoll_ctl) CALLED(epoll_pwait) CALLED(exit) CALLED(fallocate) CALLED(fchmod) CALLED(fchmodat)
CALLED(fchown) CALLED(fdatasync) CALLED(fstat) CALLED(fstatfs) CALLED(fsync) CALLED(futex)
CALLED(getcwd) CALLED(getegid) CALLED(geteuid) CALLED(getgid) CALLED(getpeername) CALLED(getppid)
CALLED(getpriority) CALLED(getrandom) CALLED(getrusage) CALLED(getsockopt) CALLED(getuid)
CALLED(ioctl) CALLED(ioprio_get) CALLED(ioprio_set) CALLED(lseek) CALLED(mbind) CALLED(membarrier)
CALLED(mincore) CALLED(mremap) CALLED(munlock) CALLED(nanosleep) CALLED(newfstatat)
CALLED(perf_event_open) CALLED(pipe2) CALLED(prlimit64) CALLED(process_vm_readv)
CALLED(process_vm_writev) CALLED(read) CALLED(readlinkat) CALLED(recvfrom) CALLED(restart_syscall)
CALLED(rt_sigaction) CALLED(rt_sigpending) CALLED(rt_sigtimedwait) CALLED(rt_tgsigqueueinfo)
CALLED(sched_getaffinity) CALLED(sched_getscheduler) CALLED(sched_setaffinity)
CALLED(sched_setscheduler) CALLED(sched_yield) CALLED(sendmsg) CALLED(set_robust_list)
CALLED(setpriority) CALLED(setsockopt) CALLED(shutdown) CALLED(sigaltstack) CALLED(symlinkat)
CALLED(timer_create) CALLED(timer_delete) CALLED(timer_settime) CALLED(timerfd_create)
CALLED(timerfd_settime) CALLED(uname) CALLED(utimensat) CALLED(write) CALLED(writev)
#ifdef SYS_clone3 /* Linux 5.3 */
NEEDED(clone3) CALLED(pidfd_open)
#endif
#ifdef SYS_rseq /* Linux 4.18, glibc 2.35 */
CALLED(rseq)
#endif
#ifdef SYS_close_range /* Linux 5.9 */
CALLED(close_range)
#endif
#ifdef SYS_open /* x86-64 has the older ones, too */
NEEDED(mkdir) NEEDED(poll) NEEDED(rename) NEEDED(symlink) NEEDED(unlink)
CALLED(access) CALLED(chmod) CALLED(epoll_wait) CALLED(open) CALLED(readlink) CALLED(rmdir)
#endif

/* pthread_create() without clone3: CLONE_VM to CLONE_CHILD_CLEARTID, no namespace. */
ARGUMENT(clone, 0, 0x3d0f00)
ARGUMENT(fcntl, 1, F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW,
         10 /* F_SETSIG */, 15 /* F_SETOWN_EX */, F_DUPFD_CLOEXEC, 1033 /* F_ADD_SEALS */,
         1034 /* F_GET_SEALS */)
ARGUMENT(futex, 1, FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET,
         FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE,
         FUTEX_CMP_REQUEUE_PRIVATE, FUTEX_WAKE_OP_PRIVATE, FUTEX_WAIT_BITSET_PRIVATE,
         FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME)
ARGUMENT(ioctl, 1, PERF_EVENT_IOC_ID, PERF_EVENT_IOC_PERIOD, PERF_EVENT_IOC_REFRESH, FIOCLEX,
         TCGETS)
ARGUMENT(madvise, 2, MADV_DONTNEED, MADV_REMOVE, MADV_DONTFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
         MADV_WIPEONFORK, 23 /* MADV_POPULATE_WRITE */, 102 /* MADV_GUARD_INSTALL */)
ARGUMENT(mmap, 2, PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC)
ARGUMENT(mprotect, 2, PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC)
ARGUMENT(prctl, 0, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_TIMERSLACK)
ARGUMENT(socket, 0, AF_UNIX, AF_INET, AF_INET6)

#undef NEEDED
#undef CALLED
#undef ARGUMENT
