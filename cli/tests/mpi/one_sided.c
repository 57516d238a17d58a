/*
 * One-sided communication: puts and gets in windows of every kind, with every kind of synchronisation, and accumulates.
 * Every byte is checked.
 *
 * Runs with two ranks or more. Rank 0 ends with a line that begins "every access checked". An error is printed to
 * standard error, and ends all ranks. Arguments name what to skip where an MPI has faults of its own: operations
 * ("MPI_MIN"), "order", and compare-and-swap of a rank's own memory ("own").
 */

#include "checking.h"

/* The program's arguments: the parts to skip. */
static char **left_out;

static int is_left_out(const char *name) {
    for (char **argument = left_out; *argument; argument++)
        if (strcmp(*argument, name) == 0) return 1;
    return 0;
}

/* The origin of a window's memory. */
enum memory { OWN, ALLOCATED, ATTACHED, MEMORIES };

struct window {
    MPI_Win win;
    enum memory of;
    unsigned char *memory;
    /* The base of offsets in each rank's window: an address for attached memory, else 0. */
    MPI_Aint *base;
};

/* Opens a window of `bytes` bytes in all ranks, and fills it with bytes that no message has. */
static struct window open_window(enum memory of, size_t bytes) {
    struct window window = { .of = of, .base = calloc((size_t) ranks, sizeof *window.base) };
    MPI_Aint own = 0;
    REQUIRE(window.base);
    if (of == ALLOCATED) {
        MPI_Win_allocate((MPI_Aint) bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window.memory, &window.win);
    } else {
        window.memory = allocate(bytes);
        if (of == OWN) {
            MPI_Win_create(window.memory, (MPI_Aint) bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window.win);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window.win);
            MPI_Win_attach(window.win, window.memory, (MPI_Aint) bytes);
            MPI_Get_address(window.memory, &own);
        }
    }
    memset(window.memory, GUARD, bytes);
    MPI_Allgather(&own, 1, MPI_AINT, window.base, 1, MPI_AINT, MPI_COMM_WORLD);
    return window;
}

static void close_window(struct window *window) {
    /* Another rank may still be accessing the memory. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (window->of == ATTACHED) MPI_Win_detach(window->win, window->memory);
    MPI_Win_free(&window->win);
    if (window->of != ALLOCATED) free(window->memory);
    free(window->base);
}

/* The displacement of an offset in a rank's window. */
static MPI_Aint at(const struct window *window, int target, size_t offset) {
    return MPI_Aint_add(window->base[target], (MPI_Aint) offset);
}

/* The kind of an epoch. */
enum epoch { FENCE, PSCW, LOCK_EXCLUSIVE, LOCK_SHARED, LOCK_ALL, EPOCHS };

static MPI_Group group_of(int member) {
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &member, &group);
    MPI_Group_free(&world);
    return group;
}

/* Begins an epoch of accesses to the next rank's window. What this rank has stored in its own window is visible in the
 * epoch. */
static void begin(enum epoch how, const struct window *window) {
    if (how == FENCE) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window->win);
    } else if (how == PSCW) {
        MPI_Group previous = group_of(previous_rank()), next = group_of(next_rank());
        MPI_Win_post(previous, 0, window->win);
        MPI_Win_start(next, 0, window->win);
        MPI_Group_free(&previous);
        MPI_Group_free(&next);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        if (how == LOCK_ALL)
            MPI_Win_lock_all(0, window->win);
        else
            MPI_Win_lock(how == LOCK_SHARED ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, next_rank(), 0, window->win);
    }
}

/* Ends the epoch: the accesses of all ranks are complete, and visible in this rank's window. */
static void end(enum epoch how, const struct window *window) {
    if (how == FENCE) {
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window->win);
    } else if (how == PSCW) {
        MPI_Win_complete(window->win);
        MPI_Win_wait(window->win);
    } else {
        if (how == LOCK_ALL)
            MPI_Win_unlock_all(window->win);
        else
            MPI_Win_unlock(next_rank(), window->win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window->win);
        MPI_Win_sync(window->win);
        MPI_Win_unlock(rank, window->win);
    }
}

/* Sizes around every possible limit: of an element, a line, an injected write, a ring, a protocol. The last is longer
 * than an MPI moves in one piece. */
