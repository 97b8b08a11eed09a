/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/demangle_rust_test.c - names of Rust functions: both forms, what is none, and any
 * bytes.
 */
#include "core/stack/demangle_rust.h"

#include <stdint.h>
#include <string.h>

#include "tests/test.h"

static char text[256];

#define CHECK_NAME(symbol, want)                          \
    do {                                                  \
        CHECK(rust_demangle(symbol, text, sizeof(text))); \
        CHECK_STR(text, want);                            \
    } while (0)

TEST(legacy_names)
{
    CHECK_NAME("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad");
    CHECK_NAME(
        "_ZN55_$LT$r..deep..Work$LT$T$GT$$u20$as$u20$r..deep..Job$GT$2go17h50278934e87b18abE",
        "<r::deep::Work<T> as r::deep::Job>::go");
    CHECK_NAME("_ZN4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", "main::{{closure}}");
    CHECK_NAME("_ZN3a.b1c17h0123456789abcdefE.llvm.123", "a.b::c");
}

TEST(v0_names)
{
    CHECK_NAME("_RNvC7mycrate3foo", "mycrate::foo");
    CHECK_NAME("_RNvXNtCs2OpA4fNwd7R_1r4deepINtB2_4WorklENtB2_3Job2goB4_",
               "<r::deep::Work<i32> as r::deep::Job>::go");
    CHECK_NAME("_RINvC1a3fooRlTmbEAhj4_E", "a::foo::<&i32, (u32, bool), [u8; 4]>");
    CHECK_NAME("_RNCNvC1a4main0", "a::main::{closure#0}");
    CHECK_NAME("_RNCNvC1a4mains_0", "a::main::{closure#1}");
    CHECK_NAME("_RINvC1a3fooDNtC1b5TraitEL_FlEuPSeE",
               "a::foo::<dyn b::Trait, fn(i32), *const [str]>");
}

TEST(other_names_are_refused)
{
    static const char *const names[] = {
        "",
        "main",
        "_ZN3foo3barEv",
        "_ZNSt6vectorIiSaIiEE9push_backEOi",
        "_ZN17h0123456789abcdefE",
        "_ZN9999999foo17h0123456789abcdefE",
        "_R",
        "_RNvC",
        "_RNvC9a3foo",
        "_RB_",
        "_RINvC1a3fooB9_E",
        "_RINvC1a3fooAhj4",
        "_RINvC1a3foo",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!CHECK(!rust_demangle(names[i], text, sizeof(text))))
            printf("# %s\n", names[i]);
}

TEST(any_bytes_and_any_room)
{
    static const char letters[] = "_RZNCMXYIBEuvs0123456789abcdefKLTSAQPOFDGp$.h";
    uint32_t x = 7;
    char name[80], little[12];
    for (int i = 0; i < 200000; i++) {
        size_t n = 2 + (size_t)(x >> 9) % (sizeof(name) - 3);
        strcpy(name, i & 1 ? "_R" : "_ZN");
        for (size_t k = strlen(name); k < n; k++) {
            x = x * 1664525u + 1013904223u;
            name[k] = letters[(x >> 16) % (sizeof(letters) - 1)];
        }
        name[n] = '\0';
        (void)rust_demangle(name, little, sizeof(little));
        CHECK(memchr(little, 0, sizeof(little)) != NULL);
    }
    CHECK(rust_demangle("_RNvC7mycrate3foo", little, 4));
    CHECK_STR(little, "myc");
}

int main(void)
{
    RUN(legacy_names);
    RUN(v0_names);
    RUN(other_names_are_refused);
    RUN(any_bytes_and_any_room);
    return test_end();
}
