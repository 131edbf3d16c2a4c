/* One client's SGD on a feed-forward network: convolutions (stride 1) with ReLU and max-pool, then linear layers, softmax
 * cross-entropy. No gradient of a weight is ever stored: the backward pass updates the weights where it computes the step.
 * A network may also be a part of a larger one: then outputs go out and their gradients come in, one batch at a time.
 *
 * Written with the vector extension of GCC and Clang, without reassociation: the order of every sum is the one written here, so
 * the bits depend on this text and the vector width only, never on the batch's neighbours, the worker or the run.
 *
 * Images are kept as (row, column, channel) with the channels padded to whole vectors; weights stay in torch's layout but for
 * convolutions, which are packed when a client begins and unpacked when it ends.
 *
 * What makes it fast: (1) a linear layer is read once forward and once backward, where the input's gradient and the update of a
 * block of rows are made while they are in the cache, and rows whose gradient is zero for the whole batch (dead ReLUs) are not
 * touched at all; (2) behind ReLU and max-pool at most one output in pool x pool has a gradient, so convolutions are
 * differentiated from lists of the outputs that have one; (3) no Python, no allocation, no framework between two steps.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX__) || defined(__AVX512F__)
#define LANES 8 /* not 16: layers of 8 channels are common, and sixteen lanes gain little where the memory is the limit */
#else
#define LANES 4
#endif
#if defined(__AVX512VL__) || defined(__aarch64__) /* 32 registers */
#define MOST_PIXELS 14
#else
#define MOST_PIXELS 6
#endif
#define DEAD 255
#define ROWS 4  /* rows of a weight matrix that are worked on together */
#define FOLD 5  /* samples of a batch that are worked on together */
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint8_t bvec __attribute__((vector_size(LANES), aligned(1), may_alias));

enum { CONV = 1, LINEAR = 2 };

typedef struct { /* what Python says of a layer; mirrored in fast/program.py */
    int32_t kind, cin, cout, kh, kw, ph, pw, h, w, relu, pool, bias;
} Layer;

typedef struct {
    int64_t at; /* where the patch begins in the padded input */
    float g;
} Active;

typedef struct {
    Layer s;
    int cip, cop;               /* channels of input and output, padded */
    int line;                   /* taps of one row of a kernel, padded */
    int oh, ow, uh, uw;         /* rows and columns of pooled outputs; of outputs that the pool looks at */
    int64_t in, out;            /* floats of one sample's (padded) input; of its output */
    float *x, *dx;              /* batch of inputs and their gradients */
    float *y, *dy;              /* batch of outputs and their gradients (last convolution, linear) */
    uint8_t *where;             /* batch of positions in the pool's window, DEAD without gradient */
    float *fwd, *bwd;           /* packed weights: (tap, cout) and (cout, tap) */
    Active *active;             /* (cout, batch * oh * ow) */
    int64_t *counts;             /* entries of each list; of a linear layer, the rows that have a gradient */
    float *w, *b;               /* torch's weights */
    const float *aw, *ab;       /* a constant that every step adds `pull` times, or NULL */
    float *packed_anchor;
} Node;

typedef struct { /* where samples lie and what is done to them first; mirrored in fast/part.py */
    const void *base;
    int64_t sample;   /* numbers of one */
    int32_t bytes;    /* whether they are bytes, else floats */
    int32_t standard; /* whether each gets mean 0 and deviation 1 */
    float divisor;    /* of every number */
    float least;      /* added to the deviation */
} Samples;

