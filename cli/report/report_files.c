/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/report/report_files.c - the plugins' files that bring commands: found, proved, mapped.
 *
 * One thread.  They come from where this command finds plugins for `inject --plugin NAME`:
 * PROBING_PLUGIN_PATH, and the folder that was installed with us; never from a target, which may be
 * somebody else's.  Of the files there only those are mapped that export a report.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report/report.h"
#include "cli/target/installed.h"
#include "cli/terminal/args.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/plugin_file/sealed_copy.h"

#define ALL_COMMANDS 64 /* of all plugins */
#define FILES_MAX 256   /* plugins that are looked at */
#define LEAF_BYTES 128

static struct { /* one thread; filled once */
    bool loaded;
    struct cli_command commands[ALL_COMMANDS + 1];
    struct report_command of[ALL_COMMANDS];
    uint32_t n;
    char leaves[FILES_MAX][LEAF_BYTES]; /* a file of the same name behind them is not taken */
    uint32_t n_leaves;
} all;

const struct report_command *report_of(const struct cli_command *c)
{
    return &all.of[c - all.commands];
}

/* ---- a crash is told ---- */

static char last_words[2][4300]; /* before and behind the signal's name */
static char alternate[32768];    /* a stack may be what has run out */

static const char *name_of(int signo)
{
    return signo == SIGSEGV   ? "SIGSEGV"
           : signo == SIGBUS  ? "SIGBUS"
           : signo == SIGFPE  ? "SIGFPE"
           : signo == SIGILL  ? "SIGILL"
           : signo == SIGTRAP ? "SIGTRAP"
                              : "SIGABRT";
}

/* Not by stdio, whose locks the crash may have left taken.  It dies of the signal then, as its
 * handler is gone. */
static void on_crash(int signo)
{
    const char *const words[] = {last_words[0], name_of(signo), last_words[1]};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        (void)!write(STDERR_FILENO, words[i], strlen(words[i]));
    (void)raise(signo);
}

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

