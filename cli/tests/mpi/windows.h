/*
 * Windows of every kind, and every way to bracket accesses to them.
 */

#ifndef HOMESPUN_WINDOWS_H
#define HOMESPUN_WINDOWS_H

#include "checking.h"

/* Whose memory a window has. */
enum memory { OWN, ALLOCATED, ATTACHED, MEMORIES };

struct window {
    MPI_Win win;
    enum memory of;
    unsigned char *memory;
    size_t bytes;
    /* What comes before an offset to say where it is, for each rank: an address, if memory was attached. */
    MPI_Aint *base;
};

/* Opens a window of bytes in all ranks, and fills it with what no message has. */
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
        /* Nobody may still be about to access it. */
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(window->win, window->memory);
    }
    MPI_Win_free(&window->win);
    if (window->of != ALLOCATED) free(window->memory);
    free(window->base);
}

/* Where an offset in the window of a rank is. */
static inline MPI_Aint at(const struct window *window, int target, size_t offset) {
    return MPI_Aint_add(window->base[target], (MPI_Aint) offset);
}

/* How accesses are bracketed. */
enum epoch { FENCE, PSCW, LOCK_EXCLUSIVE, LOCK_SHARED, LOCK_ALL, EPOCHS };

static inline MPI_Group group_of(int member) {
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &member, &group);
    MPI_Group_free(&world);
    return group;
}

/* From here on every rank accesses the next rank's window. What it has stored in its own is there before. */
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

/* All accesses that every rank has begun are done, here and there, and the own window shows it. */
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

/* Lets nobody's next accesses come before everybody has looked at what is in the windows. */
static inline void seen_by_all(void) { MPI_Barrier(MPI_COMM_WORLD); }

#endif