typedef struct {
    int n;
    int64_t batch;
    Node *nodes;
    float *scratch; /* one sample's outputs before the pool */
    float *samples; /* a batch of samples on their way from where they are kept */
    float *bias;    /* one layer's, padded */
    float *g, *step; /* gradients of ROWS rows of outputs for a batch, and the same times the learning rate */
    Active *here;   /* one pixel's outputs that have a gradient */
    int64_t bytes;  /* of all that is owned */
    int counting;   /* nothing is allocated: only `bytes` are wanted */
    void **owned;
    int n_owned;
} Net;

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }
INLINE vec splat(float f) { return f - (vec){0}; }
INLINE int64_t whole(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
INLINE float total(vec v) {
    float part[LANES];
    store(part, v);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

static void *own(Net *net, int64_t bytes) {
    void *p = NULL;
    net->bytes += bytes + 64;
    if (net->counting) return net;
    if (posix_memalign(&p, 64, bytes + 64)) return NULL;
    memset(p, 0, bytes + 64);
    net->owned[net->n_owned++] = p;
    return p;
}

void fedgsp_free(Net *net) {
    if (!net) return;
    for (int i = 0; i < net->n_owned; i++) free(net->owned[i]);
    free(net->owned);
    free(net->nodes);
    free(net);
}

/* lay the buffers out; `deep`: whether the gradient of the inputs is wanted as well (of a first layer that is linear) */
static int lay_out(Net *net, const Layer *layers, int n, int64_t batch, int deep) {
    int64_t scratch = 0, channels = LANES;
    for (int i = 0; i < n; i++) {
        Node *o = &net->nodes[i];
        const Layer *s = &layers[i];
        const int last_conv = s->kind == CONV && (i + 1 == n || layers[i + 1].kind != CONV);
        o->s = *s;
        if (s->kind == CONV) {
            const int wide = s->w + 2 * s->pw, high = s->h + 2 * s->ph;
            o->cip = i ? whole(s->cin) : s->cin;
            o->cop = whole(s->cout);
            o->line = whole(s->kw * o->cip);
            o->oh = (high - s->kh + 1) / s->pool;
            o->ow = (wide - s->kw + 1) / s->pool;
            o->uh = o->oh * s->pool;
            o->uw = o->ow * s->pool;
            o->in = (int64_t)high * wide * o->cip;
            o->out = (int64_t)o->oh * o->ow * o->cop;
            const int64_t taps = (int64_t)s->kh * o->line, pooled = batch * o->oh * o->ow;
            if (!(o->x = own(net, 4 * (batch * o->in + LANES)))) return 0;
            if (i && !(o->dx = own(net, 4 * (batch * o->in + LANES)))) return 0;
            if (last_conv && (!(o->y = own(net, 4 * batch * o->out)) || !(o->dy = own(net, 4 * batch * o->out)))) return 0;
            if (!(o->where = own(net, batch * o->out))) return 0;
            if (!(o->fwd = own(net, 4 * taps * o->cop)) || !(o->bwd = own(net, 4 * taps * o->cop))) return 0;
            if (!(o->packed_anchor = own(net, 4 * taps * o->cop))) return 0;
            if (!(o->active = own(net, (int64_t)sizeof *o->active * o->cop * pooled))) return 0;
            if (!(o->counts = own(net, (int64_t)sizeof *o->counts * o->cop))) return 0;
            const int64_t need = 4 * (int64_t)o->uh * o->uw * o->cop;
            if (need > scratch) scratch = need;
            if (o->cop > channels) channels = o->cop;
        } else {
            o->in = s->cin;
            o->out = s->cout;
            if (!(o->x = own(net, 4 * batch * o->in)) || !(o->y = own(net, 4 * batch * o->out))) return 0;
            if (!(o->dy = own(net, 4 * batch * o->out))) return 0;
            if ((i || deep) && !(o->dx = own(net, 4 * batch * o->in))) return 0;
            if (!(o->counts = own(net, (int64_t)sizeof *o->counts * (o->out + ROWS)))) return 0;
        }
    }
    const int64_t sample = layers[0].kind == CONV ? (int64_t)layers[0].cin * layers[0].h * layers[0].w : layers[0].cin;
    return (net->scratch = own(net, scratch)) && (net->samples = own(net, 4 * batch * sample)) &&
           (net->bias = own(net, 4 * channels)) && (net->here = own(net, (int64_t)sizeof *net->here * channels)) &&
           (net->g = own(net, 4 * ROWS * batch)) && (net->step = own(net, 4 * ROWS * batch));
}

static Net *made(const Layer *layers, int n, int64_t batch, int deep, int counting) {
    Net *net = calloc(1, sizeof *net);
    if (!net) return NULL;
    net->n = n;
    net->batch = batch;
    net->counting = counting;
    net->nodes = calloc(n, sizeof *net->nodes);
    net->owned = calloc(12 * n + 6, sizeof *net->owned);
    if (net->nodes && net->owned && lay_out(net, layers, n, batch, deep)) return net;
    fedgsp_free(net);
    return NULL;
}

Net *fedgsp_new(const Layer *layers, int n, int64_t batch, int deep) { return made(layers, n, batch, deep, 0); }

/* what such a network would take, in bytes; -1 if even that cannot be said */
int64_t fedgsp_bytes(const Layer *layers, int n, int64_t batch, int deep) {
    Net *net = made(layers, n, batch, deep, 1);
    const int64_t bytes = net ? net->bytes : -1;
    fedgsp_free(net);
    return bytes;
}

/* ---- convolution ------------------------------------------------------------------------------------------------------ */

INLINE int64_t torch_at(const Layer *s, int co, int y, int x, int ci) {
    return (((int64_t)co * s->cin + ci) * s->kh + y) * s->kw + x;
}

INLINE int64_t packed_at(const Node *o, int co, int y, int x, int ci) {
    return ((int64_t)co * o->s.kh + y) * o->line + x * o->cip + ci;
}

/* (cout, cin, row, column) -> (cout, row, column and cin padded) */
static void pack(const Node *o, const float *torch, float *packed) {
    const Layer *s = &o->s;
    for (int co = 0; co < s->cout; co++)
        for (int y = 0; y < s->kh; y++)
            for (int x = 0; x < s->kw; x++)
                for (int ci = 0; ci < s->cin; ci++) packed[packed_at(o, co, y, x, ci)] = torch[torch_at(s, co, y, x, ci)];
}

static void unpack(const Node *o, const float *packed, float *torch) {
    const Layer *s = &o->s;
    for (int co = 0; co < s->cout; co++)
        for (int y = 0; y < s->kh; y++)
            for (int x = 0; x < s->kw; x++)
                for (int ci = 0; ci < s->cin; ci++) torch[torch_at(s, co, y, x, ci)] = packed[packed_at(o, co, y, x, ci)];
}

/* (cout, row, line) -> (row, line, cout), for the forward pass */
static void turn(const Node *o) {
    const int taps = o->s.kh * o->line, cop = o->cop, cout = o->s.cout;
    for (int t = 0; t < taps; t += 16)
        for (int co = 0; co < cout; co++)
            for (int k = t; k < taps && k < t + 16; k++) o->fwd[(int64_t)k * cop + co] = o->bwd[(int64_t)co * taps + k];
}

/* P neighbouring output pixels, V vectors of output channels */
INLINE void conv_tile(const int P, const int V, const Node *o, const float *x, const float *w, const float *bias, float *z) {
    const Layer *s = &o->s;
    const int cip = o->cip, cop = o->cop, cin = s->cin, wide = (s->w + 2 * s->pw) * cip;
    vec acc[MOST_PIXELS][2];
    UNROLL for (int v = 0; v < V; v++) {
        const vec start = bias ? load(bias + v * LANES) : splat(0.f);
        UNROLL for (int p = 0; p < P; p++) acc[p][v] = start;
    }
    for (int ky = 0; ky < s->kh; ky++)
        for (int kx = 0; kx < s->kw; kx++) {
            const float *at = x + ky * wide + kx * cip, *wt = w + (int64_t)(ky * o->line + kx * cip) * cop;
            for (int ci = 0; ci < cin; ci++, at++, wt += cop) {
                vec weight[2];
                UNROLL for (int v = 0; v < V; v++) weight[v] = load(wt + v * LANES);
                UNROLL for (int p = 0; p < P; p++) {
                    const vec pixel = splat(at[p * cip]);
                    UNROLL for (int v = 0; v < V; v++) acc[p][v] += pixel * weight[v];
                }
            }
        }
    UNROLL for (int p = 0; p < P; p++)
        UNROLL for (int v = 0; v < V; v++) store(z + p * cop + v * LANES, acc[p][v]);
}

INLINE int conv_run(const int V, const Node *o, const float *x, const float *w, const float *bias, float *z, int left) {
#define TILE(P) if (left >= P) { conv_tile(P, V, o, x, w, bias, z); return P; }
#if MOST_PIXELS == 14
    TILE(14) TILE(12) TILE(10) TILE(8)
#endif
    TILE(6) TILE(4) TILE(2) TILE(1)
#undef TILE
    return 0;
}

static void conv_sample(const Node *o, const float *x, const float *bias, float *z) {
    const int cop = o->cop, cip = o->cip, wide = (o->s.w + 2 * o->s.pw) * cip;
    int co = 0;
    for (; co + 2 * LANES <= cop; co += 2 * LANES)
        for (int y = 0; y < o->uh; y++)
            for (int at = 0; at < o->uw;) {
                const float *from = x + y * wide + at * cip;
                at += conv_run(2, o, from, o->fwd + co, bias ? bias + co : NULL, z + ((int64_t)y * o->uw + at) * cop + co, o->uw - at);
            }
    for (; co < cop; co += LANES)
        for (int y = 0; y < o->uh; y++)
            for (int at = 0; at < o->uw;) {
                const float *from = x + y * wide + at * cip;
                at += conv_run(1, o, from, o->fwd + co, bias ? bias + co : NULL, z + ((int64_t)y * o->uw + at) * cop + co, o->uw - at);
            }
}

/* ReLU and max-pool of one sample; remembers which output of a window was the largest (the first of equals, as torch does) */
static void pool_sample(const Node *o, const float *z, float *y, int64_t y_row, uint8_t *where) {
    const int pool = o->s.pool, cop = o->cop, relu = o->s.relu;
    for (int r = 0; r < o->oh; r++)
        for (int c = 0; c < o->ow; c++)
            for (int k = 0; k < cop; k += LANES) {
                const float *window = z + ((int64_t)r * pool * o->uw + c * pool) * cop + k;
                vec best = load(window);
                ivec at = {0};
                for (int q = 1; q < pool * pool; q++) {
                    const vec other = load(window + ((int64_t)(q / pool) * o->uw + q % pool) * cop);
                    const ivec larger = (ivec)(other > best) | (ivec)(other != other); /* a NaN wins, as in torch */
                    const ivec here = (int32_t)q - (ivec){0};
                    at = (larger & here) | (~larger & at);
                    best = (vec)((larger & (ivec)other) | (~larger & (ivec)best));
                }
                if (relu) {
                    const ivec alive = ~(ivec)(best <= splat(0.f)), dead = (int32_t)DEAD - (ivec){0};
                    at = (alive & at) | (~alive & dead);
                    best = (vec)(alive & (ivec)best);
                }
                store(y + r * y_row + c * cop + k, best);
                *(bvec *)(where + ((int64_t)r * o->ow + c) * cop + k) = __builtin_convertvector(at, bvec);
            }
}

static void conv_forward(Net *net, int i, int64_t b) {
    Node *o = &net->nodes[i];
    if (o->s.bias) {
        memset(net->bias, 0, 4 * (size_t)o->cop);
        memcpy(net->bias, o->b, 4 * (size_t)o->s.cout);
    }
    const int onward = i + 1 < net->n && net->nodes[i + 1].s.kind == CONV;
    for (int64_t j = 0; j < b; j++) {
        float *y = o->y + j * o->out;
        int64_t row = (int64_t)o->ow * o->cop;
        if (onward) {
            const Node *next = &net->nodes[i + 1];
            row = (int64_t)(next->s.w + 2 * next->s.pw) * next->cip;
            y = next->x + j * next->in + next->s.ph * row + next->s.pw * next->cip;
        }
        conv_sample(o, o->x + j * o->in, o->s.bias ? net->bias : NULL, net->scratch);
        pool_sample(o, net->scratch, y, row, o->where + j * o->out);
    }
}

/* the sum of g * from over a list, for V neighbouring vectors of K rows */
INLINE void gather(const int K, const int V, vec *acc, const float *base, int64_t row, const Active *list, int64_t n) {
    UNROLL for (int v = 0; v < K * V; v++) acc[v] = splat(0.f);
    for (int64_t k = 0; k < n; k++) {
        const float *from = base + list[k].at;
        const vec g = splat(list[k].g);
        UNROLL for (int y = 0; y < K; y++)
            UNROLL for (int v = 0; v < V; v++) acc[y * V + v] += g * load(from + y * row + v * LANES);
    }
}

/* w - (shrink w - pull a): what is taken away is small beside w, so that little is lost */
INLINE vec drawn(vec w, const float *anchor, float shrink, float pull) {
    if (anchor) return w - (splat(shrink) * w - splat(pull) * load(anchor));
    if (shrink != 0.f) return w - splat(shrink) * w;
    return w;
}
INLINE float drawn_one(float w, const float *anchor, float shrink, float pull) {
    if (anchor) return w - (shrink * w - pull * *anchor);
    if (shrink != 0.f) return w - shrink * w;
    return w;
}

INLINE void step_row(const int V, const vec *acc, float *w, const float *anchor, float lr, float shrink, float pull) {
    UNROLL for (int v = 0; v < V; v++) {
        const vec row = drawn(load(w + v * LANES), anchor ? anchor + v * LANES : NULL, shrink, pull);
        store(w + v * LANES, row - splat(lr) * acc[v]);
    }
}

#define BY_VECTORS(RUN) RUN(10) RUN(6) RUN(5) RUN(4) RUN(2) RUN(1)

/* gradient of the inputs (with the weights as they were) and lists of the outputs that have a gradient */
static void conv_input_gradient(const Net *net, Node *o, int64_t b, const float *dy, int64_t dy_sample, int64_t dy_row) {
    const Layer *s = &o->s;
    const int cop = o->cop, pool = s->pool, windows = pool * pool, line = o->line;
    const int64_t wide = (int64_t)(s->w + 2 * s->pw) * o->cip, taps = (int64_t)s->kh * line;
    const int64_t most = (int64_t)b * o->oh * o->ow;
    Active *here = net->here;
    int first[DEAD + 1];
    memset(o->dx, 0, 4 * b * o->in);
    memset(o->counts, 0, sizeof *o->counts * cop);
    for (int64_t j = 0; j < b; j++)
        for (int r = 0; r < o->oh; r++)
            for (int c = 0; c < o->ow; c++) {
                const uint8_t *mark = o->where + j * o->out + ((int64_t)r * o->ow + c) * cop;
                const float *g = dy + j * dy_sample + r * dy_row + (int64_t)c * cop;
                memset(first, 0, sizeof *first * (windows + 1));
                for (int k = 0; k < s->cout; k++)
                    if (mark[k] != DEAD && g[k] != 0.f) first[mark[k] + 1]++;
                for (int q = 0; q < windows; q++) first[q + 1] += first[q];
                for (int k = 0; k < s->cout; k++)
                    if (mark[k] != DEAD && g[k] != 0.f) {
                        const int q = mark[k];
                        const int64_t at = j * o->in + (int64_t)(r * pool + q / pool) * wide + (c * pool + q % pool) * o->cip;
                        here[first[q]++] = (Active){k * taps, g[k]};
                        o->active[k * most + o->counts[k]++] = (Active){at, g[k]};
                    }
                for (int q = 0, begin = 0; q < windows; begin = first[q], q++) {
                    const int n = first[q] - begin;
                    if (!n) continue;
                    float *to = o->dx + j * o->in + (int64_t)(r * pool + q / pool) * wide + (c * pool + q % pool) * o->cip;
                    for (int ky = 0; ky < s->kh; ky++)
                        for (int done = 0; done < line;) {
                            float *part = to + ky * wide + done;
                            const int64_t shift = (int64_t)ky * line + done;
                            const int left = (line - done) / LANES;
#define RUN(V) if (left >= V) { \
    vec acc[V]; \
    gather(1, V, acc, o->bwd + shift, 0, here + begin, n); \
    UNROLL for (int v = 0; v < V; v++) store(part + v * LANES, load(part + v * LANES) + acc[v]); \
    done += V * LANES; continue; }
                            BY_VECTORS(RUN)
#undef RUN
                        }
                }
            }
}

/* the same lists where no gradient of the inputs is wanted */
static void conv_list(Node *o, int64_t b, const float *dy, int64_t dy_sample, int64_t dy_row) {
    const int cop = o->cop, pool = o->s.pool, cout = o->s.cout;
    const int64_t wide = (int64_t)(o->s.w + 2 * o->s.pw) * o->cip, most = (int64_t)b * o->oh * o->ow;
    int64_t shift[DEAD];
    for (int q = 0; q < pool * pool; q++) shift[q] = (q / pool) * wide + (q % pool) * o->cip;
    memset(o->counts, 0, sizeof *o->counts * cop);
    for (int64_t j = 0; j < b; j++)
        for (int r = 0; r < o->oh; r++)
            for (int c = 0; c < o->ow; c++) {
                const uint8_t *mark = o->where + j * o->out + ((int64_t)r * o->ow + c) * cop;
                const float *g = dy + j * dy_sample + r * dy_row + (int64_t)c * cop;
                const int64_t at = j * o->in + (int64_t)r * pool * wide + c * pool * o->cip;
                for (int k = 0; k < cout; k++)
                    if (mark[k] != DEAD) o->active[k * most + o->counts[k]++] = (Active){at + shift[mark[k]], g[k]};
            }
}

/* the step itself, from the lists */
static void conv_step(Node *o, int64_t b, float lr, float shrink, float pull) {
    const Layer *s = &o->s;
    const int line = o->line;
    const int64_t wide = (int64_t)(s->w + 2 * s->pw) * o->cip, taps = (int64_t)s->kh * line;
    const int64_t most = (int64_t)b * o->oh * o->ow;
    for (int co = 0; co < s->cout; co++) {
        const Active *list = o->active + co * most;
        const int64_t n = o->counts[co];
        if (o->b) {
            float sum = 0.f;
            for (int64_t k = 0; k < n; k++) sum += list[k].g;
            o->b[co] = drawn_one(o->b[co], o->ab ? o->ab + co : NULL, shrink, pull) - lr * sum;
        }
        if (!n && shrink == 0.f && !o->aw) continue;
        for (int ky = 0; ky < s->kh;) {
            const int rows = s->kh - ky;
            for (int done = 0; done < line;) {
                float *w = o->bwd + co * taps + (int64_t)ky * line + done;
                const float *anchor = o->aw ? o->packed_anchor + (w - o->bwd) : NULL, *x = o->x + ky * wide + done;
                const int left = (line - done) / LANES;
#define RUN(K, V) { \
    vec acc[K * V]; \
    gather(K, V, acc, x, wide, list, n); \
    for (int y = 0; y < K; y++) step_row(V, acc + y * V, w + y * line, anchor ? anchor + y * line : NULL, lr, shrink, pull); \
    done += V * LANES; \
    if (done >= line) ky += K; \
    continue; }
                /* one vector a row: several rows at once, since one sum alone waits for itself */
                if (line == LANES && rows >= 5) RUN(5, 1)
                if (line == LANES && rows >= 3) RUN(3, 1)
                if (left >= 10) RUN(1, 10)
                if (left >= 6) RUN(1, 6)
                if (left >= 5) RUN(1, 5)
                if (left >= 4) RUN(1, 4)
                if (left >= 2) RUN(1, 2)
                RUN(1, 1)
#undef RUN
            }
        }
    }
    turn(o);
}

