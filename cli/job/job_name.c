/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job_name.c - the user of a job: "NAME" is a job of the user who asks, "NAME@USER" one of
 * another user, and processes of others that say that they are of it are left out.
 *
 * One thread.  Whoever starts a process writes its environment, and may write the name of anybody's
 * job there.
 */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/job/job.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/number.h"

bool job_name_is_marked(char c)
{
    return c == ',' || c == '[' || c == '\\';
}

void job_add_target(struct buf *b, const char *name)
{
    (void)buf_adds(b, "job:");
    for (; *name != '\0'; name++) {
        if (job_name_is_marked(*name))
            (void)buf_addc(b, '\\');
        (void)buf_addc(b, *name);
    }
}

/* "alice", "#1000". */
static bool read_user(const char *text, uint32_t *ret)
{
    uint64_t n;

    if (text[0] == '#' && number_u64(text + 1, strlen(text + 1), &n) == 0 && n < UINT32_MAX) {
        *ret = (uint32_t)n;
        return true;
    }
    const struct passwd *p = text[0] != '\0' ? getpwnam(text) : NULL;
    if (p != NULL)
        *ret = p->pw_uid;
    return p != NULL;
}

void job_meant_read(const char *text, struct job_meant *ret)
{
    const char *at = text != NULL ? strrchr(text, '@') : NULL;

    *ret = (struct job_meant){.name = text, .uid = (uint32_t)geteuid()};
    if (at == NULL || at == text || (size_t)(at - text) >= sizeof(ret->room) ||
        !read_user(at + 1, &ret->uid))
        return;
    (void)snprintf(ret->room, sizeof(ret->room), "%.*s", (int)(at - text), text);
    ret->name = ret->room;
}

void job_name_of(const char *text, char *ret, size_t size)
{
    struct job_meant meant;

    job_meant_read(text, &meant);
    (void)snprintf(ret, size, "%s", meant.name != NULL ? meant.name : "");
}

static void add_user(struct buf *b, uint32_t uid)
{
    const struct passwd *p = getpwuid(uid);

    if (p != NULL)
        (void)buf_adds(b, p->pw_name);
    else
        (void)buf_addf(b, "#%u", uid);
}

void job_add_text(struct buf *b, const char *name, uint32_t uid)
{
    struct job_meant meant;

    job_add_target(b, name);
    job_meant_read(name, &meant);
    if (uid == geteuid() && meant.name == name) /* it ends in no user's name of its own */
        return;
    (void)buf_addc(b, '@');
    add_user(b, uid);
}

void job_leave_out(struct job_left_out *l, pid_t pid, uint32_t uid)
{
    uint32_t i = 0;

    while (i < l->n && l->users[i].uid != uid)
        i++;
    if (i == l->n && i == LEFT_OUT_USERS) {
        l->more++;
        return;
    }
    if (i == l->n)
        l->users[l->n++] = (struct left_out_user){.uid = uid, .first = pid};
    l->users[i].processes++;
}

void job_say_left_out(const struct job_left_out *l, const struct job_meant *meant)
{
    static bool said; /* of those that look again and again */
    struct buf text;

    if (said || l->n == 0)
        return;
    said = true;
    buf_init(&text, ERR_TEXT_BYTES);
    if (meant->name != NULL)
        (void)buf_addf(&text, "of job '%.200s'", meant->name);
    else
        (void)buf_adds(&text, "ranks");
    (void)buf_adds(&text, " by their own word: ");
    for (uint32_t i = 0; i < l->n; i++) {
        const struct left_out_user *u = &l->users[i];
        (void)buf_addf(&text, "%s%u process%s of ", i > 0 ? ", " : "", u->processes,
                       u->processes > 1 ? "es" : "");
        add_user(&text, u->uid);
        (void)buf_addf(&text, " (%d%s)", (int)u->first, u->processes > 1 ? " ..." : "");
    }
    if (l->more > 0)
        (void)buf_addf(&text, " and %u of other users", l->more);
    (void)buf_adds(&text, "; only jobs of ");
    add_user(&text, meant->uid);
    terminal_say(JOB_LEFT_OUT "though %s are meant: job:NAME@USER names another user's",
                 buf_text(&text));
    buf_done(&text);
}
