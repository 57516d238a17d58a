/* What the MPI programs share: how often a step runs, and what is printed.
 *
 * A program prints one line for each size: the size in bytes, and the time of a step in microseconds, the
 * median over REPEATS. The times are those of rank 0 between two barriers. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPEATS = 5, STEPS_MAX = 1 << 20, SIZES_MAX = 8 };

/* How long one repeat takes, about. */
static const double REPEAT_S = 0.03;

static int rank, ranks;

__attribute__((unused)) static void *must_allocate(size_t bytes) {
    void *memory = calloc(bytes > 0 ? bytes : 1, 1);
    if (!memory) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static double time_steps_s(void (*step)(int), int bytes, int steps) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start_s = MPI_Wtime();
    for (int i = 0; i < steps; i++) step(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start_s;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(void (*step)(int), int bytes) {
    /* All ranks run as many steps as rank 0 chooses. The doubling is the warm-up, too. */
    int steps = 2;
    for (int is_enough = 0; !is_enough;) {
        is_enough = time_steps_s(step, bytes, steps) >= REPEAT_S / 2 || steps >= STEPS_MAX;
        MPI_Bcast(&is_enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!is_enough) steps *= 2;
    }
    double times_us[REPEATS];
    for (int i = 0; i < REPEATS; i++) times_us[i] = time_steps_s(step, bytes, steps) / steps * 1e6;
    qsort(times_us, REPEATS, sizeof *times_us, compare);
    if (rank == 0) printf("%d %.3f\n", bytes, times_us[REPEATS / 2]);
}

static void begin(int *count, char ***arguments) {
    MPI_Init(count, arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}
