/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/names_fuzz.c - a file of names of any bytes: an id has its own text or none.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/catalog/dictionary.h"
#include "tests/fuzz/fuzz.h"

#define FILE_BYTES (UINT64_C(256) << 20)
#define TEXTS_AT (FILE_BYTES / 8)
#define NAMES 60

/* The header, the places, the texts. */
static const struct fuzz_part parts[] = {{0, 512}, {4096, 512}, {TEXTS_AT, 1 << 16}};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static int name_of(uint64_t id, char *ret, size_t size)
{
    return snprintf(ret, size, "layer.%llu.%.*s", (unsigned long long)id * 7919, (int)(id % 9),
                    "attention");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32], name[64];
    struct interns *names;
    int fd = fuzz_file(parts, N_PARTS, (off_t)FILE_BYTES, data, size, path);
    if (interns_open(dup(fd), path, &names) == 0) {
        uint64_t last = intern_last(names), none = 0;
        for (uint64_t id = 1; id <= last && id <= 1000; id++) {
            uint32_t text_n = 0;
            const char *text = intern_text(names, id, &text_n);
            none += text == NULL;
            fuzz_must(!text || (id <= NAMES && (int)text_n == name_of(id, name, sizeof(name)) &&
                                memcmp(text, name, text_n) == 0));
        }
        fuzz_must(none == 0 || interns_damaged(names) > 0);
        interns_free(names);
    }
    (void)close(fd);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    char path[64], name[64];
    struct interns *names;
    uint64_t id = 0;
    fuzz_place("strings", path);
    fuzz_must(interns_create(path, &names) == 0);
    for (uint64_t n = 1; n <= NAMES; n++) {
        int size = name_of(n, name, sizeof(name));
        fuzz_must(intern(names, name, (size_t)size, &id) == 0 && id == n);
    }
    size_t size = fuzz_input(parts, N_PARTS, TEXTS_AT + NAMES * 32, path, data, max);
    interns_free(names);
    fuzz_remove(path);
    return size;
}
