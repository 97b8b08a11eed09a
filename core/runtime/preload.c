/* SPDX-License-Identifier: Apache-2.0
 *
 * core/runtime/preload.c - started with the program: LD_PRELOAD, and `probing launch` which uses
 * it.
 *
 * Threads: the program's first one, before main(); nobody else is there yet.
 *
 *     LD_PRELOAD=.../libprobing.so[:others]      start here, and in all that is started from here
 *     PROBING=0                                  do not, for all that
 *     PROBING_LAUNCH=PID\nsettings, a line each  start in one program only: both variables are
 *                                                taken out of its environment before main()
 *     PROBING_LAUNCH_ALL=settings                as LD_PRELOAD alone, with settings
 *
 * The one program is what process PID becomes at last, past shells, wrappers and launchers that are
 * known by name (a pyenv shim is three shells, each of which execs the next); those get no core and
 * hand the variables on.  Of what they fork, it is each Python program but launchers.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/runtime/internal.h"
#include "sdk/lib/proc/identity.h"

#define ALL "PROBING_LAUNCH_ALL="
#define ONE "PROBING_LAUNCH="
#define PRELOAD "LD_PRELOAD="

/* Our entry in a list as LD_PRELOAD has it, by the last part of its path, because ld.so may have
 * found it in a directory of its own.  NULL: it is not there. */
static char *own_entry(char *list, size_t *ret_n)
{
    Dl_info info;
    if (!dladdr(probing_version, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *own = slash ? slash + 1 : info.dli_fname;
    size_t own_n = strlen(own);
    for (char *at = list; *at; at += strspn(at, ": ")) {
        size_t n = strcspn(at, ": ");
        if (n >= own_n && strncmp(at + n - own_n, own, own_n) == 0 &&
            (n == own_n || at[n - own_n - 1] == '/')) {
            *ret_n = n;
            return at;
        }
        at += n;
    }
    return NULL;
}

static void remove_variable(char **at)
{
    for (; *at; at++)
        at[0] = at[1];
}

/* The rest of the list stays, where it is: the strings are the program's own. */
static void remove_entry(char **variable, char *entry, size_t n)
{
    char *rest = entry + n + strspn(entry + n, ": ");
    memmove(entry, rest, strlen(rest) + 1);
    size_t length = strlen(*variable);
    if (length > sizeof(PRELOAD) - 1 && strchr(": ", (*variable)[length - 1]))
        (*variable)[length - 1] = '\0';
    if (strcmp(*variable, PRELOAD) == 0)
        remove_variable(variable);
}

/* ---- which program is meant ---- */

/* Programs that begin another one, in their own place or below them. */
static const char *const wrappers[] = {"sh",
                                       "bash",
                                       "dash",
                                       "zsh",
                                       "ksh",
                                       "ksh93",
                                       "mksh",
                                       "ash",
                                       "fish",
                                       "tcsh",
                                       "csh",
                                       "env",
                                       "nice",
                                       "nohup",
                                       "timeout",
                                       "time",
                                       "taskset",
                                       "numactl",
                                       "chrt",
                                       "ionice",
                                       "stdbuf",
                                       "setsid",
                                       "setarch",
                                       "prlimit",
                                       "xargs",
                                       "script",
                                       "unshare",
                                       "nsenter",
                                       "chroot",
                                       "runuser",
                                       "setpriv",
                                       "tini",
                                       "dumb-init",
                                       "catatonit",
                                       "make",
                                       "uv",
                                       "uvx",
                                       "micromamba",
                                       "mamba",
                                       "rye",
                                       "pixi",
                                       "direnv",
                                       "mpirun",
                                       "mpiexec",
                                       "mpiexec.hydra",
                                       "hydra_pmi_proxy",
                                       "orterun",
                                       "prterun",
                                       "orted",
                                       "prted",
                                       "srun",
                                       "slurmstepd",
                                       "horovodrun",
                                       NULL};

/* Python programs that do so: the script's name, or the module's after -m. */
static const char *const launchers[] = {"torchrun",
                                        "torch.distributed.run",
                                        "torch.distributed.launch",
                                        "torch.distributed.elastic",
                                        "accelerate",
                                        "accelerate-launch",
                                        "accelerate.commands.launch",
                                        "accelerate.commands.accelerate_cli",
                                        "deepspeed",
                                        "deepspeed.launcher.runner",
                                        "deepspeed.launcher.launch",
                                        "ds",
                                        "fabric",
                                        "lightning",
                                        "composer",
                                        "colossalai",
                                        "horovodrun",
                                        "conda",
                                        "mamba",
                                        "poetry",
                                        "pipenv",
                                        "pdm",
                                        "hatch",
                                        "tox",
                                        "nox",
                                        "uv",
                                        "dotenv",
                                        "submitit",
                                        NULL};

static bool is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static const char *leaf_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "python -u -m torch.distributed.run ...", "python /usr/bin/torchrun ...". */
static bool is_launcher(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "-m", 2) == 0)
            return is_in(launchers, word[2] ? word + 2 : i + 1 < argc ? argv[i + 1] : "");
        if (word[0] != '-')
            return is_in(launchers, leaf_of(word));
        if (word[1] == 'c')
            return false;
        i += strcmp(word, "-W") == 0 || strcmp(word, "-X") == 0;
    }
    return false;
}

