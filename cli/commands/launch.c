/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/launch.c - `launch`: become a program that has the core in it from its first
 * instruction on.
 *
 * One thread.  There is no process of ours around it: pid, parent, terminal, signals and exit code
 * are the program's own.  core/runtime/preload.c takes out of the environment what we put there.
 */

#include "cli/commands/launch.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/target/installed.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/datadir/own_dir.h"
#include "sdk/lib/buf.h"

#define SETTINGS_MAX_BYTES 16000 /* the core takes 16 KiB */
#define HEADERS_MAX 64           /* program headers; real programs have a dozen */

struct launch {
    struct buf settings, plugins;
    bool children;
};

static int add_setting(struct launch *l, const char *text)
{
    if (strchr(text, '=') == NULL || strchr(text, '\n') != NULL || text[0] == '=')
        return err_set(-EINVAL, "-D needs KEY=VALUE, not '%s'", text);
    return buf_addf(&l->settings, "%s\n", text);
}

/* Each once, however often it is asked for; python, which others need, first. */
static int add_plugin(struct launch *l, const char *name)
{
    size_t n = strlen(name);

    if (l->plugins.size == 0)
        (void)buf_adds(&l->plugins, "python");
    for (const char *at = buf_text(&l->plugins); at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return l->plugins.failed;
    }
    return buf_addf(&l->plugins, ",%s", name);
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct launch *l = arg;
    char text[300];

    if (option == NULL)
        return err_set(-EINVAL, "launch: the program must follow '--': probing launch -- %s ...",
                       value);
    if (strcmp(option, "--children") == 0) {
        l->children = true;
        return 0;
    }
    if (strcmp(option, "--plugin") == 0) {
        if (strchr(value, '/') != NULL || strchr(value, ',') != NULL)
            return err_set(-EINVAL,
                           "launch takes plugins by name; set PROBING_PLUGIN_PATH to the "
                           "directory of '%s'",
                           value);
        return add_plugin(l, value);
    }
    if (strcmp(option, "--crash") == 0)
        return add_setting(l, "crash.handler=on");
    if (strcmp(option, "--pprof") == 0)
        return add_plugin(l, "profile");
    if (strcmp(option, "--define") == 0)
        return add_setting(l, value);
    if (snprintf(text, sizeof(text), "server.listen=%s", value) >= (int)sizeof(text))
        return err_set(-EINVAL, "the address is too long"); /* --listen */
    return add_setting(l, text);
}

/* ---- can something be brought along? ---- */

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* As execvp() will find it; "": not at all. */
void launch_find(const char *name, char *ret, size_t size)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/') != NULL) {
        (void)snprintf(ret, size, "%s", name);
        return;
    }
    for (const char *at = path != NULL ? path : "/bin:/usr/bin"; at != NULL;) {
        size_t n = strcspn(at, ":");
        (void)snprintf(ret, size, "%.*s/%s", n > 0 ? (int)n : 1, n > 0 ? at : ".", name);
        if (is_file(ret))
            return;
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    ret[0] = '\0';
}

extern const Elf64_Ehdr __ehdr_start; /* of this program: the linker's word */

/* ld.so brings us in: a program without it, or one that it does not trust us with, refuses.  musl's
 * would not begin the program at all. */
int launch_check(const char *path)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
    struct stat st;
    char loader[64] = "";
    bool dynamic = false;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return 0; /* exec will say what is wrong; or it may run, but not be read */
    bool elf = fstat(fd, &st) == 0 && pread(fd, &head, sizeof(head), 0) == sizeof(head) &&
               memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
    for (int i = 0; elf && i < head.e_phnum && i < HEADERS_MAX; i++)
        if (pread(fd, &part, sizeof(part), (off_t)(head.e_phoff + (uint64_t)i * sizeof(part))) ==
                sizeof(part) &&
            part.p_type == PT_INTERP) {
            dynamic = true;
            (void)pread(fd, loader, sizeof(loader) - 1, (off_t)part.p_offset);
        }
    (void)close(fd);
    if (!elf)
        return 0; /* a script: its interpreter is what counts, and most are dynamic */
    if (head.e_ident[EI_CLASS] != ELFCLASS64)
        return err_set(-ENOEXEC, "%s is a 32-bit program; probing is 64-bit only", path);
    if (head.e_machine != __ehdr_start.e_machine)
        return err_set(-ENOEXEC, "%s is built for another machine; use a probing built for it",
                       path);
    if (strstr(loader, "/ld-musl") != NULL)
        return err_set(-ENOEXEC, "%s runs on musl; probing needs glibc: use an image with glibc",
                       path);
    if (!dynamic)
        return err_set(-ENOEXEC, "%s is statically linked: the core cannot be loaded into it",
                       path);
    if ((st.st_mode & (S_ISUID | S_ISGID)) != 0 && geteuid() != 0)
        return err_set(-EPERM, "%s changes its user (setuid): the loader ignores LD_PRELOAD for it",
                       path);
    return 0;
}

/* ---- what goes along ---- */

#define UP "/usr/$LIB/../../../../../../../.." /* more steps than any $LIB has: / is above itself */

/* A name for it that glibc's loader alone understands: musl's knows no $LIB, finds no such file and
 * goes on, where it would begin no program with a library that needs glibc.  The library as
 * it is, if that does not hold on this machine (there is no such directory). */
