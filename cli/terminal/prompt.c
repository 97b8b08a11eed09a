/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/prompt.c - see prompt.h.
 *
 * libedit is found at run time, by the names of readline's interface that it has (editline's
 * readline.h): the command stays one file that needs libc only.
 */
#include "cli/terminal/prompt.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/printable.h"
#include "sdk/lib/own_thread.h"

#define CANDIDATES_MAX_BYTES ((size_t)256 << 10)
#define HISTORY_LINES 1000
#define TEND_MS 1000
#define TEND_STACK_BYTES ((size_t)256 << 10)
#define QUIET_MS 50     /* a paste that is longer than the terminal holds comes in pieces */
#define DROP_PIECES 100 /* of 4,096 bytes: then somebody holds a key down */

/* The part of libedit that we use. */
struct editor {
    char *(*readline)(const char *prompt);
    int (*add_history)(const char *line);
    int (*read_history)(const char *file);
    int (*write_history)(const char *file);
    void (*stifle_history)(int max);
    char **(*completion_matches)(const char *text, char *(*generator)(const char *, int));
    char **(**attempted_completion)(const char *text, int start, int end);
    const char **word_break_characters;
    int *append_character, *attempted_over;
    char **line; /* so far */
    FILE **out;
};

struct prompt {
    struct prompt_options o;
    struct editor editor;
    char history_file[4096]; /* "": none is kept */
    bool edits;              /* libedit is there, and a person */
    char *line;              /* malloc'd by libedit or getline() */
    size_t room;
    struct buf candidates;
    const char *next; /* candidate */
};

static struct prompt *the_prompt; /* libedit's callbacks have no argument; one thread */

static bool find_function(void *library, const char *name, void *ret_function)
{
    void *at = dlsym(library, name);
    memcpy(ret_function, &at, sizeof(at));
    return at != NULL;
}

static bool load_editor(struct editor *e)
{
    void *library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        library = dlopen("libedit.so.0", RTLD_NOW | RTLD_LOCAL); /* Fedora's name */
    return library != NULL && find_function(library, "readline", &e->readline) &&
           find_function(library, "add_history", &e->add_history) &&
           find_function(library, "read_history", &e->read_history) &&
           find_function(library, "write_history", &e->write_history) &&
           find_function(library, "stifle_history", &e->stifle_history) &&
           find_function(library, "rl_completion_matches", &e->completion_matches) &&
           find_function(library, "rl_attempted_completion_function", &e->attempted_completion) &&
           find_function(library, "rl_completer_word_break_characters",
                         &e->word_break_characters) &&
           find_function(library, "rl_completion_append_character", &e->append_character) &&
           find_function(library, "rl_attempted_completion_over", &e->attempted_over) &&
           find_function(library, "rl_line_buffer", &e->line) &&
           find_function(library, "rl_outstream", &e->out);
}

/* libedit asks again and again until NULL; it frees what it is given. */
static char *next_candidate(const char *text, int state)
{
    struct prompt *p = the_prompt;

    (void)text;
    if (state == 0)
        p->next = buf_text(&p->candidates);
    size_t n = strcspn(p->next, "\n");
    if (n == 0)
        return NULL;
    char *found = strndup(p->next, n);
    p->next += n + (p->next[n] == '\n');
    return found;
}

/* libedit draws candidates by itself and puts them into the line in the word's place: those that
 * would steer the terminal are none, and none are those that would take something away. */
static void drop_unfit(struct buf *b, const char *word)
{
    size_t kept = 0;

    for (size_t at = 0, n; at < b->size; at += n) {
        const char *end = memchr(b->data + at, '\n', b->size - at);
        n = end != NULL ? (size_t)(end - b->data) - at : b->size - at;
        bool plain = n >= strlen(word) && memcmp(b->data + at, word, strlen(word)) == 0;
        for (size_t i = 0, size; plain && i < n; i += size)
            if ((size = printable_letter(b->data + at + i, n - i, &plain)) == 0)
                break;
        n += end != NULL;
        if (plain)
            memmove(b->data + kept, b->data + at, n);
        kept += plain ? n : 0;
    }
    b->size = kept;
    if (b->data != NULL)
        b->data[kept] = '\0';
}

