/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cli.h - what the files of the `probing` command share: the target, and one function a
 * command.
 *
 * One thread.  Functions give the exit code of the program, or -errno with err_set() done, which
 * main() prints as one line and turns into EXIT_FAILED.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/version.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define DEFAULT_PORT 9922 /* of the seeds' READMEs */

enum target_kind {
    TARGET_NONE,  /* not given */
    TARGET_LIVE,  /* a process that answers: at a unix socket, or over TCP */
    TARGET_FILES, /* a directory whose process is dead or stopped */
    TARGET_MANY,  /* several at once: `answer` asks them */
    TARGET_THERE, /* of another machine, and no core answers in it: commands run there, `answer`
                   * asks its files there */
    TARGET_BARE   /* a process without a core: it can be entered; with a directory, it was left */
};

struct answer_ask;
struct link_member;
struct probing_report_member; /* <probing/report.h> */
struct target {
    enum target_kind kind;
    const char *text;     /* as the user wrote it */
    bool by_environment;  /* PROBING_TARGET did */
    pid_t pid;            /* 0: not local */
    uint64_t start_time;  /* of pid, when it was named by it; 0: not known */
    char directory[4096]; /* data directory as we can open it, "" when remote */
    char host[256];       /* TCP */
    uint16_t port;
    uint32_t
        directories; /* of files: how many there are with that pid; `directory` is the newest */
    uint32_t others; /* of files: how many there are of other users with that pid */
    uid_t owner;     /* of files: whose they are, and who may have put anything into them */
    bool stopped;    /* the process is SIGSTOPped (or traced): it cannot answer */
    const struct link_member *there; /* of another machine, by its relay: cli/link/link.h; NULL */
    /* For TARGET_MANY and TARGET_THERE: as answer_bytes() of target/query_client.h; that of the
     * first also says who they are. */
    int (*answer)(const struct target *t, const struct answer_ask *ask,
                  int (*fn)(void *arg, const char *data, size_t size), void *arg);
    /* Answers a statement over all ranks (global.SCHEMA.TABLE), whatever the target is; NULL: that
     * is not asked here.  EXIT_FAILED: the answer lacks some of them, and that was said. */
    int (*answer_global)(const struct target *t, const struct answer_ask *ask,
                         int (*fn)(void *arg, const char *data, size_t size), void *arg);
    int (*each)(const struct target *t, int (*fn)(void *arg, const struct probing_report_member *m),
                void *arg);
    void *many;
};

/* Find out what `text` names: pid, host:port, host, [v6]:port, unix socket, data directory, or one
 * of these behind "ssh:HOST/" or "relay:HOST:PORT/". */
int target_resolve(const char *text, struct target *ret);

/* ---- another machine (remote_target.c) ---- */

/* "ssh:HOST", "ssh:HOST/WHAT", "relay:HOST:PORT/WHAT". */
struct remote_name {
    bool listens; /* relay: */
    char host[300];
    const char *what; /* behind the slash, "": nothing, which is all that is there */
};
bool remote_name_read(const char *text, struct remote_name *ret); /* false: it is none */
/* Can it be asked at all: -EINVAL and misuse where its host is no name, or has no port. */
int remote_name_check(const struct remote_name *r);
/* Is it one process: a pid, a path? */
bool remote_name_is_one(const struct remote_name *r);
/* Its host's number; starts the way to it where that is new. */
int remote_host(const struct remote_name *r, uint32_t *ret);
/* The words that ask a host who is there: for link_run_begin(). */
#define REMOTE_LIST_WORDS 3
void remote_list_words(const char *what, const char *ret[REMOTE_LIST_WORDS]);
/* One process there, as target_resolve() finds it. */
int remote_resolve(const char *text, const struct remote_name *r, struct target *ret);
/* Make a target of a member there.  text: as the user wrote it; lives as long as the target. */
void remote_target(const char *text, const struct remote_name *r, const struct link_member *m,
                   struct target *ret);
/* Give what is left there when its process has ended: its files are asked.  false: it is none. */
bool remote_died(const struct target *t, struct target *ret);

struct probing_client;
/* target_connect() says on stderr, once, when the core is of another build than we; of a living
 * target target_reach() does not, who says it by target_compare_builds() or in other words. */
int target_connect(const struct target *t, struct probing_client **ret);
int target_reach(const struct target *t, struct probing_client **ret);
void target_compare_builds(const struct target *t, const struct probing_client *c);
/* Begin to, without waiting, where it is TARGET_LIVE: client_turn() of sdk/client/door.h goes on.
 * -EAGAIN, without words: its queue is full, try again.  room: TOKEN_BYTES, as long as *ret. */