/* ---- linear ------------------------------------------------------------------------------------------------------------ */

/* R rows times N samples: y = W x */
INLINE void linear_tile(const int R, const int N, int64_t in, const float *w, const float *x, float (*out)[FOLD]) {
    vec acc[ROWS][FOLD];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int j = 0; j < N; j++) acc[r][j] = splat(0.f);
    int64_t k = 0;
    for (; k + LANES <= in; k += LANES) {
        vec row[ROWS];
        UNROLL for (int r = 0; r < R; r++) row[r] = load(w + r * in + k);
        UNROLL for (int j = 0; j < N; j++) {
            const vec sample = load(x + j * in + k);
            UNROLL for (int r = 0; r < R; r++) acc[r][j] += row[r] * sample;
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int j = 0; j < N; j++) {
            float tail = 0.f;
            for (int64_t t = k; t < in; t++) tail += w[r * in + t] * x[j * in + t];
            out[r][j] = total(acc[r][j]) + tail;
        }
}

static void linear_forward(Node *o, int64_t b) {
    const int64_t in = o->in, out = o->out;
    for (int64_t r = 0; r < out; r += ROWS) {
        const int rows = out - r < ROWS ? (int)(out - r) : ROWS;
        for (int64_t j = 0; j < b;) {
            const float *x = o->x + j * in;
            const int64_t left = b - j;
            int took = 0;
            float part[ROWS][FOLD];
#define RUN(N) if (!took && left >= N) { \
    if (rows == ROWS) linear_tile(ROWS, N, in, o->w + r * in, x, part); \
    else for (int q = 0; q < rows; q++) linear_tile(1, N, in, o->w + (r + q) * in, x, part + q); \
    took = N; }
            RUN(5) RUN(4) RUN(3) RUN(2) RUN(1)
#undef RUN
            for (int q = 0; q < rows; q++)
                for (int n = 0; n < took; n++) {
                    const float value = part[q][n] + (o->b ? o->b[r + q] : 0.f);
                    o->y[(j + n) * out + r + q] = o->s.relu && value <= 0.f ? 0.f : value;
                }
            j += took;
        }
    }
}

