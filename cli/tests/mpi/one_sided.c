/*
 * Puts and gets in windows of every kind, with every kind of synchronisation, and with every byte checked.
 *
 * Runs with two ranks or more. Rank 0 ends with a line that begins "every access checked". An error is printed to
 * standard error, and ends all ranks.
 */

#include "windows.h"

/* Sizes around every possible limit: of an element, a line, an injected write, a ring, a protocol. */
static const size_t SIZES_BYTES[] = {
    1, 3, 8, 57, 64, 1024, 4095, 4096, 4097, 16384, 16385, 65537, 256 * KIB + 1, 1 * MIB,
};
#define SIZES (sizeof SIZES_BYTES / sizeof *SIZES_BYTES)

/* Longer than an MPI moves in one piece. */
#define LONGEST_BYTES (20 * MIB + 3)

/* The number of different offsets of accesses in a window, so that few are aligned. */
#define OFFSETS ((size_t) 9)

/* Checks that a part of this rank's window was not written. */
static void check_untouched(const struct window *window, size_t from, size_t to) {
    for (size_t byte = from; byte < to; byte++)
        if (window->memory[byte] != GUARD) fail("byte %zu of a window was written, from %zu on", byte, from);
}

/* One Put and one Get of `bytes` bytes between neighbours. */
static void put_and_get(const struct window *window, enum epoch how, size_t bytes, size_t offset, int tag) {
    unsigned char *out = message(next_rank(), tag, bytes), *in = room(bytes);
    memset(window->memory, GUARD, offset + bytes + GUARD_BYTES);
    begin(how, window);
    MPI_Put(out, (int) bytes, MPI_BYTE, next_rank(), at(window, next_rank(), offset), (int) bytes, MPI_BYTE, window->win);
    end(how, window);
    check(window->memory + offset, bytes, seed_of(previous_rank(), rank, tag), "Put");
    check_untouched(window, 0, offset);
    check_untouched(window, offset + bytes, offset + bytes + GUARD_BYTES);
    begin(how, window);
    MPI_Get(in, (int) bytes, MPI_BYTE, next_rank(), at(window, next_rank(), offset), (int) bytes, MPI_BYTE, window->win);
    end(how, window);
    check(in, bytes, seed_of(rank, next_rank(), tag), "Get");
    for (size_t byte = bytes; byte < bytes + GUARD_BYTES; byte++) REQUIRE(in[byte] == GUARD);
    wait_for_checks();
    free(out), free(in);
}

static void every_size(enum memory of, enum epoch how) {
    struct window window = open_window(of, SIZES_BYTES[SIZES - 1] + OFFSETS + GUARD_BYTES);
    for (size_t i = 0; i < SIZES; i++) put_and_get(&window, how, SIZES_BYTES[i], i % OFFSETS, (int) i);
    close_window(&window);
}

static void longest_message(void) {
    struct window window = open_window(OWN, LONGEST_BYTES + OFFSETS + GUARD_BYTES);
    put_and_get(&window, FENCE, LONGEST_BYTES, 1, 100);
    put_and_get(&window, LOCK_ALL, LONGEST_BYTES, 8, 101);
    close_window(&window);
}

#define MANY 400

/* A great many accesses of different sizes in one epoch, to adjacent parts of the window. */
static void many_at_once(enum epoch how) {
    size_t offsets[MANY + 1] = { 0 };
    for (unsigned i = 0; i < MANY; i++) offsets[i + 1] = offsets[i] + 1 + scramble(i) % (i % 50 == 49 ? 40000 : 300);
    size_t bytes = offsets[MANY];
    struct window window = open_window(ALLOCATED, bytes);
    unsigned char *out = message(next_rank(), 200, bytes), *in = room(bytes);
    begin(how, &window);
    /* In reverse order. */
    for (int i = MANY - 1; i >= 0; i--) {
        int here_bytes = (int) (offsets[i + 1] - offsets[i]);
        MPI_Put(out + offsets[i], here_bytes, MPI_BYTE, next_rank(), at(&window, next_rank(), offsets[i]), here_bytes,
                MPI_BYTE, window.win);
    }
    end(how, &window);
    check(window.memory, bytes, seed_of(previous_rank(), rank, 200), "many Puts");
    begin(how, &window);
    for (int i = 0; i < MANY; i++) {
        int here_bytes = (int) (offsets[i + 1] - offsets[i]);
        MPI_Get(in + offsets[i], here_bytes, MPI_BYTE, next_rank(), at(&window, next_rank(), offsets[i]), here_bytes,
                MPI_BYTE, window.win);
    }
    end(how, &window);
    check(in, bytes, seed_of(rank, next_rank(), 200), "many Gets");
    wait_for_checks();
    close_window(&window);
    free(out), free(in);
}

