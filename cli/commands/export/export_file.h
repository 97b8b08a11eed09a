/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/export/export_file.h - one answer as a file, in the format that its name ends with.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_EXPORT_EXPORT_FILE_H
#define CLI_COMMANDS_EXPORT_EXPORT_FILE_H

struct answer_ask;
struct target;

/* The format of answers (target/query_client.h) whose files end so: "csv" of "rows.csv", "" where
 * that takes more than the engine's bytes (.parquet); NULL: no format has that end. */
const char *export_format_at(const char *path);
/* Write the answer under that name when it is whole.  format: NULL, as its name ends.  0,
 * EXIT_FAILED when not all of several have answered, or -errno. */
int export_answer(const struct target *t, const struct answer_ask *how, const char *format,
                  const char *path);

#endif