/* dx += g W for R rows and N samples; g has `stride` values a row */
INLINE void spread_tile(const int R, const int N, int64_t in, float *const *w, const float *g, int64_t stride, float *dx) {
    int64_t k = 0;
    for (; k + LANES <= in; k += LANES) {
        vec row[ROWS];
        UNROLL for (int r = 0; r < R; r++) row[r] = load(w[r] + k);
        UNROLL for (int j = 0; j < N; j++) {
            vec sum = load(dx + j * in + k);
            UNROLL for (int r = 0; r < R; r++) sum += splat(g[r * stride + j]) * row[r];
            store(dx + j * in + k, sum);
        }
    }
    for (; k < in; k++)
        UNROLL for (int j = 0; j < N; j++)
            UNROLL for (int r = 0; r < R; r++) dx[j * in + k] += g[r * stride + j] * w[r][k];
}

INLINE void spread(const int R, int64_t b, int64_t in, float *const *w, const float *g, float *dx) {
    int64_t j = 0;
    for (; j + FOLD <= b; j += FOLD) spread_tile(R, FOLD, in, w, g + j, b, dx + j * in);
    for (; j < b; j++) spread_tile(R, 1, in, w, g + j, b, dx + j * in);
}

/* W <- W - shrink W + pull A - sum of g x, for R rows and b samples; g has b values a row */
INLINE void update_tile(const int R, const int64_t b, int64_t in, float *const *w, const float *const *anchor, const float *g,
                        const float *x, float shrink, float pull) {
    int64_t k = 0;
    for (; k + LANES <= in; k += LANES) {
        vec sum[ROWS];
        UNROLL for (int r = 0; r < R; r++) sum[r] = splat(0.f);
        for (int64_t j = 0; j < b; j++) {
            const vec sample = load(x + j * in + k);
            UNROLL for (int r = 0; r < R; r++) sum[r] += splat(g[r * b + j]) * sample;
        }
        UNROLL for (int r = 0; r < R; r++) {
            store(w[r] + k, drawn(load(w[r] + k), anchor ? anchor[r] + k : NULL, shrink, pull) - sum[r]);
        }
    }
    for (; k < in; k++)
        UNROLL for (int r = 0; r < R; r++) {
            float sum = 0.f;
            for (int64_t j = 0; j < b; j++) sum += g[r * b + j] * x[j * in + k];
            w[r][k] = drawn_one(w[r][k], anchor ? anchor[r] + k : NULL, shrink, pull) - sum;
        }
}

