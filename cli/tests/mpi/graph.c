/*
 * Creates a distributed graph many times, and counts how many times its neighbours are wrong.
 *
 * Each rank makes an edge to itself and several to the next rank. MPICH sends the edges as two messages of
 * different lengths, one to the rank itself and one to the next rank. Each rank probes for such messages
 * from any source, and receives them from any source.
 */

#include "checking.h"

#define EDGES_TO_NEXT 2

/* Creates a graph. Returns 1 if this rank has a wrong number of neighbours, else 0. */
static int create_and_check(void) {
    int destinations[1 + EDGES_TO_NEXT] = {rank};
    for (int edge = 1; edge <= EDGES_TO_NEXT; edge++) destinations[edge] = next_rank();
    int degree = 1 + EDGES_TO_NEXT, in, out, is_weighted;
    MPI_Comm graph;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, destinations, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                          &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &is_weighted);
    MPI_Comm_free(&graph);
    return in != degree || out != degree;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int calls = argc > 1 ? atoi(argv[1]) : 0;
    REQUIRE(calls > 0);
    unsigned char *wrong = allocate((size_t) calls);
    for (int call = 0; call < calls; call++) wrong[call] = (unsigned char) create_and_check();
    /* A call is wrong if it is wrong in any rank. */
    MPI_Allreduce(MPI_IN_PLACE, wrong, calls, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
    int count = 0;
    for (int call = 0; call < calls; call++) count += wrong[call];
    if (rank == 0) printf("graphs counted: %d ranks, %d wrong of %d\n", ranks, count, calls);
    free(wrong);
    MPI_Finalize();
    return 0;
}
