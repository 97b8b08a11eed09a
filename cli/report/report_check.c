/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/report/report_check.c - is what a plugin's file says of its commands there, and right?
 *
 * One thread.  All of it must lie in what the loader has mapped of that file, texts with their end:
 * so nothing here can lead astray, and nothing is called.
 */
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "cli/report/report.h"
#include "cli/terminal/args.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define REPORT_OPTIONS 12 /* of a command, as report.h says: a command of ours may have more */
#define PARTS_MAX 32
#define TEXT_MAX 4096   /* bytes of a text */
#define STRIDE_MAX 4096 /* bytes: no struct here will ever be larger */

struct image { /* what of the file can be read */
    struct {
        uintptr_t from, to;
        bool code;
    } parts[PARTS_MAX];
    uint32_t n;
    uintptr_t about; /* an address in it */
};

static int take_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct image *image = arg;
    bool found = false;

    (void)size;
    image->n = 0;
    for (int i = 0; i < info->dlpi_phnum && image->n < PARTS_MAX; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_R))
            continue;
        image->parts[image->n].from = from;
        image->parts[image->n].to = from + p->p_memsz;
        image->parts[image->n++].code = p->p_flags & PF_X;
        found = found || (image->about >= from && image->about - from < p->p_memsz);
    }
    return found;
}

/* Bytes from `at` to the end of its part; 0: it is not in the file. */
static size_t room_at(const struct image *image, const void *at, bool code)
{
    uintptr_t a = (uintptr_t)at;

    for (uint32_t i = 0; i < image->n; i++)
        if (a >= image->parts[i].from && a < image->parts[i].to && (!code || image->parts[i].code))
            return image->parts[i].to - a;
    return 0;
}

/* An array of n structs. */
static bool is_there(const struct image *image, const void *at, uint64_t n, uint64_t stride,
                     uint64_t least)
{
    return stride >= least && stride <= STRIDE_MAX && stride % sizeof(void *) == 0 &&
           (uintptr_t)at % sizeof(void *) == 0 &&
           (n == 0 || (uint64_t)room_at(image, at, /* code= */ false) >= n * stride);
}

