/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/proc_test.c - texts of /proc as they are, as a hostile name makes them, and as a cut
 * read leaves them; and this very process, which knows what must come.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sdk/lib/proc/environ_now.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/memory.h"
#include "sdk/lib/proc/task.h"
#include "tests/test.h"

/* The fields of stat from the fourth on. */
#define REST                                                                \
    "1 2 3 4 5 4194560 7 8 9 10 111 222 13 14 20 0 5 0 987654 4096000 300 " \
    "18446744073709551615 1 2 3 4 5 6 7 8 9 1 2 3 17 6 0 0 0 0 0 1 2 3 4 5 6 7 0\n"

static int parse_stat(const char *text, struct proc_stat *ret)
{
    return proc_stat_parse(text, strlen(text), ret);
}

TEST(stat_of_any_name)
{
    static const char *const names[] = {"python", "a b", ")", ") R 1 2 3", "((", "x\ny) S 7", ""};
    struct proc_stat s;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), "4711 (%s) D " REST, names[i]);
        if (!CHECK_INT(parse_stat(text, &s), 0))
            continue;
        CHECK_STR(s.comm, names[i]);
        CHECK_INT(s.state, 'D');
        CHECK_INT(s.ppid, 1);
        CHECK_INT(s.flags, 4194560);
        CHECK_INT(s.major_faults, 9);
        CHECK_INT(s.user_ticks, 111);
        CHECK_INT(s.system_ticks, 222);
        CHECK_INT(s.threads, 5);
        CHECK_INT(s.start_ticks, 987654);
        CHECK_INT(s.size_bytes, 4096000);
        CHECK_INT(s.rss_pages, 300);
        CHECK_INT(s.cpu, 6);
    }
}

TEST(stat_that_is_none)
{
    struct proc_stat s;
    char text[] = "4711 (a) S " REST, name[300] = "1 (";
    for (size_t n = 0; n + 1 < sizeof(text); n++) /* cut anywhere: never half a number */
        CHECK_INT(proc_stat_parse(text, n, &s), -EPROTO);
    CHECK_INT(parse_stat("", &s), -EPROTO);
    CHECK_INT(parse_stat("\n", &s), -EPROTO);
    CHECK_INT(parse_stat("1 )a( S 1\n", &s), -EPROTO);
    CHECK_INT(parse_stat("1 (a) S 1 2 3\n", &s), -EPROTO);
    /* An old kernel has fewer, a name may be longer than any, a number than 64 bits. */
    CHECK_INT(parse_stat("1 (a) S 1 2 3 4 5 6 7 8 9 10 99999999999999999999 12 13 14 15 16 17 18 "
                         "19\n",
                         &s),
              0);
    CHECK(s.user_ticks == PROC_UNKNOWN);
    CHECK_INT(s.start_ticks, 19);
    CHECK(s.cpu == PROC_UNKNOWN && s.rss_pages == PROC_UNKNOWN);
    memset(name + 3, 'x', 200);
    (void)snprintf(name + 203, sizeof(name) - 203, ") S 1 2 3\n");
    CHECK_INT(parse_stat(name, &s), -EPROTO);
    CHECK_INT(strlen(s.comm), sizeof(s.comm) - 1);
}

/* ---- status ---- */

static int parse_status(const char *text, size_t room, struct proc_status *ret)
{
    char small[4096];
    struct proc_lines l;
    int fd = memfd_create("status", MFD_CLOEXEC);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return -errno;
    char path[PROC_PATH_BYTES], name[16];
    (void)snprintf(name, sizeof(name), "fd/%d", fd);
    proc_path(0, 0, name, path);
    int rc = proc_lines_open(&l, path, small, room);
    if (rc == 0)
        rc = proc_status_parse(&l, ret);
    proc_lines_close(&l);
    (void)close(fd);
    return rc;
}

