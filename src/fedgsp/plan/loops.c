/* The inner loops of grouping. Each has a twin in NumPy (transport.py, exchange.py, halves.py) that takes the same decisions in the
 * same order on the same doubles, ties included, and so gives the same bits: hence no fused multiply-add (-ffp-contract=off).
 * All return -1 where there is no memory, and have then changed nothing. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double eight __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t eight_whole __attribute__((vector_size(64)));

/* The first of the least of `n` numbers, where n is a multiple of 8. */
static size_t first_of_least(const double *values, size_t n)
{
    eight least = *(const eight *)values;
    for (size_t i = 8; i < n; i += 8) {
        const eight other = *(const eight *)(values + i);
        const eight_whole less = other < least;
        least = (eight)((less & (eight_whole)other) | (~less & (eight_whole)least));
    }
    double lowest = least[0];
    for (int i = 1; i < 8; i++)
        lowest = least[i] < lowest ? least[i] : lowest;
    size_t at = 0;
    while (values[at] != lowest)
        at++;
    return at;
}

/* What it would cost to move one more point to each cluster, where that is the cheapest so far; of equally cheap ones the first. */
static void offer(const double *restrict row, double own, int64_t point, size_t n, double *restrict extra, int64_t *restrict mover)
{
    for (size_t other = 0; other < n; other++) {
        const double price = row[other] - own;
        const int better = (price < extra[other]) | ((price == extra[other]) & (point < mover[other]));
        extra[other] = better ? price : extra[other];
        mover[other] = better ? point : mover[other];
    }
}

#define FEW_CLUSTERS 16 /* up to so many, the next cheapest of many members comes off a heap; of few members all are looked at */

typedef struct {
    double extra; /* what it costs on top to move this point */
    int64_t point;
} Move;

/* The moves from one cluster to another, the cheapest on top, of equally cheap ones the first; also of points that have left. */
typedef struct {
    Move *moves;
    int64_t n, most;
} Heap;

static inline int cheaper(Move one, Move other)
{
    return one.extra < other.extra || (one.extra == other.extra && one.point < other.point);
}

static void sink(Heap *heap, int64_t at)
{
    const Move move = heap->moves[at];
    for (int64_t child; (child = 2 * at + 1) < heap->n; at = child) {
        child += child + 1 < heap->n && cheaper(heap->moves[child + 1], heap->moves[child]);
        if (!cheaper(heap->moves[child], move))
            break;
        heap->moves[at] = heap->moves[child];
    }
    heap->moves[at] = move;
}

/* All moves from a cluster with these members. */
static void fill(Heap *heap, const double *cost, size_t L, const int64_t *members, int64_t n, int64_t source, size_t other)
{
    for (heap->n = 0; heap->n < n; heap->n++) {
        const double *row = cost + (size_t)members[heap->n] * L;
        heap->moves[heap->n] = (Move){row[other] - row[source], members[heap->n]};
    }
    for (int64_t at = n / 2 - 1; at >= 0; at--)
        sink(heap, at);
}

static void push(Heap *heap, Move move)
{
    int64_t at = heap->n++;
    for (; at && cheaper(move, heap->moves[(at - 1) / 2]); at = (at - 1) / 2)
        heap->moves[at] = heap->moves[(at - 1) / 2];
    heap->moves[at] = move;
}

/* The cheapest move of a point that is still in the cluster. */
static Move top(Heap *heap, const int64_t *labels, int64_t source)
{
    while (heap->n && labels[heap->moves[0].point] != source) {
        heap->moves[0] = heap->moves[--heap->n];
        if (heap->n)
            sink(heap, 0);
    }
    return heap->n ? heap->moves[0] : (Move){INFINITY, -1};
}

/* Ways that go on from a cluster that was reached, to all others. */
static void go_on(const double *restrict out, const double *restrict prices, double price, double reached, int64_t from, size_t n,
                  double *restrict distance, double *restrict unsettled, int64_t *restrict parent)
{
    for (size_t other = 0; other < n; other++) {
        const double length = out[other] + (prices[other] - price);
        const double through = reached + (length > 0.0 ? length : 0.0);
        const int shorter = through < distance[other];
        distance[other] = shorter ? through : distance[other];
        unsettled[other] = shorter ? through : unsettled[other];
        parent[other] = shorter ? from : parent[other];
    }
}

/* Move points along cheapest paths, changing labels (n) and prices (L), until each cluster has `size` points. At the start
 * every point must be where cost + price is least for it. See transport.py. */