static void linear_backward(const Net *net, Node *o, int64_t b, float lr, float shrink, float pull) {
    const int64_t in = o->in, out = o->out;
    int64_t *rows = o->counts;
    int64_t n = 0;
    const int every = shrink != 0.f || o->aw;
    for (int64_t r = 0; r < out; r++) {
        int any = every;
        float sum = 0.f;
        for (int64_t j = 0; j < b; j++) {
            const float g = o->dy[j * out + r];
            any |= g != 0.f;
            sum += g;
        }
        if (any) rows[n++] = r;
        if (o->b && any) o->b[r] = drawn_one(o->b[r], o->ab ? o->ab + r : NULL, shrink, pull) - lr * sum;
    }
    if (o->dx) memset(o->dx, 0, 4 * b * in);
    float *const g = net->g, *const step = net->step;
    for (int64_t at = 0; at < n; at += ROWS) {
        const int many = n - at < ROWS ? (int)(n - at) : ROWS;
        float *w[ROWS];
        const float *anchors[ROWS], *const *anchor = o->aw ? anchors : NULL;
        for (int q = 0; q < many; q++) {
            w[q] = o->w + rows[at + q] * in;
            if (o->aw) anchors[q] = o->aw + rows[at + q] * in;
            for (int64_t j = 0; j < b; j++) {
                g[q * b + j] = o->dy[j * out + rows[at + q]];
                step[q * b + j] = lr * g[q * b + j];
            }
        }
#define RUN(R) { \
    if (o->dx) spread(R, b, in, w, g, o->dx); \
    if (b == FOLD) update_tile(R, FOLD, in, w, anchor, step, o->x, shrink, pull); \
    else update_tile(R, b, in, w, anchor, step, o->x, shrink, pull); }
        if (many == ROWS) RUN(ROWS)
        else for (int q = 0; q < many; q++) {
            float **const w_all = w;
            const float *const g_all = g, *const step_all = step;
            float *const *w = w_all + q;
            const float *g = g_all + q * b, *step = step_all + q * b, *const *anchor = o->aw ? anchors + q : NULL;
            RUN(1)
        }
#undef RUN
    }
}

