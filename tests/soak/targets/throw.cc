/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/throw.cc - throws and catches for ever; counts as busy.c does.
 *
 * usage: throw KIND FILE
 */
#include <cstdint>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

static void deep(int n)
{
    std::string text(64, 'x');
    if (n == 0)
        throw std::runtime_error(text);
    deep(n - 1);
}

int main(int, char **argv)
{
    int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd == -1 || ftruncate(fd, 4096) == -1)
        return 2;
    auto *counts = static_cast<volatile uint64_t *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    for (;;) {
        try {
            deep(20);
        } catch (const std::runtime_error &e) {
            counts[2] = counts[2] + (std::string(e.what()).size() != 64);
        }
        counts[0] = counts[0] + 1;
    }
}
