/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/info_fuzz.c - an `info` of any bytes: it says what was written, or that it is damaged.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/info_file.h"
#include "tests/fuzz/fuzz.h"

static const char lines[] = "pid: 4711\nstart_time: 1234567890\nuid: 0\n"
                            "boot_id: 6d2a8c1e-0000-4000-8000-0123456789ab\n"
                            "executable: /usr/bin/python3\ncommand: python3 train.py --lr 1e-3\n"
                            "version: 0.1.0\nutc_offset: -17\nleft: yes\n"
                            "lost: python.torch_trace 1 2 3 4 5 6\n";
static const struct fuzz_part whole = {0, 1 << 20};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32], value[16];
    struct buf text;
    int fd = fuzz_file(&whole, 1, 0, data, size, path);
    buf_init(&text, INFO_MAX_BYTES);
    int rc = file_read(AT_FDCWD, path, &text);
    if (rc == 0)
        rc = info_check(&text, path);
    fuzz_must(rc == 0 ? strcmp(buf_text(&text), lines) == 0 : rc == -EBADMSG);
    bool found = info_get(&text, "pid", value, sizeof(value));
    fuzz_must(rc != 0 || (found && strcmp(value, "4711") == 0));
    (void)info_get(&text, "command", value, sizeof(value)); /* longer than there is room */
    fuzz_must(memchr(value, '\0', sizeof(value)) != NULL);
    buf_done(&text);
    (void)close(fd);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    struct buf text;
    buf_init(&text, max);
    fuzz_must(buf_adds(&text, lines) == 0 && info_commit_sum(&text) == 0);
    size_t size = text.size;
    memcpy(data, text.data, size);
    buf_done(&text);
    return size;
}