/* ---- the network ------------------------------------------------------------------------------------------------------- */

/* point at torch's weights: params and anchors are weight, bias (or NULL) of every layer in turn */
void fedgsp_begin(Net *net, float *const *params, const float *const *anchors) {
    for (int i = 0; i < net->n; i++) {
        Node *o = &net->nodes[i];
        o->w = params[2 * i];
        o->b = params[2 * i + 1];
        o->aw = anchors ? anchors[2 * i] : NULL;
        o->ab = anchors ? anchors[2 * i + 1] : NULL;
        if (o->s.kind == CONV) {
            pack(o, o->w, o->bwd);
            if (o->aw) pack(o, o->aw, o->packed_anchor);
            turn(o);
        }
    }
}

/* the sum of many numbers is not finite if one of them is not */
static int all_finite(const float *values, int64_t n) {
    vec sums = splat(0.f);
    float rest = 0.f;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) sums += load(values + k);
    for (; k < n; k++) rest += values[k];
    return isfinite(total(sums) + rest);
}

/* bring the convolutions back into torch's layout; whether all weights are finite */
int fedgsp_end(Net *net) {
    int finite = 1;
    for (int i = 0; i < net->n; i++) {
        const Node *o = &net->nodes[i];
        const Layer *s = &o->s;
        if (s->kind == CONV) unpack(o, o->bwd, o->w);
        finite &= all_finite(o->w, s->kind == CONV ? (int64_t)s->cout * s->cin * s->kh * s->kw : o->in * o->out);
        if (o->b) finite &= all_finite(o->b, s->cout);
    }
    return finite;
}

