/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/driver.c - feeds saved inputs to a fuzz target, whole, cut and changed: see fuzz.h.
 *
 * One thread; the same inputs each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define PLACES 4096 /* of an input that are cut at and changed */
#define RANDOM_CHANGES 1000
#define HEAD_BYTES 512 /* where an input's structure is: half of the changes go there */

static uint64_t seed = UINT64_C(88172645463325252);
static uint64_t fed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void feed(const uint8_t *data, size_t size)
{
    (void)LLVMFuzzerTestOneInput(data, size);
    fed++;
}

static void change_each(uint8_t *data, size_t size)
{
    size_t step = size / PLACES + 1;
    for (size_t at = 0; at < size; at += at < HEAD_BYTES ? 1 : step) {
        uint8_t old = data[at];
        feed(data, at);
        data[at] = (uint8_t)(old ^ 1u << next_random() % 8);
        feed(data, size);
        data[at] = (uint8_t)next_random();
        feed(data, size);
        data[at] = old;
    }
}

static void change_some(uint8_t *data, size_t size)
{
    for (int i = 0; i < RANDOM_CHANGES && size; i++) {
        size_t at[4], n = 1 + next_random() % 4;
        uint8_t old[4];
        for (size_t k = 0; k < n; k++) {
            at[k] = next_random() % (next_random() % 2 && size > HEAD_BYTES ? HEAD_BYTES : size);
            old[k] = data[at[k]];
            data[at[k]] = (uint8_t)next_random();
        }
        feed(data, i % 8 ? size : next_random() % size);
        for (size_t k = n; k-- > 0;)
            data[at[k]] = old[k];
    }
}

static void drive(uint8_t *data, size_t size)
{
    feed(data, size);
    change_each(data, size);
    change_some(data, size);
}

/* ---- what targets share ---- */

void fuzz_must(int held)
{
    if (!held)
        abort();
}

size_t fuzz_text(const char *text, uint8_t *data, size_t max)
{
    size_t n = strlen(text);
    fuzz_must(n <= max);
    memcpy(data, text, n);
    return n;
}

int fuzz_file(const struct fuzz_part *parts, size_t n, off_t least, const uint8_t *data,
              size_t size, char ret_path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_must(fd != -1 && ftruncate(fd, least) == 0);
    for (size_t i = 0; i < n && size; i++) {
        size_t some = size < parts[i].size ? size : parts[i].size;
        fuzz_must(pwrite(fd, data, some, parts[i].in_file) == (ssize_t)some);
        data += some;
        size -= some;
    }
    (void)snprintf(ret_path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

size_t fuzz_input(const struct fuzz_part *parts, size_t n, off_t end, const char *path,
                  uint8_t *data, size_t max)
{
    size_t size = 0;
    FILE *f = fopen(path, "rb");
    fuzz_must(f != NULL);
    for (size_t i = 0; i < n; i++) {
        size_t some = parts[i].size;
        if (i == n - 1 && (size_t)(end - parts[i].in_file) < some)
            some = (size_t)(end - parts[i].in_file);
        fuzz_must(some <= max - size && fseeko(f, parts[i].in_file, SEEK_SET) == 0);
        fuzz_must(fread(data + size, 1, some, f) == some);
        size += some;
    }
    (void)fclose(f);
    return size;
}

void fuzz_place(const char *name, char ret_path[64])
{
    char directory[] = "/tmp/probing-fuzz-XXXXXX";
    fuzz_must(mkdtemp(directory) != NULL);
    (void)snprintf(ret_path, 64, "%s/%s", directory, name);
}

void fuzz_remove(char path[64])
{
    fuzz_must(unlink(path) == 0);
    *strrchr(path, '/') = '\0';
    fuzz_must(rmdir(path) == 0);
}

/* Weak: a fuzzer brings its own. */
__attribute__((weak)) int main(int argc, char **argv)
{
    static uint8_t data[8 << 20];
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(data, 1, sizeof(data), f);
        (void)fclose(f);
        drive(data, n);
    }
    if (argc == 1 && fuzz_seed)
        drive(data, fuzz_seed(data, sizeof(data)));
    printf("%llu inputs\n", (unsigned long long)fed);
    return fed ? 0 : 1;
}
