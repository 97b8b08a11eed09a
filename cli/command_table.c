/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/command_table.c - the table of commands: ours, and those that plugins bring.
 *
 * One thread.
 */
#include "cli/command_table.h"

#include <errno.h>
#include <string.h>

#include "cli/cluster/job_report.h"
#include "cli/commands/commands.h"
#include "cli/commands/flamegraph/flame.h"
#include "cli/many/flame_ranks.h"
#include "cli/report/report.h"
#include "cli/terminal/args.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define FORMAT                                                                              \
    {                                                                                       \
        "--format", "-f", "FORMAT", "table, expanded, json, jsonl or csv; table by default" \
    }
#define ANY_FORMAT                                                                                 \
    {                                                                                              \
        "--format", "-f", "FORMAT", "table, expanded, json, jsonl, csv or arrow; table by default" \
    }
#define AS_JSON                                           \
    {                                                     \
        "--json", NULL, NULL, "the same as --format json" \
    }
#define AS_EXPANDED                                                                        \
    {                                                                                      \
        "--expanded", "-x", NULL, "a line for each column, texts whole: --format expanded" \
    }
#define YES                                                                                  \
    {                                                                                        \
        "--yes", "-y", NULL, "enter the process first if that is needed, without a question" \
    }
#define TIMEOUT                                                             \
    {                                                                       \
        "--timeout", NULL, "TIME", "give up after this long: 5s, 500ms, 2m" \
    }