int target_begin(const struct target *t, char *room, struct probing_client **ret);
/* rc, with more words where it is known why a process that should answer is silent. */
int target_explain_silence(const struct target *t, int rc);
char target_state(pid_t pid); /* as in /proc/PID/stat: 'Z', 'T' ...; '?': none */
/* Stopped by a signal, held by a debugger, or its cgroup is frozen: it is there, and cannot run. */
struct target_halt {
    char is[112];    /* "stopped": after "it is" */
    char remedy[64]; /* "continue it with: kill -CONT 12" */
};
/* ret: NULL, it is not asked why.  false: it may run (or has ended).  Of one that is only traced,
 * as by strace, that takes some looks. */
bool target_halted(pid_t pid, struct target_halt *ret);
/* It has ended, and its parent has not asked yet; one whose first thread alone has ended runs. */
bool target_is_zombie(pid_t pid);
/* A process that is there, but on its way out of the kernel: what to say; NULL: it may answer.
 * One that writes its core dump is for as long as that takes. */
const char *target_ends(pid_t pid);
/* Are the files to be read: of a dead, a stopped, or a process that was left? */
bool target_is_files(const struct target *t);
/* Say on stderr whose files are read, where they are not ours, and what else there is. */
void target_say_whose(const struct target *t);

#define TOKEN_BYTES 256
/* For client_new(): the token of the process at the other end of a connection, when that is
 * proved and we may read it; NULL: none is known.  room: TOKEN_BYTES, may hold it. */
const char *token_of_peer(void *room, int fd);
int token_read(const char *directory, char *ret); /* ret: TOKEN_BYTES */
struct datadir;
/* "http://127.0.0.1:9922/", the page of the core whose directory it is; "": it does not listen. */
void page_read(const struct datadir *d, char *ret, size_t size);
/* The same of an address that a core listens on. */
void page_of(const char *address, char *ret, size_t size);

/* ---- data directories (datadir.c) ---- */

struct datadir;
/* Give fn the directories below the roots that are believed, to root those of all users.  says:
 * name those not believed, on stderr, where the user has asked for directories: others may leave
 * anything in /tmp and /dev/shm.  fn gives non-zero to stop. */
int directory_each(int (*fn)(void *arg, const struct datadir *d), void *arg, bool says);
/* A line "key: value" of a data directory's info file; -ENOENT; -EBADMSG: the file is damaged, what
 * it says may be wrong, and is given where it is there. */
int directory_info(const struct datadir *d, const char *key, char *ret, size_t size);
/* Is the process that wrote this directory still the one with its pid, and no zombie? */
bool directory_alive(const struct datadir *d, pid_t *ret_pid);
/* Does a process have the store of this directory open, seen from here or not? */
bool directory_held(const struct datadir *d);
/* Read whose it is from its name, "<pid>-<start time>", as a core calls it: that cannot be damaged.
 * false: it has another name. */
bool directory_named(const struct datadir *d, uint64_t *ret_pid, uint64_t *ret_started);
/* The newest directory of a process that had this pid, and of that very one unless start_time is 0.
 * Only of the users that are wanted: others of that name are no answer, but may be named. */
struct directory_newest {
    pid_t pid;
    uint64_t start_time;
    uid_t owners[3];  /* whose it may be: who asks, or who the living process is */
    char path[4096];  /* "": none */
    uint32_t n;       /* how many there are, */
    uint32_t others;  /* and of others, */
    char other[4096]; /* the newest of which */
    uid_t other_owner;
    struct timespec time, other_time;
};
void directory_newest(struct directory_newest *ret);
/* Has the core of a living process gone from this directory: left in good order, or with an exec?
 * (One that is just starting has not opened its socket yet.) */
bool directory_is_over(const char *directory);
/* Is its process invisible from here (another pid namespace, a directory that both see)? */
bool directory_lives_elsewhere(const char *directory);

/* ---- the way in (core_lookup.c) ---- */

/* The data directory of a living process, by its mapped data file.  -ENOENT: no core answers in it;
 * *ret is "", or the directory of one that starts; -ETIMEDOUT: the process did not let us look. */
int directory_of(pid_t pid, char *ret, size_t size);
/* The same; one that starts is waited for, some seconds. */
int directory_await(pid_t pid, char *ret, size_t size);
/* Is it the user who owns what that process makes (sdk/lib/proc/identity.h)? */
bool process_is_of(pid_t pid, unsigned uid);
/* The process that must listen in a directory; NULL: the one that it is called after. */
struct endpoint_owner {
    pid_t pid;
    uint64_t start_time; /* 0: not known */
};
/* A client that stops at Ctrl-C and whose errors are our reasons.  NULL: no memory.  token, and who
 * is asked for one: <probing/client.h>. */
