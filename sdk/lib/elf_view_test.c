/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/elf_view_test.c - an object of a few symbols as bytes: found by both hash tables, and
 * nothing but "no" once bytes lack or tables go in circles.
 */
#include "sdk/lib/elf_view.h"

#include <string.h>

#include "tests/test.h"

#define BASE UINT64_C(0x1000) /* where the object begins */

/* Symbols 1 to 3 are "one" (undefined), "two" and "three". */
struct object {
    Elf64_Dyn dynamic[8];
    Elf64_Sym symbols[4];
    char names[16];
    struct {
        uint32_t head[4];
        uint64_t bloom;
        uint32_t bucket, chain[2];
    } gnu;
    struct {
        uint32_t head[2], bucket, chain[4];
    } sysv;
};

struct bytes {
    const struct object *object;
    size_t size; /* bytes of it that are there */
};

static bool read_bytes(const struct elf_view *v, uint64_t address, void *ret, size_t n)
{
    const struct bytes *b = v->arg;
    if (address < BASE || address - BASE > b->size || n > b->size - (address - BASE))
        return false;
    memcpy(ret, (const char *)b->object + (address - BASE), n);
    return true;
}

static uint32_t gnu(const char *name)
{
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static struct object make_object(int64_t hash_tag)
{
    struct object o = {
        .names = "\0one\0two\0three",
        .symbols = {{0},
                    {.st_name = 1},
                    {.st_name = 5, .st_shndx = 1, .st_value = 0x20},
                    {.st_name = 9, .st_shndx = 1, .st_value = 0x30}},
        .gnu = {.head = {1, 2, 1, 5}, .bloom = UINT64_MAX, .bucket = 2},
        .sysv = {.head = {1, 4}, .bucket = 3, .chain = {0, 0, 1, 2}},
    };
    o.gnu.chain[0] = gnu("two") & ~1u;
    o.gnu.chain[1] = gnu("three") | 1;
    const Elf64_Dyn dynamic[] = {
        {.d_tag = DT_SYMTAB, .d_un.d_ptr = BASE + offsetof(struct object, symbols)},
        {.d_tag = DT_STRTAB, .d_un.d_ptr = offsetof(struct object, names)}, /* not moved yet */
        {.d_tag = DT_STRSZ, .d_un.d_val = sizeof(o.names)},
        {.d_tag = DT_NEEDED, .d_un.d_val = 1},
        {.d_tag = hash_tag,
         .d_un.d_ptr = BASE + (hash_tag == DT_HASH ? offsetof(struct object, sysv)
                                                   : offsetof(struct object, gnu))},
        {.d_tag = DT_NULL}};
    memcpy(o.dynamic, dynamic, sizeof(dynamic));
    return o;
}

static bool view(const struct bytes *b, struct elf_view *ret)
{
    *ret = (struct elf_view){.read = read_bytes, .arg = (void *)b, .base = BASE, .bias = BASE};
    return elf_view_dynamic(ret, BASE, sizeof(b->object->dynamic) / sizeof(Elf64_Dyn));
}

static bool is_defined(void *arg, uint32_t i, const Elf64_Sym *s)
{
    (void)i;
    *(uint64_t *)arg = s->st_value;
    return s->st_shndx != SHN_UNDEF;
}

static uint64_t value_of(const struct elf_view *v, const char *name)
{
    uint64_t value = 0;
    return elf_view_find(v, name, is_defined, &value) ? value : 0;
}

TEST(both_hash_tables_find_what_is_defined)
{
    const int64_t tags[] = {DT_GNU_HASH, DT_HASH};
    for (int i = 0; i < 2; i++) {
        const struct object o = make_object(tags[i]);
        const struct bytes b = {&o, sizeof(o)};
        struct elf_view v;
        Elf64_Dyn d;
        CHECK(view(&b, &v));
        CHECK_INT(v.n_dynamic, 5);
        CHECK_INT(elf_view_count(&v), 4);
        CHECK_INT(value_of(&v, "two"), 0x20);
        CHECK_INT(value_of(&v, "three"), 0x30);
        CHECK_INT(value_of(&v, "one"), 0); /* it is another's */
        CHECK_INT(value_of(&v, "thre"), 0);
        CHECK(elf_view_entry(&v, 3, &d) && elf_view_has_name(&v, d.d_un.d_val, "one"));
        CHECK(!elf_view_entry(&v, 5, &d));
    }
}

TEST(what_is_cut_short_is_not_there)
{
    const int64_t tags[] = {DT_GNU_HASH, DT_HASH};
    for (int i = 0; i < 2; i++) {
        const struct object o = make_object(tags[i]);
        for (size_t size = 0; size < sizeof(o); size++) {
            const struct bytes b = {&o, size};
            struct elf_view v;
            Elf64_Sym s;
            CHECK(view(&b, &v) == (size >= 6 * sizeof(Elf64_Dyn)));
            CHECK(value_of(&v, "three") == 0 || size > offsetof(struct object, gnu));
            CHECK(elf_view_count(&v) <= 4);
            CHECK(!elf_view_symbol(&v, 4000, &s));
        }
    }
}

TEST(a_table_without_an_end_ends)
{
    struct object o = make_object(DT_HASH);
    const struct bytes b = {&o, sizeof(o)};
    struct elf_view v;
    o.sysv.chain[3] = 3; /* a circle */
    CHECK(view(&b, &v));
    CHECK_INT(value_of(&v, "two"), 0);
    o.sysv.head[1] = UINT32_MAX;
    CHECK_INT(elf_view_count(&v), 0);
    o = make_object(DT_GNU_HASH);
    CHECK(view(&b, &v));
    o.gnu.chain[1] &= ~1u;
    o.gnu.bucket = UINT32_MAX;
    CHECK_INT(elf_view_count(&v), 0);
    CHECK_INT(value_of(&v, "three"), 0);
    for (int i = 0; i < 8; i++)
        o.dynamic[i].d_tag = DT_DEBUG;
    CHECK(!view(&b, &v));
}

int main(void)
{
    RUN(both_hash_tables_find_what_is_defined);
    RUN(what_is_cut_short_is_not_there);
    RUN(a_table_without_an_end_ends);
    return test_end();
}
