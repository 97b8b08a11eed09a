/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/list.c - which processes have a core in them, which dead ones left data, and taking that
 * away.
 *
 * One thread.
 */
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"

struct listing {
    uint32_t shown;
    bool header;
};

static void line(struct listing *l, const char *pid, const char *version, const char *directory,
                 const char *command)
{
    if (!l->header)
        printf("%8s  %-8s  %-40s  %s\n", "pid", "version", "data", "command");
    l->header = true;
    l->shown++;
    printf("%8s  %-8s  %-40s  %s\n", pid, version, directory, command);
}

static void describe(struct listing *l, pid_t pid, const char *directory,
                     const char *shown_directory)
{
    char number[16], version[32] = "?", command[200] = "?", crash[32];

    (void)snprintf(number, sizeof number, "%d", (int)pid);
    (void)directory_info(directory, "version", version, sizeof version);
    int r = directory_info(directory, "command", command, sizeof command - sizeof crash - 40);
    if (crash_of(directory, crash, sizeof crash)) {
        size_t n = strlen(command);
        (void)snprintf(command + n, sizeof command - n, "  (crashed: %s)", crash);
    }
    if (r == -EBADMSG) {
        size_t n = strlen(command);
        (void)snprintf(command + n, sizeof command - n, "  (info is damaged)");
    }
    line(l, number, version, shown_directory, command);
}

static int list_living(void)
{
    struct listing l = {0};
    DIR *proc = opendir("/proc");

    if (proc == NULL)
        return err_set(-errno, "cannot read /proc: %s", strerror(errno));
    for (struct dirent *e = readdir(proc); e != NULL; e = readdir(proc)) {
        uint64_t pid;
        char directory[4096];
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || parse_u64(e->d_name, &pid) < 0)
            continue;
        if (directory_of((pid_t)pid, directory, sizeof directory) == 0) {
            char *inside = strstr(directory, "/root/");
            describe(&l, (pid_t)pid, directory, inside != NULL ? inside + 5 : directory);
        }
    }
    (void)closedir(proc);
    if (l.shown == 0)
        puts("no process of yours has a probing core in it; enter one with: probing -t <pid> "
             "inject");
    return EXIT_DONE;
}

static int list_dead_one(void *arg, const char *directory)
{
    pid_t pid;

    if (!directory_alive(directory, &pid) && !directory_held(directory))
        describe(arg, pid, directory, directory);
    return 0;
}

static int take_list(void *arg, const char *option, const char *value)
{
    bool *dead = arg;

    if (option == NULL)
        return err_set(-EINVAL, "list takes no argument '%s'", value);
    *dead = true; /* --dead */
    return 0;
}

int command_list(struct target *t, int argc, char **argv)
{
    struct listing l = {0};
    bool dead = false;
    int r = cli_parse(argc, argv, take_list, &dead);

    (void)t;
    if (r < 0)
        return r;
    if (!dead)
        return list_living();
    (void)directory_each(list_dead_one, &l);
    if (l.shown == 0)
        puts("no data of dead processes");
    return EXIT_DONE;
}

/* ---- gc ---- */

struct sweep {
    uint64_t older_ns;
    uint32_t removed, kept;
    int failed;
};

/* A directory's memory files live elsewhere, behind links: take them away too. */
static void remove_linked(const char *directory, const char *leaf)
{
    char link[4200], file[4096];

    (void)snprintf(link, sizeof link, "%s/%s", directory, leaf);
    ssize_t n = readlink(link, file, sizeof file - 1);
    if (n <= 0)
        return;
    file[n] = '\0';
    (void)unlink(file);
    char *slash = strrchr(file, '/');
    if (slash != NULL) {
        *slash = '\0';
        (void)rmdir(file); /* succeeds when its last file has gone */
    }
}

/* Does a core hold this directory that has no socket, because it starts or ends just now? */
static bool in_use(const char *directory)
{
    const char *name = strrchr(directory, '/') + 1;
    char mapped[4096] = "", path[4200];
    uint64_t pid, started, now;

    if (sscanf(name, "%" SCNu64 "-%" SCNu64, &pid, &started) != 2 ||
        proc_start_time((pid_t)pid, &now) < 0 || now != started)
        return false;
    (void)snprintf(path, sizeof path, "%s/info", directory);
    if (access(path, F_OK) == -1)
        return true;                                       /* it is being made */
    (void)directory_of((pid_t)pid, mapped, sizeof mapped); /* found, even without socket */
    const char *slash = strrchr(mapped, '/');
    return slash != NULL && strcmp(slash + 1, name) == 0;
}

static int sweep_one(void *arg, const char *directory)
{
    struct sweep *s = arg;
    struct stat st;
    pid_t pid;

    if (directory_alive(directory, &pid) || stat(directory, &st) == -1)
        return 0;
    uint64_t age_ns =
        (uint64_t)(time(NULL) > st.st_mtime ? time(NULL) - st.st_mtime : 0) * UINT64_C(1000000000);
    if (age_ns < s->older_ns || in_use(directory) || directory_held(directory)) {
        s->kept++;
        return 0;
    }
    remove_linked(directory, "rings");
    remove_linked(directory, "strings");
    remove_linked(directory, "lock.mdb");
    int r = file_remove_dir(directory);
    if (r < 0) {
        fprintf(stderr, "probing: %s\n", err_why(r));
        s->failed = r;
    } else {
        s->removed++;
    }
    return 0;
}

static int take_gc(void *arg, const char *option, const char *value)
{
    struct sweep *s = arg;
    uint64_t days = 0;

    if (option == NULL)
        return err_set(-EINVAL, "gc takes no argument '%s'", value);
    if (parse_u64(value, &days) < 0 || days > 36500) /* --older */
        return err_set(-EINVAL, "--older wants a number of days, not '%s'", value);
    s->older_ns = days * UINT64_C(86400000000000);
    return 0;
}

int command_gc(struct target *t, int argc, char **argv)
{
    struct sweep s = {0};
    int r = cli_parse(argc, argv, take_gc, &s);

    (void)t;
    if (r < 0)
        return r;
    (void)directory_each(sweep_one, &s);
    printf("%u data directories removed, %u kept\n", s.removed, s.kept);
    return s.failed < 0 ? EXIT_FAILED : EXIT_DONE;
}