int64_t fedgsp_level(const double *cost, int64_t *labels, double *prices, int64_t points, int64_t clusters, int64_t size)
{
    const size_t n = (size_t)points, L = (size_t)clusters, P = (L + 7) / 8 * 8; /* rows are padded to whole vectors */
    double *extra = malloc(L * P * sizeof *extra);   /* what the cheapest move from one cluster to another costs on top */
    int64_t *mover = malloc(L * P * sizeof *mover);  /* and which point it moves: of equally cheap ones the first */
    double *distance = malloc(3 * P * sizeof *distance); /* with unsettled and paid */
    int64_t *parent = malloc(3 * P * sizeof *parent);    /* with load and begin */
    int64_t *members = malloc((3 * n + L) * sizeof *members); /* of each cluster from `begin` on; with each point's place there */
    const int by_heaps = L <= FEW_CLUSTERS;
    Heap *heaps = by_heaps ? calloc(L * L, sizeof *heaps) : NULL; /* filled when one is first asked */
    Move *moves = NULL;
    int64_t moved = -1;
    if (!extra || !mover || !distance || !parent || !members || (by_heaps && !heaps))
        goto done;
    double *unsettled = distance + P, *paid = distance + 2 * P;
    int64_t *load = parent + P, *begin = parent + 2 * P, *place = members + 2 * n + L;
    memset(load, 0, P * sizeof *load);
    for (size_t i = 0; i < L * P; i++)
        extra[i] = INFINITY, mover[i] = -1;
    for (size_t c = 0; c < P; c++)
        paid[c] = c < L ? prices[c] : 0.0, unsettled[c] = distance[c] = INFINITY;
    for (size_t point = 0; point < n; point++)
        load[labels[point]]++;
    for (size_t c = 0, at = 0; c < L; c++) { /* a cluster never has more points than now, or one more than it should have */
        begin[c] = (int64_t)at;
        at += (size_t)(load[c] > size ? load[c] : size) + 1;
        load[c] = 0;
    }
    if (by_heaps) { /* twice as many as a cluster has points: then those of points that left are cleared out */
        moves = malloc(2 * (2 * n + L) * L * sizeof *moves);
        if (!moves)
            goto done;
        for (size_t c = 0, at = 0; c < L; c++)
            for (size_t other = 0; other < L; other++) {
                heaps[c * L + other].most = 2 * (int64_t)((c + 1 < L ? (size_t)begin[c + 1] : 2 * n + L) - (size_t)begin[c]);
                heaps[c * L + other].moves = moves + at;
                at += (size_t)heaps[c * L + other].most;
            }
    }
    for (size_t point = 0; point < n; point++) {
        const int64_t own = labels[point];
        place[point] = begin[own] + load[own]++;
        members[place[point]] = (int64_t)point;
        offer(cost + point * L, cost[point * L + (size_t)own], (int64_t)point, L, extra + own * (int64_t)P, mover + own * (int64_t)P);
    }
    for (moved = 0;; moved++) {
        int overfull = 0;
        for (size_t c = 0; c < L; c++) {
            parent[c] = -1;
            unsettled[c] = distance[c] = load[c] > size ? 0.0 : INFINITY;
            overfull |= load[c] > size;
        }
        if (!overfull)
            break;
        size_t nearest;
        for (;;) { /* Dijkstra from all overfull clusters to the nearest one with room */
            nearest = first_of_least(unsettled, P);
            if (load[nearest] < size)
                break;
            unsettled[nearest] = INFINITY;
            go_on(extra + nearest * P, paid, paid[nearest], distance[nearest], (int64_t)nearest, P, distance, unsettled, parent);
        }
        const double reached = distance[nearest];
        for (size_t c = 0; c < L; c++)
            paid[c] = paid[c] + (reached - (distance[c] < reached ? distance[c] : reached));
        load[nearest]++;
        int64_t target = (int64_t)nearest, room = begin[target] + load[target] - 1;
        while (parent[target] >= 0) {
            const int64_t source = parent[target], point = mover[source * (int64_t)P + target];
            const int64_t hole = place[point], last = begin[source] + load[source] - 1;
            members[hole] = members[last]; /* the last member takes its place, and the next point comes where that was */
            place[members[hole]] = hole;
            members[room] = point;
            place[point] = room;
            room = last;
            labels[point] = target;
            double *leaving = extra + source * (int64_t)P;
            int64_t *leaves = mover + source * (int64_t)P;
            for (size_t other = 0; other < L; other++) {
                if (leaves[other] != point)
                    continue;
                if (by_heaps) {
                    Heap *heap = heaps + (size_t)source * L + other;
                    if (!heap->n)
                        fill(heap, cost, L, members + begin[source], last - begin[source], source, other);
                    const Move next = top(heap, labels, source);
                    leaving[other] = next.extra;
                    leaves[other] = next.point;
                    continue;
                }
                double best = INFINITY; /* the source must find another cheapest one */
                int64_t found = -1;
                for (int64_t at = begin[source]; at < last; at++) {
                    const int64_t member = members[at];
                    const double *row = cost + (size_t)member * L;
                    const double price = row[other] - row[source];
                    if (price < best || (price == best && member < found)) {
                        best = price;
                        found = member;
                    }
                }
                leaving[other] = best;
                leaves[other] = found;
            }
            const double *row = cost + (size_t)point * L;
            offer(row, row[target], point, L, extra + target * (int64_t)P, mover + target * (int64_t)P);
            for (size_t other = 0; by_heaps && other < L; other++) {
                Heap *heap = heaps + (size_t)target * L + other;
                if (heap->n == heap->most)
                    heap->n = 0; /* filled again when it is asked */
                else if (heap->n)
                    push(heap, (Move){row[other] - row[target], point});
            }
            target = source;
        }
        load[target]--;
    }
    memcpy(prices, paid, L * sizeof *prices);
done:
    free(extra), free(mover), free(distance), free(parent), free(members), free(heaps), free(moves);
    return moved;
}

