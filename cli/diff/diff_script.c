/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/diff/diff_script.c - which program a Python runs: its script, what stands in that now, and
 * the commit of the git work tree that it lies in.
 *
 * One thread; the files are read on another (cli/target/apart.h), as the process sees them.  They
 * may be anybody's: only regular ones are read, to a limit, and of what stands in them a hash is
 * told, and a commit's digits.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/diff/diff.h"
#include "cli/target/apart.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/proc/proc_file.h"

#define SCRIPT_BYTES ((size_t)16 << 20) /* more of it are not hashed */
#define GIT_BYTES ((size_t)4 << 20)     /* of packed-refs */
#define FOLDERS 24                      /* up from the script's */
#define COMMIT_LEAST 40                 /* digits of SHA-1; of SHA-256 64 */

struct script {
    char path[4096]; /* by which it is opened: below /proc/PID/cwd or /proc/PID/root */
    char contents[100], commit[80];
};

/* Find the script of a command line, its words ended by NULs; a module's is where -m looks first.
 * false: it has none. */
static bool find_script(const char *words, size_t size, char *ret, size_t room)
{
    static const char *const with_value[] = {"-W", "-X", "--check-hash-based-pycs"};
    const char *end = words + size;
    bool module = false;

    for (const char *at = words + strnlen(words, size) + 1; at < end && *at != '\0';
         at += strlen(at) + 1) {
        if (module || at[0] != '-') {
            (void)snprintf(ret, room, "%s%s", at, module ? ".py" : "");
            for (char *dot = ret; module && (dot = strchr(dot, '.')) != NULL && dot[1] != 'p';)
                *dot = '/';
            return true;
        }
        if (at[1] == '\0' || strcmp(at, "-c") == 0)
            return false;
        module = strcmp(at, "-m") == 0;
        for (size_t i = 0; i < sizeof(with_value) / sizeof(with_value[0]); i++)
            if (strcmp(at, with_value[i]) == 0 && at + strlen(at) + 1 < end)
                at += strlen(at) + 1;
    }
    return false;
}

/* At most `most` bytes of a regular file; its size.  NULL: it cannot be read. */
static char *read_most(const char *path, size_t most, size_t *ret_n, int64_t *ret_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *text = NULL;

    *ret_n = 0;
    if (fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        size_t want = (size_t)st.st_size < most ? (size_t)st.st_size : most;
        text = malloc(want + 1);
        for (ssize_t n = 1; text != NULL && n > 0 && *ret_n<want; *ret_n += n> 0 ? (size_t)n : 0)
            n = read(fd, text + *ret_n, want - *ret_n);
        if (text != NULL)
            text[*ret_n] = '\0';
        *ret_size = st.st_size;
    }
    if (fd != -1)
        (void)close(fd);
    return text;
}

static bool take_commit(const char *text, struct script *s)
{
    size_t n = strspn(text, "0123456789abcdef");

    if (n < COMMIT_LEAST || n >= sizeof(s->commit) || isalnum((unsigned char)text[n]))
        return false;
    (void)snprintf(s->commit, sizeof(s->commit), "%.*s", (int)n, text);
    return true;
}

/* packed-refs: "<digits> refs/heads/main" in a line. */
static bool find_packed(const char *text, const char *ref, struct script *s)
{
    for (const char *at = strstr(text, ref); at != NULL; at = strstr(at + 1, ref)) {
        const char *line = at;
        while (line > text && line[-1] != '\n')
            line--;
        if ((at[strlen(ref)] == '\n' || at[strlen(ref)] == '\0') && at > line && at[-1] == ' ')
            return take_commit(line, s);
    }
    return false;
}