TEST(status_of_many_groups)
{
    static char text[80000];
    struct proc_status s;
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "Name:\ta\\nUid:\\t0\nState:\tS (sleeping)\nTgid:\t12\n"
                                "PPid:\t1\nTracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGroups:\t");
    while (n < 70000) /* a line far longer than the room */
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%d Uid: ", 100000);
    (void)snprintf(text + n, sizeof(text) - n,
                   "\nNSpid:\t4711\t12\t1\nVmPeak:\t  200 kB\nVmSize:\t  123 kB\n"
                   "VmRSS:\t18446744073709551615 kB\n"
                   "Threads:\t3\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"
                   "SigBlk:\tfffffffffffffeff\nCapPrm:\t0000000000080400\nCapEff:"
                   "\t0000000000080000\nSeccomp:\t2\n"
                   "nonvoluntary_ctxt_switches:\t9\n");
    for (size_t room = 256; room <= 4096; room *= 2) {
        if (!CHECK_INT(parse_status(text, room, &s), 0))
            continue;
        CHECK_INT(s.state, 'S');
        CHECK_INT(s.uid[0], 1000);
        CHECK_INT(s.uid[3], 1003);
        CHECK_INT(s.inner_id, 1);
        CHECK_INT(s.namespaces, 3);
        CHECK_INT(s.size_bytes, 123 * 1024);
        CHECK_INT(s.peak_size_bytes, 200 * 1024);
        CHECK(s.rss_bytes == PROC_UNKNOWN); /* more than 64 bits */
        CHECK(s.peak_rss_bytes == PROC_UNKNOWN && s.gid[0] == PROC_UNKNOWN);
        CHECK_INT(s.shared, 0x100);
        CHECK(s.blocked == UINT64_C(0xfffffffffffffeff));
        CHECK_INT(s.effective, 1 << 19);
        CHECK_INT(s.permitted, 1 << 19 | 1 << 10);
        CHECK_INT(s.involuntary, 9);
        CHECK(s.voluntary == PROC_UNKNOWN);
    }
}

static int parse_sched(const char *from, struct proc_sched *ret)
{
    char text[400];
    struct proc_lines l;
    (void)snprintf(text, sizeof(text), "%s", from);
    proc_lines_of(&l, text, strlen(text));
    return proc_sched_parse(&l, ret);
}

TEST(sched_by_its_lines)
{
    struct proc_sched s;
    CHECK_INT(parse_sched("job (12, #threads: 1)\n-----\nse.exec_start            :      "
                          "82812243.017181\nnr_voluntary_switches    :     63\n",
                          &s),
              0);
    CHECK_INT(s.ran_ns, 82812243017181);
    CHECK_INT(s.switches, 63);
    /* Its name has such a line, too: the kernel's comes later. */
    CHECK_INT(parse_sched("\nse.exec_start: (12, #threads: 1)\nse.exec_start : 1.000002\n"
                          "nr_voluntary_switches : 1\n",
                          &s),
              0);
    CHECK_INT(s.ran_ns, 1000002);
    CHECK_INT(parse_sched("se.exec_start : 1.02\nnr_voluntary_switches : 1\n", &s), -EPROTO);
    CHECK_INT(parse_sched("se.exec_start : 99999999999999999999.000000\n", &s), -EPROTO);
    CHECK_INT(parse_sched("", &s), -EPROTO);
    /* Seen of a thread that had just been moved: since the machine began, it would seem. */
    CHECK_INT(parse_sched("se.exec_start : 0.000000\nnr_voluntary_switches : 3\n", &s), -ENODATA);
}

TEST(status_that_is_none)
{
    struct proc_status s;
    CHECK_INT(parse_status("", 64, &s), -EPROTO);
    CHECK_INT(parse_status("\n\n\n", 64, &s), -EPROTO);
    CHECK_INT(parse_status("State:\tS\nThreads:\t12", 64, &s), 0);
    CHECK(s.threads == PROC_UNKNOWN); /* 12 of 123, perhaps */
    CHECK_INT(
        parse_status("State:\tS\nUid:\t1\t2\t3\nNSpid:\tx\nThreads:\t-1\nSigCgt:\tzz\n", 64, &s),
        0);
    CHECK(s.uid[0] == PROC_UNKNOWN && s.inner_id == PROC_UNKNOWN && s.threads == PROC_UNKNOWN &&
          s.caught == PROC_UNKNOWN);
}

/* ---- syscall ---- */

static int parse_syscall(const char *text, struct proc_syscall *ret)
{
    return proc_syscall_parse(text, strlen(text), ret);
}