/* Give the text before the cursor, which libedit counts in characters; malloc'd. */
static char *line_before(const char *line, int cursor)
{
    size_t n = 0;

    for (int seen = 0; line[n] != '\0'; n++)
        if (((unsigned char)line[n] & 0xc0) != 0x80 && seen++ == cursor)
            break;
    return strndup(line, n);
}

static char **find_candidates(const char *text, int start, int end)
{
    struct prompt *p = the_prompt;

    *p->editor.attempted_over = 1; /* else it looks for files of that name */
    buf_done(&p->candidates);
    buf_init(&p->candidates, CANDIDATES_MAX_BYTES);
    /* Before a line's first word it is an indent: code with tabs may be pasted. */
    bool tab = text[0] == '\0' && strspn(*p->editor.line, " \t") >= (size_t)start;
    char *before = line_before(*p->editor.line, end);
    int rc = tab ? PROMPT_TAB
             : before == NULL || p->o.complete == NULL
                 ? -ENOENT
                 : p->o.complete(p->o.arg, before, text, &p->candidates);
    free(before);
    *p->editor.attempted_over = rc != PROMPT_FILES;
    if (rc < 0 || rc == PROMPT_FILES)
        return NULL;
    if (rc == PROMPT_TAB)
        return buf_addf(&p->candidates, "%s\t", text) < 0
                   ? NULL
                   : p->editor.completion_matches(text, next_candidate);
    drop_unfit(&p->candidates, text);
    if (p->candidates.size == 0)
        return NULL;
    return p->editor.completion_matches(text, next_candidate);
}

/* ~/.local/state/probing/NAME, or what XDG_STATE_HOME says; "": there is no place.  A home that is
 * not there is none, and is not made. */