/* samples come as torch has them: (channel, row, column) */
static void take(Net *net, const float *x, int64_t b) {
    Node *o = &net->nodes[0];
    const Layer *s = &o->s;
    if (s->kind != CONV) {
        memcpy(o->x, x, 4 * b * o->in);
        return;
    }
    const int64_t wide = (int64_t)(s->w + 2 * s->pw) * o->cip, pixels = (int64_t)s->h * s->w;
    for (int64_t j = 0; j < b; j++)
        for (int y = 0; y < s->h; y++) {
            float *to = o->x + j * o->in + (y + s->ph) * wide + s->pw * o->cip;
            const float *from = x + (j * s->cin) * pixels + (int64_t)y * s->w;
            for (int c = 0; c < s->w; c++)
                for (int ci = 0; ci < s->cin; ci++) to[c * o->cip + ci] = from[ci * pixels + c];
        }
}

/* (row, column, channel padded) <-> torch's flat (channel, row, column) */
static void flatten(const Node *o, float *flat, float *image, int64_t b, int back) {
    const int64_t pixels = (int64_t)o->oh * o->ow, n = pixels * o->s.cout;
    for (int64_t j = 0; j < b; j++)
        for (int64_t p = 0; p < pixels; p++)
            for (int k = 0; k < o->s.cout; k++) {
                float *a = flat + j * n + k * pixels + p, *i = image + j * o->out + p * o->cop + k;
                if (back) *i = *a;
                else *a = *i;
            }
}

static void run_forward(Net *net, int64_t b) {
    for (int i = 0; i < net->n; i++) {
        Node *o = &net->nodes[i], *next = i + 1 < net->n ? o + 1 : NULL;
        if (o->s.kind == CONV) {
            conv_forward(net, i, b);
            if (next && next->s.kind == LINEAR) flatten(o, next->x, o->y, b, 0);
        } else {
            linear_forward(o, b);
            if (next) memcpy(next->x, o->y, 4 * b * o->out);
        }
    }
}

static void run_backward(Net *net, int64_t b, float lr, float shrink, float pull) {
    for (int i = net->n - 1; i >= 0; i--) {
        Node *o = &net->nodes[i], *before = i ? o - 1 : NULL;
        if (o->s.kind == LINEAR) {
            linear_backward(net, o, b, lr, shrink, pull);
            if (before && before->s.kind == CONV) flatten(before, o->dx, before->dy, b, 1);
            else if (before)
                for (int64_t k = 0; k < b * o->in; k++) before->dy[k] = before->s.relu && o->x[k] <= 0.f ? 0.f : o->dx[k];
            continue;
        }
        const Node *next = i + 1 < net->n && net->nodes[i + 1].s.kind == CONV ? o + 1 : NULL;
        const float *dy = o->dy;
        int64_t sample = o->out, row = (int64_t)o->ow * o->cop;
        if (next) {
            sample = next->in;
            row = (int64_t)(next->s.w + 2 * next->s.pw) * next->cip;
            dy = next->dx + next->s.ph * row + next->s.pw * next->cip;
        }
        if (i) conv_input_gradient(net, o, b, dy, sample, row);
        else conv_list(o, b, dy, sample, row);
        conv_step(o, b, lr, shrink, pull);
    }
}

/* the sum of the losses of b rows of outputs, and the gradient of their mean */
static double softmax_loss(const float *outputs, float *slopes, int64_t classes, const int64_t *labels, int64_t b) {
    double sum = 0.;
    for (int64_t j = 0; j < b; j++) {
        const float *y = outputs + j * classes;
        float *g = slopes + j * classes, most = y[0], norm = 0.f;
        for (int64_t k = 1; k < classes; k++) most = y[k] > most ? y[k] : most;
        for (int64_t k = 0; k < classes; k++) norm += g[k] = expf(y[k] - most);
        sum += logf(norm) - (y[labels[j]] - most);
        for (int64_t k = 0; k < classes; k++) g[k] = (g[k] / norm - (k == labels[j])) / b;
    }
    return sum;
}