/* Does a tool only ask an interpreter about itself: "python -I -c ...", "python --version"? */
static bool is_asked(int argc, char **argv)
{
    for (int i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
        if (strcmp(argv[i], "--version") == 0 || strncmp(argv[i], "-V", 2) == 0)
            return true;
        if (argv[i][1] == 'c' || argv[i][1] == 'm')
            return false;
        if (argv[i][1] != '-' && argv[i][1] != 'W' && argv[i][1] != 'X' && strchr(argv[i], 'I'))
            return true;
    }
    return false;
}

/* Does this process only lead to the program that is meant?  launched: the process that was told to
 * become it. */
static bool leads_on(int argc, char **argv, uint64_t launched)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n < 1 || argc < 1)
        return false;
    exe[n] = '\0';
    const char *name = leaf_of(exe);
    if (strcmp(name, "busybox") == 0 || strcmp(name, "coreutils") == 0)
        name = leaf_of(argv[0]); /* one file with many names */
    if (dlsym(RTLD_DEFAULT, "Py_GetVersion"))
        return is_launcher(argc, argv) || ((uint64_t)getpid() != launched && is_asked(argc, argv));
    return is_in(wrappers, name) || (uint64_t)getpid() != launched;
}

/* Takes "PID\n" off the settings.  Without it this process is meant. */
static uint64_t take_launched(const char **settings)
{
    char text[24];
    uint64_t pid;
    size_t n = strcspn(*settings, "\n");
    if (n >= sizeof(text) || snprintf(text, sizeof(text), "%.*s", (int)n, *settings) < 1 ||
        parse_u64(text, &pid) < 0)
        return (uint64_t)getpid();
    *settings += n + ((*settings)[n] == '\n');
    return pid;
}

/* Brought in in any other way, it does nothing.  glibc hands the environment to constructors, and
 * it is the array that `environ` points to. */
__attribute__((constructor)) static void preloaded(int argc, char **argv, char **environment)
{
    char **list = NULL, **launch = NULL;
    bool off = false, all = false;
    size_t n;

    for (char **e = environment; e && *e; e++) {
        if (strncmp(*e, PRELOAD, sizeof(PRELOAD) - 1) == 0)
            list = e;
        off = off || strcmp(*e, "PROBING=0") == 0;
        all = all || strncmp(*e, ALL, sizeof(ALL) - 1) == 0;
        if (strncmp(*e, ONE, sizeof(ONE) - 1) == 0 || strncmp(*e, ALL, sizeof(ALL) - 1) == 0)
            launch = e;
    }
    char *entry = list ? own_entry(*list + sizeof(PRELOAD) - 1, &n) : NULL;
    if (!entry || (off && !launch) || !identity_own_believes_environment())
        return; /* in this order: a program that is entered has no fork handlers of ours yet */
    const char *settings = launch ? strchr(*launch, '=') + 1 : NULL;
    if (launch && !all) {
        uint64_t launched = take_launched(&settings);
        if (leads_on(argc, argv, launched))
            return;
        if (launch > list) { /* the later one first: the other stays where it is */
            remove_variable(launch);
            remove_entry(list, entry, n);
        } else {
            remove_entry(list, entry, n);
            remove_variable(launch);
        }
    }
    (void)standard_places_take(/* before_main= */ true);
    (void)probing_start(settings);
}
