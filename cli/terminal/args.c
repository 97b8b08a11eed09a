/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/args.c - a command's words: its options by name or letter, and what is wrong with
 * them.
 *
 * One thread.
 */
#include "cli/terminal/args.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"

static const struct cli_option *option_named(const struct cli_command *c, const char *word,
                                             size_t n)
{
    for (const struct cli_option *o = c->options; o->name != NULL; o++)
        if ((strlen(o->name) == n && strncmp(o->name, word, n) == 0) ||
            (o->letter != NULL && strlen(o->letter) == n && strncmp(o->letter, word, n) == 0))
            return o;
    return NULL;
}

bool cli_option_of(const struct cli_command *c, const char *word, bool *ret_value)
{
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t n = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const struct cli_option *o = option_named(c, word, n);
    *ret_value = o != NULL && o->value != NULL && equals == NULL;
    return o != NULL;
}

/* Is the i-th word, or it with the next one, that of a condition: "--file", "--file=-"? */
static bool is_word(const struct cli_command *c, const char *wanted, size_t size, int i, int argc,
                    char *const *argv)
{
    size_t name = strcspn(wanted, "=|"), n = strlen(argv[i]);
    const struct cli_option *o = c != NULL ? option_named(c, argv[i], n) : NULL;
    bool named = o != NULL ? strlen(o->name) == name && strncmp(o->name, wanted, name) == 0
                           : n == name && strncmp(argv[i], wanted, name) == 0;

    if (name == size)
        return named;
    if (named && i + 1 < argc && strlen(argv[i + 1]) == size - name - 1)
        return strncmp(argv[i + 1], wanted + name + 1, size - name - 1) == 0;
    return n == size && strncmp(argv[i], wanted, size) == 0;
}

bool cli_words_meet(const struct cli_command *c, const char *condition, int argc, char *const *argv)
{
    bool without = condition != NULL && condition[0] == '!', found = false;

    if (condition == NULL || condition[0] == '\0')
        return condition != NULL;
    for (const char *at = condition + without; *at != '\0' && !found;) {
        size_t size = strcspn(at, "|");
        for (int i = 1; i < argc && !found; i++)
            found = is_word(c, at, size, i, argc, argv);
        at += size + (at[size] == '|');
    }
    return found != without;
}

/* Give our words for a word of py-spy and others.  words: theirs, and ours, an option of `c`. */
static const char *word_of_others(const struct cli_command *c, const char *word)
{
    static const char *const words[][2] = {
        {"--duration", "--seconds"}, {"-d", "--seconds"},    {"--gil", "--mode gil"},
        {"--idle", "--mode wall"},   {"-r", "--rate"},       {"-i", "--interval"},
        {"--csv", "--format csv"},   {"--port", "--listen"}, {"--json", "--format"}};
    static const char *const others[][3] = {
        /* of a command: what is no option of it */
        {"query", "-c", "query \"select ...\""},
        {"query", "--command", "query \"select ...\""},
        {"tables", "--like", "query \"show tables like '%a%'\""},
        {"list", "--all", "list --dead"},
        {"list", "-a", "list --dead"},
        {"list", "--format", "list --json"},
        {"torch", "--profile", "torch profile"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i][0]) == 0 &&
            option_named(c, words[i][1], strcspn(words[i][1], " ")) != NULL)
            return words[i][1];
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(c->name, others[i][0]) == 0 && strcmp(word, others[i][1]) == 0)
            return others[i][2];
    return NULL;
}

static int unknown_option(const struct cli_command *c, const char *word)
{
    const char *names[COMMAND_OPTIONS], *near = word_of_others(c, word);
    size_t n = 0;

    for (const struct cli_option *o = c->options; o->name != NULL; o++)
        names[n++] = o->name;
    if (near == NULL)
        near = text_nearest(word, names, n);
    return err_set(-EINVAL, "%s has no option '%s'%s%s%s; `probing help %s` shows those it has",
                   c->name, word, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'" : "", c->name);
}

/* "-- a comment" begins SQL; "-" alone is a name for standard output. */
static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && strpbrk(word, " \n\t") == NULL;
}

/* One thread. */
static const struct cli_command *current;
static bool misused; /* the words were wrong, not what they asked for */

void cli_args_of(const struct cli_command *command)
{
    current = command;
}

int cli_misuse(int rc)
{
    misused = misused || rc < 0;
    return rc;
}

bool cli_is_misused(void)
{
    return misused;
}

/* Put the option's name before the reason, as many a reason has the value only. */
static int say_option(const char *name, int rc)
{
    char why[ERR_TEXT_BYTES];

    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    return strstr(why, name) != NULL ? rc : err_set(rc, "%s: %s", name, why);
}

/* "--json" beside a --format is the same as --format json. */
static bool names_format(const struct cli_command *c, const struct cli_option *o)
{
    return (strcmp(o->name, "--json") == 0 || strcmp(o->name, "--expanded") == 0) &&
           option_named(c, "--format", 8) != NULL;
}

static int take_args(const struct cli_command *c, int argc, char **argv,
                     int (*take)(void *arg, const char *option, const char *value), void *arg)
{
    bool args_only = false;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = NULL;
        int rc;
        if (args_only || !is_option(word)) {
            if ((rc = take(arg, /* option= */ NULL, word)) < 0)
                return rc;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            args_only = true;
            continue;
        }
        const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
        size_t n = equals != NULL ? (size_t)(equals - word) : strlen(word);
        const struct cli_option *o = option_named(c, word, n);
        if (o == NULL)
            return unknown_option(c, word);
        if (equals != NULL)
            value = equals + 1;
        else if (o->value != NULL && i + 1 < argc)
            value = argv[++i];
        if (o->value == NULL && value != NULL)
            return err_set(-EINVAL, "option %s takes no value", o->name);
        if (o->value != NULL && value == NULL)
            return err_set(-EINVAL, "option %s needs a value: %s %s", o->name, o->name, o->value);
        bool format = names_format(c, o);
        if ((rc = take(arg, format ? "--format" : o->name, format ? o->name + 2 : value)) < 0)
            return say_option(o->name, rc);
    }
    return 0;
}

int cli_take_time(const char *option, const char *value, uint64_t *ret)
{
    uint64_t ns;
    int rc = parse_ns(value, &ns);

    if (rc < 0)
        return say_option(option, rc);
    if (ns == 0 || ns == 0 || ns > CLI_TIME_MAX_NS)
        return err_set(-EINVAL, "%s must be more than 0 and at most 20d, not '%.40s'", option,
                       value);
    *ret = ns;
    return 0;
}

int cli_parse(int argc, char **argv, int (*take)(void *arg, const char *option, const char *value),
              void *arg)
{
    return cli_misuse(take_args(current, argc, argv, take, arg));
}