/* a step is  w <- w - shrink w + pull a - lr (gradient): how much is lost to weight decay and a pull of strength mu */
static float lost(float lr, float decay, float mu) { return (float)((double)lr * ((double)decay + mu)); }

static double step(Net *net, const int64_t *labels, int64_t b, float lr, float shrink, float pull) {
    Node *last = &net->nodes[net->n - 1];
    run_forward(net, b);
    const double sum = softmax_loss(last->y, last->dy, last->out, labels, b);
    run_backward(net, b, lr, shrink, pull);
    return sum;
}

/* SGD over n samples in the order given, `size` a step; returns the sum of the losses met on the way */
double fedgsp_train(Net *net, const float *x, const int64_t *labels, int64_t n, int64_t sample, int64_t size, float lr, float decay,
                    float mu, float constant) {
    const float shrink = lost(lr, decay, mu), pull = lr * constant;
    double sum = 0.;
    for (int64_t at = 0; at < n; at += size) {
        const int64_t b = n - at < size ? n - at : size;
        take(net, x + at * sample, b);
        sum += step(net, labels + at, b, lr, shrink, pull);
    }
    return sum;
}

static void standardise(float *x, int64_t n, float least) {
    double sums[4] = {0., 0., 0., 0.}; /* in double, so that a blank sample becomes zero */
    vec squares = splat(0.f);
    float square = 0.f;
    int64_t k = 0;
    for (; k + 4 <= n; k += 4)
        UNROLL for (int i = 0; i < 4; i++) sums[i] += x[k + i];
    for (; k < n; k++) sums[0] += x[k];
    const float mean = (float)(((sums[0] + sums[1]) + (sums[2] + sums[3])) / n);
    for (k = 0; k + LANES <= n; k += LANES) {
        const vec centred = load(x + k) - splat(mean);
        store(x + k, centred);
        squares += centred * centred;
    }
    for (; k < n; k++) {
        x[k] -= mean;
        square += x[k] * x[k];
    }
    const float deviation = sqrtf((total(squares) + square) / n) + least;
    for (k = 0; k < n; k++) x[k] /= deviation;
}

/* one sample from where it is kept, as the first layer wants it */
static void fetch(const Samples *from, int64_t row, float *to) {
    const int64_t n = from->sample;
    if (from->bytes) {
        const uint8_t *stored = (const uint8_t *)from->base + row * n;
        for (int64_t k = 0; k < n; k++) to[k] = (float)stored[k];
    } else
        memcpy(to, (const float *)from->base + row * n, 4 * n);
    if (from->divisor != 1.f)
        for (int64_t k = 0; k < n; k++) to[k] /= from->divisor;
    if (from->standard) standardise(to, n, from->least);
}

void fedgsp_fetch(const Samples *from, const int64_t *rows, int64_t n, float *to) {
    for (int64_t j = 0; j < n; j++) fetch(from, rows[j], to + j * from->sample);
}

/* the same over the samples in these rows, which are read where they are kept */
double fedgsp_train_rows(Net *net, const Samples *from, const int64_t *rows, const int64_t *labels, int64_t n, int64_t size, float lr,
                         float decay, float mu, float constant) {
    const float shrink = lost(lr, decay, mu), pull = lr * constant;
    double sum = 0.;
    for (int64_t at = 0; at < n; at += size) {
        const int64_t b = n - at < size ? n - at : size;
        for (int64_t j = 0; j < b; j++) fetch(from, rows[at + j], net->samples + j * from->sample);
        take(net, net->samples, b);
        sum += step(net, labels + at, b, lr, shrink, pull);
    }
    return sum;
}

/* outputs as torch has them; what the last batch left behind is what `fedgsp_backward` goes by */
void fedgsp_forward(Net *net, const float *x, int64_t n, int64_t sample, float *outputs) {
    const Node *last = &net->nodes[net->n - 1];
    const int image = last->s.kind == CONV;
    const int64_t out = image ? (int64_t)last->oh * last->ow * last->s.cout : last->out;
    for (int64_t at = 0; at < n; at += net->batch) {
        const int64_t b = n - at < net->batch ? n - at : net->batch;
        take(net, x + at * sample, b);
        run_forward(net, b);
        if (image) flatten(last, outputs + at * out, last->y, b, 0);
        else memcpy(outputs + at * out, last->y, 4 * b * out);
    }
}

double fedgsp_loss(const float *outputs, float *slopes, int64_t classes, const int64_t *labels, int64_t b) {
    return softmax_loss(outputs, slopes, classes, labels, b);
}

/* the step of the batch that went forward last, from the gradients of its outputs; those of its inputs go to dx, if wanted */
void fedgsp_backward(Net *net, float *slopes, int64_t b, float lr, float decay, float mu, float constant, float *dx) {
    Node *first = &net->nodes[0], *last = &net->nodes[net->n - 1];
    if (last->s.kind == CONV) flatten(last, slopes, last->dy, b, 1);
    else
        for (int64_t k = 0; k < b * last->out; k++) last->dy[k] = last->s.relu && last->y[k] <= 0.f ? 0.f : slopes[k];
    run_backward(net, b, lr, lost(lr, decay, mu), lr * constant);
    if (dx) memcpy(dx, first->dx, 4 * b * first->in);
}
