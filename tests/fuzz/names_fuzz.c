/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/names_fuzz.c - a file of names of any bytes: an id has its own text or none.
 *
 * An input is what a small file has that is not a hole: the header, the places, the texts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/ring/intern.h"
#include "tests/fuzz/fuzz.h"

#define FILE_BYTES (UINT64_C(256) << 20)
#define PART 512 /* bytes of the header and of the places in an input */
#define PLACES_AT 4096
#define TEXTS_AT (FILE_BYTES / 8)
#define NAMES 60

static void must(int held)
{
    if (!held)
        abort();
}

static int name_of(uint64_t id, char *ret, size_t size)
{
    return snprintf(ret, size, "layer.%llu.%.*s", (unsigned long long)id * 7919, (int)(id % 9),
                    "attention");
}

static const struct {
    size_t in_file, in_input, size;
} parts[] = {{0, 0, PART}, {PLACES_AT, PART, PART}, {TEXTS_AT, (size_t)2 * PART, 1 << 16}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32], name[64];
    struct interns *names;
    int fd = memfd_create("strings", MFD_CLOEXEC);
    must(fd != -1);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    must(ftruncate(fd, (off_t)FILE_BYTES) == 0);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n = size > parts[i].in_input ? size - parts[i].in_input : 0;
        n = n < parts[i].size ? n : parts[i].size;
        must(pwrite(fd, data + parts[i].in_input, n, (off_t)parts[i].in_file) == (ssize_t)n);
    }
    if (interns_open(path, &names) == 0) {
        uint64_t last = intern_last(names), none = 0;
        for (uint64_t id = 1; id <= last && id <= 1000; id++) {
            uint32_t text_n = 0;
            const char *text = intern_text(names, id, &text_n);
            none += text == NULL;
            must(!text || (id <= NAMES && (int)text_n == name_of(id, name, sizeof(name)) &&
                           memcmp(text, name, text_n) == 0));
        }
        must(none == 0 || interns_damaged(names) > 0);
        interns_free(names);
    }
    (void)close(fd);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    char path[] = "/tmp/probing-fuzz-XXXXXX", name[64];
    struct interns *names;
    uint64_t id = 0;
    must(mkdtemp(path) != NULL);
    char file[64];
    (void)snprintf(file, sizeof(file), "%s/strings", path);
    must(interns_create(file, &names) == 0);
    for (uint64_t n = 1; n <= NAMES; n++) {
        int size = name_of(n, name, sizeof(name));
        must(intern(names, name, (size_t)size, &id) == 0 && id == n);
    }
    size_t size = 2 * PART + NAMES * 32;
    must(size <= max);
    FILE *f = fopen(file, "rb");
    must(f != NULL);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n =
            size - parts[i].in_input < parts[i].size ? size - parts[i].in_input : parts[i].size;
        must(fseek(f, (int32_t)parts[i].in_file, SEEK_SET) == 0);
        must(fread(data + parts[i].in_input, 1, n, f) == n);
    }
    (void)fclose(f);
    interns_free(names);
    must(unlink(file) == 0 && rmdir(path) == 0);
    return size;
}