static const size_t SIZES_BYTES[] = {
    0, 1, 3, 8, 57, 64, 1024, 4095, 4096, 4097, 16384, 16385, 65537, 256 * KIB + 1, 1 * MIB, 20 * MIB + 3,
};
#define SIZES (sizeof SIZES_BYTES / sizeof *SIZES_BYTES)

/* The number of different offsets of accesses in a window, so that few are aligned. */
#define OFFSETS ((size_t) 9)

/* Checks that a part of this rank's window was not written. */
static void check_untouched(const struct window *window, size_t from, size_t to) {
    for (size_t byte = from; byte < to; byte++)
        if (window->memory[byte] != GUARD) fail("byte %zu of a window was written, from %zu on", byte, from);
}

/* One Put and one Get of each size between neighbours. */
static void put_and_get(enum memory of, enum epoch how) {
    size_t count = of == OWN && how == FENCE ? SIZES : SIZES - 1;
    struct window window = open_window(of, SIZES_BYTES[count - 1] + OFFSETS + GUARD_BYTES);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = SIZES_BYTES[i], offset = i % OFFSETS;
        int tag = (int) i;
        MPI_Aint there = at(&window, next_rank(), offset);
        unsigned char *out = message(next_rank(), tag, bytes), *in = room(bytes);
        memset(window.memory, GUARD, offset + bytes + GUARD_BYTES);
        begin(how, &window);
        MPI_Put(out, (int) bytes, MPI_BYTE, next_rank(), there, (int) bytes, MPI_BYTE, window.win);
        end(how, &window);
        check(window.memory + offset, bytes, seed_of(previous_rank(), rank, tag), "Put");
        check_untouched(&window, 0, offset);
        check_untouched(&window, offset + bytes, offset + bytes + GUARD_BYTES);
        begin(how, &window);
        MPI_Get(in, (int) bytes, MPI_BYTE, next_rank(), there, (int) bytes, MPI_BYTE, window.win);
        end(how, &window);
        check(in, bytes, seed_of(rank, next_rank(), tag), "Get");
        for (size_t byte = bytes; byte < bytes + GUARD_BYTES; byte++) REQUIRE(in[byte] == GUARD);
        MPI_Barrier(MPI_COMM_WORLD);
        free(out), free(in);
    }
    close_window(&window);
}

#define TURNS 200

/* Many accesses in one epoch. Flushed data is visible once a message says so; a source may be overwritten after a local
 * flush or the end of a request. */
static void flushes(void) {
    size_t slot = 700, bytes = TURNS * slot;
    struct window window = open_window(OWN, bytes);
    unsigned char *out = allocate(slot), *in = room(slot);
    MPI_Win_lock_all(0, window.win);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t here = slot * (size_t) turn;
        MPI_Aint there = at(&window, next_rank(), here);
        MPI_Request put;
        fill(out, slot, seed_of(rank, next_rank(), turn));
        if (turn % 2 == 0) {
            MPI_Put(out, (int) slot, MPI_BYTE, next_rank(), there, (int) slot, MPI_BYTE, window.win);
            MPI_Win_flush_local(next_rank(), window.win);
        } else {
            MPI_Rput(out, (int) slot, MPI_BYTE, next_rank(), there, (int) slot, MPI_BYTE, window.win, &put);
            MPI_Wait(&put, MPI_STATUS_IGNORE);
        }
        memset(out, GUARD, slot);
        if (turn % 10 != 9) continue;
        MPI_Win_flush(next_rank(), window.win);
        MPI_Sendrecv(&turn, 1, MPI_INT, next_rank(), 1, &(int) { 0 }, 1, MPI_INT, previous_rank(), 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Win_sync(window.win);
        for (int each = turn - 9; each <= turn; each++)
            check(window.memory + slot * (size_t) each, slot, seed_of(previous_rank(), rank, each), "flushed");
        MPI_Get(in, (int) slot, MPI_BYTE, next_rank(), there, (int) slot, MPI_BYTE, window.win);
        MPI_Win_flush_local(next_rank(), window.win);
        check(in, slot, seed_of(rank, next_rank(), turn), "a flushed Get");
    }
    MPI_Win_unlock_all(window.win);
    close_window(&window);
    free(out), free(in);
}

