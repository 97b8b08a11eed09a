/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/md5.c - the digest of RFC 1321, for comparing texts by a short name; it guards
 * nothing.
 *
 * Any thread.
 */
#include "core/sql/expr/kernel.h"

#include <string.h>

static uint32_t turned(uint32_t x, uint32_t by)
{
    return x << by | x >> (32 - by);
}

/* 64 bytes more. */
static void add_block(uint32_t sum[4], const uint8_t *block)
{
    /* floor(2^32 * |sin(i + 1)|) */
    static const uint32_t sines[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
        0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
        0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
        0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
        0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
        0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
        0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
        0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
        0xeb86d391};
    static const uint8_t turns[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t round = i / 16, f, at, word;
        f = round == 0   ? (b & c) | (~b & d)
            : round == 1 ? (d & b) | (~d & c)
            : round == 2 ? b ^ c ^ d
                         : c ^ (b | ~d);
        at = round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i;
        const uint8_t *p = block + 4 * (at % 16);
        word = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        f += a + sines[i] + word;
        a = d;
        d = c;
        c = b;
        b += turned(f, turns[round][i % 4]);
    }
    sum[0] += a;
    sum[1] += b;
    sum[2] += c;
    sum[3] += d;
}

void sql_md5(struct text t, uint8_t ret[16])
{
    uint32_t sum[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}, left = t.size % 64;
    uint8_t end[128] = {0};
    for (uint32_t at = 0; at + 64 <= t.size; at += 64)
        add_block(sum, (const uint8_t *)t.data + at);
    if (left)
        memcpy(end, t.data + (t.size - left), left);
    end[left] = 0x80;
    uint32_t blocks = left < 56 ? 1 : 2;
    for (uint32_t i = 0; i < 8; i++)
        end[64 * blocks - 8 + i] = (uint8_t)((uint64_t)t.size * 8 >> (8 * i));
    for (uint32_t i = 0; i < blocks; i++)
        add_block(sum, end + 64 * i);
    for (uint32_t i = 0; i < 16; i++)
        ret[i] = (uint8_t)(sum[i / 4] >> (8 * (i % 4)));
}
