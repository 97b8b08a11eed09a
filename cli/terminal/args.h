/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/args.h - what a command is (a row of command_table.c), and its words taken apart by
 * that row.
 *
 * One thread.
 */
#ifndef CLI_TERMINAL_ARGS_H
#define CLI_TERMINAL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct each_run;
struct members;
struct target;

struct cli_option {
    const char *name;   /* "--listen"; NULL ends the list */
    const char *letter; /* "-l", or NULL */
    const char *value;  /* "ADDR"; NULL: a flag */
    const char *doc;
};

#define COMMAND_OPTIONS 16
#define COMMAND_EXAMPLES 4
#define COMMAND_ALIASES 2

struct cli_command {
    const char *name;
    const char *aliases[COMMAND_ALIASES + 1]; /* other names of it; the list ends with NULL */
    const char *arguments; /* behind the options: "SQL", "list | load NAME|FILE" */
    const char *heading;   /* of it and those after it in `probing help`; NULL: as before it */
    const char *doc;       /* one line */
    const char *text;      /* what else a user must know, or NULL; lines are filled when shown */
    bool needs_target;
    bool may_target;    /* does something without one, too */
    bool whole_job;     /* runs once for all that the target names */
    bool finds_targets; /* looks for who its target names itself: it gets the text, unresolved */
    bool forwarded;     /* options are read by the process, not here */
    bool verbatim;      /* from the first argument on, no word is an option of ours */
    bool pages;         /* the answer may be long: to a person it comes through a pager */
    bool reads_rows;  /* rows of another machine come from there; those of several are one table */
    bool finds_again; /* of several: who is there is found anew for each statement */
    bool after_reports; /* `probing help` has the commands of plugins before it */
    /* Flags that hold with some words only: conditions for cli_words_meet(). */
    const char *endless;     /* goes on until it is stopped: lines come as they are */
    const char *runs_there;  /* runs on the machine of its target, not here over a connection */
    const char *one_process; /* takes one process at a time, and why: */
    const char *one_process_why;
    uint64_t timeout_ns; /* of several: for each; 0: a minute */
    int (*run)(struct target *t, int argc, char **argv);
    /* Run it on several in a way of its own; or NULL. */
    int (*run_many)(struct members *m, const struct each_run *run);
    /* The command that `--help` behind these words means; NULL: this one. */
    const char *(*help_word)(int argc, char **argv);
    /* Words that it takes because plugins are installed that declare them; or NULL. */
    void (*words)(void (*fn)(void *arg, const char *word, const char *doc), void *arg);
    struct cli_option options[COMMAND_OPTIONS + 1];
    const char *examples[COMMAND_EXAMPLES + 1]; /* behind "probing "; the list ends with NULL */
};

/* Do the words of a command (NULL: one that the process knows) meet a condition?  NULL: never; "":
 * always; "--a|--b": with one of these words; "!--a|--b": without any of them; "--a=-": with that
 * value. */
bool cli_words_meet(const struct cli_command *c, const char *condition, int argc,
                    char *const *argv);
/* The command whose words are taken apart from now on. */
void cli_args_of(const struct cli_command *command);
/* Take a command's arguments apart by its row in command_table.c: take(arg, "--listen", "ADDR") for
 * each option, whichever way it was written, value NULL for a flag; take(arg, NULL, word) for the
 * rest. What take() gives below 0 ends it. */
int cli_parse(int argc, char **argv, int (*take)(void *arg, const char *option, const char *value),
              void *arg);
/* A time that something takes, or lies between two of something: more than 0, and at most this. */
#define CLI_TIME_MAX_NS (UINT64_C(20) * 86400 * 1000000000) /* poll() takes 24 days */
int cli_take_time(const char *option, const char *value, uint64_t *ret);
/* Is this word an option of that command?  ret_value: whether the next word is its value. */
bool cli_option_of(const struct cli_command *c, const char *word, bool *ret_value);

/* Gives r; when it is below 0 the exit code will be EXIT_USAGE: the words were wrong. */
int cli_misuse(int r);
bool cli_is_misused(void);

#endif