/* Visit clients and swap each with its best partner, changing labels (P) and pull (M, P); see exchange.py. gram (P, P) are the
 * products of vectors, pull those with the groups' sums; places from `clients` on are empty. Returns the number of swaps. */
int64_t fedgsp_exchange(const double *gram, double *pull, int64_t *labels, const int64_t *visits, const double *limits,
                        int64_t steps, int64_t places, int64_t groups, int64_t clients)
{
    const size_t P = (size_t)places;
    double *squares = malloc(2 * P * sizeof *squares), *leaving = squares + P; /* what is lost when each leaves its group */
    char *has_empty = calloc((size_t)groups, 1);
    int64_t swaps = -1;
    if (!squares || !has_empty)
        goto done;
    swaps = 0;
    for (int64_t place = clients; place < places; place++)
        has_empty[labels[place]] = 1;
    for (size_t place = 0; place < P; place++) {
        squares[place] = gram[place * P + place];
        leaving[place] = squares[place] - pull[(size_t)labels[place] * P + place];
    }
    for (int64_t step = 0; step < steps; step++) {
        const size_t client = (size_t)visits[step];
        const int64_t home = labels[client], looked = has_empty[home] ? clients : places;
        const double *own = gram + client * P;
        double *mine = pull + (size_t)home * P;
        double best = INFINITY;
        int64_t other = -1;
        for (int64_t place = 0; place < looked; place++) {
            const int64_t away = labels[place];
            if (away == home)
                continue;
            const double change = mine[place] + leaving[place] + pull[(size_t)away * P + client] - 2 * own[place];
            if (change < best) {
                best = change;
                other = place;
            }
        }
        if (other < 0 || !(best + (squares[client] - mine[client]) < limits[step]))
            continue;
        const int64_t away = labels[other];
        const double *theirs = gram + (size_t)other * P;
        double *there = pull + (size_t)away * P;
        for (size_t place = 0; place < P; place++) {
            const double difference = theirs[place] - own[place];
            mine[place] += difference;
            there[place] -= difference;
        }
        labels[client] = away;
        labels[other] = home;
        for (size_t place = 0; place < P; place++)
            leaving[place] = squares[place] - pull[(size_t)labels[place] * P + place];
        if (other >= clients) {
            has_empty[home] = 1;
            has_empty[away] = 0;
        }
        swaps++;
    }
done:
    free(squares), free(has_empty);
    return swaps;
}

typedef struct {
    double far; /* how far along the way */
    int64_t point;
} Placed;

/* The farthest first, of equals the lowest. */
static int compared(const void *one, const void *other)
{
    const Placed *a = one, *b = other;
    if (a->far != b->far)
        return a->far > b->far ? -1 : 1;
    return a->point < b->point ? -1 : a->point > b->point;
}

#define TRIED 16          /* candidates of each of two clusters for a swap; in halves.py, too */
#define WORTH_SWAPPING 64 /* points of clusters up to which they swap single ones; in halves.py, too */

static double product(const double *one, const double *other, size_t n)
{
    double sum = 0; /* of whole numbers: exact in any order */
    for (size_t i = 0; i < n; i++)
        sum += one[i] * other[i];
    return sum;
}

/* Swap one point of each of two clusters, the two that bring most of those that have most to gain by themselves, until none
 * brings anything; changes members and sums of both. Returns the number of swaps. */
