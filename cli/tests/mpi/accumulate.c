/*
 * Accumulates of every operation and datatype, fetched values, counters and compare-and-swap. All ranks make them at
 * once, and the program checks that every result is exact.
 *
 * Runs with two ranks or more. Rank 0 ends with a line that begins "every element checked". An error is printed to
 * standard error, and ends all ranks. Arguments name what to skip where an MPI has faults of its own: operations
 * ("MPI_LAND"), datatypes ("MPI_C_BOOL"), "order", and compare-and-swap of a rank's own memory ("own").
 */

#include <complex.h>

#include "windows.h"

/* The program's arguments: the parts to skip. */
static char **left_out;

static int is_left_out(const char *name) {
    for (char **argument = left_out; *argument; argument++)
        if (strcmp(*argument, name) == 0) return 1;
    return 0;
}

/* The expected result of an operation comes from MPI too, but without communication (MPI_Reduce_local). */

/* The elements of a datatype. Numbers are small, so that all results are exact. */
struct elements {
    MPI_Datatype type;
    const char *name;
    size_t bytes;
    enum { INTEGER, FLOATING, COMPLEX, LOGICAL, BITS, PAIR } kind;
    /* Stores a number, and compares elements. */
    void (*set)(void *at, int number);
    int (*same)(const void *one, const void *other);
};

#define ELEMENT(name, c_type) \
    static void set_##name(void *at, int number) { \
        c_type value = (c_type) number; \
        memset(at, 0, sizeof value); \
        memcpy(at, &value, sizeof value); \
    } \
    static int same_##name(const void *one, const void *other) { \
        c_type first, second; \
        memcpy(&first, one, sizeof first); \
        memcpy(&second, other, sizeof second); \
        return first == second; \
    }

ELEMENT(i8, int8_t)
ELEMENT(i16, int16_t)
ELEMENT(i32, int32_t)
ELEMENT(i64, int64_t)
ELEMENT(u8, uint8_t)
ELEMENT(u16, uint16_t)
ELEMENT(u32, uint32_t)
ELEMENT(u64, uint64_t)
ELEMENT(f32, float)
ELEMENT(f64, double)
ELEMENT(long_double, long double)
ELEMENT(c32, float complex)
ELEMENT(c64, double complex)
ELEMENT(long_complex, long double complex)
ELEMENT(logical, _Bool)

/* A number and its index, for MPI_MAXLOC and MPI_MINLOC. */
struct pair {
    int number, index;
};

static void set_pair(void *at, int number) {
    struct pair pair = { number / 2, number % 5 };
    memcpy(at, &pair, sizeof pair);
}

static int same_pair(const void *one, const void *other) { return memcmp(one, other, sizeof(struct pair)) == 0; }

#define TYPE(type, kind, name, c_type) { type, #type, sizeof(c_type), kind, set_##name, same_##name }
static struct elements TYPES[] = {
    TYPE(MPI_INT8_T, INTEGER, i8, int8_t),
    TYPE(MPI_INT16_T, INTEGER, i16, int16_t),
    TYPE(MPI_INT32_T, INTEGER, i32, int32_t),
    TYPE(MPI_INT64_T, INTEGER, i64, int64_t),
    TYPE(MPI_UINT8_T, INTEGER, u8, uint8_t),
    TYPE(MPI_UINT16_T, INTEGER, u16, uint16_t),
    TYPE(MPI_UINT32_T, INTEGER, u32, uint32_t),
    TYPE(MPI_UINT64_T, INTEGER, u64, uint64_t),
    TYPE(MPI_INT, INTEGER, i32, int),
    TYPE(MPI_LONG, INTEGER, i64, long),
    TYPE(MPI_UNSIGNED_LONG_LONG, INTEGER, u64, unsigned long long),
    TYPE(MPI_FLOAT, FLOATING, f32, float),
    TYPE(MPI_DOUBLE, FLOATING, f64, double),
    TYPE(MPI_LONG_DOUBLE, FLOATING, long_double, long double),
    TYPE(MPI_C_FLOAT_COMPLEX, COMPLEX, c32, float complex),
    TYPE(MPI_C_DOUBLE_COMPLEX, COMPLEX, c64, double complex),
    TYPE(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, long_complex, long double complex),
    TYPE(MPI_C_BOOL, LOGICAL, logical, _Bool),
    TYPE(MPI_BYTE, BITS, u8, uint8_t),
    TYPE(MPI_2INT, PAIR, pair, struct pair),
};
#define TYPE_COUNT (sizeof TYPES / sizeof *TYPES)