static void name_for_glibc(const char *library, char *ret, size_t size)
{
    char own[4200];
    Dl_info libc;
    void *found = NULL;

    if (dladdr((void *)(uintptr_t)&getenv, &libc) != 0 && libc.dli_fname[0] == '/' &&
        snprintf(own, sizeof(own), UP "%s", libc.dli_fname) < (int)sizeof(own))
        found = dlopen(own, RTLD_LAZY | RTLD_NOLOAD);
    (void)snprintf(ret, size, "%s%s", found != NULL ? UP : "", library);
    if (found != NULL)
        (void)dlclose(found);
}

static int set_preload(const char *library)
{
    struct buf list;
    const char *before = getenv("LD_PRELOAD");

    if (strpbrk(library, ": ") != NULL)
        return err_set(-EINVAL,
                       "the path %s contains a blank or a colon, which LD_PRELOAD cannot handle; "
                       "install probing elsewhere",
                       library);
    buf_init(&list, (size_t)1 << 17);
    (void)buf_addf(&list, "%s%s%s", library, before != NULL && before[0] != '\0' ? ":" : "",
                   before != NULL ? before : "");
    int rc = list.failed || setenv("LD_PRELOAD", buf_text(&list), 1) == -1
                 ? err_set(-ENOMEM, "no memory for the environment")
                 : 0;
    buf_done(&list);
    return rc;
}

/* ld.so would say that it cannot, and begin the program without us. */
static int check_library(const char *path)
{
    Elf64_Ehdr head = {.e_machine = EM_NONE};
    int fd = file_open(AT_FDCWD, path);
    ssize_t n = fd >= 0 ? read(fd, &head, sizeof(head)) : 0;

    if (fd >= 0)
        (void)close(fd);
    if (n == (ssize_t)sizeof(head) && memcmp(head.e_ident, __ehdr_start.e_ident, EI_OSABI) == 0 &&
        head.e_machine == __ehdr_start.e_machine)
        return 0;
    return err_set(-ENOEXEC, "'%s' is no library for this machine: install probing whole", path);
}

int launch_environment(const char *settings, bool children)
{
    char library[4096], name[4200];
    struct buf one; /* settings, and who is to become the program that they are for */
    int rc = installed_file("libprobing.so", library, sizeof(library));

    if (rc == 0)
        rc = check_library(library);
    if (rc == 0)
        name_for_glibc(library, name, sizeof(name));
    if (rc == 0)
        rc = set_preload(children ? name : library);
    if (rc < 0)
        return rc;
    buf_init(&one, SETTINGS_MAX_BYTES + 32);
    (void)buf_addf(&one, "%d\n%s", (int)getpid(), settings);
    if (one.failed || setenv(children ? "PROBING_LAUNCH_ALL" : "PROBING_LAUNCH",
                             children ? settings : buf_text(&one), 1) == -1)
        rc = err_set(-ENOMEM, "no memory for the environment");
    buf_done(&one);
    return rc;
}

/* Check what keeps the core from starting there, as nobody would be told: the program's stderr is
 * its own.  The directory has the very name that the core will give it, and goes again. */
static void check_place(const char *settings)
{
    static const char setting[] = "probing.data_dir=";
    struct own_dir made;
    char named[DATADIR_PATH_BYTES];
    const char *given = getenv("PROBING_DATA_DIR");

    (void)snprintf(named, sizeof(named), "%s", given != NULL ? given : "");
    for (const char *at = settings; (at = strstr(at, setting)) != NULL;) {
        at += sizeof(setting) - 1;
        (void)snprintf(named, sizeof(named), "%.*s", (int)strcspn(at, "\n"), at);
    }
    int rc = own_dir_make(named, /* resume= */ NULL, &made);
    if (rc < 0) {
        terminal_say("the program runs without the core: %s", err_why(rc));
        err_clear();
        return;
    }
    (void)rmdir(made.directory);
    if (made.fast[0] != '\0')
        (void)rmdir(made.fast);
}

int command_launch(struct target *t, int argc, char **argv)
{
    struct launch l = {.children = false};
    char program[4096];
    int options = 1;

    (void)t;
    buf_init(&l.settings, SETTINGS_MAX_BYTES);
    buf_init(&l.plugins, 1024);
    while (options < argc && strcmp(argv[options], "--") != 0)
        options++;
    int rc = cli_parse(options, argv, parse_option, &l);
    if (rc == 0 && options + 1 >= argc)
        rc = cli_misuse(
            err_set(-EINVAL, "launch needs a program: probing launch -- python train.py"));
    if (rc == 0) {
        launch_find(argv[options + 1], program, sizeof(program));
        rc = launch_check(program);
    }
    if (rc == 0 && l.plugins.size > 0)
        rc = buf_addf(&l.settings, "probing.plugins=%s\n", buf_text(&l.plugins));
    if (rc == 0)
        rc = launch_environment(buf_text(&l.settings), l.children);
    if (rc == 0) {
        check_place(buf_text(&l.settings));
        cli_signals_back();
        (void)execvp(argv[options + 1], argv + options + 1);
        rc = err_set(-errno, "cannot run %s: %s", argv[options + 1], strerror(errno));
    }
    buf_done(&l.settings);
    buf_done(&l.plugins);
    return rc;
}
