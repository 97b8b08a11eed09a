/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp_calls.h - the system calls of the core and of our plugins, in rows.
 *
 * A thread of ours lives under the filter of the one that began it, so a call that the program
 * itself never makes may be its end.  NEEDED: without it nothing starts.
 * tests/e2e/test_environments.py sees what is called and holds it against this list.
 */
NEEDED(accept4) NEEDED(bind) NEEDED(clone) NEEDED(eventfd2) NEEDED(fcntl) NEEDED(ftruncate)
NEEDED(getdents64) NEEDED(getpid) NEEDED(getsockname) NEEDED(gettid) NEEDED(listen) NEEDED(madvise)
NEEDED(memfd_create) NEEDED(mkdirat) NEEDED(mmap) NEEDED(mprotect) NEEDED(munmap) NEEDED(openat)
NEEDED(ppoll) NEEDED(prctl) NEEDED(pread64) NEEDED(pwrite64) NEEDED(recvmsg) NEEDED(renameat)
NEEDED(rt_sigprocmask) NEEDED(rt_sigreturn) NEEDED(sendto) NEEDED(socket) NEEDED(statfs)
NEEDED(tgkill) NEEDED(unlinkat)
CALLED(clock_gettime) CALLED(clock_nanosleep) CALLED(close) CALLED(connect) CALLED(epoll_create1)
CALLED(epoll_ctl) CALLED(epoll_pwait) CALLED(exit) CALLED(fallocate) CALLED(fchmod) CALLED(fchmodat)
CALLED(fdatasync) CALLED(fstat) CALLED(fstatfs) CALLED(futex) CALLED(getcwd) CALLED(getegid)
CALLED(geteuid) CALLED(getgid) CALLED(getpeername) CALLED(getppid) CALLED(getpriority)
CALLED(getrandom) CALLED(getrusage) CALLED(getsockopt) CALLED(getuid) CALLED(ioctl)
CALLED(ioprio_get) CALLED(lseek) CALLED(mbind) CALLED(membarrier) CALLED(mremap) CALLED(munlock)
CALLED(newfstatat) CALLED(pipe2) CALLED(prlimit64) CALLED(process_vm_readv)
CALLED(process_vm_writev) CALLED(read) CALLED(readlinkat) CALLED(recvfrom) CALLED(rt_sigaction)
CALLED(rt_sigpending) CALLED(rt_sigtimedwait) CALLED(rt_tgsigqueueinfo) CALLED(sched_getaffinity)
CALLED(sched_getscheduler) CALLED(sched_setaffinity) CALLED(sched_yield) CALLED(sendmsg)
CALLED(set_robust_list) CALLED(setpriority) CALLED(setsockopt) CALLED(shutdown) CALLED(sigaltstack)
CALLED(symlinkat) CALLED(timer_create) CALLED(timer_delete) CALLED(timer_settime)
CALLED(timerfd_create) CALLED(timerfd_settime) CALLED(uname) CALLED(write) CALLED(writev)
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
CALLED(access) CALLED(chmod) CALLED(epoll_wait) CALLED(open) CALLED(readlink)
#endif
