/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_edit.c - \e: a statement in the user's editor.
 *
 * One thread.  The text lies in a file of its own meanwhile, which nobody else may read.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shell/sql_shell.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "core/base/err.h"
#include "core/base/file.h"

#define EDITED_BYTES ((size_t)1 << 20)

static const char *find_editor(void)
{
    static const char *const names[] = {"PSQL_EDITOR", "EDITOR", "VISUAL"}; /* psql's order */
    const char *found = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && found == NULL; i++) {
        found = getenv(names[i]);
        found = found != NULL && found[0] != '\0' ? found : NULL;
    }
    return found != NULL ? found : "vi";
}

/* Run the editor on a file, by the shell, as its name may have words behind it. */
static int run_editor(const char *path)
{
    extern char **environ;
    char text[1100];
    char *words[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", text,
                     (char *)(uintptr_t) "sh", (char *)(uintptr_t)path,  NULL};
    int status = 0;
    pid_t pid;

    if (snprintf(text, sizeof(text), "exec %s \"$1\"", find_editor()) >= (int)sizeof(text))
        return err_set(-ENAMETOOLONG, "the name of the editor is too long");
    (void)fflush(stdout);
    int e = posix_spawnp(&pid, words[0], NULL, NULL, words, environ);
    if (e != 0)
        return err_set(-e, "cannot run the editor: %s", cli_fork_why(e));
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
        continue;
    cli_interrupt_over(); /* Ctrl-C there was the editor's */
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(-ECHILD, "the editor '%s' failed; EDITOR names another one", find_editor());
}

static int write_text(int fd, const char *text)
{
    size_t size = strlen(text);

    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n == -1 && errno != EINTR)
            return err_set(-errno, "cannot write the statement into a file: %s", strerror(errno));
        text += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int sql_shell_edit(struct sql_shell *s, char *rest)
{
    const char *folder = getenv("TMPDIR");
    struct buf *from = s->text.size > 0 ? &s->text : &s->last;
    char path[4096];
    struct buf text;

    (void)rest;
    if (s->source != NULL)
        return err_set(-EINVAL, "\\e is for a person at the prompt");
    (void)snprintf(path, sizeof(path), "%s/probing-XXXXXX.sql",
                   folder != NULL && folder[0] == '/' ? folder : "/tmp");
    int fd = mkostemps(path, 4, O_CLOEXEC);
    if (fd == -1)
        return err_set(-errno, "cannot make a file for the editor in %s: %s", path,
                       strerror(errno));
    int rc = write_text(fd, buf_text(from));
    (void)close(fd);
    if (rc == 0)
        rc = run_editor(path);
    buf_init(&text, EDITED_BYTES);
    if (rc == 0)
        rc = file_read_named(path, &text);
    (void)unlink(path);
    if (rc == 0) {
        sql_shell_forget(s);
        printf("%s%s", buf_text(&text),
               text.size > 0 && text.data[text.size - 1] == '\n' ? "" : "\n");
        rc = sql_shell_feed(s, buf_text(&text));
    }
    buf_done(&text);
    return rc;
}
