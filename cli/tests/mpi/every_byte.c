/*
 * Messages of every kind and size between the ranks of an MPI program, with every byte checked.
 *
 * Runs with two ranks or more. Rank 0 ends with a line that begins "every byte checked". An error is printed to standard
 * error, and ends all ranks.
 */

#include "checking.h"

/* The longest message. */
#define MESSAGE_MAX_BYTES (8 * MIB)

/* Sizes around every possible limit: of a line, a frame, a ring, a protocol, a socket's buffer. */
static const size_t SIZES_BYTES[] = {
    0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 55, 56, 57, 63, 64, 65, 127, 128, 129, 255, 256, 257,
    511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 16383, 16384, 16385,
    32767, 32768, 32769, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1,
    256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 512 * KIB - 1, 512 * KIB, 512 * KIB + 1, MIB - 1, MIB, MIB + 1,
    4 * MIB, MESSAGE_MAX_BYTES,
};
#define SIZES (sizeof SIZES_BYTES / sizeof *SIZES_BYTES)

/* The number of sizes up to 16385 bytes, of which many messages can be in flight at once. */
#define SMALL_SIZES ((size_t) 45)

/* Checks the status of a receive, its message, and that nothing was written after the message. */
static void check_received(const unsigned char *buffer, const MPI_Status *status, int source, int tag, size_t bytes,
                           const char *what) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || (size_t) count != bytes)
        fail("%s: %d bytes with tag %d from %d instead of %zu bytes with tag %d from %d", what, count, status->MPI_TAG,
             status->MPI_SOURCE, bytes, tag, source);
    check(buffer, bytes, seed_of(source, rank, tag), what);
    for (size_t at = bytes; at < bytes + GUARD_BYTES; at++)
        if (buffer[at] != GUARD) fail("%s: byte %zu after the message was written", what, at - bytes);
}

typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);

/* Messages of every size around the ring of ranks; one rank begins, so that no send needs a buffer to complete. */
static void one_by_one(send_function *send, const char *what) {
    unsigned char *in = room(MESSAGE_MAX_BYTES);
    for (size_t i = 0; i < SIZES; i++) {
        size_t bytes = SIZES_BYTES[i];
        int tag = 1000 + (int) i;
        unsigned char *out = message(next_rank(), tag, bytes);
        MPI_Status status;
        clear(in, bytes);
        if (rank == 0) send(out, (int) bytes, MPI_BYTE, next_rank(), tag, MPI_COMM_WORLD);
        MPI_Recv(in, (int) bytes, MPI_BYTE, previous_rank(), tag, MPI_COMM_WORLD, &status);
        if (rank != 0) send(out, (int) bytes, MPI_BYTE, next_rank(), tag, MPI_COMM_WORLD);
        check_received(in, &status, previous_rank(), tag, bytes, what);
        free(out);
    }
    free(in);
}

/* Every rank sends every size to every rank, including itself, all at once, and receives from any source. Messages from
 * one rank arrive in the order in which they were sent. */