void report_guard(const char *file, const char *what)
{
    const stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND | SA_ONSTACK};
    struct sigaction now;
    char shown[4096];

    (void)snprintf(last_words[0], sizeof(last_words[0]), "probing: %s has crashed (",
                   terminal_field(shown, sizeof(shown), file));
    (void)snprintf(last_words[1], sizeof(last_words[1]),
                   ") while %s; this is a bug of that plugin, and the target has not noticed\n",
                   what);
    (void)sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
        if (sigaction(crashes[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            (void)sigaction(crashes[i], &action, NULL); /* else files that are read guard SIGBUS */
}

void report_guard_end(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL}, now;
    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
        if (sigaction(crashes[i], NULL, &now) == 0 && now.sa_handler == on_crash)
            (void)sigaction(crashes[i], &action, NULL);
}

/* ---- a file ---- */

/* Its code is mapped from a copy that nobody can change, as the core does, where that can be.  The
 * copy stays open: the loader takes two files of one name for one, and its name is its number. */
static int map_file(int fd, const char *path, void **ret_handle)
{
    struct elf_facts facts = {0};
    char name[64] = "";
    int copy = -1, rc = seal_copy(fd, "report", &copy, &facts);

    if (rc < 0 && rc != -ENOTSUP)
        return rc;
    if (rc == 0 && !facts.origin)
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", copy);
    report_guard(path, "it was loaded for the commands that it brings");
    *ret_handle = dlopen(access(name, R_OK) == 0 ? name : path, RTLD_LAZY | RTLD_LOCAL);
    report_guard_end();
    if (*ret_handle != NULL)
        return 0;
    const char *why = dlerror();
    return err_set(-ENOEXEC, "%s", why != NULL ? why : "unknown reason");
}

/* NULL with *ret_r 0: it brings no commands. */
static const struct probing_report *report_in(const char *path, int *ret_r)
{
    struct elf_facts facts = {0};
    void *handle = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *ret_r = fd == -1 ? err_set(-errno, "cannot be opened: %s", strerror(errno))
                      : sealed_inspect(fd, &facts);
    if (*ret_r == 0 && facts.report != 0)
        *ret_r = map_file(fd, path, &handle);
    if (fd != -1)
        (void)close(fd);
    if (handle == NULL)
        return NULL;
    const void *found = dlsym(handle, REPORT_SYMBOL);
    if (found == NULL)
        *ret_r = err_set(-ENOEXEC, "it hides " REPORT_SYMBOL);
    return found;
}

static const char *owner_of(const char *word)
{
    for (uint32_t i = 0; word != NULL && i < all.n; i++)
        if (strcmp(all.commands[i].name, word) == 0 ||
            (all.commands[i].aliases[0] != NULL && strcmp(all.commands[i].aliases[0], word) == 0))
            return all.of[i].file;
    return NULL;
}

static void add_command(const struct probing_report *report,
                        const struct probing_report_command *command, const char *path,
                        bool (*is_taken)(const char *word))
{
    const char *other = owner_of(command->name);
    bool alias = command->alias != NULL && !is_taken(command->alias) && !owner_of(command->alias);

    if (is_taken(command->name) || other != NULL) {
        terminal_say("%s: its command '%s' is left out: %s%s", path, command->name,
                     other != NULL ? "there is one of that name in "
                                   : "probing has a command of that name",
                     other != NULL ? other : "");
        return;
    }
    if (command->alias != NULL && !alias)
        terminal_say("%s: '%s' is left out as another name of its command '%s': it is taken", path,
                     command->alias, command->name);
    if (all.n == ALL_COMMANDS) {
        terminal_say("%s: its command '%s' is left out: plugins bring %d already", path,
                     command->name, ALL_COMMANDS);
        return;
    }
    struct report_command *to = &all.of[all.n];
    all.commands[all.n] = report_as_ours(command);
    if (!alias)
        all.commands[all.n].aliases[0] = NULL;
    to->report = report;
    to->command = command;
    (void)snprintf(to->file, sizeof(to->file), "%s", path);
    all.n++;
}

static void take_file(const char *path, const char *leaf, bool (*is_taken)(const char *word))
{
    int rc;
    const struct probing_report *report = report_in(path, &rc);

    if (report != NULL)
        rc = report_check(report, leaf);
    if (rc < 0)
        terminal_say("%s brings no commands: %s", path, err_why(rc));
    for (uint32_t i = 0; rc == 0 && report != NULL && i < report->n_commands; i++)
        add_command(report, report_command_at(report, i), path, is_taken);
}

int report_names(const char *path, char *ret, size_t size)
{
    const char *slash = strrchr(path, '/');
    size_t used = 0;
    int r;
    const struct probing_report *report = report_in(path, &r);

    ret[0] = '\0';
    if (report != NULL)
        r = report_check(report, slash != NULL ? slash + 1 : path);
    for (uint32_t i = 0; r >= 0 && report != NULL && i < report->n_commands; i++) {
        (void)snprintf(ret + used, size - used, "%s%s", i > 0 ? ", " : "",
                       report_command_at(report, i)->name);
        used += strlen(ret + used);
        r++;
    }
    return r;
}

/* ---- the folders ---- */

/* The first file of a name is the plugin, wherever others are. */
static bool is_new(const char *leaf)
{
    size_t size = strlen(leaf) + 1;

    if (all.n_leaves == FILES_MAX || size > LEAF_BYTES)
        return false;
    for (uint32_t i = 0; i < all.n_leaves; i++)
        if (strcmp(all.leaves[i], leaf) == 0)
            return false;
    memcpy(all.leaves[all.n_leaves++], leaf, size);
    return true;
}

static int is_library(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 3 && strcmp(e->d_name + n - 3, ".so") == 0;
}

static void take_folder(const char *folder, bool (*is_taken)(const char *word))
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_library, alphasort);

    for (int i = 0; i < n; i++) {
        char path[4096];
        int length = snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        if (length > 0 && (size_t)length < sizeof(path) && is_new(entries[i]->d_name))
            take_file(path, entries[i]->d_name, is_taken);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

const struct cli_command *report_commands(bool (*is_taken)(const char *word))
{
    char folder[4096];

    if (all.loaded)
        return all.commands;
    all.loaded = true;
    for (const char *p = getenv("PROBING_PLUGIN_PATH"); p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ":");
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)n, p);
        if (n > 0 && n < sizeof(folder))
            take_folder(folder, is_taken);
        p += n + (p[n] == ':');
    }
    if (installed_file("plugins", folder, sizeof(folder)) == 0)
        take_folder(folder, is_taken);
    all.commands[0].heading = "reports of plugins";
    err_clear();
    return all.commands;
}

void report_places(char *ret, size_t size)
{
    const char *path = getenv("PROBING_PLUGIN_PATH");
    char folder[3000];

    if (installed_file("plugins", folder, sizeof(folder)) < 0)
        (void)snprintf(folder, sizeof(folder), "the folder of plugins, which was not installed");
    err_clear();
    (void)snprintf(ret, size, "%s%s%s", path != NULL && *path != '\0' ? path : "",
                   path != NULL && *path != '\0' ? " or " : "", folder);
}