#define TURNS 60

/* Flushed data is visible once a message says so; a locally flushed source may be overwritten at once. */
static void flushes(void) {
    size_t slot = 700, bytes = TURNS * slot;
    struct window window = open_window(OWN, bytes);
    unsigned char *out = allocate(slot), *in = room(slot);
    MPI_Win_lock_all(0, window.win);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t here = slot * (size_t) turn;
        fill(out, slot, seed_of(rank, next_rank(), 300 + turn));
        MPI_Put(out, (int) slot, MPI_BYTE, next_rank(), at(&window, next_rank(), here), (int) slot, MPI_BYTE, window.win);
        if (turn % 2 == 0)
            MPI_Win_flush(next_rank(), window.win);
        else
            MPI_Win_flush_all(window.win);
        MPI_Sendrecv(&turn, 1, MPI_INT, next_rank(), 1, &(int) { 0 }, 1, MPI_INT, previous_rank(), 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Win_sync(window.win);
        check(window.memory + here, slot, seed_of(previous_rank(), rank, 300 + turn), "flushed");
        MPI_Get(in, (int) slot, MPI_BYTE, next_rank(), at(&window, next_rank(), here), (int) slot, MPI_BYTE, window.win);
        MPI_Win_flush_local(next_rank(), window.win);
        check(in, slot, seed_of(rank, next_rank(), 300 + turn), "a flushed Get");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < TURNS; turn++) {
        fill(out, slot, seed_of(rank, next_rank(), 400 + turn));
        MPI_Put(out, (int) slot, MPI_BYTE, next_rank(), at(&window, next_rank(), slot * (size_t) turn), (int) slot,
                MPI_BYTE, window.win);
        if (turn % 2 == 0)
            MPI_Win_flush_local(next_rank(), window.win);
        else
            MPI_Win_flush_local_all(window.win);
    }
    MPI_Win_unlock_all(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < TURNS; turn++)
        check(window.memory + slot * (size_t) turn, slot, seed_of(previous_rank(), rank, 400 + turn), "flushed locally");
    wait_for_checks();
    close_window(&window);
    free(out), free(in);
}

/* Accesses with requests. Waits for the Puts in the order in which their requests complete. */
static void requests(void) {
    size_t slot = 5000, bytes = TURNS * slot;
    struct window window = open_window(ALLOCATED, bytes);
    unsigned char *out = message(next_rank(), 500, bytes), *in = room(bytes);
    MPI_Request puts[TURNS], gets[TURNS];
    MPI_Win_lock_all(0, window.win);
    for (int i = 0; i < TURNS; i++) {
        size_t here = slot * (size_t) i;
        MPI_Rput(out + here, (int) slot, MPI_BYTE, next_rank(), at(&window, next_rank(), here), (int) slot, MPI_BYTE,
                 window.win, &puts[i]);
    }
    for (int i = 0; i < TURNS; i++) {
        int done;
        MPI_Waitany(TURNS, puts, &done, MPI_STATUS_IGNORE);
        REQUIRE(done != MPI_UNDEFINED);
        /* The source may be overwritten, but the target may not have the data yet. */
        memset(out + slot * (size_t) done, GUARD, slot);
    }
    MPI_Win_flush(next_rank(), window.win);
    for (int i = 0; i < TURNS; i++) {
        size_t here = slot * (size_t) i;
        MPI_Rget(in + here, (int) slot, MPI_BYTE, next_rank(), at(&window, next_rank(), here), (int) slot, MPI_BYTE,
                 window.win, &gets[i]);
    }
    MPI_Waitall(TURNS, gets, MPI_STATUSES_IGNORE);
    check(in, bytes, seed_of(rank, next_rank(), 500), "Rput and Rget");
    MPI_Win_unlock_all(window.win);
    wait_for_checks();
    close_window(&window);
    free(out), free(in);
}