/* One line that ends, of letters that can be shown. */
static bool is_line(const struct image *image, const char *text)
{
    size_t room = room_at(image, text, /* code= */ false);
    size_t n = room > 0 ? strnlen(text, room < TEXT_MAX ? room : TEXT_MAX) : 0;

    if (room == 0 || n == room || n == TEXT_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return true;
}

static bool is_line_or_null(const struct image *image, const char *text)
{
    return text == NULL || is_line(image, text);
}

/* "--last", "-l" */
static bool is_option(const char *name, const char *letter)
{
    static const char small[] = "abcdefghijklmnopqrstuvwxyz";
    size_t n = strlen(name);

    if (n < 3 || n > 32 || strncmp(name, "--", 2) != 0 || strchr(small, name[2]) == NULL ||
        name[2 + strspn(name + 2, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
        return false;
    return letter == NULL ||
           (letter[0] == '-' && strlen(letter) == 2 &&
            ((letter[1] >= 'a' && letter[1] <= 'z') || (letter[1] >= 'A' && letter[1] <= 'Z')));
}

static int refuse_report(const char *what, uint32_t i)
{
    return err_set(-EINVAL, "%s of command %u is missing, or no text of one line in the file", what,
                   i + 1);
}

static const struct probing_report_option *option_at(const struct probing_report_command *c,
                                                     uint32_t i)
{
    return (const void *)((const char *)c->options + (size_t)i * c->option_size);
}

static int check_options(const struct image *image, const struct probing_report_command *c)
{
    if (c->n_options > REPORT_OPTIONS)
        return err_set(-EINVAL, "command '%s' has %u options, at most %d can be shown", c->name,
                       c->n_options, REPORT_OPTIONS);
    if (c->n_options > 0 && !is_there(image, c->options, c->n_options, c->option_size,
                                      sizeof(struct probing_report_option)))
        return err_set(-EINVAL,
                       "the options of command '%s' are not there; set .option_size = "
                       "sizeof(struct probing_report_option) and build it again",
                       c->name);
    for (uint32_t i = 0; i < c->n_options; i++) {
        const struct probing_report_option *o = option_at(c, i);
        if (!is_line(image, o->name) || !is_line_or_null(image, o->letter) ||
            !is_line_or_null(image, o->value) || !is_line(image, o->doc))
            return err_set(-EINVAL, "option %u of command '%s' lacks its name or what it does",
                           i + 1, c->name);
        if (!is_option(o->name, o->letter))
            return err_set(-EINVAL,
                           "command '%s': '%.40s' and '%.40s' are no option; they look like "
                           "--last and -l",
                           c->name, o->name, o->letter != NULL ? o->letter : "");
    }
    return 0;
}

static int check_examples(const struct image *image, const struct probing_report_command *c)
{
    if (c->n_examples > COMMAND_EXAMPLES)
        return err_set(-EINVAL, "command '%s' has %u examples, at most %d can be shown", c->name,
                       c->n_examples, COMMAND_EXAMPLES);
    bool well = is_there(image, c->examples, c->n_examples, sizeof(char *), sizeof(char *));
    for (uint32_t i = 0; well && i < c->n_examples; i++)
        well = is_line(image, c->examples[i]);
    return well ? 0 : err_set(-EINVAL, "the examples of command '%s' are not there", c->name);
}

static int check_command(const struct image *image, const struct probing_report_command *c,
                         uint32_t i)
{
    if (!is_line(image, c->name))
        return refuse_report("the name", i);
    if (!text_is_name(c->name) || strlen(c->name) > 32)
        return err_set(-EINVAL,
                       "the name '%.40s' of command %u is not of the form [a-z][a-z0-9_]*, with "
                       "32 letters at most",
                       c->name, i + 1);
    if (!is_line_or_null(image, c->alias) || (c->alias != NULL && !text_is_name(c->alias)))
        return refuse_report("the alias", i);
    if (!is_line(image, c->arguments))
        return refuse_report("arguments (\"\" when there are none)", i);
    if (!is_line(image, c->doc) || c->doc[0] == '\0')
        return refuse_report("doc", i);
    if (!is_line_or_null(image, c->text))
        return refuse_report("the text", i);
    if (c->flags & ~(uint32_t)(PROBING_REPORT_TARGET | PROBING_REPORT_JOB))
        return err_set(-EINVAL, "command '%s' has flags 0x%x that this probing does not know",
                       c->name, c->flags);
    if (c->flags & PROBING_REPORT_JOB && !(c->flags & PROBING_REPORT_TARGET))
        return err_set(-EINVAL,
                       "command '%s' is about a whole job and says that it needs no target; set "
                       "PROBING_REPORT_TARGET, too",
                       c->name);
    if (room_at(image, (const void *)(uintptr_t)c->run, /* code= */ true) == 0)
        return err_set(-EINVAL, "command '%s' has no run() in the file", c->name);
    int rc = check_options(image, c);
    return rc == 0 ? check_examples(image, c) : rc;
}

static int check_head(const struct image *image, const struct probing_report *r)
{
    if (r->size < sizeof(*r) || r->size > STRIDE_MAX)
        return err_set(-EINVAL,
                       "its report's struct says %u bytes, version 1.0 has %zu; set .size = "
                       "sizeof(struct probing_report) and build it again",
                       r->size, sizeof(*r));
    if (r->abi >> 16 != PROBING_REPORT_MAJOR)
        return err_set(-EINVAL, "its report was built for ABI %u.%u, this command speaks %u",
                       r->abi >> 16, r->abi & 0xffff, PROBING_REPORT_MAJOR);
    if (r->min_minor > PROBING_REPORT_MINOR)
        return err_set(-EINVAL,
                       "its report needs ABI %u.%u, this command has %u.%u; use a newer "
                       "probing",
                       PROBING_REPORT_MAJOR, r->min_minor, PROBING_REPORT_MAJOR,
                       PROBING_REPORT_MINOR);
    if (!is_line(image, r->name) || !text_is_name(r->name))
        return err_set(-EINVAL, "its report does not say a plugin's name");
    if (r->n_commands == 0 || r->n_commands > REPORT_COMMANDS)
        return err_set(-EINVAL, "its report has %u commands; 1 to %d can be", r->n_commands,
                       REPORT_COMMANDS);
    if (!is_there(image, r->commands, r->n_commands, r->command_size,
                  sizeof(struct probing_report_command)))
        return err_set(-EINVAL, "the commands of its report are not there; set .command_size = "
                                "sizeof(struct probing_report_command) and build it again");
    return 0;
}

/* "torch.so" and "probing_torch.so" are plugin torch's, as for the core. */
static bool is_file_of(const char *leaf, const char *name)
{
    char one[128], two[128];

    (void)snprintf(one, sizeof(one), "%s.so", name);
    (void)snprintf(two, sizeof(two), "probing_%s.so", name);
    return strcmp(leaf, one) == 0 || strcmp(leaf, two) == 0;
}

int report_check(const struct probing_report *r, const char *leaf)
{
    struct image image = {.about = (uintptr_t)r};

    if (dl_iterate_phdr(take_object, &image) == 0 ||
        !is_there(&image, r, 1, sizeof(*r), sizeof(*r)))
        return err_set(-EINVAL, "its report cannot be read");
    int rc = check_head(&image, r);
    for (uint32_t i = 0; rc == 0 && i < r->n_commands; i++)
        rc = check_command(&image, report_command_at(r, i), i);
    if (rc == 0 && !is_file_of(leaf, r->name))
        rc = err_set(-EINVAL, "the file is plugin '%s'; call it %s.so", r->name, r->name);
    return rc;
}

const struct probing_report_command *report_command_at(const struct probing_report *r, uint32_t i)
{
    return (const void *)((const char *)r->commands + (size_t)i * r->command_size);
}

struct cli_command report_as_ours(const struct probing_report_command *c)
{
    struct cli_command ours = {.name = c->name,
                               .aliases = {c->alias},
                               .arguments = c->arguments,
                               .doc = c->doc,
                               .text = c->text,
                               .needs_target = c->flags & PROBING_REPORT_TARGET,
                               .whole_job = c->flags & PROBING_REPORT_JOB,
                               .reads_rows = true,
                               .run = report_run};
    for (uint32_t i = 0; i < c->n_options; i++) {
        const struct probing_report_option *o = option_at(c, i);
        ours.options[i] = (struct cli_option){o->name, o->letter, o->value, o->doc};
    }
    if (ours.needs_target && !ours.whole_job)
        ours.options[c->n_options] = (struct cli_option){
            "--yes", NULL, NULL, "first enter the process and load the plugin, without a question"};
    for (uint32_t i = 0; i < c->n_examples; i++)
        ours.examples[i] = c->examples[i];
    return ours;
}
