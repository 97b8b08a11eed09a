/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_shell.h - `query` without a statement of its own: SQL at a prompt, from a file or a
 * pipe, with psql's commands.
 *
 *     sql_shell.c: statements out of lines, and their answers    sql_commands.c: \d, \x, \o ...
 *     sql_scan.c: where statements end                           sql_names.c: what Tab knows
 *     sql_edit.c: \e
 *
 * One thread.
 */
#ifndef CLI_SHELL_SQL_SHELL_H
#define CLI_SHELL_SQL_SHELL_H

#include <stdio.h>

#include "cli/shell/sql_scan.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/atomic_output.h"
#include "sdk/lib/buf.h"

enum sql_expanded { EXPANDED_OFF, EXPANDED_ON, EXPANDED_AUTO };

/* The source of lines that nobody types. */
struct sql_source {
    const char *name; /* of the file, for errors; NULL: it is a statement of the command line */
    uint32_t line;    /* that was read last */
};

struct sql_names; /* sql_names.c */

struct sql_shell {
    struct target target;
    struct answer_ask ask; /* as the command's options have it */
    struct sql_scan scan;
    struct buf text;                   /* of the statement that was begun */
    struct buf last;                   /* the statement before it, for \g and \watch alone */
    struct buf typed;                  /* lines of the statement, for the history */
    struct sql_source *source;         /* NULL: somebody types */
    uint32_t first_line, first_column; /* of the statement in its source */
    char prompt[64], name[32];
    enum sql_expanded expanded;
    bool timing;
    char *output_path; /* \o; NULL: standard output */
    const char *output_format;
    struct output output;
    int status;     /* of a script: EXIT_FAILED when an answer lacked something */
    uint32_t depth; /* of \i in files */
    bool leave;
    struct sql_names *names;
};

/* ---- sql_shell.c ---- */

/* Run what `path` has, "-": standard input.  In a file the first error ends it. */
int sql_shell_file(struct sql_shell *s, const char *path);
/* Run the statement; into: the file for its answer, by its name's end, NULL: where all go.  0 or
 * -errno. */
int sql_shell_run(struct sql_shell *s, const char *statement, const char *into);
void sql_shell_forget(struct sql_shell *s); /* what was begun */
/* A statement or command failed: 0 where somebody types, who is told; else rc with the place in the
 * source, and the session ends. */
int sql_shell_failed(struct sql_shell *s, int rc);
/* Lines, as if they were typed. */
int sql_shell_feed(struct sql_shell *s, const char *text);
/* One answer to where answers go. */
int sql_shell_answer(struct sql_shell *s, const char *statement, bool pages);

/* ---- sql_commands.c ---- */

/* Answers go to this file from now on, NULL: to standard output again.  0 or -errno. */
int sql_shell_output(struct sql_shell *s, const char *path);

/* Run a command.  text: what stands behind the backslash, to the end of its line. */
int sql_shell_command(struct sql_shell *s, const char *text);
/* Names of commands that begin so, one a line. */
int sql_shell_commands(const char *begin, struct buf *ret);
void sql_shell_help(void);

/* ---- sql_edit.c ---- */

/* \e: what was begun, or the last statement, in $EDITOR; what comes back is fed. */
int sql_shell_edit(struct sql_shell *s, char *rest);

/* ---- sql_names.c ---- */

/* prompt.h's complete(); statement: the lines of it that were typed before. */
int sql_names_complete(struct sql_shell *s, const char *before, const char *word, struct buf *ret);
void sql_names_free(struct sql_names *n);

/* ---- query.c, and for it ---- */

extern const char query_some_tables[]; /* the tables as a person wants them */

/* A session at the terminal.  The exit code, or -errno. */
int sql_shell_talk(const struct target *t, const struct answer_ask *ask);
/* The statements of a text or of a file (one of them NULL), into a file or to standard output. */
int sql_shell_script(const struct target *t, const struct answer_ask *ask, const char *text,
                     const char *path, const char *output);

#endif