TEST(syscall_of_all_kinds)
{
    static const char text[] = "202 0x1 0x2 0x3 0x4 0x5 0xffffffffffffffff 0x7ffe0 0x7f00\n";
    struct proc_syscall c;
    CHECK_INT(parse_syscall(text, &c), PROC_WAITS);
    CHECK_INT(c.number, 202);
    CHECK_INT(c.arguments[0], 1);
    CHECK(c.arguments[5] == UINT64_MAX);
    CHECK_INT(c.sp, 0x7ffe0);
    CHECK_INT(c.ip, 0x7f00);
    CHECK_INT(parse_syscall("-1 0x10 0x20\n", &c), PROC_OUTSIDE);
    CHECK_INT(c.number, -1);
    CHECK_INT(c.sp, 0x10);
    CHECK_INT(c.ip, 0x20);
    CHECK_INT(parse_syscall("running\n", &c), PROC_RUNS);
    CHECK_INT(c.number, -1);
    for (size_t n = 0; n + 1 < sizeof(text); n++) /* an address that is cut is another one */
        CHECK_INT(proc_syscall_parse(text, n, &c), -EPROTO);
    CHECK_INT(parse_syscall("-1 0x10\n", &c), -EPROTO);
    CHECK_INT(parse_syscall("202 0x1 0x2\n", &c), -EPROTO);
    CHECK_INT(parse_syscall("99999999999 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n", &c), -EPROTO);
    CHECK_INT(parse_syscall("1 0x1 0x2 0x3 0x4 0x5 0x6 0x11112222333344445 0x8\n", &c), -EPROTO);
    CHECK_INT(parse_syscall("1 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8 0x9\n", &c), -EPROTO);
}

/* ---- maps ---- */

static bool parse_map(const char *line, struct proc_mapping *ret)
{
    static char text[256];
    (void)snprintf(text, sizeof(text), "%s", line);
    return proc_maps_parse(text, ret);
}

TEST(maps_lines)
{
    struct proc_mapping m;
    CHECK(parse_map("7f00-7f10 r-xp 00001000 08:1f 1234                     /a b/c\\012d (deleted)",
                    &m));
    CHECK_INT(m.start, 0x7f00);
    CHECK_INT(m.end, 0x7f10);
    CHECK_INT(m.offset, 0x1000);
    CHECK_INT(m.major, 8);
    CHECK_INT(m.minor, 0x1f);
    CHECK_INT(m.inode, 1234);
    CHECK(m.readable && !m.writable && m.executable && !m.shared && !m.cut);
    CHECK_STR(m.path, "/a b/c\\012d (deleted)");
    CHECK(parse_map("7f00-7f10 -w-s 00000000 00:00 0 ", &m));
    CHECK(!m.readable && m.writable && m.shared);
    CHECK_STR(m.path, "");
    CHECK(parse_map("7f00-7f10 ---p 00000000 00:00 0", &m));
    CHECK(
        parse_map("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0        [vsyscall]", &m));
    CHECK(!parse_map("", &m));
    CHECK(!parse_map("7f00", &m));
    CHECK(!parse_map("7f00-7f10", &m));
    CHECK(!parse_map("7f00-7f10 r-x", &m));
    CHECK(!parse_map("7f00-7f10 r-xp 00001000 08:1f", &m));
    CHECK(!parse_map("7f00-7f10 r-xp 00001000 08:1f 12x", &m));
    CHECK(!parse_map("7f10-7f00 r-xp 00001000 08:1f 1234 /a", &m));
    CHECK(!parse_map("11112222333344445-7f00 r-xp 00001000 08:1f 1234 /a", &m));
    CHECK(!parse_map("Size:                  4 kB", &m)); /* smaps has such between */
}