/* The datatypes of elements. Numbers are small, so that all results are exact. */
static const struct type {
    MPI_Datatype type;
    size_t bytes;
    int is_integer;
} TYPES[] = {
    { MPI_INT8_T, 1, 1 }, { MPI_UINT16_T, 2, 1 }, { MPI_INT32_T, 4, 1 },
    { MPI_INT64_T, 8, 1 }, { MPI_FLOAT, 4, 0 },   { MPI_DOUBLE, 8, 0 },
};
#define TYPE_COUNT (sizeof TYPES / sizeof *TYPES)

/* Stores a number as an element. */
static void set(unsigned char *to, const struct type *type, int number) {
    float single = (float) number;
    double twice = number;
    int64_t integer = number;
    if (type->is_integer)
        memcpy(to, &integer, type->bytes);
    else
        memcpy(to, type->bytes == 4 ? (void *) &single : &twice, type->bytes);
}

/* The initial value of elements. */
static void start(unsigned char *to, const struct type *type, size_t count) {
    for (size_t i = 0; i < count; i++) set(to + i * type->bytes, type, 1);
}

static const struct operation {
    MPI_Op op;
    const char *name;
    int is_for_integers;
} OPERATIONS[] = {
    { MPI_SUM, "MPI_SUM", 0 },   { MPI_PROD, "MPI_PROD", 0 }, { MPI_MIN, "MPI_MIN", 0 },         { MPI_MAX, "MPI_MAX", 0 },
    { MPI_LAND, "MPI_LAND", 1 }, { MPI_BXOR, "MPI_BXOR", 1 }, { MPI_REPLACE, "MPI_REPLACE", 0 }, { MPI_NO_OP, "MPI_NO_OP", 0 },
};
#define OPERATION_COUNT (sizeof OPERATIONS / sizeof *OPERATIONS)

/* A rank's operands: small, so that sums and products of all ranks fit into each datatype. */
static void fill_operands(unsigned char *to, const struct type *type, int by, size_t count) {
    for (size_t i = 0; i < count; i++) set(to + i * type->bytes, type, (int) (scramble((unsigned) i * 31u + (unsigned) by) % 3));
}

/* Applies an operation as MPI does, but without communication. */
static void apply(const unsigned char *operand, unsigned char *to, const struct type *type, const struct operation *operation,
                  size_t count) {
    if (operation->op == MPI_REPLACE)
        memcpy(to, operand, count * type->bytes);
    else if (operation->op != MPI_NO_OP)
        MPI_Reduce_local(operand, to, (int) count, type->type, operation->op);
}

static void check_elements(const unsigned char *elements, const unsigned char *expected, const struct type *type,
                           size_t count, const char *how, const struct operation *operation) {
    for (size_t i = 0; i < count * type->bytes; i++)
        if (elements[i] != expected[i]) fail("%s, %s of %zu bytes: wrong at %zu", how, operation->name, type->bytes, i);
    checked_messages++;
    checked_bytes += count * type->bytes;
}

/* All ranks accumulate to the elements of rank 0 at once. Then each fetches twice from the next rank: the values that the
 * elements had before. */
static void accumulate(const struct type *type, const struct operation *operation, size_t count, enum epoch how) {
    size_t bytes = count * type->bytes;
    int number = (int) count;
    struct window window = open_window(OWN, bytes);
    unsigned char *own = allocate(bytes), *expected = allocate(bytes), *first = allocate(bytes), *second = allocate(bytes);
    start(window.memory, type, count), start(expected, type, count);
    fill_operands(own, type, rank, count);
    /* Replacements would depend on the order of the ranks. */
    if (operation->op != MPI_REPLACE && operation->op != MPI_NO_OP) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.win);
        MPI_Accumulate(own, number, type->type, 0, at(&window, 0, 0), number, type->type, operation->op, window.win);
        MPI_Win_unlock(0, window.win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win);
        for (int by = 0; rank == 0 && by < ranks; by++) {
            fill_operands(first, type, by, count);
            apply(first, expected, type, operation, count);
        }
        check_elements(window.memory, expected, type, count, "Accumulate", operation);
        MPI_Win_unlock(rank, window.win);
        start(window.memory, type, count), start(expected, type, count);
    }
    begin(how, &window);
    MPI_Aint there = at(&window, next_rank(), 0);
    MPI_Get_accumulate(own, number, type->type, first, number, type->type, next_rank(), there, number, type->type,
                       operation->op, window.win);
    if (how == LOCK_ALL) MPI_Win_flush(next_rank(), window.win);
    MPI_Get_accumulate(own, number, type->type, second, number, type->type, next_rank(), there, number, type->type,
                       operation->op, window.win);
    end(how, &window);
    check_elements(first, expected, type, count, "Get_accumulate", operation);
    apply(own, expected, type, operation, count);
    check_elements(second, expected, type, count, "the second Get_accumulate", operation);
    fill_operands(own, type, previous_rank(), count);
    start(expected, type, count);
    for (int turn = 0; turn < 2; turn++) apply(own, expected, type, operation, count);
    check_elements(window.memory, expected, type, count, "after Get_accumulate", operation);
    close_window(&window);
    free(own), free(expected), free(first), free(second);
}