/* Rank 0 exposes its window to all other ranks. They write to the window at once, then read from it at once. */
static void all_to_one(void) {
    size_t share = 30000;
    struct window window = open_window(OWN, share * (size_t) ranks);
    MPI_Group world, root, others;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    root = group_of(0);
    MPI_Group_difference(world, root, &others);
    MPI_Group_free(&world);
    unsigned char *out = message(0, 700, share), *in = room(share);
    for (int turn = 0; turn < 2; turn++) {
        if (rank == 0) {
            int done = 0;
            MPI_Win_post(others, 0, window.win);
            while (!done) MPI_Win_test(window.win, &done);
            for (int from = 1; from < ranks; from++)
                check(window.memory + share * (size_t) from, share, seed_of(from, 0, 700), "Put of all ranks");
            check_untouched(&window, 0, share);
        } else {
            MPI_Aint there = at(&window, 0, share * (size_t) rank);
            MPI_Win_start(root, 0, window.win);
            if (turn == 0)
                MPI_Put(out, (int) share, MPI_BYTE, 0, there, (int) share, MPI_BYTE, window.win);
            else
                MPI_Get(in, (int) share, MPI_BYTE, 0, there, (int) share, MPI_BYTE, window.win);
            MPI_Win_complete(window.win);
            if (turn == 1) check(in, share, seed_of(rank, 0, 700), "Get of all ranks");
        }
    }
    wait_for_checks();
    MPI_Group_free(&root);
    MPI_Group_free(&others);
    close_window(&window);
    free(out), free(in);
}

/* Accesses of no bytes, and to MPI_PROC_NULL. */
static void nothing(void) {
    struct window window = open_window(OWN, 8);
    begin(FENCE, &window);
    MPI_Put(NULL, 0, MPI_BYTE, next_rank(), at(&window, next_rank(), 0), 0, MPI_BYTE, window.win);
    MPI_Get(NULL, 0, MPI_BYTE, next_rank(), at(&window, next_rank(), 8), 0, MPI_BYTE, window.win);
    MPI_Put(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window.win);
    end(FENCE, &window);
    check_untouched(&window, 0, 8);
    wait_for_checks();
    close_window(&window);
}

/* Two windows with epochs at the same time. */
static void two_windows(void) {
    struct window first = open_window(OWN, 1000), second = open_window(ALLOCATED, 1000);
    unsigned char *out = message(next_rank(), 800, 1000), *more = message(next_rank(), 801, 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, first.win);
    begin(LOCK_SHARED, &second);
    MPI_Put(out, 1000, MPI_BYTE, next_rank(), at(&first, next_rank(), 0), 1000, MPI_BYTE, first.win);
    MPI_Put(more, 1000, MPI_BYTE, next_rank(), at(&second, next_rank(), 0), 1000, MPI_BYTE, second.win);
    end(LOCK_SHARED, &second);
    check(second.memory, 1000, seed_of(previous_rank(), rank, 801), "the second window");
    MPI_Win_unlock_all(first.win);
    MPI_Barrier(MPI_COMM_WORLD);
    check(first.memory, 1000, seed_of(previous_rank(), rank, 800), "the first window");
    wait_for_checks();
    close_window(&first), close_window(&second);
    free(out), free(more);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(ranks > 1);

    for (enum memory of = OWN; of < MEMORIES; of++)
        for (enum epoch how = FENCE; how < EPOCHS; how++) every_size(of, how);
    longest_message();
    for (enum epoch how = FENCE; how < EPOCHS; how++) many_at_once(how);
    flushes();
    requests();
    all_to_one();
    nothing();
    two_windows();

    uint64_t own[] = { checked_messages, checked_bytes }, all[2];
    MPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("every access checked: %d ranks, %llu accesses, %llu bytes\n", ranks, (unsigned long long) all[0],
               (unsigned long long) all[1]);
    MPI_Finalize();
    return 0;
}