TEST(maps_of_ours)
{
    static char name[256];
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    int seen = 0, others = 0;
    (void)snprintf(name, sizeof(name), "/tmp/proc test %d)\n[x] ", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(ftruncate(fd, 8192), 0);
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
    (void)unlink(name);
    for (size_t size = 128; size <= sizeof(room); size += sizeof(room) - 128) {
        (void)proc_maps_open(&l, 0, room, size);
        for (seen = others = 0; proc_maps_next(&l, &m); others++) {
            if (m.start != (uint64_t)(uintptr_t)at)
                continue;
            seen++;
            CHECK_INT(m.offset, 4096);
            CHECK_INT(m.end - m.start, 4096);
            CHECK(m.shared && m.readable && !m.writable);
            CHECK(strstr(m.path, ")\\012[x]  (deleted)") || (size == 128 && m.cut));
        }
        CHECK_INT(l.error, 0);
        proc_lines_close(&l);
        CHECK_INT(seen, 1);
        CHECK(others > 10);
    }
    (void)munmap(at, 4096);
    (void)close(fd);
}

/* ---- lines ---- */

TEST(lines_of_any_length)
{
    char text[] = "one\n\nthree and more\nlast";
    struct proc_lines l;
    size_t n;
    char room[6];
    proc_lines_of(&l, text, sizeof(text) - 1);
    const char *first = proc_lines_next(&l, &n);
    CHECK_STR(proc_lines_next(&l, &n), "");
    CHECK_STR(proc_lines_next(&l, &n), "three and more");
    CHECK(!l.cut);
    CHECK_STR(proc_lines_next(&l, &n), "last");
    CHECK(l.cut); /* its newline did not come */
    CHECK(proc_lines_next(&l, &n) == NULL);
    CHECK_STR(first, "one"); /* still there */
    int ends[2];
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    CHECK_INT(write(ends[1], "one\nlonger than six\n12345\n\nx", 28), 28);
    (void)close(ends[1]);
    l = (struct proc_lines){.fd = ends[0], .room = room, .size = sizeof(room)};
    CHECK_STR(proc_lines_next(&l, &n), "one");
    CHECK_STR(proc_lines_next(&l, &n), "longe");
    CHECK(l.cut && n == 5);
    CHECK_STR(proc_lines_next(&l, &n), "12345");
    CHECK_STR(proc_lines_next(&l, &n), "");
    CHECK(!l.cut);
    CHECK_STR(proc_lines_next(&l, &n), "x");
    CHECK(l.cut);
    CHECK(proc_lines_next(&l, &n) == NULL);
    proc_lines_close(&l);
    CHECK(proc_lines_open(&l, "/proc/nobody", room, sizeof(room)) == -ENOENT);
    CHECK(proc_lines_next(&l, &n) == NULL);
    proc_lines_close(&l);
}

TEST(environ)
{
    static const char text[] = "A=1\0AB=2\0=odd\0none\0A=3\0LAST=written ove";
    CHECK_STR(proc_environ_find(text, sizeof(text) - 1, "A"), "1");
    CHECK_STR(proc_environ_find(text, sizeof(text) - 1, "AB"), "2");
    CHECK_STR(proc_environ_find(text, sizeof(text) - 1, "LAST"), "written ove");
    CHECK(proc_environ_find(text, sizeof(text) - 1, "none") == NULL);
    CHECK(proc_environ_find(text, sizeof(text) - 1, "LAS") == NULL);
    CHECK(proc_environ_find(text, 0, "A") == NULL);
}

/* ---- this process ---- */

TEST(paths)
{
    char path[PROC_PATH_BYTES];
    proc_path(0, 0, NULL, path);
    CHECK_STR(path, "/proc/self");
    proc_path(0, 7, "stat", path);
    CHECK_STR(path, "/proc/self/task/7/stat");
    proc_path(INT32_MAX, INT32_MAX, "a name of more than 32 bytes is cut", path);
    CHECK_STR(path, "/proc/2147483647/task/2147483647/a name of more than 32 bytes is ");
}

static void *ended(void *arg)
{
    atomic_store((_Atomic pid_t *)arg, (pid_t)syscall(SYS_gettid));
    (void)prctl(PR_SET_NAME, ") R 1\n 2");
    while (atomic_load((_Atomic pid_t *)arg) != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return NULL;
}

TEST(a_thread_with_an_odd_name_that_ends)
{
    _Atomic pid_t tid = 0;
    pthread_t thread;
    struct proc_numbers all;
    struct proc_number one;
    struct proc_stat s = {.state = 0}, before;
    struct proc_status st;
    char comm[PROC_COMM_BYTES] = "";
    CHECK_INT(proc_stat_of(0, 0, &before), 0); /* a sanitizer may begin one more */
    CHECK_INT(pthread_create(&thread, NULL, ended, (void *)&tid), 0);
    while (tid == 0 || strcmp(comm, ") R 1\n 2") != 0)
        if (tid != 0 && proc_comm_of(0, tid, comm, sizeof(comm)) < 0)
            break;
    CHECK_INT(proc_stat_of(0, tid, &s), 0);
    CHECK_STR(s.comm, ") R 1\n 2");
    CHECK(s.state == 'S' || s.state == 'R');
    CHECK(s.threads > before.threads && s.threads < before.threads + 3);
    CHECK_INT(proc_status_of(0, tid, &st), 0);
    CHECK_INT(st.tgid, getpid());
    CHECK(st.threads == s.threads);
    CHECK_INT(st.uid[1], geteuid());
    pid_t was = tid;
    int seen = 0;
    CHECK_INT(proc_threads_open(&all, 0), 0);
    while (proc_numbers_next(&all, &one))
        seen += one.value == (uint64_t)was || one.value == (uint64_t)getpid();
    proc_numbers_close(&all);
    CHECK_INT(seen, 2);
    CHECK_INT(proc_comm_set(was, "other"), 0);
    CHECK_INT(proc_comm_of(0, was, comm, sizeof(comm)), 0);
    CHECK_STR(comm, "other");
    tid = 0;
    (void)pthread_join(thread, NULL);
    while (proc_stat_of(0, was, &s) == 0) /* the kernel shows it a moment longer */
        ;
    CHECK_INT(proc_stat_of(0, was, &s), -ESRCH);
    CHECK_INT(proc_status_of(0, was, &st), -ESRCH);
    CHECK_INT(proc_comm_of(0, was, comm, sizeof(comm)), -ESRCH);
    CHECK_STR(comm, "");
    CHECK_INT(proc_comm_set(was, "x"), -ESRCH);
}

/* A file that was opened can be read when the process has ended, too. */
TEST(a_process_that_ends_between)
{
    char path[PROC_PATH_BYTES], room[PROC_MAPS_ROOM];
    struct proc_syscall c;
    struct proc_lines l;
    struct proc_mapping m;
    struct proc_stat s;
    struct proc_status st;
    pid_t child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    while (proc_syscall_of(child, child, &c) == PROC_RUNS || c.number < 0)
        if (proc_stat_of(child, 0, &s) < 0)
            break;
    CHECK(c.sp != 0 && c.ip != 0);
    CHECK_INT(proc_stat_of(child, 0, &s), 0);
    CHECK_INT(s.ppid, getpid());
    CHECK_INT(proc_maps_open(&l, child, room, sizeof(room)), 0);
    proc_path(child, 0, "status", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    (void)kill(child, SIGKILL);
    siginfo_t died;
    (void)waitid(P_PID, (id_t)child, &died, WEXITED | WNOWAIT);
    CHECK_INT(proc_stat_of(child, 0, &s), 0); /* a zombie has a stat, and no memory */
    CHECK_INT(s.state, 'Z');
    CHECK_INT(proc_status_of(child, 0, &st), 0);
    CHECK_INT(st.state, 'Z');
    CHECK(st.rss_bytes == PROC_UNKNOWN);
    CHECK_INT(waitpid(child, NULL, 0), child);
    while (proc_maps_next(&l, &m)) /* whatever comes is whole */
        CHECK(m.end > m.start);
    proc_lines_close(&l);
    CHECK_INT(proc_read_fd(fd, room, sizeof(room)), -ESRCH);
    CHECK_STR(room, "");
    (void)close(fd);
    CHECK_INT(proc_stat_of(child, 0, &s), -ESRCH);
}

TEST(memory_with_a_hole)
{
    struct proc_memory m = PROC_MEMORY_OF(0);
    char copy[8192];
    char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(two, 'x', 8192);
    (void)munmap(two + 4096, 4096);
    for (int by_file = 0; by_file < 2; by_file++) {
        m.by_file = by_file;
        CHECK_INT(proc_memory_read(&m, (uint64_t)(uintptr_t)two, copy, 4096), 4096);
        CHECK_INT(copy[4095], 'x');
        CHECK_INT(proc_memory_read(&m, (uint64_t)(uintptr_t)two + 4000, copy, 200), 96);
        CHECK_INT(proc_memory_read(&m, 0, copy, 8), 0);
        CHECK_INT(proc_memory_read(&m, UINT64_MAX - 4, copy, 8), 0);
        CHECK_INT(m.fd, -1);
    }
    CHECK(proc_own_memory(0, copy, 8) < 0);
    (void)munmap(two, 4096);
}

/* Variables set since the process began stand in no file. */
TEST(environ_as_it_is_now)
{
    struct proc_memory m = PROC_MEMORY_OF(getpid());
    static char name_far[3000] = "LONG=";
    char *const odd[] = {"A=1", name_far, (char *)16, "", "RANK=3", NULL}, *const *at = odd;
    struct buf b;

    memset(name_far + 5, 'x', sizeof(name_far) - 6);
    buf_init(&b, 1u << 20);
    CHECK_INT(setenv("PROBING_TEST_NOW", "7", 1), 0);
    CHECK_INT(proc_environ_now(&m, (uintptr_t)&environ, &b), 0);
    CHECK_STR(proc_environ_find(b.data, b.size - 1, "PROBING_TEST_NOW"), "7");
    buf_reset(&b);
    CHECK_INT(proc_environ_now(&m, (uintptr_t)&at, &b), 0); /* one at a wild address is left out */
    CHECK_STR(b.data, "A=1");
    CHECK_INT(strlen(proc_environ_find(b.data, b.size - 1, "LONG")), sizeof(name_far) - 6);
    CHECK_STR(proc_environ_find(b.data, b.size - 1, "RANK"), "3");
    CHECK_INT(proc_environ_now(&m, 16, &b), -EFAULT);
    buf_done(&b);
    buf_init(&b, 100);
    CHECK_INT(proc_environ_now(&m, (uintptr_t)&at, &b), -ENOBUFS);
    buf_done(&b);
    proc_memory_close(&m);
}

TEST(numbers_of_files)
{
    char group[4096];
    uint64_t n = 0;
    CHECK(proc_number_in("/proc/meminfo", "MemTotal:", &n) && n > 1000);
    CHECK(proc_number_in("/proc/sys/kernel/pid_max", "", &n) && n > 100);
    CHECK(!proc_number_in("/proc/meminfo", "NoSuch:", &n));
    CHECK(!proc_number_in("/proc/self/limits", "Max cpu time", &n)); /* unlimited */
    CHECK(!proc_number_in("/no/such", "", &n));
    CHECK(proc_cgroup(0, "", group, sizeof(group)) ? group[0] == '/' : true);
    CHECK(!proc_cgroup(0, "nosuch", group, sizeof(group)));
    CHECK(!proc_cgroup(0, "", group, 1));
}

/* A folder of more entries than a block has, and signals all the time. */
static _Atomic int alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

TEST(many_entries_under_signals)
{
    const struct sigaction a = {.sa_handler = on_alarm}; /* without SA_RESTART: EINTR */
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct rlimit limit;
    struct proc_numbers all;
    struct proc_number one;
    struct proc_stat s;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 1024 ? limit.rlim_max : 1024;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    int last = -1, seen = 0;
    for (int fd; (fd = dup(1)) != -1 && fd < 900;)
        last = fd;
    (void)sigaction(SIGALRM, &a, NULL);
    (void)setitimer(ITIMER_REAL, &often, NULL);
    for (int before = alarms; alarms < before + 50;)
        if (!CHECK_INT(proc_stat_of(0, 0, &s), 0))
            break;
    CHECK_INT(proc_numbers_open(&all, "/proc/self/fd"), 0);
    while (proc_numbers_next(&all, &one))
        seen++;
    CHECK_INT(all.error, 0);
    proc_numbers_close(&all);
    (void)setitimer(ITIMER_REAL, &never, NULL);
    CHECK(seen >= last);
    CHECK(!proc_numbers_next(&all, &one));
    for (; last > 2; last--)
        (void)close(last);
    CHECK_INT(proc_numbers_open(&all, "/proc/1/nothing"), -ENOENT);
    CHECK(!proc_numbers_next(&all, &one));
}

TEST(descriptors_of_a_child)
{
    int status, keep = dup(1), other = dup(1);
    pid_t child = fork();
    if (child == 0) {
        proc_close_descriptors(keep);
        _exit(fcntl(2, F_GETFD) == -1 || fcntl(keep, F_GETFD) == -1 || fcntl(other, F_GETFD) != -1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(keep) == 0 && close(other) == 0);
}

int main(void)
{
    RUN(stat_of_any_name);
    RUN(stat_that_is_none);
    RUN(status_of_many_groups);
    RUN(sched_by_its_lines);
    RUN(status_that_is_none);
    RUN(syscall_of_all_kinds);
    RUN(maps_lines);
    RUN(maps_of_ours);
    RUN(lines_of_any_length);
    RUN(environ);
    RUN(paths);
    RUN(a_thread_with_an_odd_name_that_ends);
    RUN(a_process_that_ends_between);
    RUN(memory_with_a_hole);
    RUN(environ_as_it_is_now);
    RUN(numbers_of_files);
    RUN(many_entries_under_signals);
    RUN(descriptors_of_a_child);
    return test_end();
}
