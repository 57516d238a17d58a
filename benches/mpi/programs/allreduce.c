/* A step is a sum of one number of 8 B over all ranks. */

#include "measure.h"

static void step(int bytes) {
    (void)bytes;
    long mine = rank, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (long)ranks * (ranks - 1) / 2) {
        fprintf(stderr, "wrong sum %ld\n", sum);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **arguments) {
    begin(&count, &arguments);
    measure(step, sizeof(long));
    MPI_Finalize();
}
