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

/* How long and how many steps the warm-up takes, at least. With many ranks, the first steps of a size are slow:
 * memory between each two ranks is used for the first time. */
static const double WARM_UP_S = 0.2;
enum { WARM_UP_STEPS = 32 };

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
    /* All ranks run as many steps as rank 0 chooses. */
    double start_s = MPI_Wtime();
    int steps = 2, warm_up_steps = 0;
    for (int is_enough = 0; !is_enough;) {
        double time_s = time_steps_s(step, bytes, steps);
        warm_up_steps += steps;
        int is_warm = MPI_Wtime() - start_s >= WARM_UP_S && warm_up_steps >= WARM_UP_STEPS;
        int is_long = time_s >= REPEAT_S / 2 || steps >= STEPS_MAX;
        int next[2] = {is_warm && is_long, is_long ? steps : 2 * steps};
        MPI_Bcast(next, 2, MPI_INT, 0, MPI_COMM_WORLD);
        is_enough = next[0];
        steps = next[1];
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
