/* The large linear layer of leaf_cnn forward (2048 x 3136, five samples), as the kernels do it and in other ways: does blocking
 * over inputs bring it nearer to what the memory gives? Prints the least and the mean CPU milliseconds of each way; the
 * results of all ways have the same bits, or it says so.
 *
 *     gcc -O2 -march=native --param=avoid-fma-max-bits=0 -o /tmp/linear_layer benchmarks/linear_layer.c && /tmp/linear_layer
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LANES 8
#define SAMPLES 5
#define IN 3136
#define OUT 2048
#define REPEATS 60
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define WAY __attribute__((noinline)) static void

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE float total(vec v) {
    float sum = 0.f;
    UNROLL for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* add inputs `from` to `to` of R rows to the sums; where asked, call the R rows behind them into the cache */
INLINE void tile(const int R, const int ahead, int64_t from, int64_t to, const float *w, const float *x, vec (*sums)[SAMPLES]) {
    vec acc[8][SAMPLES];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int j = 0; j < SAMPLES; j++) acc[r][j] = sums[r][j];
    for (int64_t k = from; k < to; k += LANES) {
        vec row[8];
        if (ahead) UNROLL for (int r = 0; r < R; r++) __builtin_prefetch(w + (r + R) * IN + k, 0, 1);
        UNROLL for (int r = 0; r < R; r++) row[r] = load(w + r * IN + k);
        UNROLL for (int j = 0; j < SAMPLES; j++) {
            const vec sample = load(x + j * IN + k);
            UNROLL for (int r = 0; r < R; r++) acc[r][j] += row[r] * sample;
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int j = 0; j < SAMPLES; j++) sums[r][j] = acc[r][j];
}

/* `many` rows at a time see a block of inputs before the next block, R of them in registers */
INLINE void blocked(const int R, const int ahead, int many, int64_t block, const float *w, const float *x, float *y) {
    static vec sums[OUT][SAMPLES];
    for (int group = 0; group < OUT; group += many) {
        memset(sums, 0, sizeof sums[0] * (size_t)many);
        for (int64_t k = 0; k < IN; k += block)
            for (int r = 0; r + R <= many; r += R)
                tile(R, ahead, k, k + block < IN ? k + block : IN, w + (int64_t)(group + r) * IN, x, sums + r);
        for (int r = 0; r < many; r++)
            for (int j = 0; j < SAMPLES; j++) y[j * OUT + group + r] = total(sums[r][j]);
    }
}

WAY as_it_is(const float *w, const float *x, float *y) { blocked(4, 0, 4, IN, w, x, y); }
WAY halves(const float *w, const float *x, float *y) { blocked(4, 0, 16, IN / 2, w, x, y); }
WAY quarters(const float *w, const float *x, float *y) { blocked(4, 0, 64, IN / 4, w, x, y); }
WAY eighths(const float *w, const float *x, float *y) { blocked(4, 0, 128, IN / 8, w, x, y); }
WAY prefetched(const float *w, const float *x, float *y) { blocked(4, 1, 4, IN, w, x, y); }
WAY only_read(const float *w, const float *x, float *y) {
    vec sums[8] = {0};
    (void)x;
    for (int64_t k = 0; k < (int64_t)IN * OUT; k += 8 * LANES)
        UNROLL for (int i = 0; i < 8; i++) sums[i] += load(w + k + i * LANES);
    for (int i = 1; i < 8; i++) sums[0] += sums[i];
    y[0] = total(sums[0]);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void) {
    static const struct { const char *name; void (*run)(const float *, const float *, float *); } ways[] = {
        {"as the kernels do it", as_it_is}, {"inputs in 2 blocks", halves}, {"in 4", quarters}, {"in 8", eighths},
        {"the next rows prefetched", prefetched}, {"reading the weights alone", only_read},
    };
    const int count = sizeof ways / sizeof *ways;
    float *w = malloc(4 * (size_t)IN * (OUT + 8)), *x = malloc(4 * IN * SAMPLES), *y = malloc(4 * OUT * SAMPLES), *first = malloc(4 * OUT * SAMPLES);
    char *other = malloc(8 << 20); /* what a step does between two visits of this layer: other memory */
    for (int64_t i = 0; i < (int64_t)IN * (OUT + 8); i++) w[i] = (float)rand() / 1e9f - 1.f;
    for (int i = 0; i < IN * SAMPLES; i++) x[i] = (float)rand() / 1e9f - 1.f;
    as_it_is(w, x, first);
    for (int way = 0; way < count; way++) {
        double least = 1e9, sum = 0;
        for (int turn = 0; turn < REPEATS; turn++) {
            memset(other, turn, 8 << 20);
            const double began = seconds();
            ways[way].run(w, x, y);
            const double took = seconds() - began;
            sum += took;
            if (took < least) least = took;
        }
        const int same = way + 1 == count || !memcmp(y, first, 4 * OUT * SAMPLES);
        printf("%-26s least %.3f ms, mean %.3f ms%s\n", ways[way].name, 1e3 * least, 1e3 * sum / REPEATS, same ? "" : ", other bits");
    }
}
