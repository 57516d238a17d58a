/* A step is an exchange in which each rank sends a block of the size to each rank. */

#include "measure.h"

static const int SIZES_BYTES[] = {4, 256, 4096, 16384};
enum { SIZES = sizeof SIZES_BYTES / sizeof *SIZES_BYTES };

static char *out, *in;

static void step(int bytes) { MPI_Alltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD); }

int main(int count, char **arguments) {
    begin(&count, &arguments);
    size_t all_bytes = (size_t)ranks * SIZES_BYTES[SIZES - 1];
    out = must_allocate(all_bytes);
    in = must_allocate(all_bytes);
    for (int i = 0; i < SIZES; i++) measure(step, SIZES_BYTES[i]);
    free(out);
    free(in);
    MPI_Finalize();
}
