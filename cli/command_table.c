/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/command_table.c - the table of commands: ours, and those that plugins bring.
 *
 * One thread.
 */
#include "cli/command_table.h"

#include <errno.h>
#include <string.h>

#include "cli/commands/flame.h"
#include "cli/report/report.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define COMMANDS_MAX 128
#define FORMAT                                                                       \
    {                                                                                \
        "--format", "-f", "FORMAT", "table, json, jsonl or csv; table when left out" \
    }
#define ANY_FORMAT                                                                          \
    {                                                                                       \
        "--format", "-f", "FORMAT", "table, json, jsonl, csv or arrow; table when left out" \
    }
#define TIMEOUT                                                             \
    {                                                                       \
        "--timeout", NULL, "TIME", "give up after this long: 5s, 500ms, 2m" \
    }

static const struct cli_command own_commands[] = {
    {.name = "inject",
     .aliases = {"in", "i"},
     .arguments = "",
     .doc = "enter the running process",
     .text = "The process goes on running; one of its threads stands still for about a "
             "millisecond, at a place proved safe. Refused with the reason where it cannot be "
             "done, and then nothing has changed.",
     .needs_target = true,
     .run = command_inject,
     .options = {{"--listen", "-l", "ADDR", "listen on TCP too, with a token: 127.0.0.1:9922"},
                 {"--address", "-a", "ADDR", "an older name of --listen"},
                 {"--background", "-b", NULL, "an older word; it always runs in the background"},
                 {"--define", "-D", "KEY=VALUE", "a setting from the start on"},
                 {"--plugin", NULL, "NAME", "load this plugin too; may be given again"},
                 {"--pprof", "-P", NULL, "load plugin profile: stacks, sampled from now on"},
                 {"--crash", "-c", NULL, "keep the stacks of all threads when it crashes"},
                 TIMEOUT,
                 {"--wait", NULL, NULL, "until it can be entered, for 1m or --timeout"},
                 {"--way", NULL, "WAY", "ptrace, or remote (CPython 3.14's remote exec)"},
                 {"--dry-run", NULL, NULL, "only say whether it can be entered, and how"}},
     .examples = {"-t 4242 inject", "-t 4242 inject --plugin torch -l 127.0.0.1:9922"}},
    {.name = "backtrace",
     .aliases = {"bt", "b"},
     .arguments = "",
     .doc = "stacks of all threads, Python and native; works in a hung process",
     .text = "Of a process that has crashed with crash.handler=on: the stacks it had then. "
             "--external needs no core in the process and leaves none: nothing is written there "
             "and nothing stops; what its running threads do in native code is not known.",
     .needs_target = true,
     .forwarded = true,
     .run = command_backtrace,
     .options = {{"--thread", NULL, "TID", "this thread only"},
                 {"--native", NULL, NULL, "native frames only"},
                 {"--python", NULL, NULL, "Python frames only"},
                 {"--locals", NULL, NULL, "local variables, simple values only"},
                 {"--locals=repr", NULL, NULL, "as the program's own repr() shows them"},
                 {"--tasks", NULL, NULL, "asyncio tasks: what each one awaits"},
                 {"--all", NULL, NULL, "probing's own threads too"},
                 {"--external", NULL, NULL, "read the process from outside; it is not entered"},
                 {"--watch", NULL, NULL, "again each second, or --interval"},
                 {"--interval", NULL, "TIME", "how often: 500ms, 5s"},
                 {"--json", NULL, NULL, "as JSON"}},
     .examples = {"-t 4242 backtrace", "-t 4242 backtrace --thread 4245 --locals",
                  "-t 4242 backtrace --external --watch"}},
    {.name = "eval",
     .aliases = {"e"},
     .arguments = "CODE | --file FILE [ARGUMENT...]",
     .doc = "run Python in the process, print what it prints",
     .text = "The value of a last expression is printed. Names that are assigned stay for the "
             "next eval; the program's own variables are read, never written. An exception is a "
             "traceback and exit code 1. A file finds its name and arguments in `argv`; sys.argv "
             "is the program's.",
     .needs_target = true,
     .forwarded = true,
     .verbatim = true,
     .run = command_eval,
     .options = {TIMEOUT,
                 {"--raw", NULL, NULL, "to a terminal, too, the bytes as they are printed"},
                 {"--file", "-f", "FILE", "a file of this machine; - is the input"}},
     .examples = {"-t 4242 eval \"import torch; print(torch.__version__)\"",
                  "-t 4242 eval --timeout 30s -f look.py model.layers"}},
    {.name = "repl",
     .aliases = {"r"},
     .arguments = "",
     .doc = "Python in the process, a line at a time",
     .text = "Tab completes names of live objects; a history is kept. A line that begins with % "
             "is a command: %backtrace, %query select ..., %config. Ctrl-C stops what runs, "
             "Ctrl-D leaves. Editing needs libedit; without it, or from a pipe, lines are read "
             "as they come.",
     .needs_target = true,
     .run = command_repl,
     .options = {{"--raw", NULL, NULL, "to a terminal, too, the bytes as they are printed"}},
     .examples = {"-t 4242 repl"}},
    {.name = "debug",
     .aliases = {"dbg", "d"},
     .arguments = "",
     .doc = "stacks, pdb in the main thread, or debugpy for VS Code",
     .text = "--pause stops the main thread where it next comes to Python code and gives pdb's "
             "prompt; the program goes on with `c`, Ctrl-D, or when this command ends, however it "
             "ends. With --address it is reached there instead, with a token. --dap has debugpy "
             "listen in the process, for editors; it asks for no password, so only this machine "
             "may connect unless --open is given.",
     .needs_target = true,
     .run = command_debug,
     .options = {{"--dump", "-d", NULL, "the stacks of all threads, as `backtrace`"},
                 {"--pause", "-p", NULL, "pdb in the main thread"},
                 {"--dap", NULL, NULL, "debugpy listens, on 127.0.0.1:5678 if not told else"},
                 {"--address", "-a", "ADDR", "where to listen: 127.0.0.1:9922"},
                 {"--open", NULL, NULL, "with --dap: other machines may connect"},
                 {"--debugpy", NULL, "DIR", "a directory with debugpy, if the process has none"}},
     .examples = {"-t 4242 debug --dump", "-t 4242 debug --pause",
                  "-t 4242 debug --pause --address 127.0.0.1:9922", "-t 4242 debug --dap"}},
    {.name = "trace",
     .arguments = "MODULE.FUNCTION... | --list | --stop [NAME]",
     .doc = "watch calls of Python functions, or a variable in one",
     .text = "Each call is a line as it ends, and a row of python.trace_event; a variable's values "
             "are rows of python.watched. Ends with Ctrl-C, --duration or --limit, and nothing "
             "of it is left then. Works on the function itself, whoever calls it.",
     .needs_target = true,
     .forwarded = true,
     .run = command_forward,
     .options = {{"--args", NULL, NULL, "arguments and results too, bounded"},
                 {"--watch", NULL, "VARIABLE", "a variable's or attribute's values (3.12 on)"},
                 {"--duration", NULL, "TIME", "for this long: 10s, 500ms, 2m"},
                 {"--limit", NULL, "N", "so many calls"},
                 {"--keep", NULL, NULL, "go on when this command has ended"},
                 {"--list", NULL, NULL, "what is watched"},
                 {"--stop", NULL, NULL, "watch it no longer; all of them without a name"}},
     .examples = {"-t 4242 trace train.Trainer.step --args --duration 10s",
                  "-t 4242 trace train.step --watch loss --limit 100"}},
    {.name = "query",
     .aliases = {"q"},
     .arguments = "SQL",
     .doc = "ask in SQL, the living or the dead",
     .needs_target = true,
     .pages = true,
     .run = command_query,
     .options = {ANY_FORMAT, {"--limit", NULL, "N", "at most so many rows"}, TIMEOUT},
     .examples = {"-t 4242 query \"select module, avg(duration) from python.torch_trace group by "
                  "module\"",
                  "-t /tmp/probing-0/4242-935673 query \"select count(*) from "
                  "python.torch_trace\""}},
    {.name = "watch",
     .arguments = "SQL",
     .doc = "print rows as they arrive, until Ctrl-C",
     .needs_target = true,
     .run = command_watch,
     .options = {FORMAT,
                 {"--interval", NULL, "TIME", "ask this often; 1s when left out"},
                 {"--last", NULL, "N", "begin with the N newest rows that are there"}},
     .examples = {"-t 4242 watch \"select step, module, duration from python.torch_trace\""}},
    {.name = "top",
     .arguments = "",
     .doc = "a live screen: threads and what they run, memory, modules, GPUs",
     .text =
         "q or Ctrl-C leaves, p shows probing's own threads too. Of functions and modules own time "
         "is what passes in themselves, total with all that they call. Functions are of Python, by "
         "20 looks a second at threads that run; %OWN and %TOTAL are since the last picture, "
         "OWNTIME and TOTALTIME since the beginning. The last training step and the slowest "
         "modules "
         "are there once plugin torch is loaded. Without a terminal, or with --once, one picture "
         "is "
         "printed and that is all.",
     .needs_target = true,
     .run = command_top,
     .options = {{"--interval", NULL, "TIME", "look this often; 1s when left out"},
                 {"--once", NULL, NULL, "print one picture, for scripts"},
                 {"--all", NULL, NULL, "probing's own threads too"},
                 {"--color", NULL, "WHEN", "auto (the default), always or never"}},
     .examples = {"-t 4242 top", "-t 4242 top --once"}},
    {.name = "memory",
     .aliases = {"mem"},
     .arguments = "",
     .doc = "how much memory the process uses",
     .text = "From process.memory. What allocates it: `top` and python.torch_trace show torch's "
             "modules, once plugin torch is loaded.",
     .needs_target = true,
     .run = command_query,
     .options = {ANY_FORMAT},
     .examples = {"-t 4242 memory"}},
    {.name = "tables",
     .aliases = {"tbl"},
     .arguments = "",
     .doc = "what can be asked",
     .needs_target = true,
     .pages = true,
     .run = command_query,
     .options = {ANY_FORMAT},
     .examples = {"-t 4242 tables"}},
    {.name = "describe",
     .arguments = "TABLE",
     .doc = "columns of a table, their units and meaning",
     .needs_target = true,
     .pages = true,
     .run = command_query,
     .options = {ANY_FORMAT},
     .examples = {"-t 4242 describe python.torch_trace"}},
    {.name = "performance",
     .aliases = {"perf", "p"},
     .arguments = "",
     .doc = "begin to measure: plugin profile (--cc) or torch (--torch), as plugin load",
     .needs_target = true,
     .run = command_performance,
     .options = {{"--cc", NULL, NULL, "where C, C++ and Python code spends its time"},
                 {"--torch", NULL, NULL, "every module's time and memory"}},
     .examples = {"-t 4242 performance --cc"}},
    {.name = "export",
     .arguments = "[SQL | TABLE]",
     .doc = "a table or an answer into a file",
     .text = "perfetto and chrome write a trace, of torch's modules if nothing else is asked. "
             "parquet needs a Python with pyarrow or duckdb.",
     .needs_target = true,
     .run = command_export,
     .options = {{"--format", "-f", "FORMAT", "csv, jsonl, arrow, perfetto, chrome or parquet"},
                 {"--output", "-o", "FILE", "write here; standard output when left out"},
                 {"--table", NULL, "TABLE", "the whole table"},
                 TIMEOUT},
     .examples = {"-t 4242 export --format perfetto -o trace.pftrace",
                  "-t 4242 export --format csv python.torch_trace -o trace.csv"}},
    {.name = "flamegraph",
     .aliases = {"fg", "flame"},
     .arguments = "[MODE | diff A B]",
     .doc = "where the time goes, Python and native, as a file to look at",
     .text =
         "Samples the process for --seconds and puts the profiler back as it was; or takes what "
         "was sampled before (--last, --since), also of the dead. MODE draws what a plugin has "
         "measured. diff compares two processes, data directories or files of folded stacks: A is "
         "before, B is after. html and svg are "
         "one file each that needs nothing else; folded, speedscope, pprof and perfetto are "
         "for other programs.",
     .may_target = true,
     .run = command_flamegraph,
     .words = flame_mode_words,
     .options =
         {{"--seconds", "-s", "TIME", "sample from now on for this long"},
          {"--last", NULL, "TIME", "the newest samples that are kept: 30s, 5m"},
          {"--since", NULL, "TIME", "samples from then on, UTC: 2026-01-31T10:00:00"},
          {"--mode", "-m", "MODE",
           "cpu: while threads run; wall: also while they wait; gil: who holds Python's GIL"},
          {"--rate", NULL, "HZ", "with --seconds: samples a second, 1 to 10000"},
          {"--format", "-f", "FORMAT",
           "html, svg, folded, speedscope, pprof or perfetto; else by the file's name"},
          {"--output", "-o", "FILE", "write here; standard output when left out"},
          {"--width", NULL, "PIXELS", "svg: as wide as this; 1200 when left out"},
          {"--threads", NULL, NULL, "threads apart"},
          {"--memory", NULL, NULL, "of a MODE: its picture of memory, MODE_memory"},
          {"--lines", NULL, NULL, "lines of a function apart"}},
     .examples = {"-t 4242 flamegraph -s 10 -o out.html",
                  "-t 4242 flamegraph --last 5m --mode wall -o out.svg",
                  "flamegraph diff before.folded after.folded -o diff.html"}},
    {.name = "plugin",
     .arguments = "list | load NAME|FILE | stop NAME | check FILE [-- PROGRAM ...]",
     .doc = "plugins: list, load, stop; check one in a process of its own first",
     .text = "check needs no target: it loads the file into a process that it starts for it, or "
             "into PROGRAM, and says what the plugin has registered, whether it starts, runs, "
             "stops and starts again, and what it leaves behind: threads, descriptors, handlers "
             "of signals; or where it crashed. Exit code 1: it should not be loaded.",
     .may_target = true,
     .forwarded = true,
     .run = command_plugin,
     .examples = {"-t 4242 plugin load torch", "-t 4242 plugin load ./mine.so",
                  "plugin check ./mine.so", "plugin check ./mine.so -- python3 app.py"}},
    {.name = "config",
     .aliases = {"cfg", "c"},
     .arguments = "[list] | get NAME | set NAME VALUE | NAME=VALUE",
     .doc = "settings, live",
     .needs_target = true,
     .forwarded = true,
     .pages = true,
     .run = command_forward,
     .examples = {"-t 4242 config", "-t 4242 config probing.max_memory=1GB"}},
    {.name = "script",
     .arguments = "run FILE.lua | list | stop NAME",
     .doc = "probe scripts in Lua, inside the process",
     .needs_target = true,
     .forwarded = true,
     .run = command_script,
     .options = {{"--follow", "-f", NULL, "run: print what it says until Ctrl-C"}},
     .examples = {"-t 4242 script run slow_step.lua --follow"}},
    {.name = "eject",
     .arguments = "",
     .doc = "leave the process: threads, sockets and hooks go, the data stays",
     .needs_target = true,
     .forwarded = true,
     .run = command_eject,
     .examples = {"-t 4242 eject"}},
    {.name = "launch",
     .arguments = "-- PROGRAM [ARGUMENTS]",
     .doc = "run a program with the core in it from the start",
     .text =
         "The program takes the place of this command: pid, signals and exit code are its "
         "own. It, and what it starts, sees the environment as it was before. Of a shell script, "
         "a wrapper or a launcher (torchrun) it is the Python that it starts. Plugins that "
         "wait for something (torch for `import torch`) start when it is there.",
     .run = command_launch,
     .options = {{"--listen", "-l", "ADDR", "listen on TCP too, with a token: 127.0.0.1:9922"},
                 {"--define", "-D", "KEY=VALUE", "a setting from the start on"},
                 {"--plugin", NULL, "NAME", "load this plugin too; may be given again"},
                 {"--pprof", "-P", NULL, "load plugin profile: stacks, sampled from now on"},
                 {"--crash", "-c", NULL, "keep the stacks of all threads when it crashes"},
                 {"--children", NULL, NULL, "also in the programs that it starts"}},
     .examples = {"launch -- python train.py", "launch --plugin torch -- torchrun train.py"}},
    {.name = "list",
     .aliases = {"ls", "l"},
     .arguments = "",
     .doc = "processes with a core in them; data directories of dead ones",
     .pages = true,
     .run = command_list,
     .options = {{"--dead", NULL, NULL, "the dead instead of the living"}},
     .examples = {"list", "list --dead"}},
    {.name = "gc",
     .arguments = "",
     .doc = "remove the data of dead processes",
     .run = command_gc,
     .options = {{"--older", NULL, "DAYS", "only what is older than this"}},
     .examples = {"gc --older 7"}},
    {.name = "doctor",
     .aliases = {"dr"},
     .arguments = "",
     .doc = "what this machine allows, and what to do where it does not",
     .text = "Whether processes can be entered (ptrace, yama, capabilities, containers), perf "
             "events, GPUs, the Pythons that run, what is installed and where data go. Exit code "
             "1: something is in the way, and the line below it says what mends it.",
     .run = command_doctor,
     .examples = {"doctor"}},
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .doc = "print the script that completes commands and options in a shell",
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

/* The plugins' stand before `plugin`. */
const struct cli_command *cli_command_at(uint32_t i)
{
    const struct cli_command *reports = report_commands(is_ours);
    uint32_t before = 0, n = 0;

    while (own_commands[before].run != command_plugin)
        before++;
    while (reports[n].name != NULL)
        n++;
    const struct cli_command *c = i < before       ? &own_commands[i]
                                  : i - before < n ? &reports[i - before]
                                                   : &own_commands[i - n];
    return c->name != NULL ? c : NULL;
}

const char *cli_command_near(const char *word)
{
    const char *names[COMMANDS_MAX];
    size_t n = 0;

    for (const struct cli_command *c;
         n < COMMANDS_MAX && (c = cli_command_at((uint32_t)n)) != NULL;)
        names[n++] = c->name;
    return text_nearest(word, names, n);
}