static void find_history(const char *name, char *ret, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char directory[4000];
    size_t from = 1; /* what is made begins behind this */

    ret[0] = '\0';
    if (state != NULL && state[0] == '/') {
        (void)snprintf(directory, sizeof(directory), "%s/probing", state);
    } else if (home != NULL && home[0] == '/' && access(home, W_OK | X_OK) == 0) {
        (void)snprintf(directory, sizeof(directory), "%s/.local/state/probing", home);
        from = strlen(home) + 1;
    } else {
        return;
    }
    for (char *slash = strchr(directory + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(directory, 0700);
        *slash = '/';
    }
    if (mkdir(directory, 0700) == 0 || errno == EEXIST)
        (void)snprintf(ret, size, "%s/%s", directory, name);
}

bool prompt_is_person(void)
{
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

bool prompt_has_more(void)
{
    int waiting = 0;

    return ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0;
}

static int prompt_new(const struct prompt_options *o, struct prompt **ret)
{
    struct prompt *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return err_set(-ENOMEM, "no memory for a prompt");
    p->o = *o;
    buf_init(&p->candidates, CANDIDATES_MAX_BYTES);
    p->edits = prompt_is_person() && load_editor(&p->editor);
    if (p->edits) {
        /* libedit drops the bytes of characters that the locale does not have. */
        const char *locale = setlocale(LC_CTYPE, "");
        if (locale == NULL || strcmp(locale, "C") == 0 || strcmp(locale, "POSIX") == 0)
            (void)setlocale(LC_CTYPE, "C.UTF-8");
        *p->editor.attempted_completion = find_candidates;
        *p->editor.word_break_characters = o->word_breaks;
        *p->editor.append_character = '\0';
        *p->editor.out = terminal_drawn();
        p->editor.stifle_history(HISTORY_LINES);
        if (o->history != NULL)
            find_history(o->history, p->history_file, sizeof(p->history_file));
        if (p->history_file[0] != '\0')
            (void)p->editor.read_history(p->history_file); /* the first time there is none */
        the_prompt = p;
    }
    *ret = p;
    return 0;
}

static void prompt_free(struct prompt *p)
{
    if (p == NULL)
        return;
    if (p->history_file[0] != '\0') {
        mode_t old = umask(077); /* what was typed may hold secrets */
        (void)p->editor.write_history(p->history_file);
        (void)umask(old);
    }
    the_prompt = NULL;
    buf_done(&p->candidates);
    free(p->line);
    free(p);
}

/* Interrupts the read again, until it has ended. */
static void interrupt_again(int signo)
{
    (void)signo;
    if (cli_interrupted && cli_prompts)
        (void)alarm(1);
}

static char *edit_line(struct prompt *p, const char *text)
{
    const struct sigaction action = {.sa_handler = interrupt_again}; /* no SA_RESTART */
    struct sigaction before;

    (void)sigaction(SIGALRM, &action, &before);
    (void)fflush(stdout);
    cli_prompts = 1;
    char *line = p->editor.readline(text);
    cli_prompts = 0;
    (void)alarm(0);
    (void)sigaction(SIGALRM, &before, NULL);
    return line;
}

/* NULL: the input has ended, or Ctrl-C was typed (then cli_interrupted is set). */
static const char *read_line(struct prompt *p, const char *text)
{
    if (p->edits) {
        free(p->line);
        p->line = edit_line(p, text);
        return cli_interrupted ? NULL : p->line;
    }
    if (prompt_is_person()) {
        fputs(text, stdout);
        (void)fflush(stdout);
    }
    ssize_t n = getline(&p->line, &p->room, stdin);
    if (n < 0)
        return NULL;
    if (n > 0 && p->line[n - 1] == '\n')
        p->line[n - 1] = '\0';
    return p->line;
}

/* ---- what goes on while a line is awaited ---- */

struct tender {
    const struct prompt_options *o;
    int over; /* an eventfd */
};

static void *prompt_thread(void *arg)
{
    const struct tender *t = arg;
    struct pollfd p = {.fd = t->over, .events = POLLIN};

    while (poll(&p, 1, TEND_MS) == 0)
        t->o->tend(t->o->arg);
    return NULL;
}

static const char *await_line(struct prompt *p, const char *text)
{
    struct tender t = {.o = &p->o, .over = -1};
    pthread_t thread;

    if (p->o.tend != NULL)
        t.over = eventfd(0, EFD_CLOEXEC);
    bool tended =
        t.over != -1 && own_thread_start(&thread, TEND_STACK_BYTES, prompt_thread, &t) == 0;
    const char *line = read_line(p, text);
    if (tended) {
        (void)eventfd_write(t.over, 1);
        (void)pthread_join(thread, NULL);
    }
    if (t.over != -1)
        (void)close(t.over);
    return line;
}

/* ---- the session ---- */

/* Typed for a session that has ended: the shell would run it.  Gives rc. */
static int drop_typed_ahead(int rc)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char why[ERR_TEXT_BYTES];
    bool any = poll(&p, 1, 0) > 0;

    for (int i = 0; i < DROP_PIECES; i++) {
        (void)tcflush(STDIN_FILENO, TCIFLUSH);
        if (poll(&p, 1, QUIET_MS) <= 0)
            break;
        any = true;
    }
    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    return any ? err_set(rc, "%s (what was typed ahead is dropped)", why) : rc;
}

int prompt_run(const struct prompt_options *o)
{
    struct prompt *p = NULL;
    const char *line = "";
    int rc = prompt_new(o, &p);

    if (rc == 0 && o->welcome != NULL && prompt_is_person())
        fputs(o->welcome, stdout);
    while (rc == 0 && line != NULL) {
        line = await_line(p, o->text(o->arg));
        if (cli_terminated) {
            rc = err_set(-ECANCELED, "terminated");
        } else if (line == NULL && cli_interrupted) {
            cli_interrupt_over();
            putchar('\n');
            o->forget(o->arg);
            line = "";
        } else {
            if (line == NULL && prompt_is_person())
                putchar('\n'); /* for the shell's prompt */
            rc = o->take(o->arg, p, line);
        }
    }
    prompt_free(p);
    if (rc < 0 && prompt_is_person())
        rc = drop_typed_ahead(rc);
    return rc < 0 ? rc : 0;
}

void prompt_remember(struct prompt *p, const char *line)
{
    if (p->edits)
        (void)p->editor.add_history(line);
}
