/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/kernel_log.c - process.kmsg: the kernel's log (dmesg), when a query asks and where
 * it may be read.
 *
 * Workers; no state.  Lines come from the kernel, but what is in them may be anybody's.
 */
#include <fcntl.h>
#include <unistd.h>

#include "computed.h"

#define RECORD_BYTES 8192 /* the kernel's CONSOLE_EXT_LOG_MAX */

static const struct probing_column columns[] = {
    PROBING_COLUMN("ts", PROBING_TIME, PROBING_NS, "when the kernel wrote it"),
    PROBING_STR_COLUMN("level", "emerg, alert, crit, err, warning, notice, info or debug"),
    PROBING_STR_COLUMN("facility", "kern, user, daemon, ...: who wrote it"),
    PROBING_I64_COLUMN("sequence", PROBING_PLAIN, "number of the line"),
    PROBING_STR_COLUMN("message", "the line"),
};

bool kmsg_parse(char *record, struct kmsg_line *ret)
{
    static const char *const levels[] = {"emerg",   "alert",  "crit", "err",
                                         "warning", "notice", "info", "debug"};
    static const char *const facilities[] = {"kern", "user", "mail", "daemon", "auth",     "syslog",
                                             "lpr",  "news", "uucp", "cron",   "authpriv", "ftp"};
    char *end, *text = strchr(record, ';');
    if (!text)
        return false;
    *text++ = '\0';
    uint64_t priority = strtoull(record, &end, 10);
    if (end == record || *end != ',')
        return false;
    ret->sequence = strtoull(end + 1, &end, 10);
    if (*end != ',')
        return false;
    ret->at_ns = strtoull(end + 1, &end, 10) * PROBING_NS_PER_US;
    ret->level = levels[priority % 8];
    ret->facility = priority / 8 < PROBING_LENGTH(facilities) ? facilities[priority / 8] : NULL;
    text[strcspn(text, "\n")] = '\0'; /* what follows are the device's properties */
    text_clean(text);
    ret->message = text;
    return true;
}

int kmsg_open(void)
{
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return fd == -1 ? -errno : fd;
}

static int scan_kernel_log(void *self, struct probing_rows *out)
{
    const struct probing_host *h = plugin_host(self);
    char record[RECORD_BYTES + 1];
    struct kmsg_line line;
    int r = 0, fd = kmsg_open();
    if (fd < 0)
        return 0; /* empty_reason.c says why */
    while (r == 0) {
        ssize_t n = read(fd, record, RECORD_BYTES);
        if (n < 0 && (errno == EPIPE || errno == EINTR))
            continue; /* that line has been overwritten: the next one */
        if (n <= 0)
            break;
        record[n] = '\0';
        if (!kmsg_parse(record, &line))
            continue;
        const union probing_cell cells[] = {count_cell(line.at_ns), probing_str(line.level),
                                            probing_str(line.facility), count_cell(line.sequence),
                                            probing_str(line.message)};
        r = h->emit(out, cells, PROBING_LENGTH(cells));
    }
    (void)close(fd);
    return probing_scanned(r);
}

const struct probing_table_desc kmsg_table =
    PROBING_COMPUTED_TABLE("process.kmsg", columns, scan_kernel_log,
                           "the kernel's log: the OOM killer, devices that fail");