struct probing_client *client_new(const char *token, const char *(*find_token)(void *arg, int fd),
                                  void *arg);
/* Give the result of a client's call, but -ESTALE where it failed because the process runs another
 * program now (exec), and its core ended with the one before.  The reason stays.  Every way to ask
 * a living process goes through this, so a step of a command never calls that a death. */
int client_failed(struct probing_client *c, int rc);
/* Add the answer of a core's command to `answer`, within 10 s.  0, or -errno when it could not be
 * asked or said no. */
struct buf;
int client_command(struct probing_client *c, int argc, const char *const *argv, struct buf *answer);
/* To the core that lives in a directory: nobody else is ever spoken to, whoever made it. */
int endpoint_connect(const char *directory, const struct endpoint_owner *who,
                     struct probing_client **ret);
/* Begin to connect `c` to the core there; as target_begin(). */
int endpoint_begin(const char *directory, const struct endpoint_owner *who,
                   struct probing_client *c);
/* A connected descriptor of the socket `name`; type: SOCK_SEQPACKET ...  Caller closes. */
int endpoint_dial(const char *directory, const struct endpoint_owner *who, const char *name,
                  int type);

/* Ctrl-C and SIGTERM raise this; long commands look at it. */
extern volatile sig_atomic_t cli_interrupted;
extern volatile sig_atomic_t cli_terminated; /* by SIGTERM: what goes on after Ctrl-C ends, too */
extern volatile sig_atomic_t cli_prompts; /* a line is being read: prompt.c waits for SIGALRM too */
extern _Atomic int cli_cancel;            /* the same, as the engine wants it */
/* Ctrl-C has ended what it was typed for, and the session goes on. */
void cli_interrupt_over(void);
/* Ours; and as they were when main() kept them: before an exec, and while files of the dead are
 * read, which takes as long as whoever wrote them likes (terminal/interrupt.c). */
void cli_signals_keep(void);
void cli_signals_catch(void);
void cli_signals_back(void);

/* ---- terminal/args.c ---- */

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
    int (*run)(struct target *t, int argc, char **argv);
    /* Words that it takes because plugins are installed that declare them; or NULL. */
    void (*words)(void (*fn)(void *arg, const char *word, const char *doc), void *arg);
    struct cli_option options[COMMAND_OPTIONS + 1];
    const char *examples[COMMAND_EXAMPLES + 1]; /* behind "probing "; the list ends with NULL */
};

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
/* Why no process or thread could be made: strerror(), or which limit that is. */
const char *cli_fork_why(int e);
/* run(argc, argv), on a stack of our own where `ulimit -s` allows little. */
int cli_with_stack(int (*run)(int argc, char **argv), int argc, char **argv);
/* May so many files be open as asking several takes?  0, or -EMFILE with what to do. */
int cli_check_files(void);
/* Gives r; when it is below 0 the exit code will be EXIT_USAGE: the words were wrong. */
int cli_misuse(int r);
bool cli_is_misused(void);

/* A name of C++ as a person writes it, which stays until some others were asked for; else `name`.
 * Most are plain already, but not what crashes leave, and kernels' in data of older builds. */
const char *cli_plain_name(const char *name);

/* ---- commands: argv[0] is the command's name ---- */

int command_inject(struct target *t, int argc, char **argv);  /* inject.c */
int command_eject(struct target *t, int argc, char **argv);   /* inject.c */
int command_launch(struct target *t, int argc, char **argv);  /* launch.c */
int command_cluster(struct target *t, int argc, char **argv); /* cli/cluster/cluster.c */
int command_relay(struct target *t, int argc, char **argv);   /* cli/relay/relay.c */
int command_ship(struct target *t, int argc, char **argv);    /* cli/ship/ship.c */
int command_list(struct target *t, int argc, char **argv);    /* list.c */
int command_ui(struct target *t, int argc, char **argv);      /* list.c */
int command_gc(struct target *t, int argc, char **argv);      /* list.c */
int command_forward(struct target *t, int argc, char **argv); /* remote.c: as it is */
int command_eval(struct target *t, int argc, char **argv);
int command_backtrace(struct target *t, int argc, char **argv);   /* backtrace.c */
int command_performance(struct target *t, int argc, char **argv); /* plugin.c */
int command_query(struct target *t, int argc, char **argv);  /* query.c: query, tables, describe */
int command_export(struct target *t, int argc, char **argv); /* export.c */
int command_debug(struct target *t, int argc, char **argv);  /* debug.c */
int command_doctor(struct target *t, int argc, char **argv); /* doctor.c */
int command_flamegraph(struct target *t, int argc, char **argv);
int command_watch(struct target *t, int argc, char **argv);  /* remote.c */
int command_repl(struct target *t, int argc, char **argv);   /* repl.c */
int command_script(struct target *t, int argc, char **argv); /* remote.c */
int command_top(struct target *t, int argc, char **argv);    /* top.c */
int command_plugin(struct target *t, int argc, char **argv); /* plugin.c */