/* All ranks increment two counters of rank 0: one by Fetch_and_op, the other by compare-and-swap in a loop. */
static void counters(const struct type *type) {
    struct window window = open_window(OWN, 16);
    int is_at_it = rank != 0 || !is_left_out("own"), all = TURNS * (is_left_out("own") ? ranks - 1 : ranks);
    int64_t one = 0, drawn = -1, expected = 0, wanted = 0;
    set((unsigned char *) &one, type, 1);
    memset(window.memory, 0, 16);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window.win);
    for (int turn = 0; is_at_it && turn < TURNS; turn++) {
        int64_t before = drawn, found = 0;
        drawn = 0;
        MPI_Fetch_and_op(&one, &drawn, type->type, 0, at(&window, 0, 0), MPI_SUM, window.win);
        MPI_Win_flush(0, window.win);
        REQUIRE(drawn > before && drawn < all);
        for (;;) {
            wanted = expected + 1;
            MPI_Compare_and_swap(&wanted, &expected, &found, type->type, 0, at(&window, 0, 8), window.win);
            MPI_Win_flush(0, window.win);
            if (found == expected) break;
            /* Another rank has incremented the counter. */
            REQUIRE(found > expected && found < all);
            expected = found;
        }
        expected = wanted;
    }
    MPI_Win_unlock_all(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win);
    for (size_t offset = 0; rank == 0 && offset < 16; offset += 8) {
        int64_t counted = 0;
        memcpy(&counted, window.memory + offset, type->bytes);
        REQUIRE(counted == all);
    }
    MPI_Win_unlock(rank, window.win);
    close_window(&window);
}

/* Checks that the accesses of one rank to one element happen in the order of the calls. */
static void in_order(void) {
    struct window window = open_window(OWN, 8);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window.win);
    MPI_Aint there = at(&window, next_rank(), 0);
    int64_t numbers[TURNS], found[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        numbers[turn] = 1000 * rank + turn;
        MPI_Accumulate(&numbers[turn], 1, MPI_INT64_T, next_rank(), there, 1, MPI_INT64_T, MPI_REPLACE, window.win);
        MPI_Fetch_and_op(&numbers[turn], &found[turn], MPI_INT64_T, next_rank(), there, MPI_NO_OP, window.win);
    }
    MPI_Win_unlock_all(window.win);
    for (int turn = 0; turn < TURNS; turn++)
        if (found[turn] != numbers[turn]) fail("in order: %lld in turn %d", (long long) found[turn], turn);
    close_window(&window);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    left_out = arguments + 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(ranks > 1);

    for (enum memory of = OWN; of < MEMORIES; of++)
        for (enum epoch how = FENCE; how < EPOCHS; how++) put_and_get(of, how);
    flushes();
    for (size_t t = 0; t < TYPE_COUNT; t++)
        for (size_t o = 0; o < OPERATION_COUNT; o++) {
            if (OPERATIONS[o].is_for_integers && !TYPES[t].is_integer) continue;
            if (!is_left_out(OPERATIONS[o].name)) accumulate(&TYPES[t], &OPERATIONS[o], 1 + o * 7, (t + o) % EPOCHS);
        }
    accumulate(&TYPES[3], &OPERATIONS[0], 100000, LOCK_SHARED);
    counters(&TYPES[2]), counters(&TYPES[3]);
    if (!is_left_out("order")) in_order();

    uint64_t own[] = { checked_messages, checked_bytes }, all[2];
    MPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("every access checked: %d ranks, %llu accesses, %llu bytes\n", ranks, (unsigned long long) all[0],
               (unsigned long long) all[1]);
    MPI_Finalize();
    return 0;
}
