/*
 * Windows of every kind, and every kind of epoch.
 */

#ifndef HOMESPUN_WINDOWS_H
#define HOMESPUN_WINDOWS_H

#include "checking.h"

/* The origin of a window's memory. */
enum memory { OWN, ALLOCATED, ATTACHED, MEMORIES };

struct window {
    MPI_Win win;
    enum memory of;
    unsigned char *memory;
    size_t bytes;
    /* The base of offsets in each rank's window: an address for attached memory, else 0. */
    MPI_Aint *base;
};

/* Opens a window of `bytes` bytes in all ranks, and fills it with bytes that no message has. */
static inline struct window open_window(enum memory of, size_t bytes) {
    struct window window = { .of = of, .bytes = bytes, .base = calloc((size_t) ranks, sizeof *window.base) };
    MPI_Aint own = 0;
    switch (of) {
    case OWN:
        window.memory = allocate(bytes);
        MPI_Win_create(window.memory, (MPI_Aint) bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window.win);
        break;
    case ALLOCATED:
        MPI_Win_allocate((MPI_Aint) bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window.memory, &window.win);
        break;
    default:
        window.memory = allocate(bytes);
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window.win);
        MPI_Win_attach(window.win, window.memory, (MPI_Aint) bytes);
        MPI_Get_address(window.memory, &own);
        break;
    }
    REQUIRE(window.base);
    memset(window.memory, GUARD, bytes);
    MPI_Allgather(&own, 1, MPI_AINT, window.base, 1, MPI_AINT, MPI_COMM_WORLD);
    return window;
}

static inline void close_window(struct window *window) {
    if (window->of == ATTACHED) {
        /* Another rank may still be accessing the memory. */
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(window->win, window->memory);
    }
    MPI_Win_free(&window->win);
    if (window->of != ALLOCATED) free(window->memory);
    free(window->base);
}

/* The displacement of an offset in a rank's window. */
static inline MPI_Aint at(const struct window *window, int target, size_t offset) {
    return MPI_Aint_add(window->base[target], (MPI_Aint) offset);
}

/* The kind of an epoch. */
enum epoch { FENCE, PSCW, LOCK_EXCLUSIVE, LOCK_SHARED, LOCK_ALL, EPOCHS };

static inline MPI_Group group_of(int member) {
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &member, &group);
    MPI_Group_free(&world);
    return group;
}

/* Begins an epoch of accesses to the next rank's window. What this rank has stored in its own window
 * is visible in the epoch. */
static inline void begin(enum epoch how, const struct window *window) {
    MPI_Group group;
    switch (how) {
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window->win);
        return;
    case PSCW:
        group = group_of(previous_rank());
        MPI_Win_post(group, 0, window->win);
        MPI_Group_free(&group);
        group = group_of(next_rank());
        MPI_Win_start(group, 0, window->win);
        MPI_Group_free(&group);
        return;
    default:
        break;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (how == LOCK_ALL)
        MPI_Win_lock_all(0, window->win);
    else
        MPI_Win_lock(how == LOCK_SHARED ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, next_rank(), 0, window->win);
}

/* Ends the epoch: the accesses of all ranks are complete, and visible in this rank's window. */
static inline void end(enum epoch how, const struct window *window) {
    switch (how) {
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window->win);
        return;
    case PSCW:
        MPI_Win_complete(window->win);
        MPI_Win_wait(window->win);
        return;
    case LOCK_ALL:
        MPI_Win_unlock_all(window->win);
        break;
    default:
        MPI_Win_unlock(next_rank(), window->win);
        break;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window->win);
    MPI_Win_sync(window->win);
    MPI_Win_unlock(rank, window->win);
}

/* Waits until all ranks have checked their windows, before the next accesses change them. */
static inline void wait_for_checks(void) { MPI_Barrier(MPI_COMM_WORLD); }

#endif
