/* The ranks are a grid of two dimensions that is closed at its edges. A step is an exchange of a message of
 * the size with each of the four neighbours, by MPI_Irecv, MPI_Isend and MPI_Waitall. */

#include "measure.h"

static const int SIZES_BYTES[] = {8, 1024, 8192, 65536};
enum { SIZES = sizeof SIZES_BYTES / sizeof *SIZES_BYTES, NEIGHBOURS = 4 };

static MPI_Comm grid;
static int neighbours[NEIGHBOURS];
static char *out[NEIGHBOURS], *in[NEIGHBOURS];

static void step(int bytes) {
    MPI_Request requests[2 * NEIGHBOURS];
    for (int i = 0; i < NEIGHBOURS; i++) {
        /* What the neighbour sends in the opposite direction. */
        MPI_Irecv(in[i], bytes, MPI_CHAR, neighbours[i], i ^ 1, grid, &requests[i]);
    }
    for (int i = 0; i < NEIGHBOURS; i++) {
        MPI_Isend(out[i], bytes, MPI_CHAR, neighbours[i], i, grid, &requests[NEIGHBOURS + i]);
    }
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
}

int main(int count, char **arguments) {
    begin(&count, &arguments);
    int edges[2] = {0, 0}, is_closed[2] = {1, 1};
    MPI_Dims_create(ranks, 2, edges);
    MPI_Cart_create(MPI_COMM_WORLD, 2, edges, is_closed, 0, &grid);
    MPI_Cart_shift(grid, 0, 1, &neighbours[0], &neighbours[1]);
    MPI_Cart_shift(grid, 1, 1, &neighbours[2], &neighbours[3]);
    for (int i = 0; i < NEIGHBOURS; i++) {
        out[i] = must_allocate(SIZES_BYTES[SIZES - 1]);
        in[i] = must_allocate(SIZES_BYTES[SIZES - 1]);
    }
    for (int i = 0; i < SIZES; i++) measure(step, SIZES_BYTES[i]);
    for (int i = 0; i < NEIGHBOURS; i++) {
        free(out[i]);
        free(in[i]);
    }
    MPI_Finalize();
}
