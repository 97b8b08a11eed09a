/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/origin_test.c - which native functions an allocation is not put down to.
 */
#include "sample/origin.h"

#include "tests/test.h"

TEST(libraries_that_everybody_calls)
{
    static const struct {
        const char *function, *module;
        bool is;
    } known[] = {
        {"__GI___libc_malloc", "/lib/x86_64-linux-gnu/libc.so.6", true},
        {"strdup", "/lib64/libc-2.17.so", true},
        {"_dl_map_object", "/lib64/ld-linux-x86-64.so.2", true},
        {"operator new(unsigned long)", "/usr/lib/libstdc++.so.6.0.30", true},
        {"je_malloc", "/usr/lib/libjemalloc.so.2", true},
        {"PyByteArray_Resize", "/usr/bin/python3.11", true},
        {"PyObject_Malloc", "/opt/lib/libpython3.12.so.1.0", true},
        {"main", "/opt/conda/bin/python", true},
        {"c10::alloc_cpu(unsigned long)", "/opt/torch/lib/libc10.so", true},
        /* instances of templates lie in whoever uses them */
        {"std::vector<int, std::allocator<int> >::reserve(unsigned long)", "/srv/app", true},
        {"void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int&&)", "/srv/app",
         true},
        {"operator new[](unsigned long)", "/srv/app", true},
        {"leak(std::vector<int, std::allocator<int> >&)", "/srv/app", false},
        {"void Cache<std::string>::put(std::string const&)", "/srv/app", false},
        {"my_std::grow()", "/srv/app", false},
        {"main", "/srv/app", false},
        {"pythonic", "/srv/pythonic", false},
        {"at::empty", "/opt/libtorch_cpu.so", false},
        {"numpy_zeros", "/opt/numpy/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", false},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (!CHECK_INT(origin_is_library(known[i].function, known[i].module), known[i].is))
            printf("# %s in %s\n", known[i].function, known[i].module);
}

int main(void)
{
    RUN(libraries_that_everybody_calls);
    return test_end();
}
