/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/hash_test.c - the hashes against published vectors: files depend on them.
 */
#include "sdk/lib/hash.h"

#include <string.h>

#include "tests/test.h"

TEST(fnv_is_that_of_its_authors)
{
    /* draft-eastlake-fnv, "FNV-1a 64 bit"; test_fnv.c of Landon Curt Noll */
    static const struct {
        const char *text;
        uint64_t hash;
    } vectors[] = {{"", UINT64_C(0xcbf29ce484222325)},
                   {"a", UINT64_C(0xaf63dc4c8601ec8c)},
                   {"b", UINT64_C(0xaf63df4c8601f1a5)},
                   {"foobar", UINT64_C(0x85944171f73967e8)},
                   {"foo", UINT64_C(0xdcb27518fed9d577)},
                   {"fo", UINT64_C(0x08985907b541d342)},
                   {"chongo was here!\n", UINT64_C(0x46810940eff5f915)}};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const char *text = vectors[i].text;
        size_t n = strlen(text);
        CHECK(hash_text(HASH_FNV, text) == vectors[i].hash);
        CHECK(hash_bytes(HASH_FNV, text, n) == vectors[i].hash);
        CHECK(hash_bytes(hash_bytes(HASH_FNV, text, n / 2), text + n / 2, n - n / 2) ==
              vectors[i].hash);
    }
    CHECK(hash_bytes(HASH_FNV, "", 1) == UINT64_C(0xaf63bd4c8601b7df));    /* one NUL */
    CHECK(hash_bytes(HASH_FNV, "\xff", 1) == hash_text(HASH_FNV, "\xff")); /* bytes have no sign */
}

TEST(spreading_is_a_multiplication)
{
    CHECK(hash_spread(0) == 0);
    CHECK(hash_spread(1) == UINT64_C(0x9e3779b97f4a7c15));
    CHECK(hash_spread(2) == UINT64_C(0x3c6ef372fe94f82a)); /* splitmix64's second step */
    CHECK(hash_spread(UINT64_C(0x0123456789abcdef)) == UINT64_C(0x0c93a7b79aeda89b));
    /* Neighbours, as addresses are, fall into places far apart. */
    uint64_t seen = 0;
    for (uint64_t i = 0; i < 32; i++)
        seen |= UINT64_C(1) << (hash_spread(i) >> 58);
    CHECK_INT(__builtin_popcountll(seen), 32);
}

int main(void)
{
    RUN(fnv_is_that_of_its_authors);
    RUN(spreading_is_a_multiplication);
    return test_end();
}
