/* The two inner loops of grouping. Each has a twin in NumPy (transport.py, exchange.py) that takes the same decisions in the
 * same order on the same doubles, ties included, and so gives the same bits: hence no fused multiply-add (-ffp-contract=off).
 * Both return -1 where there is no memory, and have then changed nothing. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Move points along cheapest paths, changing labels (n) and prices (L), until each cluster has `size` points. At the start
 * every point must be where cost + price is least for it. See transport.py. */
int64_t fedgsp_level(const double *cost, int64_t *labels, double *prices, int64_t points, int64_t clusters, int64_t size)
{
    const size_t n = (size_t)points, L = (size_t)clusters;
    double *extra = malloc(L * L * sizeof *extra);     /* what the cheapest move from one cluster to another costs on top */
    int64_t *mover = malloc(L * L * sizeof *mover);    /* and which point it moves: of equally cheap ones the first */
    double *distance = malloc(L * sizeof *distance);
    int64_t *parent = malloc(3 * L * sizeof *parent);  /* with load and head */
    int64_t *after = malloc(2 * n * sizeof *after);    /* with before: the points of a cluster are a linked list, -1 ends it */
    char *settled = malloc(L);
    int64_t moved = -1;
    if (!extra || !mover || !distance || !parent || !after || !settled)
        goto done;
    int64_t *load = parent + L, *head = parent + 2 * L, *before = after + n;
    memset(load, 0, L * sizeof *load);
    memset(head, -1, L * sizeof *head);
    memset(after, -1, 2 * n * sizeof *after);
    memset(mover, -1, L * L * sizeof *mover);
    for (size_t i = 0; i < L * L; i++)
        extra[i] = INFINITY;
    for (size_t point = 0; point < n; point++) {
        const double *row = cost + point * L;
        const int64_t own = labels[point];
        load[own]++;
        after[point] = head[own];
        if (head[own] >= 0)
            before[head[own]] = (int64_t)point;
        head[own] = (int64_t)point;
        for (size_t other = 0; other < L; other++) {
            const double price = row[other] - row[own];
            if (price < extra[own * L + other]) {
                extra[own * L + other] = price;
                mover[own * L + other] = (int64_t)point;
            }
        }
    }
    for (moved = 0;; moved++) {
        int overfull = 0;
        for (size_t c = 0; c < L; c++) {
            parent[c] = -1;
            settled[c] = 0;
            distance[c] = load[c] > size ? 0.0 : INFINITY;
            overfull |= load[c] > size;
        }
        if (!overfull)
            break;
        size_t nearest;
        double reached;
        for (;;) { /* Dijkstra from all overfull clusters to the nearest one with room */
            int found = 0;
            nearest = 0;
            reached = INFINITY;
            for (size_t c = 0; c < L; c++)
                if (!settled[c] && (!found || distance[c] < reached)) {
                    found = 1;
                    nearest = c;
                    reached = distance[c];
                }
            if (load[nearest] < size)
                break;
            settled[nearest] = 1;
            const double *out = extra + nearest * L;
            for (size_t other = 0; other < L; other++) {
                const double length = out[other] + (prices[other] - prices[nearest]);
                const double through = reached + (length > 0.0 ? length : 0.0);
                if (through < distance[other]) {
                    distance[other] = through;
                    parent[other] = (int64_t)nearest;
                }
            }
        }
        for (size_t c = 0; c < L; c++)
            prices[c] = prices[c] + (reached - (distance[c] < reached ? distance[c] : reached));
        load[nearest]++;
        int64_t target = (int64_t)nearest;
        while (parent[target] >= 0) {
            const int64_t source = parent[target], point = mover[source * (int64_t)L + target];
            const double *row = cost + (size_t)point * L;
            if (before[point] >= 0)
                after[before[point]] = after[point];
            else
                head[source] = after[point];
            if (after[point] >= 0)
                before[after[point]] = before[point];
            before[point] = -1;
            after[point] = head[target];
            if (head[target] >= 0)
                before[head[target]] = point;
            head[target] = point;
            labels[point] = target;
            double *leaving = extra + source * (int64_t)L, *coming = extra + target * (int64_t)L;
            int64_t *leaves = mover + source * (int64_t)L, *comes = mover + target * (int64_t)L;
            for (size_t other = 0; other < L; other++) {
                if (leaves[other] == point) { /* the source must find another cheapest one */
                    double best = INFINITY;
                    int64_t found = -1;
                    for (int64_t member = head[source]; member >= 0; member = after[member]) {
                        const double price = cost[(size_t)member * L + other] - cost[(size_t)member * L + (size_t)source];
                        if (price < best || (price == best && member < found)) {
                            best = price;
                            found = member;
                        }
                    }
                    leaving[other] = best;
                    leaves[other] = found;
                }
                const double price = row[other] - row[target];
                if (price < coming[other] || (price == coming[other] && point < comes[other])) {
                    coming[other] = price;
                    comes[other] = point;
                }
            }
            target = source;
        }
        load[target]--;
    }
done:
    free(extra), free(mover), free(distance), free(parent), free(after), free(settled);
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
