/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/cgroup_path.c - where the folder of the process's cgroup is: versions 1 and 2,
 * mounted anywhere, seen from inside of a container or not.
 *
 * Any thread; no state.  What the files say may be made by whoever may make cgroups and mounts: a
 * path with ".." in it, or one that does not fit, is not followed.
 */
#include "internal.h"
#include "lib/proc/lines.h"
#include "lib/proc/proc_file.h"

/* \040 and the like, in place, as the kernel writes blanks and newlines in mountinfo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
                     at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *to = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* One line of mountinfo: "36 35 98:0 ROOT POINT options - TYPE source SUPER".  Changes it. */
static bool parse_mount(char *line, const char *controller, char **ret_root, char **ret_point)
{
    char *fields[6], *at = line, *end = strstr(line, " - ");
    if (!end)
        return false;
    *end = '\0';
    for (uint32_t i = 0; i < 6; i++) {
        fields[i] = at;
        at = strchr(at, ' ');
        if (!at && i < 5)
            return false;
        if (at)
            *at++ = '\0';
    }
    char *type = end + 3, *source = strchr(type, ' '), *super;
    if (!source)
        return false;
    *source++ = '\0';
    super = strchr(source, ' ');
    bool second = strcmp(type, "cgroup2") == 0;
    if (controller[0] == '\0'
            ? !second
            : strcmp(type, "cgroup") != 0 || !super || !has_word(super + 1, controller))
        return false;
    unescape(fields[3]);
    unescape(fields[4]);
    *ret_root = fields[3];
    *ret_point = fields[4];
    return true;
}

static bool climbs(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* The group as the mount shows it: its root is left out.  NULL: it is not below. */
static const char *below(const char *group, const char *root)
{
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    return strncmp(group, root, n) == 0 && (group[n] == '/' || group[n] == '\0') ? group + n : NULL;
}

bool cgroup_in_mounts(const char *mounts, const char *group, const char *controller,
                      char ret[CGROUP_PATH_BYTES], size_t *ret_point)
{
    char room[8192], *root, *point;
    struct proc_lines l;
    size_t n;
    bool found = false;
    ret[0] = '\0';
    if (climbs(group) || proc_lines_open(&l, mounts, room, sizeof(room)) < 0)
        return false;
    for (char *line; !found && (line = proc_lines_next(&l, &n)) != NULL;) {
        const char *rest =
            !l.cut && parse_mount(line, controller, &root, &point) ? below(group, root) : NULL;
        if (!rest)
            continue;
        int size =
            snprintf(ret, CGROUP_PATH_BYTES, "%s%s", point, strcmp(rest, "/") == 0 ? "" : rest);
        found = size > 0 && size < CGROUP_PATH_BYTES;
        *ret_point = strlen(point);
    }
    proc_lines_close(&l);
    if (!found)
        ret[0] = '\0';
    return found;
}

bool cgroup_path(const char *controller, char ret[CGROUP_PATH_BYTES], size_t *ret_point)
{
    char group[CGROUP_PATH_BYTES];
    ret[0] = '\0';
    return proc_cgroup(0, controller, group, sizeof(group)) &&
           cgroup_in_mounts("/proc/self/mountinfo", group, controller, ret, ret_point);
}

bool cgroup_parent(char *path, size_t point)
{
    char *slash = strrchr(path, '/');
    if (strlen(path) <= point || !slash || (size_t)(slash - path) < point)
        return false;
    *slash = '\0';
    return true;
}