static const struct cli_command own_commands[] = {
    {.name = "inject",
     .heading = "enter and leave",
     .aliases = {"in", "i"},
     .arguments = "",
     .doc = "enter the running process",
     .text = "The process keeps running; one of its threads stands still for about a millisecond, "
             "at a point that was proved safe. If the process cannot be entered, the reason is "
             "given and nothing has changed.",
     .needs_target = true,
     .runs_there = "",
     .timeout_ns = 120 * NS_PER_S, /* it may wait a minute until it begins */
     .run = command_inject,
     .options = {{"--listen", "-l", "ADDR", "listen on TCP too, with a token: 127.0.0.1:9922"},
                 {"--address", "-a", "ADDR", "an older name of --listen"},
                 {"--background", "-b", NULL,
                  "accepted for compatibility; inject always runs in the background"},
                 {"--define", "-D", "KEY=VALUE", "change this setting from the start"},
                 {"--plugin", NULL, "NAME", "also load this plugin; can be repeated"},
                 {"--pprof", "-P", NULL, "load plugin profile, which samples stacks from now on"},
                 {"--crash", "-c", NULL, "save the stacks of all threads if the process crashes"},
                 TIMEOUT,
                 {"--wait", NULL, NULL, "wait until it can be entered, for 1m or --timeout"},
                 {"--way", NULL, "WAY", "ptrace, or remote (CPython 3.14's remote exec)"},
                 {"--dry-run", NULL, NULL, "only report whether it can be entered, and how"}},
     .examples = {"-t 4242 inject", "-t 4242 inject --plugin torch -l 127.0.0.1:9922"}},
    {.name = "launch",
     .arguments = "-- PROGRAM [ARGUMENTS]",
     .doc = "run a program with the core loaded from the start",
     .text = "The program replaces this command: pid, signals and exit code are those of the "
             "program. The program and its children see the original environment. If the program "
             "is a shell script, a wrapper or a launcher (torchrun), the core is loaded into the "
             "Python that it starts. Plugins that wait for something (torch for `import torch`) "
             "start when it is there.",
     .run = command_launch,
     .options =
         {{"--listen", "-l", "ADDR", "listen on TCP too, with a token: 127.0.0.1:9922"},
          {"--define", "-D", "KEY=VALUE", "change this setting from the start"},
          {"--plugin", NULL, "NAME", "also load this plugin; can be repeated"},
          {"--pprof", "-P", NULL, "load plugin profile, which samples stacks from now on"},
          {"--crash", "-c", NULL, "save the stacks of all threads if the process crashes"},
          {"--children", NULL, NULL,
           "also load the core into its child programs (not static ones, nor those of musl)"}},
     .examples = {"launch -- python train.py", "launch --plugin torch -- torchrun train.py"}},
    {.name = "eject",
     .arguments = "[--force]",
     .doc = "leave the process: remove threads, sockets and hooks, keep the data",
     .needs_target = true,
     .forwarded = true,
     .runs_there = "",
     .run = command_eject,
     .examples = {"-t 4242 eject", "-t 4242 eject --force"}},
    {.name = "list",
     .aliases = {"ls", "l"},
     .arguments = "",
     .doc = "list processes with a core, or data directories of processes that have ended",
     .pages = true,
     .run = command_list,
     .options = {{"--dead", NULL, NULL, "list the data of processes that have ended"},
                 {"--json", NULL, NULL, "a line of JSON for each process"}},
     .examples = {"list", "list --dead", "list --json"}},
    {.name = "doctor",
     .aliases = {"dr"},
     .arguments = "",
     .doc = "what this machine allows, and how to mend what is in the way",
     .text = "Looks at whether processes can be entered (ptrace, yama, capabilities, containers), "
             "perf events, GPUs, the Pythons that run, what is installed, and where data goes. "
             "Exit code 1: something is in the way, and the line below it says how to mend it.",
     .run = command_doctor,
     .options = {{"--json", NULL, NULL, "as JSON"}},
     .examples = {"doctor", "doctor --json"}},
    {.name = "backtrace",
     .heading = "look into a process",
     .aliases = {"bt", "b"},
     .arguments = "",
     .doc = "stacks of all threads, Python and native; works in a hung process",
     .text = "For a process that crashed with crash.handler=on it shows the stacks at the crash. "
             "--external needs no core in the process and leaves none: it writes nothing there and "
             "stops nothing, and native frames of running threads are not shown.",
     .needs_target = true,
     .forwarded = true,
     .endless = "--watch",
     .runs_there = "--external",
     .run = command_backtrace,
     .options = {{"--thread", NULL, "TID", "this thread only"},
                 {"--native", NULL, NULL, "native frames only"},
                 {"--python", NULL, NULL, "Python frames only"},
                 {"--locals", NULL, NULL, "local variables, simple values only"},
                 {"--locals=repr", NULL, NULL,
                  "local variables as the program's own repr() shows them"},
                 {"--tasks", NULL, NULL, "asyncio tasks and what each one awaits"},
                 {"--all", NULL, NULL, "also probing's own threads"},
                 {"--external", NULL, NULL, "read the process from outside; it is not entered"},
                 {"--full", NULL, NULL, "on a terminal: fold no frames and cut no lines"},
                 {"--watch", NULL, NULL, "repeat every second, or every --interval"},
                 {"--interval", NULL, "TIME", "how often to repeat: 500ms, 5s"},
                 {"--json", NULL, NULL, "as JSON"},
                 YES},
     .examples = {"-t 4242 backtrace", "-t 4242 backtrace --thread 4245 --locals",
                  "-t 4242 backtrace --external --watch", "-t all backtrace"}},
    {.name = "top",
     .arguments = "",
     .doc = "a live screen: threads and what they run, memory, modules, GPUs",
     .text =
         "q or Ctrl-C quits, p shows probing's own threads, too. The own time of a function or "
         "module excludes what it calls, the total time includes it. Both are processor time; "
         "Python functions are sampled 20 times a second. %OWN and %TOTAL are since the last "
         "refresh, OWNTIME and TOTALTIME since the start. Plugins that are loaded add what they "
         "have: the last training step, the slowest modules, GPUs. Without a terminal, or with "
         "--once, the screen is printed once.",
     .needs_target = true,
     .one_process = "!--once",
     .one_process_why = "a screen is of one process; top --once prints one for each",
     .run = command_top,
     .options = {{"--interval", NULL, "TIME", "how often to refresh; 1s by default"},
                 {"--once", NULL, NULL, "print the screen once, for scripts"},
                 {"--json", NULL, NULL, "one look as JSON"},
                 {"--all", NULL, NULL, "also probing's own threads"},
                 {"--color", NULL, "WHEN", "auto (the default), always or never"},
                 YES},
     .examples = {"-t 4242 top", "-t 4242 top --once"}},
    {.name = "flamegraph",
     .aliases = {"fg", "flame"},
     .arguments = "[MODE | diff A B]",
     .doc = "draw where the time goes, in Python and native code",
     .text = "Draws MODE: what a plugin samples or has measured. A MODE that samples does so for "
             "--seconds, and the plugin is put back as it was. With --last or --since, older "
             "samples are used, also of a process that has ended. diff compares two processes, "
             "data directories or files of folded stacks: A is before, B is after. html and svg "
             "are single files that need nothing else; folded, speedscope, pprof, perfetto and "
             "chrome are "
             "for other programs.",
     .may_target = true,
     .reads_rows = true,
     .one_process = "diff",
     .one_process_why = "a difference is of two that it names itself: flamegraph diff A B",
     .run_many = flame_ranks,
     .run = command_flamegraph,
     .words = flame_mode_words,
     .options =
         {{"--seconds", "-s", "TIME", "sample for this long from now on"},
          {"--last", NULL, "TIME", "use the newest existing samples: 30s, 5m"},
          {"--since", NULL, "TIME", "use samples from this time on, UTC: 2026-01-31T10:00:00"},
          {"--mode", "-m", "MODE", "another way to name the MODE"},
          {"--rate", NULL, "HZ", "with --seconds: samples per second, 1 to 10000"},
          {"--format", "-f", "FORMAT",
           "html, svg, folded, speedscope, pprof, perfetto or chrome; by default from FILE's name"},
          {"--output", "-o", "FILE", "write to this file; standard output by default"},
          {"--width", NULL, "PIXELS", "width of an svg; 1200 by default"},
          {"--threads", NULL, NULL, "show threads separately"},
          {"--memory", NULL, NULL, "MODE_memory: the memory that MODE has measured"},
          {"--lines", NULL, NULL, "show the lines of a function separately"},
          YES},
     .examples = {"-t 4242 flamegraph -s 10 -o out.html",
                  "-t 4242 flamegraph --last 5m --mode wall -o out.svg",
                  "flamegraph diff before.folded after.folded -o diff.html"}},
    {.name = "ui",
     .arguments = "",
     .doc = "print the address of the process's page, with the token in it",
     .text = "The page and the HTTP interface are there while the core listens on TCP. Without "
             "--open nothing is opened; `config server.listen=ADDR` chooses another address.",
     .needs_target = true,
     .run = command_ui,
     .options = {{"--open", NULL, NULL,
                  "if there is none, listen on a free port of 127.0.0.1 first"}},
     .examples = {"-t 4242 ui", "-t 4242 ui --open"}},
    {.name = "eval",
     .aliases = {"e"},
     .arguments = "CODE | --file FILE [ARGUMENT...]",
     .doc = "run Python in the process and print its output",
     .text = "The value of a last expression is printed. Names that you assign are there in the "
             "next eval; the program's own variables are read, never written. An exception gives a "
             "traceback and exit code 1. A file finds its name and arguments in `argv`; sys.argv "
             "is that of the program.",
     .needs_target = true,
     .forwarded = true,
     .verbatim = true,
     .one_process = "--file=-",
     .one_process_why = "standard input can be read once; put the code into a file",
     .run = command_eval,
     .options = {TIMEOUT,
                 {"--raw", NULL, NULL, "do not escape control characters, even on a terminal"},
                 {"--file", "-f", "FILE", "run this file of this machine; - is the standard input"},
                 YES},
     .examples = {"-t 4242 eval \"import torch; print(torch.__version__)\"",
                  "-t 4242 eval --timeout 30s -f look.py model.layers"}},
    {.name = "repl",
     .aliases = {"r"},
     .arguments = "",
     .doc = "an interactive Python prompt in the process",
     .text =
         "Tab completes names of live objects; a history is kept. A line that begins with % is a "
         "command: %backtrace, %query select ..., %config. Ctrl-C stops what runs, Ctrl-D leaves. "
         "Line editing needs libedit; without it, or from a pipe, lines are read as they come.",
     .needs_target = true,
     .one_process = "",
     .one_process_why = "one person types there; `eval` runs code in several",
     .run = command_repl,
     .options = {{"--raw", NULL, NULL, "do not escape control characters, even on a terminal"},
                 YES},
     .examples = {"-t 4242 repl"}},
    {.name = "debug",
     .aliases = {"dbg", "d"},
     .arguments = "",
     .doc = "stacks, pdb in the main thread, or debugpy for VS Code",
     .text = "--pause stops the main thread when it next runs Python code and shows the prompt of "
             "pdb; the program continues with `c`, with Ctrl-D, or when this command ends for any "
             "reason. With --address, pdb listens there instead and asks for a token. --dap lets "
             "an editor attach through debugpy: the process's user and root, from this machine. "
             "With --open, others can connect with the token that it prints.",
     .needs_target = true,
     .runs_there = "",
     .one_process = "--pause|--dap",
     .one_process_why = "a debugger is of one process; `backtrace` shows the stacks of several",
     .run = command_debug,
     .options = {{"--dump", "-d", NULL, "print the stacks of all threads, as `backtrace` does"},
                 {"--pause", "-p", NULL, "start pdb in the main thread"},
                 {"--dap", NULL, NULL, "make debugpy listen, on 127.0.0.1:5678 by default"},
                 {"--address", "-a", "ADDR", "address to listen on: 127.0.0.1:9922"},
                 {"--open", NULL, NULL, "with --dap: let others connect, with a token"},
                 {"--debugpy", NULL, "DIR",
                  "directory that contains debugpy, if the process has none"},
                 YES},
     .examples = {"-t 4242 debug --dump", "-t 4242 debug --pause",
                  "-t 4242 debug --pause --address 127.0.0.1:9922", "-t 4242 debug --dap"}},
    {.name = "trace",
     .arguments = "MODULE.FUNCTION... | --list | --stop [NAME]",
     .doc = "watch calls of Python functions, or a variable in one",
     .text =
         "Each call is printed when it ends and becomes a row of a table, which it names, as "
         "values of a variable do. Ctrl-C, --duration or --limit ends it and removes all hooks. "
         "It works on the function itself, whoever calls it.",
     .needs_target = true,
     .forwarded = true,
     .endless = "!--list|--stop",
     .run = command_trace,
     .options = {{"--args", NULL, NULL, "also arguments and results, with bounded length"},
                 {"--watch", NULL, "VARIABLE", "a variable's or attribute's values (3.12 on)"},
                 {"--duration", NULL, "TIME", "end after this long: 10s, 500ms, 2m"},
                 {"--limit", NULL, "N", "end after this many calls"},
                 {"--keep", NULL, NULL, "keep watching after this command has ended"},
                 {"--list", NULL, NULL, "list what is watched"},
                 {"--json", NULL, NULL, "with --list: as JSON"},
                 {"--stop", NULL, NULL, "stop watching this function, or all functions"},
                 YES},
     .examples = {"-t 4242 trace train.Trainer.step --args --duration 10s",
                  "-t 4242 trace train.step --watch loss --limit 100"}},
    {.name = "performance",
     .aliases = {"perf", "p"},
     .arguments = "",
     .doc = "start measuring: load plugin profile (--cc) or torch (--torch)",
     .needs_target = true,
     .run = command_performance,
     .options = {{"--cc", NULL, NULL, "measure where C, C++ and Python code spends its time"},
                 {"--torch", NULL, NULL, "measure the time and memory of every module"},
                 YES},
     .examples = {"-t 4242 performance --cc"}},
    {.name = "query",
     .heading = "query what was measured",
     .aliases = {"q"},
     .arguments = "[SQL | -]",
     .doc = "query the data in SQL, of a live process or of one that has ended",
     .text =
         "Without SQL it is a shell: history, Tab for tables, columns and functions, statements "
         "of several lines that end with `;`, and psql's commands (\\? lists them). SQL may be "
         "several statements; - reads them from standard input. The first error ends a file, "
         "and names its line. FILE of --output is written whole or not at all.",
     .needs_target = true,
     .reads_rows = true,
     .finds_again = true,
     .run = command_query,
     .options = {{"--file", "-f", "FILE",
                  "run the statements of this file; the name of a format stands for --format"},
                 {"--output", "-o", "FILE",
                  "write to FILE.csv, .json, .jsonl, .parquet, .arrow, .txt"},
                 {"--format", NULL, "FORMAT",
                  "table, expanded, json, jsonl, csv or arrow; table by default"},
                 AS_JSON,
                 AS_EXPANDED,
                 {"--limit", NULL, "N", "print at most this many rows"},
                 TIMEOUT,
                 {"--strict", NULL, NULL, "global tables: no answer unless all ranks answer"},
                 {"--max-bytes", NULL,
                  "SIZE", "global tables: how much the ranks may send; 256MB by default"},
                 {"--from-row", NULL, "N", "of one stored table: from this row number on"},
                 {"--to-row", NULL, "N", "of one stored table: up to this row number, exclusive"},
                 YES},
     .examples = {"-t 4242 query \"select comm, cpu_ns / 1e9 as cpu_s from cpu.tasks\"",
                  "-t /tmp/probing-0/4242-935673 query \"select name, rows from "
                  "probing.tables\"",
                  "-t 4242 query",
                  "-t all query \"select _rank, count(*) from global.cpu.tasks group by 1\""}},
    {.name = "watch",
     .arguments = "SQL",
     .doc = "print rows as they arrive, until Ctrl-C",
     .needs_target = true,
     .endless = "",
     .run = command_watch,
     .options = {FORMAT,
                 AS_JSON,
                 AS_EXPANDED,
                 {"--interval", NULL, "TIME", "how often to run the query; 1s by default"},
                 {"--last", NULL, "N", "begin with the N newest existing rows"},
                 YES},
     .examples = {"-t 4242 watch \"select ts, text from probing.log\""}},
    {.name = "tables",
     .aliases = {"tbl"},
     .arguments = "",
     .doc = "list the tables",
     .needs_target = true,
     .reads_rows = true,
     .finds_again = true,
     .run = command_tables,
     .text =
         "On a terminal the tables that have rows come first, and those of probing itself are left "
         "out. A pipe and the other formats have all.",
     .options = {ANY_FORMAT,
                 AS_JSON,
                 AS_EXPANDED,
                 {"--all", NULL, NULL, "on a terminal: show all tables"},
                 YES},
     .examples = {"-t 4242 tables"}},
    {.name = "describe",
     .arguments = "TABLE",
     .doc = "list the columns of a table with their units and meaning",
     .needs_target = true,
     .reads_rows = true,
     .finds_again = true,
     .run = command_describe,
     .options = {ANY_FORMAT, AS_JSON, AS_EXPANDED, YES},
     .examples = {"-t 4242 describe cpu.tasks"}},
    {.name = "export",
     .arguments = "[SQL | TABLE]",
     .doc = "write a table or an answer to a file",
     .text = "perfetto and chrome are traces: without SQL or TABLE they have the tracks that "
             "plugins declare (steps, modules, spans ...) on one clock.",
     .needs_target = true,
     .reads_rows = true,
     .run = command_export,
     .options = {{"--format", "-f", "FORMAT",
                  "csv, json, jsonl, table, arrow, parquet, perfetto or chrome"},
                 {"--output", "-o", "FILE", "write to this file; standard output by default"},
                 {"--table", NULL, "TABLE", "export this whole table"},
                 {"--tracks", NULL, "NAMES", "traces: only these tracks, separated by commas"},
                 {"--last", NULL, "TIME", "traces: only the newest events: 10s, 5m"},
                 TIMEOUT,
                 YES},
     .examples = {"-t 4242 export --format perfetto -o trace.pftrace",
                  "-t 4242 export --format csv cpu.tasks -o tasks.csv"}},
    {.name = "cluster",
     .heading = "jobs of many processes, other machines",
     .arguments = "nodes | status | attach | detach | hang | diff | REPORT",
     .doc = "a whole job: list, enter and leave its ranks, find which rank hangs, compare them",
     .text = "The ranks of a job are found by the environment that torchrun, SLURM, Open MPI, PMI "
             "or Kubernetes gave them. `attach` enters each rank that has no core yet, and "
             "`detach` leaves each. `hang` looks at the stacks of all ranks several times, entered "
             "or not, and says who waits in which collective, and for whom. `diff` shows what is "
             "not the same in all ranks: versions, environment, settings, limits. Other machines "
             "are asked only if --hosts names them. They are reached by ssh; `probing` must be "
             "installed there, and nothing keeps running there. Exit code 1: some rank or host is "
             "not as it should be. REPORT is a report of a plugin about a whole job; it takes "
             "--job, --hosts and -t as well as its own options.",
     .may_target = true,
     .finds_targets = true,
     .after_reports = true,
     .help_word = cluster_help_word,
     .run = command_cluster,
     .words = job_report_words,
     .options =
         {{"--job", "-j", "NAME",
           "the job: torchrun's run id, SLURM's job id, or MASTER_ADDR:MASTER_PORT; NAME@USER: "
           "that of another user"},
          {"--hosts", "-H", "HOSTS",
           "node[1-8],other; ./FILE with a host a line; or auto: the nodes that the job names"},
          {"--store", NULL, "HOST:PORT", "torchrun's rendezvous, to ask it for the nodes"},
          {"--rsh", "-e", "COMMAND", "remote shell to use instead of ssh; also PROBING_RSH"},
          {"--remote-probing", NULL, "COMMAND",
           "the command probing on other machines; also PROBING_REMOTE"},
          {"--plugin", NULL, "NAME", "attach: also load this plugin; can be repeated"},
          {"--at-once", NULL, "N",
           "ranks of a host at a time; for attach and detach also hosts at a time; 16 by default"},
          {"--json", NULL, NULL,
           "a line of JSON for each rank or node; for hang and diff one value"},
          {"--looks", NULL, "N", "hang: how many times to look; 3 by default"},
          {"--interval", NULL, "TIME", "hang: time between two looks; 1s by default"},
          {"--native", NULL, NULL, "hang: also show native frames"},
          {"--all", NULL, NULL, "diff: also show what is the same"},
          {"--threads", NULL, NULL, "hang: show all threads, not only the main one"},
          {"--timeout", NULL, "TIME", "for each rank; 20s by default, for hang 15s"}},
     .examples = {"cluster status", "cluster hang", "cluster attach --plugin torch",
                  "cluster attach --job 4711 --hosts 'node[01-16]'",
                  "cluster nodes --store node1:29400 --job myrun"}},
    {.name = "relay",
     .arguments = "[WHAT]",
     .doc = "give another machine access to the processes of this one",
     .text = "`-t ssh:HOST` starts a relay there by itself (--stdio), which ends with the command "
             "that started it. With --listen it waits for clients that show its token (`-t "
             "relay:HOST:PORT`), on this machine only unless an address is given. Nothing is "
             "encrypted: use ssh, or a proxy with TLS. A client may do what the relay's own user "
             "may do here, and no more.",
     .run = command_relay,
     .options = {{"--stdio", NULL, NULL, "talk over standard input and output"},
                 {"--listen", "-l", "ADDR", "listen on PORT or ADDR:PORT; needs a token"},
                 {"--token-file", NULL, "FILE",
                  "file with the token, mode 600; else PROBING_TOKEN or PROBING_TOKEN_FILE"},
                 {"--list", NULL, NULL, "only list the processes here, or those that WHAT names"}},
     .examples = {"-t 'ssh:node[1-8]' query \"select ...\"",
                  "relay --listen 10.0.0.7:9923 --token-file relay.token"}},
    {.name = "ship",
     .arguments = "",
     .doc = "keep tables for good: Prometheus, ClickHouse, OpenTelemetry, Parquet files",
     .text =
         "Runs beside the processes until Ctrl-C and sends new rows as they come. With -t all and "
         "-t job:NAME it also follows processes that start later. It sends what processes that "
         "ended have left, and continues where it stopped. Destinations: "
         "prometheus+http://HOST:9090/api/v1/write (remote write, also for VictoriaMetrics), "
         "clickhouse+http://HOST:8123, otlp+http://HOST:4318, parquet:FOLDER; https in place of "
         "http for TLS. Without --tables, ClickHouse and Parquet get all stored tables, the others "
         "get what /metrics has. A password or token comes from --secret or PROBING_SHIP_SECRET.",
     .needs_target = true,
     .finds_targets = true,
     .run = command_ship,
     .options =
         {{"--to", NULL, "URL", "the destination"},
          {"--tables", NULL, "NAMES", "tables to send: python.*,system.*"},
          {"--interval", NULL, "TIME", "how often to look for new rows; 10s by default"},
          {"--state", NULL, "FILE",
           "remembers what has been sent; in ~/.local/state/probing by default"},
          {"--secret", NULL, "FILE", "first line of FILE: a token, or the user's password"},
          {"--cacert", NULL, "FILE", "trust these certificates instead of the machine's"},
          {"--cert", NULL, "FILE", "our certificate, if the server asks for one"},
          {"--key", NULL, "FILE", "the key of --cert, if it is not in the same file"},
          {"--max-series", NULL, "N",
           "remote write, OpenTelemetry: at most this many series an hour; 1000000 by default"},
          {"--once", NULL, NULL, "send what there is now, and end"}},
     .examples = {"-t job:4711 ship --to parquet:/data/runs",
                  "-t all ship --to prometheus+http://127.0.0.1:8428/api/v1/write",
                  "-t all ship --to clickhouse+http://default@db:8123 --tables 'python.*'"}},
    {.name = "config",
     .heading = "settings, plugins, scripts, data",
     .aliases = {"cfg", "c"},
     .arguments = "[list [--json]] | get NAME | set NAME VALUE | NAME=VALUE",
     .doc = "show or change settings of the process",
     .needs_target = true,
     .forwarded = true,
     .pages = true,
     .run = command_config,
     .options = {YES},
     .examples = {"-t 4242 config", "-t 4242 config probing.max_memory=1GB"}},
    {.name = "plugin",
     .arguments =
         "list [--json] | load NAME|FILE ... | stop NAME ... | check FILE [-- PROGRAM ...]",
     .doc = "list, load, stop or check plugins",
     .text = "`check` needs no target: it loads the file into a separate process that it starts, "
             "or into PROGRAM, and reports what the plugin registers, whether it starts, runs, "
             "stops and starts again, and what it leaves behind (threads, descriptors, signal "
             "handlers), or where it crashed. Exit code 1 means that it should not be loaded.",
     .may_target = true,
     .forwarded = true,
     .runs_there = "load",
     .run = command_plugin,
     .options = {YES},
     .examples = {"-t 4242 plugin load torch cuda", "-t 4242 plugin load ./mine.so",
                  "plugin check ./mine.so", "plugin check ./mine.so -- python3 app.py"}},
    {.name = "script",
     .arguments = "run FILE.lua [PARAMETER=VALUE ...] | -e CODE | list [--json] | stop NAME | "
                  "reload FILE|NAME | log NAME | help FILE|NAME | check FILE | points [PATTERN]",
     .doc = "run Lua probe scripts inside the process",
     .needs_target = true,
     .forwarded = true,
     .endless = "--follow",
     .run = command_script,
     .options = {{"--follow", "-f", NULL, "run: print what it says until it ends, or Ctrl-C"},
                 {"--json", NULL, NULL, "with --follow: a line of JSON for each value"},
                 {"-e", NULL, "CODE", "run these lines, and stop them at Ctrl-C"},
                 YES},
     .examples = {"-t 4242 script run slow_step.lua --follow",
                  "-t 4242 script -e 'print(#probing.query(\"show tables\"))'"}},
    {.name = "gc",
     .arguments = "",
     .doc = "remove the data of processes that have ended",
     .run = command_gc,
     .options = {{"--older", NULL, "DAYS", "remove only data that is older: 7, 7d, 12h"},
                 {"--json", NULL, NULL, "how many were removed, as JSON"}},
     .examples = {"gc --older 7"}},
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .doc = "print a script that completes commands and options in a shell",
     .run = command_completion,
     .examples = {"completion bash > ~/.local/share/bash-completion/completions/probing",
                  "completion fish > ~/.config/fish/completions/probing.fish"}},
    {.name = "man",
     .arguments = "",
     .doc = "print the manual page, for man(1)",
     .run = command_man,
     .examples = {"man | man -l -"}},
    {.name = NULL}};

