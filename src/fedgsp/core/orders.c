/* The order of a client's samples, as NumPy's generator of the same key gives it: SeedSequence, PCG64 and the shuffle of
 * Generator.permutation, in one call. See orders.py, which compares both before it uses this. */
#include <stdint.h>

#define POOL 4
#define SHIFT 16

typedef unsigned __int128 wide;
typedef struct {
    wide state, step;
    uint32_t kept; /* half of the last 64 bits */
    int has;
} Stream;

static inline uint32_t hashed(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= 0x931e8875u;
    value *= *constant;
    return value ^ (value >> SHIFT);
}

static inline uint32_t mixed(uint32_t x, uint32_t y)
{
    const uint32_t made = 0xca01f9ddu * x - 0x4973f715u * y;
    return made ^ (made >> SHIFT);
}

static inline void advance(Stream *s)
{
    const wide factor = ((wide)0x2360ed051fc65da4u << 64) | 0x4385df649fccf645u;
    s->state = s->state * factor + s->step;
}

static void seeded(Stream *s, const uint32_t *key, int words)
{
    uint32_t pool[POOL], constant = 0x43b0d7e5u, found[2 * POOL];
    uint64_t pairs[POOL];
    for (int i = 0; i < POOL; i++)
        pool[i] = hashed(i < words ? key[i] : 0, &constant);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to)
                pool[to] = mixed(pool[to], hashed(pool[from], &constant));
    for (int from = POOL; from < words; from++)
        for (int to = 0; to < POOL; to++)
            pool[to] = mixed(pool[to], hashed(key[from], &constant));
    constant = 0x8b51f9ddu;
    for (int i = 0; i < 2 * POOL; i++) {
        uint32_t value = pool[i % POOL] ^ constant;
        constant *= 0x58f38dedu;
        value *= constant;
        found[i] = value ^ (value >> SHIFT);
    }
    for (int i = 0; i < POOL; i++)
        pairs[i] = found[2 * i] | ((uint64_t)found[2 * i + 1] << 32);
    s->has = 0;
    s->state = 0;
    s->step = ((((wide)pairs[2] << 64) | pairs[3]) << 1) | 1;
    advance(s);
    s->state += ((wide)pairs[0] << 64) | pairs[1];
    advance(s);
}

static inline uint32_t drawn(Stream *s)
{
    if (s->has) {
        s->has = 0;
        return s->kept;
    }
    advance(s);
    const uint64_t high = (uint64_t)(s->state >> 64), both = high ^ (uint64_t)s->state;
    const unsigned turn = (unsigned)(high >> 58);
    const uint64_t made = (both >> turn) | (both << ((64 - turn) & 63));
    s->has = 1;
    s->kept = (uint32_t)(made >> 32);
    return (uint32_t)made;
}

/* A whole number from 0 to most: bits are drawn until they are not above it. */
static inline uint32_t up_to(Stream *s, uint32_t most)
{
    const uint32_t mask = UINT32_MAX >> __builtin_clz(most);
    uint32_t value;
    do
        value = drawn(s) & mask;
    while (value > most);
    return value;
}

/* `rows` (n) in the order of this key, to `ordered`; n below 2^32. */
void fedgsp_order(const uint32_t *key, int64_t words, const int64_t *rows, int64_t n, int64_t *ordered)
{
    Stream s;
    seeded(&s, key, (int)words);
    for (int64_t i = 0; i < n; i++)
        ordered[i] = rows[i];
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t other = up_to(&s, (uint32_t)i), value = ordered[other];
        ordered[other] = ordered[i];
        ordered[i] = value;
    }
}