/* An operation, and the kinds of elements that it accepts. */
static const struct operation {
    MPI_Op op;
    const char *name;
    unsigned kinds;
} OPERATIONS[] = {
    { MPI_SUM, "MPI_SUM", 1 << INTEGER | 1 << FLOATING | 1 << COMPLEX },
    { MPI_PROD, "MPI_PROD", 1 << INTEGER | 1 << FLOATING | 1 << COMPLEX },
    { MPI_MIN, "MPI_MIN", 1 << INTEGER | 1 << FLOATING },
    { MPI_MAX, "MPI_MAX", 1 << INTEGER | 1 << FLOATING },
    { MPI_LAND, "MPI_LAND", 1 << INTEGER | 1 << LOGICAL },
    { MPI_LOR, "MPI_LOR", 1 << INTEGER | 1 << LOGICAL },
    { MPI_LXOR, "MPI_LXOR", 1 << INTEGER | 1 << LOGICAL },
    { MPI_BAND, "MPI_BAND", 1 << INTEGER | 1 << BITS },
    { MPI_BOR, "MPI_BOR", 1 << INTEGER | 1 << BITS },
    { MPI_BXOR, "MPI_BXOR", 1 << INTEGER | 1 << BITS },
    { MPI_MAXLOC, "MPI_MAXLOC", 1 << PAIR },
    { MPI_MINLOC, "MPI_MINLOC", 1 << PAIR },
    { MPI_REPLACE, "MPI_REPLACE", ~0u },
    { MPI_NO_OP, "MPI_NO_OP", ~0u },
};
#define OPERATION_COUNT (sizeof OPERATIONS / sizeof *OPERATIONS)

/* A rank's operand for one element: 0 or 1 in logical operations, a small factor or summand, or 7 bits. */
static int operand(const struct operation *operation, int by, size_t i) {
    unsigned any = scramble((unsigned) i * 31u + (unsigned) by);
    if (operation->op == MPI_PROD) return 1 + (int) (any % 2);
    if (operation->op == MPI_SUM) return 1 + (int) (any % 7);
    if (operation->kinds & 1 << LOGICAL && operation->op != MPI_REPLACE && operation->op != MPI_NO_OP)
        return (int) (any % 2);
    return (int) (any % 128);
}

static void fill_operands(void *to, const struct elements *type, const struct operation *operation, int by, size_t count) {
    for (size_t i = 0; i < count; i++) type->set((char *) to + i * type->bytes, operand(operation, by, i));
}

/* The initial value of elements. */
static void start(void *to, const struct elements *type, size_t count) {
    for (size_t i = 0; i < count; i++) type->set((char *) to + i * type->bytes, 1);
}

static void apply(const void *operand, void *to, const struct elements *type, const struct operation *operation,
                  size_t count) {
    if (operation->op == MPI_REPLACE)
        memcpy(to, operand, count * type->bytes);
    else if (operation->op != MPI_NO_OP)
        MPI_Reduce_local(operand, to, (int) count, type->type, operation->op);
}

/* Compares elements with their expected values. */
static void check_elements(const void *elements, const void *expected, const struct elements *type, size_t count,
                           const char *how, const struct operation *operation) {
    for (size_t i = 0; i < count; i++)
        if (!type->same((const char *) elements + i * type->bytes, (const char *) expected + i * type->bytes))
            fail("%s, %s of %s: wrong at %zu of %zu", how, operation->name, type->name, i, count);
    checked_messages++;
    checked_bytes += count * type->bytes;
}

/* Checks that each element is the operand of one of the ranks. */
static void check_replaced(const void *elements, const struct elements *type, const struct operation *operation,
                           size_t count) {
    _Alignas(16) unsigned char one[sizeof(long double complex)];
    for (size_t i = 0; i < count; i++) {
        int is_an_operand = 0;
        for (int by = 0; by < ranks; by++) {
            type->set(one, operand(operation, by, i));
            is_an_operand |= type->same((const char *) elements + i * type->bytes, one);
        }
        if (!is_an_operand) fail("%s of %s: no rank's operand at %zu of %zu", operation->name, type->name, i, count);
    }
    checked_messages++;
    checked_bytes += count * type->bytes;
}