static void from_any_source(void) {
    int total = ranks * (int) SMALL_SIZES;
    size_t max_bytes = SIZES_BYTES[SMALL_SIZES - 1];
    MPI_Request *receives = calloc((size_t) total, sizeof *receives), *sends = calloc((size_t) total, sizeof *sends);
    MPI_Status *statuses = calloc((size_t) total, sizeof *statuses);
    unsigned char **in = calloc((size_t) total, sizeof *in), **out = calloc((size_t) total, sizeof *out);
    int *next = calloc((size_t) ranks, sizeof *next);
    for (int i = 0; i < total; i++) {
        in[i] = room(max_bytes);
        MPI_Irecv(in[i], (int) max_bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[i]);
    }
    for (int i = 0; i < total; i++) {
        int dest = (rank + i) % ranks, tag = i / ranks;
        size_t bytes = SIZES_BYTES[tag];
        out[i] = message(dest, tag, bytes);
        MPI_Isend(out[i], (int) bytes, MPI_BYTE, dest, tag, MPI_COMM_WORLD, &sends[i]);
    }
    MPI_Waitall(total, receives, statuses);
    for (int i = 0; i < total; i++) {
        int source = statuses[i].MPI_SOURCE;
        REQUIRE(source >= 0 && source < ranks && next[source] < (int) SMALL_SIZES);
        int tag = next[source]++;
        check_received(in[i], &statuses[i], source, tag, SIZES_BYTES[tag], "from any source");
    }
    MPI_Waitall(total, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < total; i++) {
        free(in[i]);
        free(out[i]);
    }
    free(receives), free(sends), free(statuses), free(in), free(out), free(next);
    /* Messages of the next test must not match receives of late ranks, which accept any message. */
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Messages that arrive before their receives are posted. The receives are posted in reverse order. */
static void unexpected(void) {
    MPI_Request sends[SMALL_SIZES];
    unsigned char *out[SMALL_SIZES];
    for (int i = 0; i < (int) SMALL_SIZES; i++) {
        out[i] = message(next_rank(), i, SIZES_BYTES[i]);
        MPI_Isend(out[i], (int) SIZES_BYTES[i], MPI_BYTE, next_rank(), i, MPI_COMM_WORLD, &sends[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = (int) SMALL_SIZES - 1; i >= 0; i--) {
        MPI_Status status;
        unsigned char *in = room(SIZES_BYTES[i]);
        MPI_Recv(in, (int) SIZES_BYTES[i], MPI_BYTE, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &status);
        check_received(in, &status, previous_rank(), i, SIZES_BYTES[i], "unexpected");
        free(in);
    }
    MPI_Waitall((int) SMALL_SIZES, sends, MPI_STATUSES_IGNORE);
    for (size_t i = 0; i < SMALL_SIZES; i++) free(out[i]);
}

/* Checks that cancelling a receive completes it, and that a later message goes to the next receive. */
static void cancelled(void) {
    unsigned char *never = room(100), *in = room(100), *out = message(next_rank(), 5, 100);
    MPI_Request receive;
    MPI_Status status;
    int was_cancelled;
    MPI_Irecv(never, 100, MPI_BYTE, previous_rank(), 5, MPI_COMM_WORLD, &receive);
    MPI_Cancel(&receive);
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &was_cancelled);
    REQUIRE(was_cancelled);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Sendrecv(out, 100, MPI_BYTE, next_rank(), 5, in, 100, MPI_BYTE, previous_rank(), 5, MPI_COMM_WORLD, &status);
    check_received(in, &status, previous_rank(), 5, 100, "after a cancelled receive");
    for (size_t at = 0; at < 100; at++) REQUIRE(never[at] == GUARD);
    free(never), free(in), free(out);
}

/* The call that finds a message before it is received. */
enum probe { PROBE, IPROBE, MPROBE, IMPROBE, PROBES };

static void probed(enum probe how) {
    static const size_t sizes_bytes[] = { 0, 1, 57, 4097, 16384, 16385, 64 * KIB + 1, MIB };
    const int count = sizeof sizes_bytes / sizeof *sizes_bytes, total = ranks * count;
    MPI_Request *sends = calloc((size_t) total, sizeof *sends);
    unsigned char **out = calloc((size_t) total, sizeof *out);
    int *next = calloc((size_t) ranks, sizeof *next);
    for (int i = 0; i < total; i++) {
        int dest = (rank + i) % ranks, tag = 3000 + i / ranks;
        size_t bytes = sizes_bytes[i / ranks];
        out[i] = message(dest, tag, bytes);
        MPI_Isend(out[i], (int) bytes, MPI_BYTE, dest, tag, MPI_COMM_WORLD, &sends[i]);
    }
    for (int i = 0; i < total; i++) {
        MPI_Message found = MPI_MESSAGE_NULL;
        MPI_Status status;
        int is_there = 0, bytes;
        switch (how) {
        case PROBE:
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            break;
        case IPROBE:
            while (!is_there) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &status);
            break;
        case MPROBE:
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &status);
            break;
        default:
            while (!is_there) MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &found, &status);
            break;
        }
        int source = status.MPI_SOURCE, tag = status.MPI_TAG;
        REQUIRE(source >= 0 && source < ranks && next[source] < count && tag == 3000 + next[source]);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        REQUIRE((size_t) bytes == sizes_bytes[next[source]++]);
        unsigned char *in = room((size_t) bytes);
        if (how == PROBE || how == IPROBE)
            MPI_Recv(in, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
        else
            MPI_Mrecv(in, bytes, MPI_BYTE, &found, &status);
        check_received(in, &status, source, tag, (size_t) bytes, "probed");
        free(in);
    }
    MPI_Waitall(total, sends, MPI_STATUSES_IGNORE);
    /* A late rank must not find messages of the next test. */
    MPI_Barrier(MPI_COMM_WORLD);
    int is_there;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
    REQUIRE(!is_there);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < total; i++) free(out[i]);
    free(sends), free(out), free(next);
}

#define DEEP ((unsigned) 2000)
#define DEEP_TAG 7000

/*
 * A great many sends in both directions, all started before the first receive: more than the entries of a completion queue
 * of the usual size.
 */
static void deep(void) {
    for (size_t bytes = 8; bytes <= 8 * KIB; bytes *= 1024) {
        unsigned char *outgoing = message(next_rank(), DEEP_TAG, bytes);
        unsigned char **incoming = calloc(DEEP, sizeof *incoming);
        MPI_Request *requests = calloc(2 * DEEP, sizeof *requests);
        REQUIRE(incoming && requests);
        for (unsigned number = 0; number < DEEP; number++)
            MPI_Isend(outgoing, (int) bytes, MPI_BYTE, next_rank(), DEEP_TAG, MPI_COMM_WORLD, &requests[number]);
        for (unsigned number = 0; number < DEEP; number++) {
            incoming[number] = room(bytes);
            MPI_Irecv(incoming[number], (int) bytes, MPI_BYTE, previous_rank(), DEEP_TAG, MPI_COMM_WORLD,
                      &requests[DEEP + number]);
        }
        MPI_Waitall(2 * (int) DEEP, requests, MPI_STATUSES_IGNORE);
        for (unsigned number = 0; number < DEEP; number++) {
            check(incoming[number], bytes, seed_of(previous_rank(), rank, DEEP_TAG), "deep");
            free(incoming[number]);
        }
        free(incoming);
        free(requests);
        free(outgoing);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(ranks > 1);
    REQUIRE(SIZES_BYTES[SMALL_SIZES - 1] == 16385);

    one_by_one(MPI_Send, "Send");
    one_by_one(MPI_Ssend, "Ssend");
    from_any_source();
    unexpected();
    cancelled();
    deep();
    for (enum probe how = PROBE; how < PROBES; how++) probed(how);

    uint64_t own[] = { checked_messages, checked_bytes }, all[2];
    MPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("every byte checked: %d ranks, %llu messages, %llu bytes\n", ranks, (unsigned long long) all[0],
               (unsigned long long) all[1]);
    MPI_Finalize();
    return 0;
}
