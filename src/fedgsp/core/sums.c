/* The inner loop of exact sums: weighted models added as whole numbers of the fine grid's units, in 64 bits; see whole_sums.py.
 * The same roundings on the same doubles as in sums.py, hence no fused multiply-add (-ffp-contract=off). */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 4096 /* values that are looked at, and then added while they are in the cache */
#define BETWEEN 30 /* bits from the fine grid's unit to the coarse one's */

typedef struct { /* one tensor; mirrored in whole_sums.py */
    int64_t n;
    double round_coarse, round_fine; /* adding and subtracting one rounds to a multiple of its grid */
    double unit;                     /* of the fine grid */
    float most;                      /* values up to this cannot overflow the sum */
} Grid;

static inline int64_t bits(double value)
{
    int64_t found;
    memcpy(&found, &value, sizeof found);
    return found;
}

/* weight * value in units of the fine grid: what adding a grid's constant leaves in the last bits is the number of its units */
static inline int64_t units(float value, double weight, double round_coarse, double round_fine)
{
    const double product = (double)value * weight;
    const double coarse = product + round_coarse;
    const double fine = (product - (coarse - round_coarse)) + round_fine;
    return (int64_t)((uint64_t)(bits(coarse) - bits(round_coarse)) << BETWEEN) + (bits(fine) - bits(round_fine));
}

static int within(const float *values, int64_t n, float most)
{
    int odd = 0;
    for (int64_t i = 0; i < n; i++)
        odd |= !(fabsf(values[i]) <= most); /* also of what is no number */
    return !odd;
}

static int64_t added(int64_t *sum, const float *values, const Grid *g, double weight)
{
    const double coarse = g->round_coarse, fine = g->round_fine;
    int64_t at = 0;
    for (int64_t m; at < g->n; at += m) {
        m = g->n - at < BLOCK ? g->n - at : BLOCK;
        if (!within(values + at, m, g->most))
            break;
        for (int64_t i = at; i < at + m; i++)
            sum[i] += units(values[i], weight, coarse, fine);
    }
    return at;
}

static void taken_back(int64_t *sum, const float *values, const Grid *g, double weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] -= units(values[i], weight, g->round_coarse, g->round_fine);
}

/* Add weight * tensors to the sums. Tensors that are NULL, or have a value that is too large or no number, are left out: the
 * answer is how many, and `left` has their numbers. */
int64_t fedgsp_add_whole(int64_t *sum, const float *const *tensors, const Grid *grids, int64_t n, double weight, int64_t *left)
{
    int64_t out = 0;
    for (int64_t t = 0; t < n; sum += grids[t++].n) {
        const int64_t done = tensors[t] ? added(sum, tensors[t], grids + t, weight) : 0;
        if (tensors[t] && done == grids[t].n)
            continue;
        taken_back(sum, tensors[t], grids + t, weight, done);
        left[out++] = t;
    }
    return out;
}

/* Subtract what was added; tensors that are NULL were not. */
void fedgsp_take_back(int64_t *sum, const float *const *tensors, const Grid *grids, int64_t n, double weight)
{
    for (int64_t t = 0; t < n; sum += grids[t++].n)
        if (tensors[t])
            taken_back(sum, tensors[t], grids + t, weight, grids[t].n);
}

/* What the sums are, divided by a weight. */
void fedgsp_whole_means(const int64_t *sum, const Grid *grids, int64_t n, double weight, double *means)
{
    for (int64_t t = 0; t < n; t++) {
        const double unit = grids[t].unit;
        for (int64_t i = 0; i < grids[t].n; i++)
            means[i] = ((double)sum[i] * unit) / weight;
        sum += grids[t].n, means += grids[t].n;
    }
}

/* Move one tensor's sums to its accumulators on the coarse and the fine grid, and leave none. */
void fedgsp_move_whole(int64_t *sum, const Grid *grids, int64_t t, double *coarse, double *fine)
{
    const int64_t low = ((int64_t)1 << BETWEEN) - 1;
    const double unit = grids[t].unit, step = unit * (double)(low + 1);
    for (int64_t before = 0; before < t; before++)
        sum += grids[before].n;
    for (int64_t i = 0; i < grids[t].n; i++) {
        fine[i] += (double)(sum[i] & low) * unit;
        coarse[i] += (double)(sum[i] >> BETWEEN) * step;
        sum[i] = 0;
    }
}