/* launch.c: a program as execvp() will find it ("": not at all); can the core be brought into it?;
 * and our environment so that what we exec has the core in it, with these lines of settings. */
void launch_find(const char *name, char *ret, size_t size);
int launch_check(const char *path);
int launch_environment(const char *settings, bool children);
/* -ENOENT, and why a living process has no core: nobody brought one, or it was led past it.
 * plugin: what else is needed of it; "": nothing. */
int launch_no_core(pid_t pid, const char *plugin);

/* obtain.c: what a command fails for is noted where that is found: bare, a process without a core
 * (0: it has one), and a plugin ("": none). */
void obtain_note(pid_t bare, const char *plugin);
/* rc: a command has failed with it.  0: what it lacked is there now, by a person's leave or because
 * --yes was given (agreed), the target is resolved anew, and the command may run again.  Else it
 * has failed. */
int obtain(struct target *t, int rc, bool agreed);
/* Load a plugin wherever the target is, without a word; also where it is loaded already. */
int obtain_plugin(const struct target *t, const char *plugin);

/* A line for each thing that has our names and is not of this installation: another project's
 * `probing` (`no` stands before those, and their number comes back), and other builds of ours. */
struct lines; /* cli/terminal/check_lines.h */
int other_installations_print(struct lines *l, const char *no);

/* `plugin check FILE [-- PROGRAM ...]` (plugin_check.c).  name: of the plugin. */
int plugin_check(const char *name, const char *file, char **program);
/* The program that waits for a check when no other is named. */
int plugin_check_inside(void);

/* Send a plugin's file through the door of the target's data directory.  name: for messages; the
 * answer's text comes back as err_set().  -EALREADY: it is loaded; -ENODEV: the plugin itself
 * refused; -ECONNRESET: the process died or left.  ret_note: what is odd about a plugin that runs,
 * "". */
int upload_plugin(const struct target *t, const char *name, const char *file, char *ret_note,
                  size_t size);
/* Where the CLI itself has <name>.so: in PROBING_PLUGIN_PATH or among what is installed. */
int plugin_find(const char *name, char *ret, size_t size);
/* Tell a core what the plugins declare that lie beside this command: an open file of lines. */
int door_tell_known(const struct target *t, int fd);
/* Likewise a file that ships: "libprobing.so", "scripts/slow_step.lua". */
int installed_file(const char *name, char *ret, size_t size);
/* Give the build that a file of ours claims ("0.1.0 (build 3f2a91c04d5e)"); "": it names none. */
void installed_build_of(const char *file, char ret[BUILD_MAX]);
/* `--version -v`: what was found where, and what else there is.  `--licenses`. */
int installed_print(struct lines *l);
int installed_licenses(void);

/* ask the live target: words as they are, answer to stdout.  Gives the command's status. */
int live_run(const struct target *t, int argc, const char *const *argv);
/* The same of a command whose answer nobody wants; -EIO, with the answer, when it has failed. */
int live_tell(const struct target *t, int argc, const char *const *argv);

/* backtrace_external.c: of a process that is only read, never entered. */
int external_backtrace(struct target *t, int argc, char **argv);
/* Load now what it would load: then children that ask for several have it. */
void external_backtrace_prepare(void);
/* backtrace_crash.c: the stacks that a crash has left in a data directory. */
int crash_print(const char *directory);
/* The signal by which the process of a directory crashed; false: it did not, as far as is known. */
bool crash_of(const struct datadir *d, char *ret, size_t size);

/* ---- pager.c ---- */

/* Width of the terminal when stdout is one, else 0; and its lines, 24 where it does not say. */
uint32_t cli_width(void);
uint32_t cli_rows(void);
/* From now on stdout goes through a pager, when a person is there who has one. */
void pager_begin(void);
bool pager_runs(void);
bool pager_colours(void); /* it shows them; or there is none */
void pager_end(void);     /* all is said: wait until it has been read */

#endif