static int64_t swapped(const double *points, size_t F, int64_t *mine, int64_t *theirs, size_t n, double *sum, double *rest,
                       double *way, Placed *both)
{
    const size_t tried = n < TRIED ? n : TRIED;
    int64_t swaps = 0;
    for (; swaps < (int64_t)n; swaps++) {
        for (size_t f = 0; f < F; f++)
            way[f] = sum[f] - rest[f];
        for (size_t i = 0; i < n; i++) {
            const double *own = points + (size_t)mine[i] * F, *other = points + (size_t)theirs[i] * F;
            both[i] = (Placed){product(own, own, F) - product(own, way, F), mine[i]};
            both[n + i] = (Placed){product(other, other, F) + product(other, way, F), theirs[i]};
        }
        qsort(both, n, sizeof *both, compared);
        qsort(both + n, n, sizeof *both, compared);
        double best = 0;
        int64_t leaves = -1, comes = -1;
        for (size_t i = 0; i < tried; i++)
            for (size_t j = n; j < n + tried; j++) {
                const double *own = points + (size_t)both[i].point * F, *other = points + (size_t)both[j].point * F;
                const double gain = both[i].far + both[j].far - 2 * product(own, other, F);
                if (gain > best)
                    best = gain, leaves = both[i].point, comes = both[j].point;
            }
        if (leaves < 0)
            break;
        for (size_t i = 0; i < n; i++) {
            mine[i] = mine[i] == leaves ? comes : mine[i];
            theirs[i] = theirs[i] == comes ? leaves : theirs[i];
        }
        for (size_t f = 0; f < F; f++) {
            const double moved = points[(size_t)comes * F + f] - points[(size_t)leaves * F + f];
            sum[f] += moved;
            rest[f] -= moved;
        }
    }
    return swaps;
}

/* Split every cluster and each of its neighbours (clusters, many) anew along the way between their sums, where that is better;
 * changes members (clusters, size) and sums (clusters, width). See halves.py. Returns the number of changes. */
int64_t fedgsp_mend(const double *points, int64_t width, int64_t *members, double *sums, int64_t clusters, int64_t size,
                    const int64_t *neighbours, int64_t many, double bits)
{
    const size_t F = (size_t)width, n = (size_t)size;
    double *way = malloc(2 * F * sizeof *way), *new = way + F;
    Placed *both = malloc(2 * n * sizeof *both);
    int64_t changes = -1;
    if (!way || !both)
        goto done;
    changes = 0;
    for (int64_t cluster = 0; cluster < clusters; cluster++)
        for (int64_t turn = 0; turn < many; turn++) {
            const int64_t other = neighbours[cluster * many + turn];
            double *mine = sums + (size_t)cluster * F, *theirs = sums + (size_t)other * F, length = 0, before = 0, after = 0;
            for (size_t f = 0; f < F; f++) {
                way[f] = mine[f] - theirs[f];
                length = fabs(way[f]) > length ? fabs(way[f]) : length;
            }
            if (length > 0) {
                const double scale = bits / length;
                for (size_t f = 0; f < F; f++)
                    way[f] = rint(way[f] * scale);
            }
            for (size_t i = 0; i < 2 * n; i++) {
                const int64_t point = i < n ? members[(size_t)cluster * n + i] : members[(size_t)other * n + i - n];
                const double *row = points + (size_t)point * F;
                double far = 0; /* whole numbers: exact in any order */
                for (size_t f = 0; f < F; f++)
                    far += row[f] * way[f];
                both[i] = (Placed){far, point};
            }
            qsort(both, 2 * n, sizeof *both, compared);
            memset(new, 0, F * sizeof *new);
            for (size_t i = 0; i < n; i++)
                for (size_t f = 0; f < F; f++)
                    new[f] += points[(size_t)both[i].point * F + f];
            for (size_t f = 0; f < F; f++) {
                const double rest = mine[f] + theirs[f] - new[f];
                before += mine[f] * mine[f] + theirs[f] * theirs[f];
                after += new[f] * new[f] + rest * rest;
            }
            if (after > before) {
                for (size_t f = 0; f < F; f++) {
                    theirs[f] = mine[f] + theirs[f] - new[f];
                    mine[f] = new[f];
                }
                for (size_t i = 0; i < n; i++) {
                    members[(size_t)cluster * n + i] = both[i].point;
                    members[(size_t)other * n + i] = both[n + i].point;
                }
                changes++;
            }
            if (size <= WORTH_SWAPPING)
                changes += swapped(points, F, members + (size_t)cluster * n, members + (size_t)other * n, n, mine, theirs, way, both);
        }
done:
    free(way), free(both);
    return changes;
}