/* All ranks accumulate to the same elements of all ranks, including their own. */
static void accumulate_from_all(const struct elements *type, const struct operation *operation, size_t count,
                                int is_fenced) {
    size_t bytes = count * type->bytes;
    struct window window = open_window(is_fenced ? OWN : ALLOCATED, bytes);
    unsigned char *own = allocate(bytes), *expected = allocate(bytes), *theirs = allocate(bytes);
    start(window.memory, type, count);
    fill_operands(own, type, operation, rank, count);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_fenced)
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window.win);
    else
        MPI_Win_lock_all(0, window.win);
    for (int i = 0; i < ranks; i++) {
        int target = (rank + i) % ranks;
        MPI_Accumulate(own, (int) count, type->type, target, at(&window, target, 0), (int) count, type->type,
                       operation->op, window.win);
    }
    if (is_fenced)
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window.win);
    else
        MPI_Win_unlock_all(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win);
    if (operation->op == MPI_REPLACE) {
        check_replaced(window.memory, type, operation, count);
    } else {
        start(expected, type, count);
        for (int by = 0; by < ranks; by++) {
            fill_operands(theirs, type, operation, by, count);
            apply(theirs, expected, type, operation, count);
        }
        check_elements(window.memory, expected, type, count, "Accumulate", operation);
    }
    MPI_Win_unlock(rank, window.win);
    wait_for_checks();
    close_window(&window);
    free(own), free(expected), free(theirs);
}

/* Two Get_accumulates in a row. Each fetches the values that the elements had before it. */
static void fetched(const struct elements *type, const struct operation *operation, size_t count, enum epoch how) {
    size_t bytes = count * type->bytes;
    struct window window = open_window(OWN, bytes);
    unsigned char *own = allocate(bytes), *expected = allocate(bytes), *first = allocate(bytes), *second = allocate(bytes);
    start(window.memory, type, count);
    fill_operands(own, type, operation, rank, count);
    begin(how, &window);
    MPI_Aint there = at(&window, next_rank(), 0);
    MPI_Get_accumulate(own, (int) count, type->type, first, (int) count, type->type, next_rank(), there, (int) count,
                       type->type, operation->op, window.win);
    if (how == LOCK_ALL) MPI_Win_flush(next_rank(), window.win);
    MPI_Get_accumulate(own, (int) count, type->type, second, (int) count, type->type, next_rank(), there, (int) count,
                       type->type, operation->op, window.win);
    end(how, &window);
    start(expected, type, count);
    check_elements(first, expected, type, count, "Get_accumulate", operation);
    apply(own, expected, type, operation, count);
    check_elements(second, expected, type, count, "the second Get_accumulate", operation);
    apply(own, expected, type, operation, count);
    /* The previous rank has applied its operands to this rank's elements, twice. */
    fill_operands(own, type, operation, previous_rank(), count);
    start(expected, type, count);
    for (int turn = 0; turn < 2; turn++) apply(own, expected, type, operation, count);
    check_elements(window.memory, expected, type, count, "after Get_accumulate", operation);
    wait_for_checks();
    close_window(&window);
    free(own), free(expected), free(first), free(second);
}

#define TURNS 200

/* All ranks draw numbers from the counter of one rank after another: each number is drawn once. */
static void tickets(MPI_Datatype type, size_t bytes) {
    struct window window = open_window(ALLOCATED, 16);
    int *drawn = calloc((size_t) ranks * TURNS, sizeof *drawn), own[TURNS];
    REQUIRE(drawn);
    for (int target = 0; target < ranks; target++) {
        memset(window.memory, 0, 16);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, window.win);
        for (int turn = 0; turn < TURNS; turn++) {
            int64_t one = 1, number = 0;
            int32_t one_32 = 1, number_32 = 0;
            void *operand = bytes == 8 ? (void *) &one : &one_32, *fetched = bytes == 8 ? (void *) &number : &number_32;
            if (turn % 2 == 0)
                MPI_Fetch_and_op(operand, fetched, type, target, at(&window, target, 8), MPI_SUM, window.win);
            else
                MPI_Get_accumulate(operand, 1, type, fetched, 1, type, target, at(&window, target, 8), 1, type, MPI_SUM,
                                   window.win);
            MPI_Win_flush(target, window.win);
            own[turn] = bytes == 8 ? (int) number : number_32;
            REQUIRE(turn == 0 || own[turn] > own[turn - 1]);
        }
        MPI_Win_unlock_all(window.win);
        MPI_Allgather(own, TURNS, MPI_INT, drawn, TURNS, MPI_INT, MPI_COMM_WORLD);
        unsigned char *seen = calloc((size_t) ranks * TURNS, 1);
        REQUIRE(seen);
        for (int i = 0; i < ranks * TURNS; i++) {
            if (drawn[i] < 0 || drawn[i] >= ranks * TURNS || seen[drawn[i]]) fail("ticket %d was drawn wrongly", drawn[i]);
            seen[drawn[i]] = 1;
        }
        free(seen);
        checked_messages += TURNS;
        checked_bytes += TURNS * bytes;
    }
    wait_for_checks();
    close_window(&window);
    free(drawn);
}

