/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle_test.c - names of kernels as c++filt writes them, and names that
 * nobody's compiler has made.
 */
#include "sdk/lib/demangle/demangle.h"

#include <stdint.h>
#include <stdlib.h>

#include "sdk/lib/demangle/demangle_parts.h"
#include "tests/test.h"

static struct plainer *p;

/* Names, and the output of c++filt of binutils 2.40 for them. */
static const struct {
    const char *mangled, *plain;
} known[] = {
    {"_Z4fillILi4EEvi", "void fill<4>(int)"},
    {"_Z3addPKfS0_Pfm", "add(float const*, float const*, float*, unsigned long)"},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_"
     "6detail5ArrayIPcLi1EE"
     "EEEviT0_T1_",
     "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
     "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, "
     "1>)"},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIfffNS0_15binary_"
     "internal1"
     "0MulFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_",
     "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
     "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
     "at::native::BinaryFunctor<float, float, float, "
     "at::native::binary_internal::MulFunctor<float> "
     ">, std::array<char*, 3ul>)"},
    {"_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_"
     "18TensorIterato"
     "rBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESB_"
     "N"
     "S0_6memory15LoadWithoutCastENSC_16StoreWithoutCastEEEviT_T0_T2_T3_T4_T5_",
     "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
     "TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() "
     "const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned "
     "int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithoutCast, "
     "at::native::memory::StoreWithoutCast>(int, at::native::direct_copy_kernel_cuda(at::"
     "TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() "
     "const::{lambda(float)#1}, std::array<char*, 2ul>, TrivialOffsetCalculator<1, unsigned int>, "
     "TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithoutCast, "
     "at::native::memory::StoreWithoutCast)"},
    {"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {"_ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4EEvNT_6ParamsE",
     "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4>(cutlass_80_"
     "tensorop_s1688gemm_256x128_16x3_nn_align4::Params)"},
    {"_ZN12_GLOBAL__N_13addIfLb1EEEvPT_i",
     "void (anonymous namespace)::add<float, true>(float*, int)"},
    {"_Z1fIJidEEvDpPT_", "void f<int, double>(int*, double*)"},
    {"_Z3runIPFvPfiEEvT_", "void run<void (*)(float*, int)>(void (*)(float*, int))"},
    {"_Z1gRA3_KfOiPVKc", "g(float const (&) [3], int&&, char const volatile*)"},
    {"_ZN1a1bILN1c1dE2EEEvM1eFviE", "void a::b<(c::d)2>(void (e::*)(int))"},
    {"_Z1hIXadL_ZN1n1fEvEEEvv", "void h<&n::f>()"},
    {"_Z3neglILln3EEvv", NULL},
    {"_Z3negILln3EEvv", "void neg<-3l>()"},
    {"gemm", NULL}, /* of C, or nothing at all */
    {"_Z", NULL},
    {"", NULL},
    {"_Z3fooi.cold", NULL}};

TEST(as_people_write_them)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *plain = plainer_name(p, known[i].mangled);
        if (known[i].plain)
            CHECK_STR(plain ? plain : known[i].mangled, known[i].plain);
        else
            CHECK(plain == NULL);
    }
}

/* A name of 500 bytes for which a C++ library makes a text of gigabytes. */
TEST(what_grows_without_end_is_given_up)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char name[1024] = "_Z1f1a";
    for (unsigned i = 0, n = 6; i < 50; i++) { /* each has the one before twice */
        unsigned last = i ? 2 * i - 1 : 0;
        char s[8] = "_";
        if (i)
            (void)snprintf(s, sizeof(s), last < 36 ? "%.0d%c_" : "%d%c_", last / 36 - (last >= 36),
                           digits[last % 36]);
        n += (unsigned)snprintf(name + n, sizeof(name) - n, "PFvS%sS%sE", s, s);
    }
    CHECK(plainer_name(p, name) == NULL);
    CHECK_STR(plainer_name(p, "_Z1fi"), "f(int)"); /* and the next is as ever */
}

TEST(what_lies_too_deep_is_given_up)
{
    static char name[20000];
    for (const char *c = "PRKFANZITJLXDMSO"; *c; c++)
        for (int inside = 0; inside < 2; inside++) {
            (void)strcpy(name, inside ? "_Z1fI" : "_Z1f");
            memset(name + strlen(name), *c, sizeof(name) - 8);
            name[sizeof(name) - 1] = '\0';
            CHECK(plainer_name(p, name) == NULL);
        }
    (void)strcpy(name, "_Z1f");
    for (size_t i = 4; i + 4 < sizeof(name); i += 3)
        memcpy(name + i, "1aI", 4);
    CHECK(plainer_name(p, name) == NULL);
}

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Under asan and ubsan it says more. */
TEST(names_that_were_changed_at_random)
{
    static const char letters[] = "SITNEZKRPOFADJLXMv_0123456789iUltcp";
    uint64_t state = 7;
    for (int round = 0; round < 60000; round++) {
        char name[1200] = "";
        (void)snprintf(name, sizeof(name), "%s",
                       known[next(&state) % (sizeof(known) / sizeof(known[0]))].mangled);
        for (uint64_t changes = next(&state) % 6 + 1; changes > 0; changes--) {
            size_t n = strlen(name), at = n ? next(&state) % n : 0;
            char letter = letters[next(&state) % (sizeof(letters) - 1)];
            if (next(&state) % 3 == 0 && n > 0) {
                memmove(name + at, name + at + 1, n - at);
            } else if (next(&state) % 2 && n > 0) {
                name[at] = letter;
            } else if (n + 2 < sizeof(name)) {
                memmove(name + at + 1, name + at, n - at + 1);
                name[at] = letter;
            }
        }
        const char *plain = plainer_name(p, name);
        if (plain && !CHECK(strlen(plain) < PLAIN_ROOM))
            return;
    }
}

int main(void)
{
    if (plainer_new(&p) != 0)
        return 1;
    RUN(as_people_write_them);
    RUN(what_grows_without_end_is_given_up);
    RUN(what_lies_too_deep_is_given_up);
    RUN(names_that_were_changed_at_random);
    plainer_free(p);
    return test_end();
}
