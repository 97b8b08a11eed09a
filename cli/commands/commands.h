/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/commands.h - the function of each command, as command_table.c names it. argv[0] is
 * the command's name.
 *
 * One thread.  Functions give the exit code of the program, or -errno with err_set() done.
 */
#ifndef CLI_COMMANDS_COMMANDS_H
#define CLI_COMMANDS_COMMANDS_H

struct target;

int command_inject(struct target *t, int argc, char **argv);
int command_eject(struct target *t, int argc, char **argv);
int command_launch(struct target *t, int argc, char **argv);
int command_cluster(struct target *t, int argc, char **argv);
int command_relay(struct target *t, int argc, char **argv);
int command_ship(struct target *t, int argc, char **argv);
int command_list(struct target *t, int argc, char **argv);
int command_ui(struct target *t, int argc, char **argv);
int command_gc(struct target *t, int argc, char **argv);
int command_config(struct target *t, int argc, char **argv);
int command_trace(struct target *t, int argc, char **argv);
int command_eval(struct target *t, int argc, char **argv);
int command_backtrace(struct target *t, int argc, char **argv);
int command_performance(struct target *t, int argc, char **argv);
int command_query(struct target *t, int argc, char **argv);
int command_tables(struct target *t, int argc, char **argv);
int command_describe(struct target *t, int argc, char **argv);
int command_export(struct target *t, int argc, char **argv);
int command_debug(struct target *t, int argc, char **argv);
int command_doctor(struct target *t, int argc, char **argv);
int command_flamegraph(struct target *t, int argc, char **argv);
int command_watch(struct target *t, int argc, char **argv);
int command_repl(struct target *t, int argc, char **argv);
int command_script(struct target *t, int argc, char **argv);
int command_top(struct target *t, int argc, char **argv);
int command_plugin(struct target *t, int argc, char **argv);

#endif