/* git: "/proc/77/cwd/.git". */
static bool read_commit(const char *git, struct script *s)
{
    char path[4500], ref[300];
    int64_t size;
    size_t n;

    (void)snprintf(path, sizeof(path), "%.4200s/HEAD", git);
    char *text = read_most(path, sizeof(ref) - 1, &n, &size);
    bool found = text != NULL && take_commit(text, s);
    bool named = text != NULL && sscanf(text, "ref: %299s", ref) == 1 && strstr(ref, "..") == NULL;
    free(text);
    if (found || !named)
        return found;
    (void)snprintf(path, sizeof(path), "%.4100s/%.299s", git, ref);
    text = read_most(path, sizeof(s->commit), &n, &size);
    found = text != NULL && take_commit(text, s);
    free(text);
    if (found)
        return true;
    (void)snprintf(path, sizeof(path), "%.4200s/packed-refs", git);
    text = read_most(path, GIT_BYTES, &n, &size);
    found = text != NULL && find_packed(text, ref, s);
    free(text);
    return found;
}

/* A folder further up than the script's; ".." stands for those above the process's own. */
static bool one_up(char *folder, size_t size)
{
    char *slash = strrchr(folder, '/');
    size_t n = strlen(folder);
    bool below_cwd = strncmp(folder, "/proc/", 6) == 0 && strstr(folder, "/cwd") != NULL;

    if (slash != NULL && (strcmp(slash, "/cwd") == 0 || strcmp(slash, "/..") == 0) && below_cwd)
        return n + 4 < size && memcpy(folder + n, "/..", 4) != NULL;
    if (slash == NULL || strcmp(slash, "/root") == 0)
        return false;
    *slash = '\0';
    return true;
}

static int read_script(void *arg)
{
    struct script *s = arg;
    char folder[4096], git[4200];
    int64_t size = 0;
    size_t n;
    char *text = read_most(s->path, SCRIPT_BYTES, &n, &size);

    if (text == NULL)
        return -ENOENT;
    (void)snprintf(s->contents, sizeof(s->contents), "%lld bytes, hash %016llx", (long long)size,
                   (unsigned long long)hash_bytes(HASH_FNV, text, n));
    free(text);
    (void)snprintf(folder, sizeof(folder), "%s", s->path);
    for (int i = 0; i < FOLDERS && one_up(folder, sizeof(folder)); i++) {
        (void)snprintf(git, sizeof(git), "%s/.git", folder);
        if (access(git, F_OK) == 0) {
            (void)read_commit(git, s);
            break;
        }
    }
    return 0;
}

int diff_script(struct diff_found *f, uint32_t rank, pid_t pid, const char *words, size_t size)
{
    char name[3000], base[PROC_PATH_BYTES];
    bool ended = true;
    int rc = 0;

    if (!find_script(words, size, name, sizeof(name)))
        return 0;
    struct script *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    proc_path(pid, 0, name[0] == '/' ? "root" : "cwd", base);
    (void)snprintf(s->path, sizeof(s->path), "%s/%s", base, name + (name[0] == '/'));
    bool there = apart_run(pid, read_script, s, free, &ended) >= 0;
    if (there)
        rc = diff_add(f, rank, "program", "script", name, strlen(name));
    if (there && rc == 0)
        rc = diff_add(f, rank, "program", "script, as it lies there now", s->contents,
                      strlen(s->contents));
    if (there && rc == 0 && s->commit[0] != '\0')
        rc = diff_add(f, rank, "program", "git commit", s->commit, strlen(s->commit));
    if (ended)
        free(s);
    return rc;
}

/* "--local-rank=3", "--node_rank 1": what launchers give each rank for its own. */
void diff_hide_place(char *words, size_t size)
{
    static const char *const names[] = {"local_rank", "node_rank", "rank", "global_rank"};
    char *end = words + size;
    bool value = false;

    for (char *at = words; at < end; at += strlen(at) + 1) {
        size_t dashes = strspn(at, "-"), n = 0;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && n == 0 && dashes > 0; i++) {
            size_t k = 0;
            while (names[i][k] != '\0' &&
                   (at[dashes + k] == names[i][k] || (names[i][k] == '_' && at[dashes + k] == '-')))
                k++;
            n = names[i][k] == '\0' && (at[dashes + k] == '=' || at[dashes + k] == '\0') ? k : 0;
        }
        char *number = value ? at : n > 0 && at[dashes + n] == '=' ? at + dashes + n + 1 : NULL;
        value = n > 0 && at[dashes + n] == '\0';
        if (number != NULL && number[0] != '\0' && strspn(number, "0123456789") == strlen(number))
            memset(number, '*', strlen(number));
    }
}