/* All ranks increment one counter, by compare-and-swap in a loop. */
static void compare_and_swap(const struct elements *type, int turns) {
    struct window window = open_window(OWN, 32);
    _Alignas(8) unsigned char expected[8], wanted[8], found[8];
    int is_target = rank == 0, is_at_it = !is_target || !is_left_out("own");
    int all = turns * (is_left_out("own") ? ranks - 1 : ranks);
    memset(window.memory, 0, 32);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window.win);
    int number = 0;
    for (int turn = 0; is_at_it && turn < turns; turn++) {
        for (;;) {
            type->set(expected, number);
            type->set(wanted, number + 1);
            MPI_Compare_and_swap(wanted, expected, found, type->type, 0, at(&window, 0, 16), window.win);
            MPI_Win_flush(0, window.win);
            if (type->same(found, expected)) break;
            /* Another rank has incremented the counter: catch up with it. */
            int before = number;
            while (number < all) {
                type->set(expected, ++number);
                if (type->same(found, expected)) break;
            }
            if (!type->same(found, expected))
                fail("Compare_and_swap of %s: unknown value after %d", type->name, before);
        }
        number++;
    }
    MPI_Win_unlock_all(window.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_target) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.win);
        type->set(expected, all);
        if (!type->same(window.memory + 16, expected)) fail("Compare_and_swap of %s: not all were counted", type->name);
        for (size_t byte = 0; byte < 32; byte++)
            if (byte < 16 || byte >= 16 + type->bytes) REQUIRE(window.memory[byte] == 0);
        MPI_Win_unlock(0, window.win);
    }
    checked_messages += (uint64_t) turns;
    checked_bytes += (uint64_t) turns * type->bytes;
    wait_for_checks();
    close_window(&window);
}

/* Checks that the accesses of one rank to one element happen in the order of the calls. */
static void in_order(void) {
    struct window window = open_window(OWN, 8);
    memset(window.memory, 0, 8);
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
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t last;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win);
    memcpy(&last, window.memory, sizeof last);
    MPI_Win_unlock(rank, window.win);
    if (last != 1000 * previous_rank() + TURNS - 1) fail("in order: %lld at the end", (long long) last);
    checked_messages += 2 * TURNS;
    checked_bytes += 16 * TURNS;
    wait_for_checks();
    close_window(&window);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    left_out = arguments + 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(ranks > 1);

    for (size_t t = 0; t < TYPE_COUNT; t++)
        for (size_t o = 0; o < OPERATION_COUNT; o++) {
            if (!(OPERATIONS[o].kinds & 1u << TYPES[t].kind)) continue;
            if (is_left_out(OPERATIONS[o].name) || is_left_out(TYPES[t].name)) continue;
            if (OPERATIONS[o].op != MPI_NO_OP) accumulate_from_all(&TYPES[t], &OPERATIONS[o], 1 + o * 7, (t + o) % 2 == 0);
            fetched(&TYPES[t], &OPERATIONS[o], 1 + t, (t + o) % 2 == 0 ? FENCE : LOCK_ALL);
        }
    accumulate_from_all(&TYPES[3], &OPERATIONS[0], 100000, 1);
    accumulate_from_all(&TYPES[12], &OPERATIONS[0], 100000, 0);
    fetched(&TYPES[3], &OPERATIONS[0], 50000, LOCK_SHARED);
    fetched(&TYPES[12], &OPERATIONS[3], 50000, PSCW);
    tickets(MPI_INT64_T, 8);
    tickets(MPI_INT32_T, 4);
    for (size_t t = 0; t < 8; t++) compare_and_swap(&TYPES[t], TYPES[t].bytes == 1 ? 25 : 100);
    if (!is_left_out("order")) in_order();

    uint64_t own[] = { checked_messages, checked_bytes }, all[2];
    MPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("every element checked: %d ranks, %llu accesses, %llu bytes\n", ranks, (unsigned long long) all[0],
               (unsigned long long) all[1]);
    MPI_Finalize();
    return 0;
}