static bool is_named(const struct cli_command *c, const char *word)
{
    bool found = strcmp(c->name, word) == 0;
    for (const char *const *alias = c->aliases; *alias != NULL && !found; alias++)
        found = strcmp(*alias, word) == 0;
    return found;
}

const struct cli_command *cli_command_named(const char *word)
{
    for (const struct cli_command *c = own_commands; c->name != NULL; c++)
        if (is_named(c, word))
            return c;
    return NULL;
}

/* Words that no plugin's command may have. */
static bool is_ours(const char *word)
{
    return cli_command_named(word) != NULL || strcmp(word, "help") == 0 ||
           strcmp(word, "version") == 0;
}

const struct cli_command *cli_report_named(const char *word)
{
    if (!text_is_name(word))
        return NULL;
    for (const struct cli_command *c = report_commands(is_ours); c->name != NULL; c++)
        if (is_named(c, word))
            return c;
    return NULL;
}

const struct cli_command *cli_command_at(uint32_t i)
{
    const struct cli_command *reports = report_commands(is_ours);
    uint32_t before = 0, n = 0;

    while (!own_commands[before].after_reports)
        before++;
    while (reports[n].name != NULL)
        n++;
    const struct cli_command *c = i < before       ? &own_commands[i]
                                  : i - before < n ? &reports[i - before]
                                                   : &own_commands[i - n];
    return c->name != NULL ? c : NULL;
}
